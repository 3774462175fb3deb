"""What a notebook shows of a release, a plan, a certificate or an audit: short pages, and released values as a table."""

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
from dprl.report.fields import items, text
from dprl.report.formatting import number, plain, power_of_ten
from dprl.report.guarantee import VERIFIED, cleaned, view_of_guarantee
from dprl.report.render import REPORT, load_template

_HEIGHT = 480  # of a page whose frame the notebook does not let grow
_SECTION = re.compile("^.*?</section>", re.DOTALL)
_FIGURES = re.compile("<figure>.*?</figure>", re.DOTALL)
_GRID = [place / 50.0 for place in range(51)]
_NUMBERS = ("value", "low", "high", "privacy_standard_error", "sampling_standard_error")


@dataclass(frozen=True)
class Page:
    """A page of HTML that needs nothing else; a notebook shows it in a frame, so that neither styles the other."""

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
    """Something that has a page: a notebook shows the first section of it."""

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
            path: file for the page; by default one in a new temporary folder, which stays.
            show: whether a browser is asked to open it.

        Raises:
            DprlError: the file cannot be written.
        """
        place = Path(tempfile.mkdtemp(prefix="dprl-")) / REPORT if path is None else path
        written = Page(self._page()).save(place)
        if show:
            webbrowser.open(written.absolute().as_uri())
        return written


def _only(page: str, parts: re.Pattern[str]) -> Page:
    """Return a page with its styles and warnings, and of what is on it only the parts that match."""
    before, _, main = page.partition("<main>")
    return Page(f"{before}<main>{''.join(parts.findall(main))}</main></body></html>")


class Certificate(dict[str, Any], Shown):
    """Certificate or statement of a release, as plain data that a notebook shows."""

    def _page(self) -> str:
        _, certificate = cleaned({}, dict(self))
        view = view_of_guarantee(certificate, certificate)
        private, budget = view["status"] == VERIFIED, view["budget"]
        odds = " and ".join(f"the odds {what} by a factor of at most {factor}" for what, factor in budget["odds"])
        most = math.exp(min((1.0 + budget["two_steps"]) * certificate["epsilon"], 700.0))
        after = [most * before / (1.0 - before + most * before) for before in _GRID]
        return card(
            eyebrow="Certificate" if view["certified"] else "Statement, which is no certificate",
            title="What this release promises" if private else "This release carries no guarantee",
            lead=f"Seeing this release changes {odds}." if private else "What follows was aimed at, and does not hold.",
            facts={
                "Status": view["status"],
                "Protected" if private else "Privacy unit": f"each {view['unit']}, {view['relation']}",
                "Privacy budget": f"ε = {budget['epsilon']}, δ = {budget['delta']}",
                "Digest": text(self.get("digest"), "made when the release is saved"),
            },
            chart=(
                "belief before seeing the release",
                charts.line_chart(
                    _GRID,
                    {"after, at most": after, "before": _GRID},
                    "Largest belief after seeing the release, for each belief before",
                    "belief",
                    top=26.0,
                ),
            ),
            caption=f"Belief about anything that one {view['unit']} might tell, but for an allowance of δ.",
            notes=[f"Not protected: {plain(line)}" for line in items(certificate.get("not_protected"))],
        )


def audit_page(found: Mapping[str, Any]) -> str:
    """Return the page of an audit, from its plain data."""
    claimed, gaussian, percent = found["claimed_epsilon"], found["gaussian"], f"{100.0 * found['confidence']:g}%"
    shown = {"claimed": claimed, "shown by counting": found["epsilon_lower"]}
    shown |= {"shown, if Gaussian": gaussian["epsilon_lower"]} if gaussian else {}
    violated = found["verdict"] == "violated"
    return card(
        eyebrow="Audit: an attack on two neighbouring data sets",
        title="The claim is violated" if violated else "The claim is not violated",
        lead="The release tells more than it claims."
        if violated
        else "This attack shows no more than the claim allows, which is no proof of it.",
        facts={
            "Claim": f"ε = {claimed:g}, δ = {power_of_ten(found['delta'])}",
            "Shown with confidence": percent,
            "Runs on each data set": f"{found['trials']:,}",
        },
        forest_of=_forest({name: (value, None) for name, value in shown.items()}),
        caption=f"Epsilon is at least what was shown, with {percent} confidence.",
        notes=[f"Attacked: {found['description']}"],
    )


def plan_page(name: str, estimator: str, epsilon: float, delta: float, expected: Sequence[Mapping[str, float]]) -> str:
    """Return the page of a plan.

    Args:
        name, estimator: of the algorithm, in words.
        expected: errors of each target policy.
    """
    widths = {}
    for place, of in enumerate(expected, 1):
        for words in ("at most", "at least"):
            width = of[f"interval_half_width_{words.replace(' ', '_')}"]
            widths[f"policy {place}, {words}" if len(expected) > 1 else words] = (0.0, width)
    widest = max(of["interval_half_width_at_most"] for of in expected)
    return card(
        eyebrow="Plan, from public facts only: no row was read and nothing was spent",
        title="How wide will the intervals be?",
        lead=f"A value will be known to within {number(widest)} or better.",
        facts={"Privacy budget": f"ε = {epsilon:g}, δ = {power_of_ten(delta)}", "Method": f"{name}; {estimator}"},
        forest_of=_forest(widths),
        caption="Interval around a value: at least what privacy noise makes of it, at most what the bounds allow.",
    )


def card(*, facts: Mapping[str, str], notes: Sequence[str] = (), chart: Any = None, **words: Any) -> str:
    """Return a short page: ``eyebrow``, ``title``, ``lead`` and facts, a chart with its ``caption``, and notes.

    The chart is one with the name of its axis, or ``forest_of``, as :func:`~dprl.report.charts.forest` gives it.
    """
    shown = {"pairs": list(facts.items()), "notes": notes, "chart": chart}
    return load_template("dprl.report", "card.html.j2").render(shown | words)


def _forest(rows: Mapping[str, tuple[float, float | None]]) -> dict[str, Any]:
    """Return a chart of values, or of half-widths around them."""
    return charts.forest([
        charts.Row(
            name=name,
            value=value if width is None else None,
            interval=None if width is None else (value - width, value + width),
            reference=None,
            text=number(value) if width is None else f"± {number(width)}",
        )
        for name, (value, width) in rows.items()
    ])  # fmt: skip


def frame_of(estimate: Mapping[str, Any]) -> pa.Table:
    """Return the values and differences in ``estimate.json``: of everybody, then of each subgroup."""
    rows = [*_rows(estimate, None)]
    for group in estimate.get("subgroups", ()):
        rows += _rows(group, f"{group['axis']}: {group['name']}")
    kinds = {name: pa.string() for name in ("policy", "against", "subgroup")} | dict.fromkeys(_NUMBERS, pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _rows(found: Mapping[str, Any], subgroup: str | None) -> Iterator[dict[str, Any]]:
    for row in (*found["targets"], *found.get("contrasts", ())):
        low, high = row["interval"]
        own = {"policy": row.get("name", row.get("policy")), "subgroup": subgroup, "low": low, "high": high}
        yield {**row, **own}
