"""The report's charts: intervals as positions that the template draws, and curves as inline SVG.

Colours come from the page's style sheet, so that one drawing serves light, dark and paper. Names of policies and of
axes are the page's own text, which wraps. Equal input gives equal bytes.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from markupsafe import Markup

from dprl.report.formatting import number

_WIDTH, _HEIGHT = 386.0, 206.0
ACTION_COLOURS = 6
"""Number of colours for actions. If there are more actions, some share a colour."""


# --- policies and their intervals -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """One policy of the forest plot; an infinite end of its interval is drawn as an arrow."""

    name: str
    value: float | None
    interval: tuple[float, float] | None
    reference: float | None = None
    text: str


def forest(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the positions of the policies' values and intervals on one axis, in percent of its length.

    An end of an interval that lies past the axis is marked. The reference, in the rows that have one, is the estimate
    without noise.
    """
    low, high = forest_domain(rows)

    def at(value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        return round(4.0 + 92.0 * (min(max(value, low), high) - low) / (high - low), 2)

    shown = [
        {
            "name": row.name,
            "text": row.text,
            "value": at(row.value),
            "reference": at(row.reference),
            "ends": [(at(min(max(end, low), high)), not low <= end <= high) for end in row.interval or ()],
        }
        for row in rows
    ]
    return {
        "ticks": [(at(tick), label, tick == 0.0) for tick, label in _axis(low, high, 330.0)],
        "rows": shown,
        "leaves_axis": any(past for row in shown for _, past in row["ends"]),
        "has_reference": any(row.reference is not None for row in rows),
    }


def forest_domain(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of the forest plot's axis.

    Every value fits, and an interval far wider than the others does not stretch the axis.
    """
    centres = [v for row in rows for v in (row.value, row.reference) if v is not None and math.isfinite(v)]
    widths = [row.interval[1] - row.interval[0] for row in rows if row.interval]
    widths = [width for width in widths if math.isfinite(width)]
    typical = median(widths) if widths else 0.0
    reach = max(3.0 * typical, max(centres, default=0.0) - min(centres, default=0.0))
    points = list(centres)
    for row in rows:
        low, high = row.interval or (math.inf, math.inf)
        for end in filter(math.isfinite, (low, high)):
            if high - low <= 6.0 * typical:
                points.append(end)
            elif row.value is not None and math.isfinite(row.value):
                points.append(min(max(end, row.value - reach), row.value + reach))
    return _with_margin(points, 0.04)


def share_bar(share: float, title: str) -> Markup:
    """Return a bar of full width, in which privacy noise takes its ``share`` of the variance."""
    svg = ET.Element("svg", {"role": "img", "width": "100%", "height": "16"})
    ET.SubElement(svg, "title").text = title
    draw(svg, "rect", "sampling", width="100%", height="100%")
    draw(svg, "rect", "privacy", width=f"{px(100.0 * share)}%", height="100%")
    return markup(svg)


# --- curves -----------------------------------------------------------------------------------------------------------


def curve(
    grid: Sequence[float],
    values: Sequence[float],
    name: str,
    domain: tuple[float, float],
    band: tuple[Sequence[float], Sequence[float]] | None = None,
    quantity: str = "estimated value",
) -> Markup:
    """Return a chart of the value function, or of another quantity, along one component.

    Args:
        grid: ``(P,)`` places, increasing.
        values: ``(P,)`` values there.
        name: what the component is called.
        domain: the value axis, which all the curves share.
        band: lower and upper ends, ``(P,)`` each.
        quantity: what the values are.
    """
    title = f"{quantity.capitalize()} along {name}, from {number(values[0])} to {number(values[-1])}"
    frame = _frame(12.0, grid, domain, title, quantity)
    if band is not None:
        frame.draw([*grid, *grid[::-1]], [*band[0], *band[1][::-1]], "ribbon", end="Z")
    if len(grid) == 1:
        draw(frame.svg, "circle", "dot", cx=frame.x(grid[0]), cy=frame.y(values[0]), r=4.0)
    else:
        frame.draw(grid, values, "curve")
    return markup(frame.svg)


def action_curves(
    grid: Sequence[float],
    values: Sequence[Sequence[float]],
    policy: Sequence[int],
    name: str,
    domain: tuple[float, float],
    quantity: str,
) -> Markup:
    """Return a chart with a curve for each action along one component, below a band of the actions that are chosen.

    Args:
        grid: ``(P,)`` places, increasing.
        values: a curve for each action that has one, ``(P,)`` each.
        policy: ``(P,)`` numbers of the chosen actions; empty for no band.
        name: what the component is called.
        domain: the value axis, which all the charts share.
        quantity: what the curves are, such as Q.
    """
    actions = "1 action" if len(values) == 1 else f"{len(values)} actions"
    frame = _frame(40.0 if policy else 12.0, grid, domain, f"{quantity} along {name}, of {actions}", quantity)
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


def line_chart(
    grid: Sequence[float], lines: Mapping[str, Sequence[float]], title: str, y_name: str, top: float = 12.0
) -> Markup:
    """Return a chart of one or two curves over ``grid``, on an axis that holds zero. Two curves are named on top."""
    domain = curve_domain([0.0, *(value for values in lines.values() for value in values)])
    frame = _frame(top, grid, domain, title, y_name)
    for i, (name, values) in enumerate(lines.items()):
        frame.draw(grid, values, "curve hand" if i else "curve")
        if len(lines) > 1:
            draw_text(frame.svg, 60.0 + 150.0 * i, 14.0, f"{name} (dashed)" if i else name, "tick")
    return markup(frame.svg)


def curve_domain(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the value axis that all the curves share."""
    return _with_margin([v for v in values if math.isfinite(v)], 0.06)


# --- axes -------------------------------------------------------------------------------------------------------------


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the function that maps numbers from ``low`` to ``high`` to pixels from ``start`` to ``end``."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


class _Frame(NamedTuple):
    """Chart with its axes; ``x`` and ``y`` map numbers to pixels."""

    svg: ET.Element
    x: Callable[[float], float]
    y: Callable[[float], float]

    def draw(self, grid: Sequence[float], values: Sequence[float], kind: str, end: str = "") -> None:
        """Draw straight lines from point to point; ``end`` is the SVG path command after the last point."""
        points = [f"{px(self.x(a))} {px(self.y(b))}" for a, b in zip(grid, values, strict=True)]
        draw(self.svg, "path", kind, d=f"M{'L'.join(points)}{end}")


def _frame(top: float, grid: Sequence[float], domain: tuple[float, float], title: str, y_name: str) -> _Frame:
    """Return an empty chart with its axes, below ``top``. The page names the horizontal axis beneath the chart."""
    low, high = _widen(min(grid), max(grid))
    right, bottom = _WIDTH - 16.0, _HEIGHT - 26.0 + top / 2.0
    y_axis = _axis(*domain, bottom - top - 18.0, per_label=24.0)
    left = 26.0 + max((text_width(label, 12.0) for _, label in y_axis), default=0.0)
    x_axis = _axis(low, high, right - left)
    right = min(right, _WIDTH - max((text_width(label, 12.0) for _, label in x_axis), default=0.0) / 2.0)
    x, y = _scale(low, high, left, right), _scale(*domain, bottom, top)
    width, height = px(_WIDTH), px(bottom + 26.0)
    svg = ET.Element("svg", {"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "role": "img"})
    ET.SubElement(svg, "title").text = title  # for those who do not see it
    for at, label in y_axis:
        draw(svg, "line", "zero" if at == 0.0 else "grid", x1=left, y1=y(at), x2=right, y2=y(at))
        draw_text(svg, left - 7.0, y(at) + 4.0, label, "tick", anchor="end")
    for at, label in x_axis:
        draw(svg, "line", "axis", x1=x(at), y1=bottom, x2=x(at), y2=bottom + 4.0)
        draw_text(svg, x(at), bottom + 18.0, label, "tick", anchor="middle")
    draw(svg, "line", "axis", x1=left, y1=bottom, x2=right, y2=bottom)
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
    """Return the middle between point ``i`` and the point before it; at the grid's ends, return the ends themselves."""
    return grid[0] if i == 0 else grid[-1] if i == len(grid) else (grid[i - 1] + grid[i]) / 2.0


# --- elements: an element tree escapes names and keeps the markup well formed ----------------------------------------


def draw(parent: ET.Element, tag: str, kind: str, **attributes: float | str) -> ET.Element:
    """Draw an element of the style sheet's class ``kind``, with numbers in pixels, and return it."""
    written = {name: value if isinstance(value, str) else px(value) for name, value in attributes.items()}
    return ET.SubElement(parent, tag, {**written, "class": kind})


def draw_text(parent: ET.Element, x: float, y: float, text: str, kind: str, anchor: str = "start") -> ET.Element:
    """Draw text of the style sheet's class ``kind`` and return it; ``anchor`` is start, middle or end."""
    element = draw(parent, "text", kind, x=x, y=y)
    element.set("text-anchor", anchor)
    element.text = text
    return element


def px(value: float) -> str:
    """Return a number of pixels as text, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def markup(svg: ET.Element) -> Markup:
    """Return the chart as markup for a page."""
    return Markup(ET.tostring(svg, encoding="unicode"))


def text_width(text: str, size: float = 13.0) -> float:
    """Return a generous estimate of a text's width in pixels: the reader's font is unknown, and no label may be cut."""
    ems = 0.0
    for character in text:
        if unicodedata.east_asian_width(character) in "WF":
            ems += 1.05
        elif character in "ijl.,()'| ":
            ems += 0.36
        elif character in "MW@mw%":
            ems += 0.95
        else:
            ems += 0.72 if character.isupper() else 0.63
    return ems * size
