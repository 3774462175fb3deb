"""Charts of a reproduction as inline SVG, by matplotlib: many methods on one axis, bars of one standard deviation.

The colours are a palette that colour-blind readers can tell apart, and marks and dashes repeat the distinction. In the
SVG the colours are the page's own CSS variables, so that a chart is dark where the page is dark.
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
MARKED = 20
"""Most points of a line that have a mark; all of them have a bar, and the line goes through each."""
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
}


@dataclass(frozen=True)
class Line:
    """One series: means and standard deviations.

    Attributes:
        label: its name in the legend.
        points: x, mean and standard deviation of each point.
        colour: index of the colour.
        look: ``private``, ``none`` (a method without privacy), ``trivial`` or ``bound``.
        dash: index of the dash pattern, which distinguishes lines of one colour.
    """

    label: str
    points: tuple[tuple[float, float, float], ...]
    colour: int
    look: str = "private"
    dash: int = 0

    @property
    def measured(self) -> bool:
        """Whether the points are data. Data have marks and bars; a bound has neither."""
        return self.look != "bound" or any(sd > 0.0 for *_, sd in self.points)

    @property
    def style(self) -> dict[str, Any]:
        """Matplotlib's arguments for the line and its marks."""
        named = {"none": "ink", "trivial": "soft", "bound": "soft"}.get(self.look, f"c{self.colour % COLOURS}")
        colour = _VARIABLES[named]
        dashes = {"none": (0, (7, 4)), "trivial": (0, (2, 4))}
        return {
            "color": colour,
            "linestyle": dashes.get(self.look, _DASHES[self.dash % len(_DASHES)]),
            "linewidth": 2.0 if self.look == "private" else 1.5,
            "marker": _MARKS[(self.colour + self.dash) % len(_MARKS)] if self.measured else "",
            "markersize": 4.0 if self.look == "trivial" else 6.0,
            "markerfacecolor": _VARIABLES["paper"] if self.dash and self.look == "private" else colour,
        }


def chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, log_x: bool = True, log_y: bool = True,
    most: float = math.inf, band: bool = False,
) -> Markup:  # fmt: skip
    """Draw means, with one standard deviation as bars or as a shaded ``band``, and a legend below.

    Every point is shown. A point above ``most`` is a triangle at the upper edge, and the legend gives the last value of
    a line that ends there. A point that is not finite is a cross at the upper edge, and its line is broken. Where a
    value is not positive, a logarithmic axis is linear around zero. Bounds differ in their dashes.
    """
    bounds = [a for a in lines if a.look == "bound"]
    lines = [replace(a, dash=a.dash or bounds.index(a)) if a in bounds else a for a in lines if a.points]
    lines.sort(key=_end, reverse=True)
    places = sorted({p[0] for a in lines for p in a.points})
    means = [p[1] for a in lines for p in a.points if math.isfinite(p[1])]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.4, 5.6), layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel=x_label, ylabel=y_label)
        broken_x, broken_y = _set_scale(axes.set_xscale, log_x, places), _set_scale(axes.set_yscale, log_y, means)
        if len(places) == 1:
            axes.set_xlim(
                *((places[0] / 2.0, places[0] * 2.0) if log_x and not broken_x else (places[0] - 1.0, places[0] + 1.0))
            )
        for line in lines:
            _draw_line(axes, line, most, band, below_zero=not log_y or broken_y)
        if math.isfinite(most):
            axes.set_ylim(top=most)
        if not log_y:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: plain(round(v, 12))))
        if log_x:
            _mark_values(axes, places)
        if log_y and not broken_y:
            _mark_powers(axes.yaxis, *axes.get_ylim())
        return _markup(figure, f"{y_label} against {x_label}") + _legend([(_said(a, most), a.style) for a in lines])


def _end(line: Line) -> float:
    return next((p[1] for p in reversed(line.points) if math.isfinite(p[1])), math.inf)


def _said(line: Line, most: float) -> str:
    """Return a line's name in the legend, with its last value where that lies above the axis or is not finite."""
    x, mean, _ = line.points[-1]
    if not math.isfinite(mean):
        return f"× {line.label}: not finite at {plain(x)}"
    return f"▲ {line.label}: {number(mean)} at {plain(x)}" if mean > most else line.label


def _set_scale(set_scale: Any, log: bool, values: Sequence[float]) -> bool:
    """Set the scale of an axis, and return whether the axis is linear around zero."""
    broken = log and any(v <= 0.0 for v in values)
    if broken:
        set_scale("symlog", linthresh=min((abs(v) for v in values if v), default=1.0))
    else:
        set_scale("log" if log else "linear")
    return broken


