"""The report's charts as inline SVG, drawn by hand: colours come from the page's style sheet (so that one
drawing serves light, dark and paper), text stays text, and equal input gives equal bytes.

Every chart is built as an element tree, which escapes names and keeps the markup well formed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from xml.etree import ElementTree as ET

from markupsafe import Markup

from dprl.report.formatting import number
from dprl.report.svg import draw_circle, draw_line, draw_text, fit_text, markup, new_svg, px, svg_width, text_width

_WIDTH = 796.0
ACTION_COLOURS = 6
"""Actions beyond so many share their colours."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One policy of the forest plot; an endpoint that is None or infinite is drawn as an arrow."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    reference: float | None
    text: str


def forest(rows: Sequence[Row], confidence: str) -> Markup:
    """Dot and interval of each policy on one axis, with its numbers to the right.

    A diamond marks the un-noised estimate, only in the rows that have one.
    """
    names = [fit_text(row.name, 190.0) for row in rows]
    left = max(60.0, *(text_width(n) for n in names)) + 18.0
    right = _WIDTH - max(text_width(row.text) for row in rows) - 18.0
    left, right = min(left, 210.0), max(right, left + 150.0)
    height_of_row = 34.0 if len(rows) <= 12 else 25.0
    legend = 26.0 if any(row.reference is not None for row in rows) else 0.0
    top, bottom = legend + 6.0, legend + 6.0 + height_of_row * len(rows)
    low, high = forest_domain(rows)
    x = _Scale(low, high, left, right)
    svg = new_svg(
        max(_WIDTH, right + max(text_width(row.text) for row in rows) + 18.0),
        bottom + 30.0,
        f"Estimated value and {confidence} interval of {_count(len(rows), 'policy', 'policies')}",
    )
    for at, label in _axis(low, high, right - left):
        kind = "zero" if at == 0.0 else "grid"
        draw_line(svg, x(at), top, x(at), bottom, kind)
        draw_text(svg, x(at), bottom + 18.0, label, "tick", anchor="middle")
    draw_line(svg, left, bottom, right, bottom, "axis")
    if legend:
        _legend(svg, left, confidence)
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        y = top + height_of_row * (i + 0.5)
        group = ET.SubElement(svg, "g")
        ET.SubElement(group, "title").text = f"{row.name}: {row.text}"
        strong = " strong" if i == 0 else ""
        draw_text(group, 0.0, y + 4.5, name, "label" + strong)
        draw_text(group, svg_width(svg), y + 4.5, row.text, "figure" + strong, anchor="end")
        _interval(group, x, row, y)
        if row.reference is not None and math.isfinite(row.reference):
            _diamond(group, x.clamped(row.reference), y)
        if row.value is not None and math.isfinite(row.value):
            draw_circle(group, x.clamped(row.value), y, 5.0, "dot")
    return markup(svg)


def share_bar(privacy: float, sampling: float, title: str) -> Markup:
    """One bar cut into the shares that privacy noise and sampling error have in the variance."""
    width, height = 190.0, 16.0
    cut = width * privacy / (privacy + sampling)
    svg = new_svg(width, height, title)
    for start, end, kind in ((0.0, cut, "privacy"), (cut, width, "sampling")):
        if end > start:
            attributes = {"x": px(start), "y": "0", "width": px(end - start), "height": px(height), "class": kind}
            ET.SubElement(svg, "rect", attributes)
    return markup(svg)


def chart_frame(
    width: float,
    height: float,
    top: float,
    grid: Sequence[float],
    domain: tuple[float, float],
    title: str,
    x_name: str,
    y_name: str,
) -> tuple[ET.Element, _Scale, _Scale]:
    """An empty chart below ``top`` with its axes, and where places of ``grid`` and values of ``domain`` are in it."""
    low, high = _widen(min(grid), max(grid))
    right, bottom = width - 16.0, height - 50.0
    y_axis = _axis(*domain, bottom - top - 18.0, per_label=24.0)
    left = 26.0 + max((text_width(label, 12.0) for _, label in y_axis), default=0.0)
    x_axis = _axis(low, high, right - left)
    right = min(right, width - max((text_width(label, 12.0) for _, label in x_axis), default=0.0) / 2.0)
    x, y = _Scale(low, high, left, right), _Scale(*domain, bottom, top)
    svg = new_svg(width, height, title)
    for at, label in y_axis:
        draw_line(svg, left, y(at), right, y(at), "zero" if at == 0.0 else "grid")
        draw_text(svg, left - 7.0, y(at) + 4.0, label, "tick", anchor="end")
    for at, label in x_axis:
        draw_line(svg, x(at), bottom, x(at), bottom + 4.0, "axis")
        draw_text(svg, x(at), bottom + 18.0, label, "tick", anchor="middle")
    draw_line(svg, left, bottom, right, bottom, "axis")
    draw_text(svg, (left + right) / 2.0, height - 8.0, fit_text(x_name, right - left), "axis-label", anchor="middle")
    turned = draw_text(svg, 0.0, 0.0, y_name, "axis-label", anchor="middle")
    turned.set("transform", f"translate(12 {px((top + bottom) / 2.0)}) rotate(-90)")
    return svg, x, y


