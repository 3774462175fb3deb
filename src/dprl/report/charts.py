"""The report's charts as inline SVG, drawn by hand.

Colours come from the page's style sheet, so that one drawing serves light, dark and paper. Text stays text, and equal
input gives equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import NamedTuple
from xml.etree import ElementTree as ET

from markupsafe import Markup

from dprl.report.formatting import number
from dprl.report.svg import draw, draw_line, draw_path, draw_text, fit_text, markup, new_svg, px, svg_width, text_width

_WIDTH = 796.0
ACTION_COLOURS = 6
"""Actions beyond so many share their colours."""


# --- policies and their intervals -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """One policy of the forest plot; an infinite end of its interval is drawn as an arrow."""

    name: str
    value: float | None
    interval: tuple[float, float] | None
    reference: float | None
    text: str

    @property
    def width(self) -> float:
        """Return the width of the interval, which is infinite where an end is, or where there is none."""
        return math.inf if self.interval is None else self.interval[1] - self.interval[0]


def forest(rows: Sequence[Row], confidence: str, title: str = "") -> Markup:
    """Return a dot and an interval for each policy on one axis, with its numbers to the right.

    ``title`` says what is drawn where that is something else.

    A diamond marks the un-noised estimate, only in the rows that have one.
    """
    names = [fit_text(row.name, 190.0) for row in rows]
    room = max(text_width(row.text) for row in rows) + 18.0
    left = min(max(60.0, *map(text_width, names)) + 18.0, 210.0)
    right = max(_WIDTH - room, left + 150.0)
    height_of_row = 34.0 if len(rows) <= 12 else 25.0
    legend = 26.0 if any(row.reference is not None for row in rows) else 0.0
    top, bottom = legend + 6.0, legend + 6.0 + height_of_row * len(rows)
    x = _Scale(*forest_domain(rows), left, right)
    title = title or f"Estimated value and {confidence} interval of {_count(len(rows), 'policy', 'policies')}"
    svg = new_svg(max(_WIDTH, right + room), bottom + 30.0, title)
    for at, label in _axis(x.low, x.high, right - left):
        draw_line(svg, x(at), top, x(at), bottom, "zero" if at == 0.0 else "grid")
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
        _interval(group, x, row.interval, y)
        if row.reference is not None and math.isfinite(row.reference):
            _diamond(group, x.clamped(row.reference), y)
        if row.value is not None and math.isfinite(row.value):
            _dot(group, x.clamped(row.value), y, 5.0)
    return markup(svg)


def forest_domain(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of the forest plot's axis.

    Every value fits, and an interval far wider than the others does not stretch the axis.
    """
    centres = [v for row in rows for v in (row.value, row.reference) if v is not None and math.isfinite(v)]
    widths = [row.width for row in rows if math.isfinite(row.width)]
    typical = median(widths) if widths else 0.0
    reach = max(3.0 * typical, max(centres, default=0.0) - min(centres, default=0.0))
    points = list(centres)
    for row in rows:
        for end in filter(math.isfinite, row.interval or ()):
            if row.width <= 6.0 * typical:
                points.append(end)
            elif row.value is not None and math.isfinite(row.value):
                points.append(min(max(end, row.value - reach), row.value + reach))
    return _with_margin(points, 0.04)


def leaves_axis(rows: Sequence[Row]) -> bool:
    """Return whether any interval goes on past the axis, so that the caption must explain the arrows."""
    low, high = forest_domain(rows)
    return any(not low <= end <= high for row in rows for end in row.interval or ())


def share_bar(privacy: float, sampling: float, title: str) -> Markup:
    """Return one bar cut into the shares that privacy noise and sampling error have in the variance."""
    width, height = 190.0, 16.0
    cut = width * privacy / (privacy + sampling)
    svg = new_svg(width, height, title)
    for start, end, kind in ((0.0, cut, "privacy"), (cut, width, "sampling")):
        if end > start:
            draw(svg, "rect", kind, x=start, y=0.0, width=end - start, height=height)
    return markup(svg)


# --- curves -----------------------------------------------------------------------------------------------------------


