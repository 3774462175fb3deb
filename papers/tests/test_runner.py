"""Runs: shared cells, resuming after a kill, the same numbers from the same seed, and plugins."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from papers.tests.controlled import contents
from papers.tests.tiny import PLUGIN, SPEC, plugin_file, tiny_request

from dprl.errors import DprlError
from dprl_papers.harness import reproduce as reproduce_module
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.problem import Logs, Setting, prefix
from dprl_papers.harness.reproduce import PROVENANCE, REPORT, RESULTS, make_request, reproduce
from dprl_papers.harness.results import statistics
from dprl_papers.harness.runner import Runner, Task
from dprl_papers.harness.spec import parse
from dprl_papers.harness.store import Store


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return load_plugin(plugin_file(tmp_path_factory.mktemp("plugin")))


@pytest.fixture
def paper():
    return parse(SPEC, "tiny.toml")


@pytest.fixture
def request_of(paper, plugin):
    return partial(tiny_request, paper, plugin)


def test_every_figure_and_every_number(tmp_path, request_of):
    results = reproduce(request_of(), tmp_path / "out")
    assert json.loads((tmp_path / "out" / RESULTS).read_text()) == results
    assert [f["name"] for f in results["figures"]] == ["1", "2", "3"]
    one = {s["name"]: s for s in results["figures"][0]["series"]}
    assert set(one) == {"zero", "public-constant", "lstd", "mine", "mean-reward"}
    for series in one.values():
        assert [p["x"] for p in series["points"]] == [10.0, 40.0]
    # the trivial rows, by hand
    values = load_truth()
    point = one["zero"]["points"][0]
    assert point["rmse"]["mean"] == pytest.approx(np.sqrt(np.mean(values**2)))
    assert point["rmse"]["sd"] == pytest.approx(0.0, abs=1e-12)
    half = one["public-constant"]["points"][1]
    assert half["rmse"]["mean"] == pytest.approx(np.sqrt(np.mean((values - 0.5) ** 2)))
    assert half["rmse/range"]["mean"] == pytest.approx(half["rmse"]["mean"])
    assert [c["verdict"] for c in results["figures"][0]["claims"]] == ["holds", "does not hold", "holds"]
    # one curve where there is no privacy; the private one at both budgets
    two = {s["name"]: [p["epsilon"] for p in s["points"]] for s in results["figures"][1]["series"]}
    assert two["mine"] == [0.1, 1.0]
    places = [(p["domain"], p["units"]) for p in results["figures"][2]["series"][0]["points"]]
    assert places == [("tiny", 10), ("tiny", 40)]


def load_truth():
    from dprl_papers.domains.chain import Chain

    return Chain(length=6, horizon=60).values()


def test_figures_share_cells(request_of, tmp_path):
    """Zero at 40 is in all three figures, and without privacy no budget tells cells apart."""
    request = request_of()
    cells = {cell for f in request.figures for *_, cell in request.points(f)}
    assert len([c for c in cells if (c.method, c.units) == ("zero", 40)]) == 1
    assert len([c for c in cells if (c.method, c.units) == ("mine", 40)]) == 2
    reproduce(request, tmp_path)
    assert len(list((tmp_path / "cells").iterdir())) == 2 * len(cells)


def test_the_same_seed_gives_the_same_bytes(tmp_path, request_of):
    reproduce(request_of(), tmp_path / "a")
    reproduce(request_of(), tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert (tmp_path / "a" / REPORT).read_bytes() == (tmp_path / "b" / REPORT).read_bytes()


def test_another_seed_gives_other_numbers(tmp_path, request_of):
    request = request_of()
    first = reproduce(request, tmp_path / "a")
    other = reproduce(replace(request, paper=replace(request.paper, seed=100)), tmp_path / "b")
    pick = lambda results: results["figures"][0]["series"][2]["points"][0]["rmse"]["mean"]  # noqa: E731
    assert pick(first) != pick(other)


@pytest.mark.parametrize("after", [1, 5])
def test_a_run_that_was_interrupted_goes_on(tmp_path, request_of, monkeypatch, after):
    """Between two cells: what was finished stays, is not computed again, and the results are the same bytes."""
    reproduce(request_of(), tmp_path / "whole")
    computed, compute = [], Runner.compute

    def counted(self, task):
        if len(computed) == after:
            raise KeyboardInterrupt
        computed.append(task)
        return compute(self, task)

    monkeypatch.setattr(Runner, "compute", counted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(request_of(), tmp_path / "killed")
    assert len(list((tmp_path / "killed" / "cells").iterdir())) == after
    assert not (tmp_path / "killed" / RESULTS).exists()
    before = list(computed)
    monkeypatch.setattr(Runner, "compute", lambda self, task: computed.append(task) or compute(self, task))
    reproduce(request_of(), tmp_path / "killed")
    assert not set(before) & set(computed[after:])
    assert len(computed) == len(set(computed))
    assert contents(tmp_path / "whole") == contents(tmp_path / "killed")
    # and a third run computes nothing
    monkeypatch.setattr(Runner, "compute", lambda *_: pytest.fail("computed again"))
    reproduce(request_of(), tmp_path / "killed")


def test_more_trials_keep_those_that_are_there(tmp_path, request_of, monkeypatch):
    reproduce(request_of(trials=2), tmp_path)
    tasks, compute = [], Runner.compute
    monkeypatch.setattr(Runner, "compute", lambda self, task: tasks.append(task) or compute(self, task))
    reproduce(request_of(trials=4), tmp_path)
    assert {(task.first, task.last) for task in tasks} == {(2, 4)}


def test_what_a_run_was_made_of(tmp_path, request_of, monkeypatch):
    monkeypatch.setattr(reproduce_module, "commit", lambda: "abc")
    reproduce(request_of(figure="1"), tmp_path)
    found = json.loads((tmp_path / PROVENANCE).read_text())
    assert (found["commit"], found["seeds"], found["figures"]) == ("abc", [0, 4], ["1"])
    assert "jax" in found["versions"]
    cells = {(one["cell"]["method"], one["cell"]["units"], one["first"]) for one in found["seconds"]}
    assert len(cells) == len(found["seconds"]) == 2 * 2 * 5


def test_changed_code_is_computed_again(tmp_path, request_of, monkeypatch):
    request = request_of()
    runner = Runner(request, Store(tmp_path, "004"))
    (cell, *_) = [c for f in request.figures for *_, c in request.points(f) if c.method == "mine"]
    before = runner.key(Task(cell, 0, 2))
    path = request.plugin.path
    path.write_text(PLUGIN + "\nCHANGED = True\n")
    try:
        after = Runner(request, Store(tmp_path, "004")).key(Task(cell, 0, 2))
    finally:
        path.write_text(PLUGIN)
    assert before["method_code"] != after["method_code"]
    assert before["domain_code"] != after["domain_code"]
    assert {k for k in before if before[k] != after[k]} == {"method_code", "domain_code"}


def test_a_quick_run(tmp_path, request_of):
    results = reproduce(request_of(quick=True), tmp_path)
    assert results["quick"]
    assert results["trials"] == 2
    assert [p["x"] for p in results["figures"][0]["series"][0]["points"]] == [10.0]
    assert results["domains"]["tiny"]["units"] == 20
    assert "Quick run" in (tmp_path / REPORT).read_text()


def test_the_domain_of_a_plugin_is_a_figure(paper, plugin, tmp_path):
    """A domain that no specification names: a figure of its own, with the plugin's methods in it."""
    from dprl_papers.harness.spec import load_paper

    request = make_request(load_paper("004"), figure="tiny", trials=2, plugin=replace(plugin, units=(10.0, 20.0)))
    (figure,) = request.figures
    small = replace(figure, methods=("zero", "public-constant"))
    results = reproduce(replace(request, figures=(small,)), tmp_path)
    series = {s["name"] for s in results["figures"][0]["series"]}
    assert series == {"zero", "public-constant", "mean-reward", "mine"}
    assert results["plugin"] == "tiny_plugin.py"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "defines neither METHODS nor DOMAIN"),
        ("METHODS = 3", "METHODS must be a sequence"),
        ("METHODS = ('zero',)", "METHODS must be a sequence"),
        ("DOMAIN = 3", "DOMAIN must be"),
        ("raise ValueError('no')", "^The plugin file '.*plugin.py' cannot be executed: it raised ValueError: no.$"),
        (PLUGIN.replace('name="mine"', 'name="mean-reward"'), "there is a method called 'mean-reward' already"),
        (PLUGIN.replace("values=mean_reward", ""), "exactly one of weights, values, batch, value and curves"),
    ],
)
def test_plugins_that_are_refused(tmp_path, text, sentence):
    path = tmp_path / "plugin.py"
    path.write_text(text)
    with pytest.raises(DprlError, match=sentence) as error:
        load_plugin(path)
    assert "\n" not in str(error.value)