def curve(grid: Sequence[float], values: Sequence[float], name: str, domain: tuple[float, float], wide: bool) -> Markup:
    """The value function along one component; ``domain`` is the value axis shared by all the curves."""
    width, height = (560.0, 250.0) if wide else (386.0, 220.0)
    points = [(a, b) for a, b in zip(grid, values, strict=True) if math.isfinite(a) and math.isfinite(b)]
    title = f"Estimated value along {name}, from {number(points[0][1])} to {number(points[-1][1])}"
    grid = [a for a, _ in points]
    svg, x, y = chart_frame(width, height, 12.0, grid, domain, title, name, "estimated value")
    if len(points) == 1:
        draw_circle(svg, x(points[0][0]), y(points[0][1]), 4.0, "dot")
    else:
        path = "".join(f"{'L' if i else 'M'}{px(x(a))} {px(y(b))}" for i, (a, b) in enumerate(points))
        ET.SubElement(svg, "path", {"d": path, "class": "curve"})
    return markup(svg)


def action_curves(
    grid: Sequence[float],
    values: Sequence[Sequence[float]],
    policy: Sequence[int],
    name: str,
    domain: tuple[float, float],
    wide: bool,
    quantity: str = "Q",
) -> Markup:
    """Q of each action along one component, and above the curves a band with the action that is chosen there.

    Args:
        grid: ``(P,)`` places, increasing.
        values: a curve for each action that has one, ``(P,)`` each.
        policy: ``(P,)`` numbers of the chosen actions; empty for no band.
        domain: the value axis shared by all the charts.
        quantity: what the curves are, where it is not Q.
    """
    width, height = (640.0, 300.0) if wide else (386.0, 240.0)
    title = f"{quantity} along {name}, of {_count(len(values), 'action', 'actions')}"
    svg, x, y = chart_frame(width, height, 40.0 if policy else 12.0, grid, domain, title, name, quantity)
    for start, end, action in _runs(policy) if policy else ():
        a, b = x(_between(grid, start)), x(_between(grid, end))
        band = {"x": px(a), "y": "8", "width": px(b - a), "height": "20", "class": f"band a{action % ACTION_COLOURS}"}
        ET.SubElement(svg, "rect", band)
        if b - a > text_width(str(action)) + 6.0:
            draw_text(svg, (a + b) / 2.0, 22.5, str(action), "band-label", anchor="middle")
    for action, curve_values in enumerate(values):
        points = zip(grid, curve_values, strict=True)
        path = "".join(f"{'L' if i else 'M'}{px(x(a))} {px(y(b))}" for i, (a, b) in enumerate(points))
        kind = f"a{action % ACTION_COLOURS}" if len(values) > 1 else "best"
        ET.SubElement(svg, "path", {"d": path, "class": f"curve {kind}"})
    return markup(svg)


def learning_curve(users: Sequence[float], returns: Sequence[float]) -> Markup:
    """The mean return of the iterates, by how many people each was learned from."""
    title = f"Mean return of the policy, from {number(returns[0])} to {number(returns[-1])}"
    axes = "people so far", "mean return"
    svg, x, y = chart_frame(640.0, 260.0, 12.0, users, curve_domain([0.0, *returns]), title, *axes)
    path = "".join(
        f"{'L' if i else 'M'}{px(x(a))} {px(y(b))}" for i, (a, b) in enumerate(zip(users, returns, strict=True))
    )
    ET.SubElement(svg, "path", {"d": path, "class": "curve"})
    return markup(svg)