def curve(
    grid: Sequence[float],
    values: Sequence[float],
    name: str,
    domain: tuple[float, float],
    wide: bool,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
    quantity: str = "estimated value",
) -> Markup:
    """Return the value function along one component, or another quantity.

    Args:
        grid: ``(P,)`` places, increasing.
        values: ``(P,)`` values there.
        name: what the component is called.
        domain: the value axis, which all the curves share.
        wide: whether the chart stands by itself.
        band: lower and upper ends, ``(P,)`` each.
        quantity: what the values are.
    """
    title = f"{quantity.capitalize()} along {name}, from {number(values[0])} to {number(values[-1])}"
    frame = _frame((560.0, 250.0) if wide else (386.0, 220.0), 12.0, grid, domain, title, name, quantity)
    if band is not None:
        ends = [*zip(grid, band[0], strict=True), *zip(grid[::-1], band[1][::-1], strict=True)]
        draw_path(frame.svg, [(frame.x(a), frame.y(b)) for a, b in ends], "ribbon", close=True)
    if len(grid) == 1:
        _dot(frame.svg, frame.x(grid[0]), frame.y(values[0]), 4.0)
    else:
        frame.draw(grid, values, "curve")
    return markup(frame.svg)


def action_curves(
    grid: Sequence[float],
    values: Sequence[Sequence[float]],
    policy: Sequence[int],
    name: str,
    domain: tuple[float, float],
    wide: bool,
    quantity: str,
) -> Markup:
    """Return a curve for each action along one component, and above them a band with the action that is chosen there.

    Args:
        grid: ``(P,)`` places, increasing.
        values: a curve for each action that has one, ``(P,)`` each.
        policy: ``(P,)`` numbers of the chosen actions; empty for no band.
        name: what the component is called.
        domain: the value axis, which all the charts share.
        wide: whether the chart stands by itself.
        quantity: what the curves are, such as Q.
    """
    title = f"{quantity} along {name}, of {_count(len(values), 'action', 'actions')}"
    size, top = (640.0, 300.0) if wide else (386.0, 240.0), 40.0 if policy else 12.0
    frame = _frame(size, top, grid, domain, title, name, quantity)
    start = 0
    for action, places in groupby(policy):
        end = start + len(list(places))
        a, b = frame.x(_between(grid, start)), frame.x(_between(grid, end))
        draw(frame.svg, "rect", f"band a{action % ACTION_COLOURS}", x=a, y=8.0, width=b - a, height=20.0)
        if b - a > text_width(str(action)) + 6.0:
            draw_text(frame.svg, (a + b) / 2.0, 22.5, str(action), "band-label", anchor="middle")
        start = end
    for action, row in enumerate(values):
        frame.draw(grid, row, f"curve a{action % ACTION_COLOURS}" if len(values) > 1 else "curve best")
    return markup(frame.svg)


def rule_tree(cases: Sequence[tuple[Sequence[str], str]], title: str) -> Markup:
    """Return the comparisons of a rule as a tree, from left to right.

    Args:
        cases: of each leaf, from above, the comparisons that hold there, the first one first, and its action in words.
    """
    heights: dict[tuple[str, ...], list[float]] = {}
    for row, (tests, _) in enumerate(cases):
        for depth in range(len(tests) + 1):
            heights.setdefault(tuple(tests[:depth]), []).append(28.0 + 44.0 * row)
    step = max((text_width(test) for tests, _ in cases for test in tests), default=0.0) + 36.0
    at = {tests: (12.0 + step * len(tests), sum(ys) / len(ys)) for tests, ys in heights.items()}
    room = max((text_width(action) for _, action in cases), default=0.0) + 30.0
    svg = new_svg(max(640.0, 12.0 + step * max(map(len, at)) + room), 12.0 + 44.0 * len(cases), title)
    for tests, (x, y) in at.items():
        if tests:
            before, above = at[tests[:-1]]
            draw_line(svg, before, above, before, y, "axis")
            draw_line(svg, before, y, x, y, "axis")
            draw_text(svg, before + 12.0, y - 6.0, tests[-1], "tick")
    for tests, action in cases:
        x, y = at[tuple(tests)]
        draw_text(svg, x + 8.0, y + 4.0, action, "name")
    return markup(svg)


