"""Figures of errors along a run, claims about them, and figures that need an optional dependency."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from papers.tests.tiny import SPEC, plugin_file, tiny_request

from dprl.errors import DprlError
from dprl_papers.harness import reproduce as reproduce_module
from dprl_papers.harness.method import Method
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.reproduce import REPORT, make_request, reproduce
from dprl_papers.harness.runner import curves_of
from dprl_papers.harness.spec import parse

CURVES = """
def errors(trials, keys, epochs):
    CALLS.append((len(trials), trials.setting.units, trials.setting.budget.epsilon, epochs))
    at = np.asarray(epochs or (7,), dtype=float)
    seeds = np.asarray(trials.seeds, dtype=float)[:, None]
    rmse = 0.1 * (1.0 + seeds) / trials.setting.budget.epsilon / (1.0 + at)
    return {"rmse": rmse, "mspbe": rmse**2, "objective": -rmse}


CALLS = []
METHODS = (
    *METHODS,
    Method(name="along", label="along", guarantee="verified", curves=errors),
    Method(name="free", label="free", guarantee="none", curves=errors),
)
"""
FIGURE = """
[[figures]]
name = "4"
title = "Figure 4"
where = "Section 8"
kind = "curves"
domains = ["tiny"]
x = "epoch"
values = [0, 1, 3]
quick = [0, 1]
units = [10]
epsilon = [0.5, 2.0]
metric = "objective"
methods = ["public-constant", "along", "free"]
  [[figures.claims]]
  words = "A larger budget is better."
  kind = "ratio"
  method = "along"
  other = "along"
  epsilon = 2.0
  other_epsilon = 0.5
  metric = "objective"
  at = [1, 3]
  at_least = 4.0
  [[figures.claims]]
  words = "It is below a tenth at last."
  kind = "below"
  method = "along"
  metric = "objective"
  at = [3]
  at_most = 0.1

[[figures]]
name = "5"
title = "Figure 5"
where = "Section 9"
domains = ["tiny"]
values = [10, 40]
quick = [10]
metric = "rmse"
methods = ["zero", "along"]

[[figures]]
name = "6"
title = "Figure 6"
where = "Section 10"
domains = ["tiny"]
values = [10]
methods = ["zero"]
extra = "nothing-of-that-name"
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    path = plugin_file(tmp_path_factory.mktemp("plugin"))
    path.write_text(path.read_text() + CURVES)
    return load_plugin(path)


@pytest.fixture(scope="module")
def paper():
    return parse(SPEC + FIGURE, "tiny.toml")


