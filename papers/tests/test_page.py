"""The page: every claim with its verdict, every method's guarantee, and no number that is none."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from papers.tests.tiny import SPEC, plugin_file, tiny_request

from dprl_papers.harness import plots
from dprl_papers.harness.figures import _verdict
from dprl_papers.harness.page import guarantee_text, render, with_error
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.reproduce import REPORT, reproduce
from dprl_papers.harness.spec import Claim, parse


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
    charts = re.findall(r"<svg.*?</svg>", run[2], re.DOTALL)
    assert len(charts) == 4  # MSPBE and RMSE of the first figure; RMSE of the second; dots of the third
    for chart in charts:
        root = ET.fromstring(chart)
        width, height = (float(root.attrib[k]) for k in ("width", "height"))
        for element in root.iter():
            for name in ("x", "x1", "x2", "cx"):
                assert -1.0 <= float(element.attrib.get(name, 0.0)) <= width + 1.0
            for name in ("y", "y1", "y2", "cy"):
                assert -1.0 <= float(element.attrib.get(name, 0.0)) <= height + 1.0


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
    asked = Claim(words="w", method="a", metric="rmse", **claim)
    found = _verdict(None, figure, asked, series(a=[0.1, 0.05], b=[1.0, 2.0]))
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


def test_a_chart_of_nothing():
    line = plots.Line("a", (plots.Point(1.0, 0.0),), 0)
    assert "nothing to draw" in plots.chart([line], x_label="x", y_label="y")


def test_names_do_not_overlap():
    lines = [
        plots.Line(f"line {i}", (plots.Point(1.0, 1.0 + 1e-3 * i), plots.Point(2.0, 1.0)), i % 9) for i in range(20)
    ]
    root = ET.fromstring(plots.chart(lines, x_label="x", y_label="y"))
    places = sorted(float(e.attrib["y"]) for e in root.iter("text") if e.attrib["class"] == "name")
    assert len(places) == 20
    assert min(b - a for a, b in pairwise(places)) > 11.0


def test_bars_stay_on_the_chart():
    """A bar of many times its mean ends on a logarithmic axis where the axis does."""
    line = plots.Line("a", (plots.Point(1.0, 1.0, 5.0), plots.Point(2.0, 0.5, 0.1)), 0)
    root = ET.fromstring(plots.chart([line], x_label="x", y_label="y", height=300.0))
    bars = [e for e in root.iter("line") if e.attrib["class"] == "bar"]
    assert bars
    assert all(0.0 <= float(e.attrib[k]) <= 300.0 for e in bars for k in ("y1", "y2"))


def test_a_bar_that_the_chart_cuts_off_has_no_end_below_it():
    line = plots.Line("a", (plots.Point(1.0, -0.5, 3.0), plots.Point(2.0, 1.0, 0.1)), 0)
    root = ET.fromstring(plots.chart([line], x_label="x", y_label="y", height=300.0, log_y=False))
    axis = max(
        float(e.attrib["y1"])
        for e in root.iter("line")
        if e.attrib["class"] == "axis" and e.attrib["y1"] == e.attrib["y2"]
    )
    bars = [e for e in root.iter("line") if e.attrib["class"] == "bar"]
    assert len(bars) == 2 * 3 - 1
    assert all(float(e.attrib[k]) <= axis for e in bars for k in ("y1", "y2"))


def test_colours_are_kept_from_figure_to_figure():
    first = plots.colours(["a", "b"], {})
    assert plots.colours(["b", "c"], first)["b"] == first["b"]
    assert len(set(plots.colours([str(i) for i in range(9)], {}).values())) == 9
