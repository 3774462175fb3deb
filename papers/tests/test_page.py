"""The page: every claim with its verdict, every method's guarantee, and no number that is none."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree as ET

import pytest
from papers.tests.tiny import SPEC, plugin_file, tiny_request

from dprl_papers.harness import charts
from dprl_papers.harness.page import _measured, guarantee_text, render, with_error
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.reproduce import REPORT, reproduce
from dprl_papers.harness.results import _verdict
from dprl_papers.harness.spec import FigureClaim, parse

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    plugin = load_plugin(plugin_file(folder))
    paper = parse(SPEC, "tiny.toml")
    results = reproduce(tiny_request(paper, plugin), folder / "out")
    return paper, results, (folder / "out" / REPORT).read_text()


def test_every_sentence_is_there_with_its_verdict(run):
    paper, results, page = run
    for figure in paper.figures:
        assert figure.title in page
        assert figure.where in page
        for claim in figure.claims:
            assert page.count(claim.words) == 2  # beside the figure, and in the table of all
    assert "Ours is better by &lt; an order of magnitude." in page
    for figure in results["figures"]:
        for claim in figure["claims"]:
            assert claim["text"] in page
    assert "Sentences put to the test: 4; of these 3 held, 0 in part, and 1 did not" in page


def test_every_table_has_every_method_and_its_guarantee(run):
    _, results, page = run
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    for figure in results["figures"]:
        for series in figure["series"]:
            inside = [t for t in tables if series["label"] in t and guarantee_text(series) in t]
            assert len(inside) >= 2, series["name"]
    assert "MSPBE" in page
    assert "of range" in page


def test_nothing_is_not_a_number(run):
    page = run[2]
    assert not re.search(r"\b(nan|NaN|inf|None|undefined)\b", page)


def test_it_loads_nothing(run):
    page = run[2]
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "<script" not in page
    assert "default-src 'none'" in page


def test_charts_are_well_formed(run):
    """Each names its methods, and has the page's own colours, which are dark where the page is."""
    found = re.findall(r'<svg role="img".*?</svg>', run[2], re.DOTALL)
    legends = re.findall(r'<ul class="legend">.*?</ul>', run[2], re.DOTALL)
    assert len(found) == len(legends) == 4  # MSPBE and RMSE of the first figure; RMSE of the second; dots of the third
    for chart, legend in zip(found, legends, strict=True):
        assert ET.fromstring(chart).tag.endswith("svg")
        names = [(item.findtext("svg") or "", (item.find("svg").tail or "").strip()) for item in ET.fromstring(legend)]
        assert {"zero", "mine"} <= {name for _, name in names}
        assert "var(--" in chart
        assert "var(--" in legend
        assert "#c010" not in chart


def test_the_same_results_give_the_same_page(run):
    paper, results, page = run
    assert render(results, paper) == page


def test_an_answer_that_is_nowhere_finite(run):
    """What cannot be drawn is left out of the chart, and said in the table."""
    paper, results, _ = run
    broken = {"mean": None, "sd": None, "se": None, "not_finite": 4}
    figure = dict(results["figures"][0])
    point = dict(figure["series"][0]["points"][0]) | dict.fromkeys(("mspbe", "rmse", "rmse/range"), broken)
    series = [dict(s) | {"points": [point, *s["points"][1:]]} for s in figure["series"]]
    page = render(dict(results) | {"figures": [figure | {"series": series}]}, paper)
    assert "not finite" in page
    assert not re.search(r"\b(nan|None)\b", page)


# --- numbers and verdicts -------------------------------------------------------------------------------------------


def points(values, xs=(10.0, 40.0)):
    return [
        {"x": x, "units": int(x), "domain": "tiny", "epsilon": 0.1, "rmse": {"mean": v}, "mspbe": {"mean": v}}
        for x, v in zip(xs, values, strict=True)
    ]


def series(**values):
    return {"1": [{"name": k, "label": k, "epsilon": None, "points": points(v)} for k, v in values.items()]}


@pytest.mark.parametrize(
    ("claim", "verdict", "text"),
    [
        ({"kind": "ratio", "other": "b", "at_least": 10.0}, "holds", "10.0 to 40.0"),
        (
            {"kind": "ratio", "other": "b", "at_least": 11.0},
            "holds in part",
            "met at 1 of 2, not where it is 10.0 at m",
        ),
        ({"kind": "ratio", "other": "b", "at_least": 50.0}, "does not hold", "at least 50"),
        ({"kind": "ratio", "other": "b", "at_least": 20.0, "at": (40.0,)}, "holds", "40.0 at m = 40"),
        ({"kind": "ratio", "other": "b", "at_most": 9.0}, "does not hold", "at most 9"),
        ({"kind": "ratio", "other": "c", "at_most": 9.0}, "not measured", "no such point"),
        ({"kind": "ratio", "other": "b", "figure": "9", "at_most": 9.0}, "not measured", "figure 9, or a method"),
        ({"kind": "below", "at_most": 0.1}, "holds", "0.0500 to 0.100"),
        ({"kind": "below", "at_most": 0.06}, "holds in part", "not where it is 0.100 at m = 10"),
        ({"kind": "spread", "at_most": 2.0}, "holds", "2.00"),
        ({"kind": "spread", "at_most": 1.9}, "does not hold", "2.00"),
    ],
)
def test_verdicts_follow_from_the_numbers(claim, verdict, text):
    figure = parse(SPEC, "x").figure("1")
    asked = FigureClaim(words="w", method="a", metric="rmse", **claim)
    found = _verdict(figure, asked, series(a=[0.1, 0.05], b=[1.0, 2.0]))
    assert found["verdict"] == verdict
    assert text in found["text"]