def line_chart(
    grid: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    title: str,
    x_name: str,
    y_name: str,
    top: float = 12.0,
) -> Markup:
    """Return one or two curves over ``grid``, on an axis that holds zero; two of them have their names on top."""
    domain = curve_domain([0.0, *(value for values in lines.values() for value in values)])
    frame = _frame((640.0, 260.0), top, grid, domain, title, x_name, y_name)
    for i, (name, values) in enumerate(lines.items()):
        frame.draw(grid, values, "curve hand" if i else "curve")
        if len(lines) > 1:
            draw_text(frame.svg, 60.0 + 150.0 * i, 14.0, f"{name} (dashed)" if i else name, "tick")
    return markup(frame.svg)


def curve_domain(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the value axis that all the curves share."""
    return _with_margin([v for v in values if math.isfinite(v)], 0.06)


# --- axes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scale:
    """Axis: where numbers from ``low`` to ``high`` are, in pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clamped(self, value: float) -> float:
        return self(min(max(value, self.low), self.high))


class _Frame(NamedTuple):
    """Chart with its axes, and where numbers are on them."""

    svg: ET.Element
    x: _Scale
    y: _Scale

    def draw(self, grid: Sequence[float], values: Sequence[float], kind: str) -> None:
        draw_path(self.svg, [(self.x(a), self.y(b)) for a, b in zip(grid, values, strict=True)], kind)


def _frame(
    size: tuple[float, float],
    top: float,
    grid: Sequence[float],
    domain: tuple[float, float],
    title: str,
    x_name: str,
    y_name: str,
) -> _Frame:
    """Return an empty chart below ``top`` with its axes."""
    width, height = size
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
    return _Frame(svg, x, y)


def _axis(low: float, high: float, length: float, per_label: float | None = None) -> list[tuple[float, str]]:
    """Return round ticks inside [low, high] with their labels, as many as fit into ``length`` pixels."""
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


def _with_margin(points: Sequence[float], share: float) -> tuple[float, float]:
    low, high = _widen(min(points, default=0.0), max(points, default=0.0))
    margin = share * (high - low)
    return low - margin, high + margin


def _widen(low: float, high: float) -> tuple[float, float]:
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    half = 0.1 * abs(low) or 1.0
    return low - half, high + half


def _between(grid: Sequence[float], i: int) -> float:
    """Return half way between a point and the one before it, or the ends themselves at the ends."""
    return grid[0] if i == 0 else grid[-1] if i == len(grid) else (grid[i - 1] + grid[i]) / 2.0


# --- marks ------------------------------------------------------------------------------------------------------------


def _interval(parent: ET.Element, x: _Scale, interval: tuple[float, float] | None, y: float) -> None:
    if interval is None:
        return
    a, b = map(x.clamped, interval)
    draw_line(parent, a, y, b, y, "whisker")
    for end, at, inward in ((interval[0], a, 7.0), (interval[1], b, -7.0)):
        if x.low <= end <= x.high:
            draw_line(parent, at, y - 4.5, at, y + 4.5, "whisker")
        else:
            draw_path(parent, [(at + inward, y - 5.0), (at, y), (at + inward, y + 5.0)], "arrow")


def _legend(svg: ET.Element, left: float, confidence: str) -> None:
    first = f"estimate and {confidence} interval"
    draw_line(svg, left, 10.0, left + 26.0, 10.0, "whisker")
    _dot(svg, left + 13.0, 10.0, 5.0)
    draw_text(svg, left + 34.0, 14.5, first, "tick")
    second = left + 34.0 + text_width(first, 12.0) + 24.0
    _diamond(svg, second, 10.0)
    draw_text(svg, second + 12.0, 14.5, "without noise (simulation)", "tick")


def _dot(parent: ET.Element, x: float, y: float, radius: float) -> None:
    draw(parent, "circle", "dot", cx=x, cy=y, r=radius)


def _diamond(parent: ET.Element, x: float, y: float) -> None:
    draw_path(parent, [(x - 6.0, y), (x, y - 6.0), (x + 6.0, y), (x, y + 6.0)], "reference", close=True)


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