@pytest.fixture(scope="module")
def ran(plugin, paper, tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves") / "out"
    request = tiny_request(paper, plugin)
    request = replace(request, figures=tuple(f for f in request.figures if f.name in ("4", "5")))
    return request, reproduce(request, folder), folder


def test_every_epoch_of_every_curve(ran):
    _, results, _ = ran
    figure = results["figures"][0]
    lines = {(s["name"], s["epsilon"]): s for s in figure["series"]}
    assert {("along", 0.5), ("along", 2.0), ("free", None), ("public-constant", None)} < set(lines)
    for epsilon in (0.5, 2.0):
        points = lines["along", epsilon]["points"]
        assert [p["x"] for p in points] == [0.0, 1.0, 3.0]
        # trials have seeds 0 to 3: the mean of a tenth of 1 + seed is 0.25; in two chunks of two
        found = [p["rmse"]["mean"] for p in points]
        assert found == pytest.approx([0.25 / epsilon, 0.125 / epsilon, 0.0625 / epsilon])
        assert points[0]["objective"]["mean"] == pytest.approx(-0.25 / epsilon)
        assert points[0]["rmse"]["sd"] == pytest.approx(0.1 * np.std([1, 2, 3, 4], ddof=1) / epsilon)
    # a method without curves is a level line, and has no objective
    level = lines["public-constant", None]["points"]
    assert len({p["rmse"]["mean"] for p in level}) == 1
    assert level[0]["objective"] == {"mean": None, "sd": None, "se": None, "not_finite": 0}


def test_figures_of_errors_have_the_answer(ran):
    figure = next(f for f in ran[1]["figures"] if f["name"] == "5")
    points = next(s for s in figure["series"] if s["name"] == "along")["points"]
    assert [p["rmse"]["mean"] for p in points] == pytest.approx([0.25 / 0.1 / 8.0] * 2)


def test_claims_compare_budgets_and_distances_from_zero(ran):
    first, second = ran[1]["figures"][0]["claims"]
    assert first["verdict"] == "holds"
    assert "at ε = 0.5 and 2" in first["text"]
    assert second["verdict"] == "does not hold"  # 0.0625 / 0.5 is not
    assert "at epoch 3" in second["text"]


def test_one_cell_a_curve_and_none_twice(ran, plugin):
    request, _, folder = ran
    calls = plugin.methods[-2].curves.__globals__["CALLS"]
    runs = [c for c in calls if c[3]]
    # two chunks of trials; two budgets with privacy, and one cell whatever the budget without
    assert sorted(set(runs)) == [(2, 10, 0.5, (0, 1, 3)), (2, 10, 1.0, (0, 1, 3)), (2, 10, 2.0, (0, 1, 3))]
    assert len(runs) == 6
    calls.clear()
    reproduce(request, folder)
    assert not calls


def test_the_page(ran):
    _, results, folder = ran
    page = (folder / REPORT).read_text()
    labels = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    assert labels[:3] == [f"{name} against epoch" for name in ("|L(θ, ω)|", "MSPBE", "RMSE")]
    assert "epoch 3" in page
    assert not re.search(r"\b(nan|NaN|None)\b", page)
    assert [f["kind"] for f in results["figures"]] == ["curves", "errors"]


def test_what_a_method_must_give():
    def method(found):
        return Method(name="odd", label="odd", guarantee="none", curves=lambda trials, keys, at: found)

    trials = range(2)
    assert curves_of(method({"rmse": np.ones((2, 3))}), trials, None, (0, 1, 2)) == {"rmse": [[1.0] * 3] * 2}
    assert curves_of(method({"rmse": np.full((2, 1), np.inf)}), trials, None, ()) == {"rmse": [[None]] * 2}
    for found, sentence in (
        ({"rmse": np.ones(2)}, "one number a trial and epoch"),
        ({"rmse": np.ones((2, 3)), "speed": np.ones((2, 3))}, "must measure some of objective, mspbe"),
        ({}, "must measure some of"),
    ):
        with pytest.raises(DprlError, match=sentence):
            curves_of(method(found), trials, None, (0, 1, 2))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('x = "epoch"', 'x = "units"', "x is epoch for curves, and for nothing else"),
        ("values = [0, 1, 3]", "values = [0, 3, 1]", "epochs must increase, and be whole numbers"),
        ("values = [0, 1, 3]", "values = [0, 1, 2.5]", "epochs must increase, and be whole numbers"),
        ("other_epsilon = 0.5", "other_epsilon = 0.7", "other_epsilon must be one of the figure's"),
    ],
)
def test_what_a_specification_refuses(old, new, sentence):
    assert old in FIGURE
    with pytest.raises(DprlError, match=re.escape(sentence)):
        parse(SPEC + FIGURE.replace(old, new, 1), "x.toml")


def test_a_figure_without_its_optional_dependency(paper, plugin, tmp_path, monkeypatch):
    request_of = partial(make_request, replace(paper, logs=()), plugin=replace(plugin, units=(10.0,)))
    request = request_of()
    assert [f.name for f in request.left_out] == ["6"]
    assert "6" not in [f.name for f in request.figures]
    with pytest.raises(DprlError, match=r"Figure 6 needs an optional dependency: pip install 'dprl\[nothing-of"):
        request_of("6")
    page = replace(tiny_request(paper, plugin), figures=(paper.figure("5"),))
    reproduce(page, tmp_path / "out")
    assert "Left out: “Figure 6”, which needs <code>pip install 'dprl[nothing-of-that-name]'" in (
        tmp_path / "out" / REPORT
    ).read_text().replace("&#39;", "'")
    monkeypatch.setitem(reproduce_module._MODULES, "nothing-of-that-name", "json")
    assert not request_of().left_out