def test_what_is_said_of_a_guarantee():
    def of(status, *promises, trivial=False):
        return guarantee_text({"status": status, "trivial": trivial, "points": [{"guarantee": p} for p in promises]})

    promise = {"status": "verified", "claimed": 0.1, "true": 0.1, "delta": 1e-5, "words": ""}
    assert of("verified", promise, promise | {"true": 1.0}) == "verified, ε = 0.1 to 1"
    published = promise | {"true": 0.125, "words": "a lower bound"}
    assert of("as published", published) == "claims ε = 0.1; has 0.125 (a lower bound)"
    assert of("none", promise) == "no privacy"
    assert of("none", promise, trivial=True) == "sees no data"


def test_means_and_errors_share_their_digits():
    assert with_error(None, None) == "not finite"
    assert with_error(0.0, 0.0) == "0"
    assert with_error(0.07123, 0.0056) == "0.0712 ± 0.0056"
    assert with_error(123456.0, 789.0) == "123,456 ± 789"
    assert with_error(6.543e-8, 1.9e-9) == "(6.54 ± 0.19)\xa0×\xa010⁻⁸"


# --- charts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [True, False])
def test_no_point_is_dropped(log):
    """Zero, a value below it and what is not finite, alone and together, on axes that cannot show them as they are."""
    points = ((1.0, 0.0, 0.0), (2.0, math.inf, 0.0), (3.0, -4.0, 5.0), (4.0, 10.0, 1.0))
    for shown in (points, points[:2], points[1:2], points[3:], ()):
        svg = charts.chart([charts.Line("a", shown, 0)], x_label="x", y_label="y", log_x=log, log_y=log)
        chart, _, legend = str(svg).partition("<ul")
        assert ET.fromstring(chart).tag.endswith("svg")
        assert "nan" not in svg
        # each finite point is a mark of the line, and each other one a cross at the edge
        drawn = [u for u in ET.fromstring(chart).iter(f"{SVG}use") if "var(--c0)" in u.get("style", "")]
        assert len(drawn) == len(shown)
        assert bool(legend) == bool(shown)
    assert "× a: not finite at 2" in charts.chart([charts.Line("a", points[:2], 0)], x_label="x", y_label="y")


def test_no_dot_is_dropped():
    """Zero, a value below it and what is not finite are there, beside what a logarithmic axis can show."""
    means = (0.0, -4.0, 10.0, math.inf, math.nan)
    for shown in (means, means[2:3], means[3:]):
        rows = [(f"place {i}", [charts.Line("a", ((0.0, mean, 1.0),), 0)]) for i, mean in enumerate(shown)]
        svg = str(charts.dots(rows, x_label="x")).partition("<ul")[0]
        drawn = [u for u in ET.fromstring(svg).iter(f"{SVG}use") if "var(--c0)" in u.get("style", "")]
        assert len(drawn) == len(shown)
        assert "nan" not in svg


def test_two_bounds_look_unlike_and_what_was_measured_has_bars():
    """Bounds have no marks; a measured line that is grey like them has."""
    points = ((1.0, 1.0, 0.0), (2.0, 2.0, 0.0))
    bounds = [charts.Line(name, points, 0, "bound") for name in "ab"]
    measured = charts.Line("c", tuple((x, y, 0.5) for x, y, _ in points), 0, "bound")
    chart, _, legend = str(charts.chart([*bounds, measured], x_label="x", y_label="y")).partition("<ul")
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', legend)
    assert len(set(dashes)) == len(dashes) == 3
    assert not bounds[0].style["marker"]
    assert len([u for u in ET.fromstring(chart).iter(f"{SVG}use") if "var(--soft)" in u.get("style", "")]) >= 2


def test_a_line_is_broken_where_it_is_not_finite():
    """Of three points with a gap nothing joins the first and the last."""
    whole, gap = (
        str(
            charts.chart(
                [charts.Line("a", ((1.0, 1.0, 0.0), (2.0, y, 0.0), (4.0, 2.0, 0.0)), 0)], x_label="x", y_label="y"
            )
        )
        for y in (1.5, math.nan)
    )
    colour = "var(--c0)"

    def joined(svg):
        paths = [p.get("d") or "" for p in ET.fromstring(svg.partition("<ul")[0]).iter(f"{SVG}path")]
        styles = [p.get("style") or "" for p in ET.fromstring(svg.partition("<ul")[0]).iter(f"{SVG}path")]
        return sum(
            d.count("L ")
            for d, style in zip(paths, styles, strict=True)
            if f"stroke: {colour}; stroke-width: 2" in style
        )

    assert joined(whole) == 2
    assert joined(gap) == 0


def test_a_line_that_leaves_the_axis_says_where_it_ends():
    lines = [
        charts.Line(name, ((1.0, 1.0, 0.0), (2.0, y, 0.0)), i) for i, (name, y) in enumerate((("a", 1.0), ("b", 1e7)))
    ]
    svg = charts.chart(lines, x_label="x", y_label="y", most=10.0)
    assert "▲ b: 1.00 × 10⁷ at 2" in svg.replace("\N{NO-BREAK SPACE}", " ")
    assert "▲ a" not in svg


def test_colours_are_kept_from_figure_to_figure(run):
    known = {"zero": 4}
    _measured(run[1]["figures"][0], known)
    assert known["zero"] == 4
    assert len(set(known.values())) == len(known) == 5