def test_what_a_request_refuses(paper, plugin, tmp_path):
    with pytest.raises(DprlError, match="no figure '9'; there are 1, 2, 3"):
        make_request(paper, figure="9")
    with pytest.raises(DprlError, match="must be at least 1"):
        make_request(paper, trials=0)
    with pytest.raises(DprlError, match="There is no method 'mine'"):
        make_request(paper, figure="1")
    with pytest.raises(DprlError, match="needs a name of its own: 'tiny' is taken"):
        make_request(paper, plugin=plugin)
    twice = (*plugin.methods, replace(plugin.methods[0], name="zero"))
    with pytest.raises(DprlError, match="there is a method called 'zero' already"):
        make_request(replace(paper, logs=()), plugin=replace(plugin, methods=twice))


def test_a_method_of_the_wrong_shape(tmp_path, request_of):
    request = request_of(figure="1")
    wrong = replace(request.methods["mine"], weights=lambda problem, key: np.zeros(3))
    with pytest.raises(DprlError, match="Method 'mine' must give 5 numbers a trial on the domain 'tiny'"):
        reproduce(replace(request, methods={**request.methods, "mine": wrong}), tmp_path)


def test_answers_that_are_not_finite_are_counted(tmp_path, request_of):
    request = request_of(figure="1", trials=2)
    broken = replace(
        request.methods["mine"],
        clamp=False,
        weights=lambda problem, key: np.full(5, np.inf if problem.seed == 0 else 0.1),
    )
    results = reproduce(replace(request, methods={**request.methods, "mine": broken}), tmp_path)
    (mine,) = [s for s in results["figures"][0]["series"] if s["name"] == "mine"]
    assert mine["points"][0]["rmse"]["not_finite"] == 1
    assert mine["points"][0]["rmse"]["mean"] is not None
    assert "1 not finite" in (tmp_path / REPORT).read_text()


