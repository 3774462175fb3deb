"""The HTML pages of a release, a certificate, a plan, an audit and a protector, and how a notebook shows them.

The page of a release is made only from its artifacts.
"""

from __future__ import annotations

import hashlib
import html
import math
import os
import re
import tempfile
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from dprl.errors import DprlError, require
from dprl.files import write_atomically
from dprl.report import charts
from dprl.report.evaluation import evaluation_view
from dprl.report.fields import Fields
from dprl.report.formatting import number, power_of_ten
from dprl.report.guarantee import CERTIFICATE_SCHEMA, cleaned, view_of_guarantee
from dprl.report.learned import policy_view, protector_view, q_function_view
from dprl.untrusted_files import read_regular, strict_object

REPORT = "report.html"
ESTIMATE, TRAINING = "estimate.json", "training.json"
_SCHEMAS = {
    ESTIMATE: "dprl.estimate/1",
    TRAINING: "dprl.training/1",
    "certificate.json": CERTIFICATE_SCHEMA,
    "statement.json": "dprl.statement/1",
}
_HEIGHT = 480  # pixels of a page's frame, if the notebook does not let it grow
_SECTION = re.compile("^.*?</section>", re.DOTALL)
_FIGURES = re.compile("<figure>.*?</figure>", re.DOTALL)
_GRID = [place / 50.0 for place in range(51)]


def render(content: dict[str, Any], certificate: dict[str, Any]) -> str:
    """Return the page of a release, from its two artifacts.

    It is one self-contained page: no script, no request, charts inline. Equal artifacts give equal bytes, and the seal
    (``artifacts``, ``digest``, ``signature``, ``created``) is not read, so the page can be made first and sealed
    after. Absent fields leave gaps, not errors. Anything but a verified release carries a banner that says so.

    Args:
        content: what was released, as in ``estimate.json`` or ``training.json``.
        certificate: the certificate or statement of the release.
    """
    released, sealed = cleaned(content, certificate)
    view = view_of_guarantee(released, sealed)
    if released.get("schema") != _SCHEMAS[TRAINING]:
        page, more = "evaluation", evaluation_view(released, sealed, view["units"])
    elif "policy" in released:
        page, more = "policy", policy_view(released, sealed)
    else:
        page, more = "q_function", q_function_view(released, sealed)
    return load_template("dprl.report", f"{page}.html.j2").render(view | more) + "\n"


def render_folder(results: Path, out: Path | None = None) -> Path:
    """Draw the report of a results folder again, and return the path written.

    Without ``out`` this is the folder's own ``report.html``, and it is written only if its bytes are those that
    the certificate lists, so that a sealed folder stays sealed.

    Args:
        results: the results folder.
        out: a file, or a folder to put the report in.

    Raises:
        DprlError: an artifact is missing, unreadable, altered, or would be overwritten with something else.
    """
    file = f"{results} is a file: name the folder {str(results.parent)!r} that it is in."
    require(not os.path.isfile(results), file)
    require(os.path.isdir(results), f"{results} is not a folder of results.")
    seals = [name for name in ("certificate.json", "statement.json") if (results / name).exists()]
    found = "both certificate.json and statement.json" if seals else "neither certificate.json nor statement.json"
    require(len(seals) == 1, f"{results} holds {found}, where a report needs exactly one of them.")
    name = TRAINING if (results / TRAINING).exists() and not (results / ESTIMATE).exists() else ESTIMATE
    content, digest = _read(results, name)
    certificate, _ = _read(results, seals[0])
    listed = certificate.get("artifacts")
    listed = {n: d for n, d in listed.items() if n.isprintable()} if isinstance(listed, dict) else {}
    altered = f"{results / name} is not the file that {seals[0]} lists: restore it, or run the release again."
    require(listed.get(name) == digest, altered)
    page = render(content, certificate).encode("utf-8")
    sealed = results / REPORT
    path = sealed if out is None else out / REPORT if out.is_dir() else out
    if path.resolve() == sealed.resolve():
        other = f"The report drawn now differs from the {REPORT} that {seals[0]} lists: use --out to write it aside."
        require(listed.get(REPORT) == hashlib.sha256(page).hexdigest(), other)
    else:
        artifacts = {(results / name).resolve() for name in (*listed, *_SCHEMAS)}
        is_new = path.resolve() not in artifacts
        require(is_new, f"{path} is an artifact of the release: use --out to write the report elsewhere.")
    write_atomically(path, page)
    return path


def _read(results: Path, name: str) -> tuple[dict[str, Any], str]:
    """Return the artifact and the SHA-256 of its bytes."""
    path = results / name
    raw = read_regular(path)
    data = strict_object(path, raw)
    require(data.get("schema") == _SCHEMAS[name], f"{path} does not follow the schema {_SCHEMAS[name]}.")
    return data, hashlib.sha256(raw).hexdigest()


