"""Pages that a notebook shows of a release, a plan, a certificate or an audit, and released values as a table."""

from __future__ import annotations

import html
import math
import re
import tempfile
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dprl.errors import DprlError
from dprl.files import write_atomically
from dprl.report import charts
from dprl.report.fields import Fields
from dprl.report.formatting import number
from dprl.report.guarantee import cleaned, view_of_guarantee
from dprl.report.render import REPORT, load_template

_HEIGHT = 480  # pixels of a page's frame, if the notebook does not let it grow
_SECTION = re.compile("^.*?</section>", re.DOTALL)
_FIGURES = re.compile("<figure>.*?</figure>", re.DOTALL)
_GRID = [place / 50.0 for place in range(51)]
_ENDS = ("low", "high", "low_together", "high_together")
_NUMBERS = (
    "value", *_ENDS, "privacy_standard_error", "sampling_standard_error", "mean_weight", "mean_weight_error",
)  # fmt: skip


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


class Shown(ABC):
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


class Certificate(dict[str, Any], Shown):
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


def frame_of(estimate: Mapping[str, Any]) -> pa.Table:
    """Return the values and differences in ``estimate.json`` as a table: of everybody, then of each subgroup."""
    rows = [*_rows(estimate, None)]
    for group in estimate.get("subgroups", ()):
        rows += _rows(group, f"{group['axis']}: {group['name']}")
    kinds = {name: pa.string() for name in ("policy", "against", "subgroup")} | dict.fromkeys(_NUMBERS, pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _rows(found: Mapping[str, Any], subgroup: str | None) -> Iterator[dict[str, Any]]:
    for row in (*found["targets"], *found.get("contrasts", ())):
        own: dict[str, Any] = {**row, "policy": row.get("name", row.get("policy")), "subgroup": subgroup}
        ends = (*row["interval"], *row.get("simultaneous_interval", (None, None)))
        yield own | dict(zip(_ENDS, ends, strict=True))