def test_a_smaller_log_is_the_beginning(plugin):
    domain = plugin.domain
    log = domain.log(30, 5)
    small = prefix(log, domain.bounds(10))
    assert small.units == 10
    assert np.array_equal(small.reward, log.reward[: len(small.reward)])
    assert small.bounds.units == 10


def test_layouts_agree(plugin):
    """Shared transitions, flat rows and padded rows of a trial hold the same sums."""
    logs = Logs(plugin.domain, 30, (4, 5))
    shared, rows, padded = logs.shared_layout(10), logs.rows(1, 10), logs.padded(1, 10)
    np.testing.assert_allclose(shared.weight[1].sum(axis=1), padded.weight.sum(axis=1), rtol=1e-5)
    whole = np.einsum("bl,bln->bn", padded.weight * padded.rho * padded.reward, padded.phi)
    np.testing.assert_allclose(shared.weight_rho_reward[1] @ shared.phi, whole, atol=1e-5)
    weighted = (rows.weight * rows.rho * rows.reward)[:, None] * rows.phi
    np.testing.assert_allclose(weighted.sum(axis=0), whole.sum(axis=0), atol=1e-5)
    np.testing.assert_allclose(shared.start[1].sum(), 10.0)
    assert padded.weight.shape[1] == 60  # no longer than the horizon


def test_statistics():
    assert statistics([1.0, 3.0, None]) == {"mean": 2.0, "sd": pytest.approx(np.sqrt(2.0)), "se": 1.0, "not_finite": 1}
    assert statistics([None])["mean"] is None
    assert statistics([2.0])["sd"] == 0.0


def test_the_setting_of_a_cell(request_of, tmp_path):
    request = request_of()
    runner = Runner(request, Store(tmp_path, "004"))
    (cell, *_) = [c for f in request.figures for *_, c in request.points(f) if c.method == "mine" and c.epsilon == 1.0]
    setting = runner.setting(cell)
    assert isinstance(setting, Setting)
    assert (setting.budget.epsilon, setting.budget.delta, setting.units) == (1.0, 1e-5, 40)