@cache
def load_template(package: str, name: str) -> Template:
    """Return a page's template. HTML templates escape what they are given, and no template accepts undefined names."""
    environment = Environment(
        loader=FunctionLoader(lambda name: resources.files(package).joinpath(name).read_text(encoding="utf-8")),
        autoescape=".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        newline_sequence="\n",
    )
    environment.filters["power_of_ten"] = power_of_ten
    return environment.get_template(name)


# --- pages of other objects, and notebooks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page. A notebook shows it in a frame, so that neither styles the other."""

    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        grows = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
        return (
            f'<iframe srcdoc="{html.escape(self.text)}" title="dprl" onload="{grows}" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the page into a file and return its path."""
        path = Path(path)
        if not path.absolute().parent.is_dir():
            raise DprlError(f"Cannot write {str(path)!r}: there is no such folder.")
        write_atomically(path, self.text.encode())
        return path


class HasPage(ABC):
    """Base of all objects that have a page; a notebook shows the page's first section."""

    @abstractmethod
    def _page(self) -> str:
        """Return the whole page."""

    def _repr_html_(self) -> str:
        return _only(self._page(), _SECTION)._repr_html_()

    def plot(self) -> Page:
        """Return the charts of the page's first section, for a notebook to show or to be saved."""
        return _only(_only(self._page(), _SECTION).text, _FIGURES)

    def report(self, path: str | Path | None = None, *, show: bool = True) -> Path:
        """Write the whole page, open it in a browser, and return its path.

        Args:
            path: file for the page; by default a file in a new temporary folder, which is kept.
            show: whether to open the page in a browser.

        Raises:
            DprlError: the file cannot be written.
        """
        place = Path(tempfile.mkdtemp(prefix="dprl-")) / REPORT if path is None else path
        written = Page(self._page()).save(place)
        if show:
            webbrowser.open(written.absolute().as_uri())
        return written


def _only(page: str, parts: re.Pattern[str]) -> Page:
    """Return a page with its styles and warnings, and only those parts of its main content that match."""
    before, _, main = page.partition("<main>")
    return Page(f"{before}<main>{''.join(parts.findall(main))}</main></body></html>")


class Certificate(dict[str, Any], HasPage):
    """Certificate or statement of a release, as plain data that a notebook shows."""

    def _page(self) -> str:
        _, certificate = cleaned({}, dict(self))
        view = view_of_guarantee(certificate, certificate)
        most = math.exp(min((1.0 + view["budget"]["two_steps"]) * certificate["epsilon"], 700.0))
        after = [most * before / (1.0 - before + most * before) for before in _GRID]
        title = "Largest belief after seeing the release, for each belief before"
        return load_template("dprl.report", "certificate.html.j2").render(
            view,
            beliefs=charts.line_chart(_GRID, {"after, at most": after, "before": _GRID}, title, "belief", top=26.0),
            digest=Fields(self).text("digest", "made when the release is saved"),
            notes=[f"Not protected: {line}" for line in certificate.texts("not_protected")],
        )


def audit_page(found: Mapping[str, Any]) -> str:
    """Return the page of an audit, from its plain data."""
    shown = {"claimed": found["claimed_epsilon"], "shown by counting": found["epsilon_lower"]}
    if found["gaussian"]:
        shown["shown, if Gaussian"] = found["gaussian"]["epsilon_lower"]
    rows = [charts.Row(name=name, value=value, interval=None, text=number(value)) for name, value in shown.items()]
    return load_template("dprl.report", "audit.html.j2").render(found, forest_of=charts.forest(rows))


def plan_page(name: str, estimator: str, epsilon: float, delta: float, expected: Sequence[Mapping[str, float]]) -> str:
    """Return the page of a plan.

    Args:
        name, estimator: name and estimator of the algorithm, in words.
        epsilon, delta: the budget.
        expected: expected errors of each target policy.
    """
    rows = []
    for place, of in enumerate(expected, 1):
        for words in ("at most", "at least"):
            width = of[f"interval_half_width_{words.replace(' ', '_')}"]
            label = f"policy {place}, {words}" if len(expected) > 1 else words
            rows.append(charts.Row(name=label, value=None, interval=(-width, width), text=f"± {number(width)}"))
    return load_template("dprl.report", "plan.html.j2").render(
        name=name, estimator=estimator, epsilon=epsilon, delta=delta, forest_of=charts.forest(rows),
        widest=number(max(of["interval_half_width_at_most"] for of in expected)),
    )  # fmt: skip


def protector_page(
    facts: dict[str, Any], log: Sequence[dict[str, Any]], profile: Sequence[float] | None, fingerprint: str
) -> str:
    """Return the page of a protector; see :func:`~dprl.report.learned.protector_view`."""
    view = protector_view(facts, log, profile, fingerprint)
    return load_template("dprl.report", "protector.html.j2").render(view) + "\n"
