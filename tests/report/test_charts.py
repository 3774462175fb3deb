"""The charts measure what they claim: positions against numbers, shares against widths, labels inside the frame."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from dprl.report import charts
from dprl.report.svg import text_width

ROWS = [
    charts.Row(name="a", value=41.8, interval=(29.2, 54.5), reference=None, text="41.8 (29.2 to 54.5)"),
    charts.Row(name="b", value=-17.6, interval=(-29.2, -6.0), reference=-12.0, text="−17.6 (−29.2 to −6.0)"),
]


def read(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def having(root: ET.Element, kind: str) -> list[ET.Element]:
    return [e for e in root.iter() if e.get("class") == kind]


def row_of(root: ET.Element, name: str) -> ET.Element:
    return next(g for g in root.iter("g") if str(g[0].text).startswith(f"{name}:"))


def ticks(root: ET.Element) -> list[tuple[float, float]]:
    """(position, number) of the labels below the horizontal axis."""
    found = []
    for label in having(root, "tick"):
        if label.get("text-anchor") == "middle":
            text = str(label.text).replace("\N{MINUS SIGN}", "-").replace(",", "")
            found.append((float(label.attrib["x"]), float(text)))
    return found


def test_forest_draws_to_scale() -> None:
    root = read(charts.forest(ROWS, "95%"))
    (x0, v0), *_, (x1, v1) = ticks(root)
    scale = (x1 - x0) / (v1 - v0)
    for row in ROWS:
        group = row_of(root, row.name)
        (dot,) = having(group, "dot")
        assert float(dot.attrib["cx"]) == pytest.approx(x0 + (row.value - v0) * scale, abs=0.02)  # type: ignore[operator]
        whisker = having(group, "whisker")[0]
        assert float(whisker.attrib["x1"]) == pytest.approx(x0 + (row.interval[0] - v0) * scale, abs=0.02)  # type: ignore[index]
        assert float(whisker.attrib["x2"]) == pytest.approx(x0 + (row.interval[1] - v0) * scale, abs=0.02)  # type: ignore[index]
        assert len(having(group, "reference")) == (row.reference is not None)
        assert having(group, "arrow") == []


def test_one_enormous_interval_does_not_flatten_the_others() -> None:
    wide = charts.Row(name="c", value=10.0, interval=(-1e6, 2e6), reference=None, text="10")
    rows = [*ROWS, wide]
    low, high = charts.forest_domain(rows)
    assert high - low < 1000.0
    assert all(low <= end <= high for row in ROWS for end in row.interval or ())
    group = row_of(read(charts.forest(rows, "95%")), "c")
    assert len(having(group, "arrow")) == 2
    assert charts.leaves_axis(rows)
    assert not charts.leaves_axis(ROWS)


def test_an_open_end_is_an_arrow_and_a_missing_interval_is_nothing() -> None:
    half = charts.Row(name="h", value=1.0, interval=(-math.inf, 2.0), reference=None, text="h")
    none = charts.Row(name="n", value=1.5, interval=None, reference=None, text="n")
    root = read(charts.forest([*ROWS, half, none], "95%"))
    assert len(having(row_of(root, "h"), "arrow")) == 1
    assert having(row_of(root, "n"), "arrow") == having(row_of(root, "n"), "whisker") == []
    assert not charts.leaves_axis([*ROWS, none])


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1.0, 1e5, 1e12])
@pytest.mark.parametrize("shift", [0.0, -3.0, 1e4])
def test_axis_is_readable_at_any_scale(scale: float, shift: float) -> None:
    rows = [
        charts.Row(
            name=f"policy {i}",
            value=(i + shift) * scale,
            interval=((i + shift - 1.0) * scale, (i + shift + 1.0) * scale),
            reference=None,
            text="value",
        )
        for i in range(4)
    ]
    root = read(charts.forest(rows, "95%"))
    labels = [e for e in having(root, "tick") if e.get("text-anchor") == "middle"]
    assert len(labels) >= 2
    assert len({e.text for e in labels}) == len(labels)
    edges = [(float(e.attrib["x"]), text_width(str(e.text), 12.0) / 2.0) for e in labels]
    for (x0, half0), (x1, half1) in pairwise(edges):
        assert x0 + half0 < x1 - half1


@pytest.mark.parametrize(
    "name", ["x", "a name far too long for the column beside the chart, by any measure", "漢字" * 40]
)
def test_labels_stay_inside_the_frame(name: str) -> None:
    row = charts.Row(name=name, value=1e9, interval=(-1e9, 3e9), reference=1.0, text="−1,234,567,890 (−1 to 1)")
    curve = charts.curve([0.0, 1e6], [1.0, 2.0], name, (0.0, 3.0), wide=False)
    for svg in (charts.forest([row], "95%"), curve):
        root = read(svg)
        width = float(root.attrib["width"])
        for text in root.iter("text"):
            if text.get("transform"):
                continue
            size = 13.0 if str(text.get("class")).startswith(("label", "figure")) else 12.0
            length = text_width(str(text.text), size)
            start = (
                float(text.attrib["x"]) - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]] * length
            )
            assert start >= -0.5
            assert start + length <= width + 0.5
        assert root.findtext("title")


@pytest.mark.parametrize(("privacy", "sampling"), [(1.0, 3.0), (0.0, 2.0), (2.0, 0.0), (1e-12, 1.0)])
def test_bar_is_cut_at_the_share(privacy: float, sampling: float) -> None:
    root = read(charts.share_bar(privacy, sampling, "title"))
    total = float(root.attrib["width"])

    def width(kind: str) -> float:
        return sum(float(e.attrib["width"]) for e in having(root, kind))

    assert width("privacy") / total == pytest.approx(privacy / (privacy + sampling), abs=1e-3)
    assert width("privacy") + width("sampling") == pytest.approx(total, abs=0.02)


def test_curve_rises_where_the_values_rise() -> None:
    grid, values = [0.0, 10.0, 20.0], [1.0, 4.0, 2.0]
    root = read(charts.curve(grid, values, "age", charts.curve_domain(values), wide=True))
    (path,) = having(root, "curve")
    points = [tuple(map(float, p.split())) for p in path.attrib["d"].replace("M", "").split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert (y0 - y1) / (y0 - y2) == pytest.approx(3.0, abs=0.01)  # the page's vertical axis points down


def test_a_flat_or_single_point_curve_has_an_axis() -> None:
    low, high = charts.curve_domain([5.0, 5.0, math.nan])
    assert low < 5.0 < high
    root = read(charts.curve([3.0], [5.0], "x", (low, high), wide=True))
    assert len(having(root, "dot")) == 1
    assert having(root, "curve") == []
