"""The charts measure what they claim: positions against numbers, shares against widths, labels inside the frame."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from dprl.report import charts
from dprl.report.charts import text_width

ROWS = [
    charts.Row(name="a", value=41.8, interval=(29.2, 54.5), text="41.8 (29.2 to 54.5)"),
    charts.Row(name="b", value=-17.6, interval=(-29.2, -6.0), reference=-12.0, text="−17.6 (−29.2 to −6.0)"),
]


def read(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def having(root: ET.Element, kind: str) -> list[ET.Element]:
    return [e for e in root.iter() if e.get("class") == kind]


def test_forest_is_to_scale() -> None:
    drawn = charts.forest(ROWS)
    (x0, first, _), *_, (x1, last, _) = drawn["ticks"]
    v0, v1 = (float(label.replace("\N{MINUS SIGN}", "-")) for label in (first, last))
    scale = (x1 - x0) / (v1 - v0)
    for row, of in zip(ROWS, drawn["rows"], strict=True):
        assert of["value"] == pytest.approx(x0 + (row.value - v0) * scale, abs=0.02)  # type: ignore[operator]
        ends = [x0 + (end - v0) * scale for end in row.interval or ()]
        assert [x for x, _ in of["ends"]] == pytest.approx(ends, abs=0.02)
        assert not any(past for _, past in of["ends"])
        assert (of["reference"] is None) == (row.reference is None)
    assert drawn["has_reference"]
    assert not drawn["leaves_axis"]
    assert [label for _, label, zero in drawn["ticks"] if zero] == ["0"]


def test_one_enormous_interval_does_not_flatten_the_others() -> None:
    wide = charts.Row(name="c", value=10.0, interval=(-1e6, 2e6), text="10")
    rows = [*ROWS, wide]
    low, high = charts.forest_domain(rows)
    assert high - low < 1000.0
    assert all(low <= end <= high for row in ROWS for end in row.interval or ())
    drawn = charts.forest(rows)
    assert [past for _, past in drawn["rows"][2]["ends"]] == [True, True]
    assert drawn["leaves_axis"]


def test_an_open_end_is_marked_and_a_missing_interval_is_nothing() -> None:
    half = charts.Row(name="h", value=1.0, interval=(-math.inf, 2.0), text="h")
    none = charts.Row(name="n", value=1.5, interval=None, text="n")
    *_, of_half, of_none = charts.forest([*ROWS, half, none])["rows"]
    assert [past for _, past in of_half["ends"]] == [True, False]
    assert of_none["ends"] == []
    assert not charts.forest([*ROWS, none])["leaves_axis"]


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1.0, 1e5, 1e12])
@pytest.mark.parametrize("shift", [0.0, -3.0, 1e4])
def test_axis_is_readable_at_any_scale(scale: float, shift: float) -> None:
    values = [(i + shift) * scale for i in range(4)]
    rows = [charts.Row(name="p", value=value, interval=(value - scale, value + scale), text="") for value in values]
    ticks = charts.forest(rows)["ticks"]
    assert len(ticks) >= 2
    assert len({label for _, label, _ in ticks}) == len(ticks)
    # of an axis as narrow as a telephone, in pixels
    edges = [(3.6 * x, text_width(label, 12.0) / 2.0) for x, label, _ in ticks]
    for (x0, half0), (x1, half1) in pairwise(edges):
        assert x0 + half0 < x1 - half1


@pytest.mark.parametrize("top", [1.0, 1e9, 1e-9])
def test_labels_stay_inside_the_frame(top: float) -> None:
    root = read(charts.curve([0.0, 1e6], [0.0, top], "name", (-top, top)))
    for text in root.iter("text"):
        if text.get("transform"):
            continue
        length = text_width(str(text.text), 12.0)
        start = float(text.attrib["x"]) - {"middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]] * length
        assert start >= -0.5
        assert start + length <= float(root.attrib["width"]) + 0.5
    assert root.findtext("title")


@pytest.mark.parametrize("share", [0.25, 0.0, 1.0, 1e-12])
def test_bar_is_cut_at_the_share(share: float) -> None:
    (below,), (above,) = (having(read(charts.share_bar(share, "title")), kind) for kind in ("sampling", "privacy"))
    assert below.attrib["width"] == "100%"
    assert float(above.attrib["width"].rstrip("%")) == pytest.approx(100.0 * share, abs=0.01)


def test_curve_rises_where_the_values_rise() -> None:
    grid, values = [0.0, 10.0, 20.0], [1.0, 4.0, 2.0]
    root = read(charts.curve(grid, values, "age", charts.curve_domain(values)))
    (path,) = having(root, "curve")
    points = [tuple(map(float, p.split())) for p in path.attrib["d"].replace("M", "").split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert (y0 - y1) / (y0 - y2) == pytest.approx(3.0, abs=0.01)  # the page's vertical axis points down


def test_a_flat_or_single_point_curve_has_an_axis() -> None:
    low, high = charts.curve_domain([5.0, 5.0, math.nan])
    assert low < 5.0 < high
    root = read(charts.curve([3.0], [5.0], "x", (low, high)))
    assert len(having(root, "dot")) == 1
    assert having(root, "curve") == []
