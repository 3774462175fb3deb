"""A reproduction's charts as inline SVG: many methods on one (logarithmic) axis, with bars and names at the lines.

Colours are those of a palette that colour-blind readers can tell apart, and marks and dashes say the same once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

from markupsafe import Markup

from dprl.report.formatting import number, plain, power_of_ten
from dprl.report.svg import draw_circle, draw_line, draw_text, fit_text, markup, new_svg, px, text_width

WIDTH, COLOURS = 980.0, 9
_LABELS = 262.0  # room at the right for the names
_SPACING = 15.0


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    sd: float = 0.0


@dataclass(frozen=True)
class Line:
    """One series. ``look``: ``private``, ``none`` (no privacy), ``trivial`` or ``bound``."""

    label: str
    points: tuple[Point, ...]
    colour: int
    look: str = "private"
    dash: int = 0


def chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, log_x: bool = True, log_y: bool = True,
    ticks: Sequence[float] | None = None, height: float = 440.0, most: float = math.inf, band: bool = False,
) -> Markup:  # fmt: skip
    """Means with bars, or a shaded ``band``, of one standard deviation; lines with nothing to draw are left out.

    Of a line that lies above ``most`` only the name and its last mean stand at the top; a part above it is left out.
    """
    lines = [
        Line(a.label, tuple(p for p in a.points if _drawable(p, log_x, log_y)), a.colour, a.look, a.dash) for a in lines
    ]
    above = [a for a in lines if a.points and min(p.y for p in a.points) > most]
    lines = [
        Line(a.label, tuple(p for p in a.points if p.y <= most), a.colour, a.look, a.dash)
        for a in lines
        if a.points and a not in above
    ]
    svg = new_svg(WIDTH, height, f"{y_label} against {x_label}")
    if not lines:
        draw_text(svg, 20.0, 40.0, "nothing to draw", "tick")
        return markup(svg)
    xs = sorted({p.x for a in lines for p in a.points})
    low, high = _range(lines, log_y)
    high = min(high, most)
    left, right, top, bottom = 78.0, WIDTH - _LABELS, 14.0 + _SPACING * len(above), height - 54.0
    x = _Axis(xs[0], xs[-1], left + 18.0, right - 18.0, log_x)
    y = _Axis(low, high, bottom, top, log_y)
    for at, label in _y_ticks(low, high, log_y):
        draw_line(svg, left, y(at), right, y(at), "grid")
        draw_text(svg, left - 8.0, y(at) + 4.0, label, "tick", anchor="end")
    last = -math.inf
    for at in ticks or xs:
        draw_line(svg, x(at), bottom, x(at), bottom + 5.0, "axis")
        label = plain(at)
        if x(at) - last > text_width(label, 12.0) + 8.0:
            draw_text(svg, x(at), bottom + 19.0, label, "tick", anchor="middle")
            last = x(at)
    draw_line(svg, left, bottom, right, bottom, "axis")
    draw_line(svg, left, top, left, bottom, "axis")
    draw_text(svg, (left + right) / 2.0, height - 10.0, x_label, "axis-label", anchor="middle")
    turned = draw_text(svg, 0.0, 0.0, y_label, "axis-label", anchor="middle")
    turned.set("transform", f"translate(16 {px((top + bottom) / 2.0)}) rotate(-90)")
    for line in lines if band else ():
        _shade(svg, line, x, y)
    for i, line in enumerate(lines):
        _draw(svg, line, x, y, 2.4 * (i - (len(lines) - 1) / 2.0), bars=not band)
    _names(svg, lines, x, y, right, top, bottom)
    for i, line in enumerate(above):
        group = ET.SubElement(svg, "g", {"class": f"c{line.colour} {line.look}"})
        label = f"▲ {fit_text(line.label, _LABELS + 40.0)}: {number(line.points[-1].y)} at {plain(line.points[-1].x)}"
        draw_text(group, WIDTH, 10.0 + _SPACING * i, label, "name", anchor="end")
    return markup(svg)


def dots(rows: Sequence[tuple[str, Sequence[tuple[Line, Point]]]], *, x_label: str, log_x: bool = True) -> Markup:
    """One row a place with the methods as marks along it; the legend stands above."""
    kinds = {line.label: line for _, marks in rows for line, _ in marks}
    points = [p for _, marks in rows for _, p in marks if _drawable(p, False, log_x)]
    widths = [42.0 + text_width(label) for label in kinds]
    columns = max(1, int((WIDTH - 20.0) // max(widths, default=100.0)))
    legend = 22.0 * math.ceil(len(kinds) / columns)
    step, left = 34.0, 268.0
    height = legend + 20.0 + step * len(rows) + 48.0
    svg = new_svg(WIDTH, height, f"{x_label} of each method at each place")
    if not points:
        return markup(svg)
    for i, line in enumerate(kinds.values()):
        px, py = 14.0 + (i % columns) * max(widths), 12.0 + 22.0 * (i // columns)
        _mark(svg, line, px, py)
        draw_text(svg, px + 14.0, py + 4.5, line.label, "tick")
    low, high = min(p.y for p in points), max(p.y for p in points)
    low, high = (low / 1.25, high * 1.25) if log_x else (0.0, high * 1.05)
    x = _Axis(low, high, left, WIDTH - 24.0, log_x)
    top, bottom = legend + 16.0, legend + 16.0 + step * len(rows)
    for at, label in _y_ticks(low, high, log_x):
        draw_line(svg, x(at), top, x(at), bottom, "grid")
        draw_text(svg, x(at), bottom + 18.0, label, "tick", anchor="middle")
    for i, (name, marks) in enumerate(rows):
        py = top + step * (i + 0.5)
        draw_text(svg, left - 14.0, py + 4.5, fit_text(name, left - 20.0), "label", anchor="end")
        draw_line(svg, left, py, WIDTH - 24.0, py, "grid")
        for line, p in marks:
            if _drawable(p, False, log_x):
                group = ET.SubElement(svg, "g", {"class": f"c{line.colour} {line.look}"})
                ET.SubElement(group, "title").text = f"{line.label}: {number(p.y)} (sd {number(p.sd)})"
                ends = [min(max(e, low), high) for e in (p.y - p.sd, p.y + p.sd)]
                draw_line(group, x(ends[0]), py, x(ends[1]), py, "bar")
                _mark(svg, line, x(p.y), py)
    draw_line(svg, left, bottom, WIDTH - 24.0, bottom, "axis")
    draw_text(svg, (left + WIDTH - 24.0) / 2.0, height - 6.0, x_label, "axis-label", anchor="middle")
    return markup(svg)


class _Axis:
    def __init__(self, low: float, high: float, start: float, end: float, log: bool) -> None:
        self.log, self.start, self.end = log, start, end
        self.low, self.high = (math.log(low), math.log(high)) if log else (low, high)
        if self.high == self.low:
            self.low, self.high = self.low - 1.0, self.high + 1.0

    def __call__(self, value: float) -> float:
        at = math.log(value) if self.log else value
        return self.start + (at - self.low) / (self.high - self.low) * (self.end - self.start)


def _drawable(p: Point, log_x: bool, log_y: bool) -> bool:
    if not (math.isfinite(p.x) and math.isfinite(p.y)):
        return False
    return (p.x > 0.0 or not log_x) and (p.y > 0.0 or not log_y)


def _range(lines: Sequence[Line], log: bool) -> tuple[float, float]:
    means = [p.y for a in lines for p in a.points]
    highs = [p.y + p.sd for a in lines for p in a.points]
    if not log:
        low, high = min(0.0, min(means)), max(0.0, *highs)
        return low * 1.04, high * 1.04 or (1.0 if low == 0.0 else 0.0)
    # a bar that reaches below zero has no end on this axis: it stops at a third of its mean
    lows = [max(p.y - p.sd, p.y / 3.0) for a in lines for p in a.points]
    low, high = min(lows) / 1.2, max(highs) * 1.2
    return (low / 3.0, high * 3.0) if high < low * 3.0 else (low, high)


def _y_ticks(low: float, high: float, log: bool) -> list[tuple[float, str]]:
    if not log:
        raw = (high - low) / 5.0
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [(k * step, plain(round(k * step, 12))) for k in range(first, last + 1)]
    a, b = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((b - a + 1) / 9))
    decades = [(10.0**k, power_of_ten(10.0**k)) for k in range(a, b + 1) if k % every == 0]
    if len(decades) >= 3:
        return decades
    within = (1, 2, 3, 5, 7) if high / low < 30.0 else (1, 3)
    fine = [m * 10.0**k for k in range(a - 1, b + 1) for m in within]
    return [(t, plain(float(f"{t:.3g}"))) for t in fine if low <= t <= high]


def _shade(svg: ET.Element, line: Line, x: _Axis, y: _Axis) -> None:
    """One standard deviation to either side, as an area under the lines."""
    if len(line.points) < 2 or not any(p.sd > 0.0 for p in line.points):
        return
    ends = []
    for p in line.points:
        low = max(p.y - p.sd, p.y / 3.0) if y.log else p.y - p.sd
        ends.append([min(max(y(value), y.end), y.start) for value in (p.y + p.sd, low)])
    places = [x(p.x) for p in line.points]
    around = [*zip(places, (e[0] for e in ends), strict=True)]
    around += reversed([*zip(places, (e[1] for e in ends), strict=True)])
    path = "".join(f"{'L' if i else 'M'}{px(a)} {px(b)}" for i, (a, b) in enumerate(around)) + "Z"
    group = ET.SubElement(svg, "g", {"class": f"c{line.colour} {line.look}"})
    ET.SubElement(group, "path", {"d": path, "class": "band"})


def _draw(svg: ET.Element, line: Line, x: _Axis, y: _Axis, shift: float, bars: bool = True) -> None:
    group = ET.SubElement(svg, "g", {"class": f"c{line.colour} {line.look} d{line.dash}"})
    ET.SubElement(group, "title").text = line.label
    place = [(x(p.x), y(p.y)) for p in line.points]
    if len(place) > 1:
        path = "".join(f"{'L' if i else 'M'}{px(a)} {px(b)}" for i, (a, b) in enumerate(place))
        ET.SubElement(group, "path", {"d": path, "class": "line"})
    if line.look == "bound":
        return
    for p, (a, b) in zip(line.points, place, strict=True):
        if bars and p.sd > 0.0:
            # a bar that the chart cuts off has no end there
            over, under = y(p.y + p.sd), p.y - p.sd
            ends = [over] if over >= y.end else []
            if y.log and under <= p.y / 3.0:
                below = y(p.y / 3.0)
            else:
                below = y(under)
                ends += [below] if below <= y.start else []
            draw_line(group, a + shift, max(over, y.end), a + shift, min(below, y.start), "bar")
            for at in ends:
                draw_line(group, a + shift - 2.5, at, a + shift + 2.5, at, "bar")
        _shape(group, line, a, b)


def _mark(svg: ET.Element, line: Line, at: float, y: float) -> None:
    group = ET.SubElement(svg, "g", {"class": f"c{line.colour} {line.look} d{line.dash}"})
    ET.SubElement(group, "title").text = line.label
    _shape(group, line, at, y)


def _shape(parent: ET.Element, line: Line, x: float, y: float) -> None:
    kind = (line.colour + line.dash) % 5
    r = 2.8 if line.look == "trivial" else 4.2
    if kind == 0:
        draw_circle(parent, x, y, r, "mark")
        return
    corners = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0.0, -r - 1.0), (r + 1.0, r), (-r - 1.0, r)],
        3: [(0.0, -r - 1.5), (r + 1.5, 0.0), (0.0, r + 1.5), (-r - 1.5, 0.0)],
        4: [(0.0, r + 1.0), (r + 1.0, -r), (-r - 1.0, -r)],
    }[kind]
    path = "".join(f"{'L' if i else 'M'}{px(x + a)} {px(y + b)}" for i, (a, b) in enumerate(corners)) + "Z"
    ET.SubElement(parent, "path", {"d": path, "class": "mark"})


def _names(svg: ET.Element, lines: Sequence[Line], x: _Axis, y: _Axis, right: float, top: float, bottom: float) -> None:
    """The name of each line beside its end, pushed apart where they would overlap."""
    order = sorted(lines, key=lambda a: y(a.points[-1].y))
    spacing = min(_SPACING, (bottom - top + 40.0) / max(len(order), 1))
    places: list[float] = []
    for line in order:
        wanted = y(line.points[-1].y)
        places.append(max(wanted, places[-1] + spacing) if places else max(wanted, top))
    excess = places[-1] - (bottom + 30.0)
    if excess > 0.0:
        # push back up from the bottom
        for i in range(len(places) - 1, -1, -1):
            limit = bottom + 30.0 - spacing * (len(places) - 1 - i)
            places[i] = min(places[i], limit)
    for line, at in zip(order, places, strict=True):
        end = line.points[-1]
        group = ET.SubElement(svg, "g", {"class": f"c{line.colour} {line.look}"})
        ET.SubElement(group, "title").text = line.label
        path = f"M{px(x(end.x) + 8.0)} {px(y(end.y))}L{px(right + 4.0)} {px(at)}"
        ET.SubElement(group, "path", {"d": path, "class": "leader"})
        draw_text(group, right + 8.0, at + 4.0, fit_text(line.label, _LABELS - 14.0), "name")


def colours(names: Sequence[str], before: Mapping[str, int]) -> dict[str, int]:
    """A colour for each name: the one that it has already, else the least used by the others here."""
    out = {name: before[name] for name in names if name in before}
    for name in names:
        if name not in out:
            used = [*out.values()]
            out[name] = min(range(COLOURS), key=lambda c: (used.count(c), sum(v == c for v in before.values()), c))
    return out


def line_of(series: Mapping[str, Any], metric: str, colour: int, label: str, dash: int) -> Line:
    """A series of results as a line of a chart."""
    look = "trivial" if series["trivial"] else "none" if series["status"] == "none" else "private"
    points = tuple(
        Point(float(p["x"]), p[metric]["mean"], p[metric]["sd"])
        for p in series["points"]
        if p[metric]["mean"] is not None
    )
    return Line(label, points, colour, look, dash)