def _draw_line(axes: Any, line: Line, most: float, band: bool, below_zero: bool) -> None:
    xs, means, spread = (list(column) for column in zip(*line.points, strict=True))
    means = [m if math.isfinite(m) else math.nan for m in means]
    axes.plot(xs, means, markevery=-(-len(xs) // MARKED), **line.style)
    edge = {"transform": axes.get_xaxis_transform(), "linestyle": "", "color": line.style["color"], "clip_on": False}
    for mark, away in (("^", [m > most for m in means]), ("x", [math.isnan(m) for m in means])):
        at = [x for x, there in zip(xs, away, strict=True) if there]
        axes.plot(at, [1.0] * len(at), marker=mark, **edge)
    if not line.measured:
        return
    # a bar that reaches below zero would have no end on a logarithmic axis, so it stops at a third of its mean
    low = [m - (sd if below_zero else min(sd, m * 2.0 / 3.0)) for m, sd in zip(means, spread, strict=True)]
    high = [m + sd for m, sd in zip(means, spread, strict=True)]
    if band:
        axes.fill_between(xs, low, high, color=line.style["color"], alpha=0.16, linewidth=0.0)
    else:
        axes.vlines(xs, low, high, color=line.style["color"], linewidth=1.2, alpha=0.75)


def _legend(entries: Sequence[tuple[str, dict[str, Any]]]) -> Markup:
    """Return the legend as an HTML list, so that its text is as large as the page's, also on a telephone."""
    items = []
    for label, style in dict(entries).items():
        dash = "" if style["linestyle"] in ("-", "") else " ".join(map(str, style["linestyle"][1]))
        glyphs = "○□△◇▽" if style["markerfacecolor"] == _VARIABLES["paper"] else "●■▲◆▼"
        line = f'<path d="M0 8h36" stroke="{style["color"]}" stroke-width="2" stroke-dasharray="{dash}"/>'
        line = line if style["linestyle"] else ""
        glyph = glyphs[_MARKS.index(style["marker"] or "o")]
        mark = f'<text x="18" y="13" text-anchor="middle" font-size="14" fill="{style["color"]}">{glyph}</text>'
        swatch = f'<svg width="36" height="16" aria-hidden="true">{line}{mark if style["marker"] else ""}</svg>'
        items.append(f"<li>{swatch} {Markup.escape(label)}</li>")
    return _coloured(f'<ul class="legend">{"".join(items)}</ul>') if items else Markup("")


def dots(rows: Sequence[tuple[str, Sequence[Line]]], *, x_label: str) -> Markup:
    """Draw one row per place, with the mean of each method as a mark along the row.

    Every mean is shown. A mean that is not finite is a cross at the right edge. Where a mean is not positive, the axis
    is linear around zero.
    """
    means = [line.points[0][1] for _, marks in rows for line in marks]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.4, 1.4 + 0.47 * len(rows)), layout="constrained")
        axes, entries = figure.subplots(), dict[str, dict[str, Any]]()
        axes.set_xlabel(x_label)
        broken = _set_scale(axes.set_xscale, True, [mean for mean in means if math.isfinite(mean)])
        edge = {"transform": axes.get_yaxis_transform(), "linestyle": "", "marker": "x", "clip_on": False}
        for at, (_, marks) in enumerate(rows):
            for line in marks:
                ((_, mean, sd),) = line.points
                style = line.style | {"linestyle": ""}
                entries.setdefault(line.label, style)
                if not math.isfinite(mean):
                    axes.plot([1.0], [at], color=style["color"], **edge)
                    continue
                low = mean - sd if broken else max(mean - sd, mean / 3.0)
                axes.hlines(at, low, mean + sd, color=style["color"], linewidth=1.2, alpha=0.75)
                axes.plot([mean], [at], **style)  # pyright: ignore[reportArgumentType]
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        if not broken:
            _mark_powers(axes.xaxis, *axes.get_xlim())
        return _markup(figure, f"{x_label} of each method at each place") + _legend([*entries.items()])


def _mark_values(axes: Any, xs: Sequence[float]) -> None:
    """Put ticks at the values of x themselves, where there is room for them."""
    shown: list[float] = []
    positive = [x for x in xs if x > 0.0]
    for x in positive:
        if not shown or math.log(x / shown[-1]) > 0.045 * math.log(positive[-1] / positive[0]):
            shown.append(x)
    shown = [*(x for x in xs if x <= 0.0), *shown]
    axes.set_xticks(shown, [plain(x) for x in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _mark_powers(axis: Any, low: float, high: float) -> None:
    """Label the powers of ten. Where fewer than three of them are in sight, label values between them too."""
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
    return _coloured(re.sub(r"\s*\n\s*", "\n", svg))


def _coloured(text: str) -> Markup:
    for name, colour in _VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return Markup(text)
