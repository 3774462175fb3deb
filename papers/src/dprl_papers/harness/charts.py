"""A reproduction's charts as inline SVG, by matplotlib: many methods on one axis, with bars of one standard deviation.

Colours are those of a palette that colour-blind readers can tell apart, and marks and dashes say the same once more.
They are the page's own variables, so that a chart is dark where the page is.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from dprl.report.formatting import number, plain, power_of_ten

COLOURS = 9
_NAMES = ("ink", "soft", "rule", "paper", *(f"c{i}" for i in range(COLOURS)))
_VARIABLES = {name: f"#c010{i:02x}" for i, name in enumerate(_NAMES)}
"""A colour of matplotlib's for each variable of the page, which takes its place in the SVG."""
_MARKS = "os^Dv"
_DASHES: tuple[Any, ...] = ("-", (0, (6, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)))
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dprl",
    "font.size": 12.0,
    "font.sans-serif": ["Helvetica Neue", "Arial", "DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _VARIABLES["rule"],
    "grid.linewidth": 0.6,
    "text.color": _VARIABLES["ink"],
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _VARIABLES["soft"]),
    "legend.frameon": False,
    "legend.handlelength": 2.6,
}


@dataclass(frozen=True)
class Line:
    """One series: means and standard deviations.

    Attributes:
        label: in the legend.
        points: x, mean and standard deviation.
        colour: number of a colour.
        look: ``private``, ``none`` (no privacy), ``trivial`` or ``bound``.
        dash: number of a dash, for lines of one colour.
    """

    label: str
    points: tuple[tuple[float, float, float], ...]
    colour: int
    look: str = "private"
    dash: int = 0

    @property
    def style(self) -> dict[str, Any]:
        """How matplotlib draws its line and its marks."""
        named = {"none": "ink", "trivial": "soft", "bound": "soft"}.get(self.look, f"c{self.colour % COLOURS}")
        colour = _VARIABLES[named]
        dashes = {"none": (0, (7, 4)), "trivial": (0, (2, 4))}
        return {
            "color": colour,
            "linestyle": dashes.get(self.look, _DASHES[self.dash % len(_DASHES)]),
            "linewidth": 2.0 if self.look == "private" else 1.5,
            "marker": "" if self.look == "bound" else _MARKS[(self.colour + self.dash) % len(_MARKS)],
            "markersize": 4.0 if self.look == "trivial" else 6.0,
            "markerfacecolor": _VARIABLES["paper"] if self.dash and self.look == "private" else colour,
        }


def chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, log_x: bool = True, log_y: bool = True,
    most: float = math.inf, band: bool = False,
) -> Markup:  # fmt: skip
    """Draw means with bars, or a shaded ``band``, of one standard deviation; what an axis cannot show is left out.

    Of a line that lies above ``most`` only its name and its last mean stand in the legend.
    """
    fits = lambda p: math.isfinite(p[0]) and math.isfinite(p[1]) and (p[0] > 0 or not log_x) and (p[1] > 0 or not log_y)  # noqa: E731
    lines = [replace(a, points=tuple(p for p in a.points if fits(p))) for a in lines]
    places = sorted({p[0] for a in lines for p in a.points})
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(13.6, 6.1), layout="constrained")
        axes = figure.subplots()
        axes.set(
            xlabel=x_label, ylabel=y_label, xscale="log" if log_x else "linear", yscale="log" if log_y else "linear"
        )
        if len(places) == 1:
            axes.set_xlim(*((places[0] / 2.0, places[0] * 2.0) if log_x else (places[0] - 1.0, places[0] + 1.0)))
        for line in sorted((a for a in lines if a.points), key=lambda a: -a.points[-1][1]):
            xs, means, spread = (list(column) for column in zip(*line.points, strict=True))
            # a bar that reaches below zero has no end on a logarithmic axis: it stops at a third of its mean
            below = [min(sd, m * 2.0 / 3.0) if log_y else sd for m, sd in zip(means, spread, strict=True)]
            if min(means) > most:
                axes.plot([], [], label=f"▲ {line.label}: {number(means[-1])} at {plain(xs[-1])}", **line.style)
                continue
            axes.plot(xs, means, label=line.label, **line.style)
            if line.look == "bound":
                continue
            low, high = ([m + s for m, s in zip(means, part, strict=True)] for part in ([-b for b in below], spread))
            if band:
                axes.fill_between(xs, low, high, color=line.style["color"], alpha=0.16, linewidth=0.0)
            else:
                axes.vlines(xs, low, high, color=line.style["color"], linewidth=1.2, alpha=0.75)
        if math.isfinite(most):
            axes.set_ylim(top=most)
        if not log_y:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: plain(round(v, 12))))
        if log_x:
            _mark_values(axes, places)
        if log_y:
            _mark_powers(axes.yaxis, *axes.get_ylim())
        if axes.lines:
            figure.legend(loc="outside right upper")
        return _markup(figure, f"{y_label} against {x_label}")


def dots(rows: Sequence[tuple[str, Sequence[Line]]], *, x_label: str) -> Markup:
    """Draw one row a place, with the mean of each method as a mark along it."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(13.6, 2.2 + 0.47 * len(rows)), layout="constrained")
        axes = figure.subplots()
        axes.set(xscale="log", xlabel=x_label)
        for at, (_, marks) in enumerate(rows):
            for line in marks:
                ((_, mean, sd),) = line.points
                style = line.style | {"linestyle": ""}
                axes.hlines(at, max(mean - sd, mean / 3.0), mean + sd, color=style["color"], linewidth=1.2, alpha=0.75)
                axes.plot([mean], [at], label=line.label, **style)  # pyright: ignore[reportArgumentType]
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        _mark_powers(axes.xaxis, *axes.get_xlim())
        labelled = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(labelled.values(), labelled.keys(), loc="outside upper left", ncols=4)
        return _markup(figure, f"{x_label} of each method at each place")


def _mark_values(axes: Any, xs: Sequence[float]) -> None:
    """Put ticks at the values themselves, where there is room for them."""
    shown: list[float] = []
    for x in xs:
        if not shown or math.log(x / shown[-1]) > 0.045 * math.log(xs[-1] / xs[0]):
            shown.append(x)
    axes.set_xticks(shown, [plain(x) for x in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _mark_powers(axis: Any, low: float, high: float) -> None:
    """Name powers of ten; where fewer than three of them are in sight, values between them too."""
    if math.log10(high / low) < 3.0:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0) if high / low < 30.0 else (1.0, 3.0)))
        axis.set_major_formatter(FuncFormatter(lambda v, _: plain(float(f"{v:.3g}"))))
    else:
        axis.set_major_formatter(FuncFormatter(lambda v, _: power_of_ten(v)))
    axis.set_minor_locator(NullLocator())


def _markup(figure: Figure, title: str) -> Markup:
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{Markup.escape(title)}" ', 1)
    for name, colour in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Markup(re.sub(r"\s*\n\s*", "\n", svg))