def forest_domain(rows: Sequence[Row]) -> tuple[float, float]:
    """Axis of the forest plot: every value fits; an interval far wider than the others does not stretch it."""
    centres = [v for row in rows for v in (row.value, row.reference) if v is not None and math.isfinite(v)]
    widths = [row.high - row.low for row in rows if _finite(row.low) and _finite(row.high)]  # type: ignore[operator]
    typical = median(widths) if widths else 0.0
    points = list(centres)
    for row in rows:
        width = row.high - row.low if _finite(row.low) and _finite(row.high) else math.inf  # type: ignore[operator]
        reach = max(3.0 * typical, max(centres, default=0.0) - min(centres, default=0.0))
        for end in (row.low, row.high):
            if end is not None and math.isfinite(end):
                if width <= 6.0 * typical:
                    points.append(end)
                elif row.value is not None and math.isfinite(row.value):
                    points.append(min(max(end, row.value - reach), row.value + reach))
    low, high = _widen(min(points, default=0.0), max(points, default=0.0))
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def curve_domain(values: Sequence[float]) -> tuple[float, float]:
    """The value axis that all the curves share."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = _widen(min(finite, default=0.0), max(finite, default=0.0))
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def leaves_axis(rows: Sequence[Row]) -> bool:
    """Whether any interval goes on past the axis, so that the caption must explain the arrows."""
    low, high = forest_domain(rows)
    drawn = [row for row in rows if row.low is not None or row.high is not None]
    return any(not _inside(end, low, high) for row in drawn for end in (row.low, row.high))


def _runs(policy: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, one after the last, action) of each stretch along which the same action is chosen."""
    starts = [i for i, action in enumerate(policy) if i == 0 or action != policy[i - 1]]
    return [(a, b, policy[a]) for a, b in zip(starts, [*starts[1:], len(policy)], strict=True)]


def _between(grid: Sequence[float], i: int) -> float:
    """Half way between a point and the one before it; the ends themselves at the ends."""
    return grid[0] if i == 0 else grid[-1] if i == len(grid) else (grid[i - 1] + grid[i]) / 2.0


class _Scale:
    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clamped(self, value: float) -> float:
        return self(min(max(value, self.low), self.high))


def _interval(parent: ET.Element, x: _Scale, row: Row, y: float) -> None:
    if row.low is None and row.high is None:
        return
    ends = (-math.inf if row.low is None else row.low, math.inf if row.high is None else row.high)
    a, b = (x.clamped(end) for end in ends)
    draw_line(parent, a, y, b, y, "whisker")
    for end, at, inward in ((ends[0], a, 7.0), (ends[1], b, -7.0)):
        if _inside(end, x.low, x.high):
            draw_line(parent, at, y - 4.5, at, y + 4.5, "whisker")
        else:
            path = f"M{px(at + inward)} {px(y - 5.0)}L{px(at)} {px(y)}L{px(at + inward)} {px(y + 5.0)}"
            ET.SubElement(parent, "path", {"d": path, "class": "arrow"})


def _legend(svg: ET.Element, left: float, confidence: str) -> None:
    first = f"estimate and {confidence} interval"
    draw_line(svg, left, 10.0, left + 26.0, 10.0, "whisker")
    draw_circle(svg, left + 13.0, 10.0, 5.0, "dot")
    draw_text(svg, left + 34.0, 14.5, first, "tick")
    second = left + 34.0 + text_width(first, 12.0) + 24.0
    _diamond(svg, second, 10.0)
    draw_text(svg, second + 12.0, 14.5, "without noise (simulation)", "tick")


def _axis(low: float, high: float, length: float, per_label: float | None = None) -> list[tuple[float, str]]:
    """Round ticks inside [low, high] with their labels, as many as fit into ``length`` pixels without touching."""
    for count in (7, 6, 5, 4, 3, 2):
        raw = (high - low) / count
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
        places = -math.floor(math.log10(step) + 1e-9)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        ticks = [(k * step, number(k * step, places)) for k in range(first, last + 1)]
        room = per_label or max((text_width(label, 12.0) for _, label in ticks), default=0.0) + 14.0
        if len(ticks) * room <= length:
            break
    return ticks


def _widen(low: float, high: float) -> tuple[float, float]:
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    half = 0.1 * abs(low) or 1.0
    return low - half, high + half


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _inside(end: float | None, low: float, high: float) -> bool:
    return end is not None and low <= end <= high


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _diamond(parent: ET.Element, x: float, y: float) -> None:
    path = f"M{px(x - 6.0)} {px(y)}L{px(x)} {px(y - 6.0)}L{px(x + 6.0)} {px(y)}L{px(x)} {px(y + 6.0)}Z"
    ET.SubElement(parent, "path", {"d": path, "class": "reference"})
