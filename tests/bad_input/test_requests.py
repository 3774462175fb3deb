"""Requests that are wrong or extreme, through both front doors and under each algorithm: refused before anything is
spent, or honoured with noise.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import dprl as library
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.evaluation.plan import make_plan
from dprl_papers.paper_004_gpope.published import noise_multiplier

from ..sample_log import BOUNDS, BOUNDS_TOML
from .conftest import WITH_NEXT as LOG
from .test_table import ABSENT, changed

# --- bounds -------------------------------------------------------------------------------------------------------


POINTS = {
    "reward 0": ("reward = [-1, 1]", "reward = [0, 0]", 0.0),
    "reward 5": ("reward = [-1, 1]", "reward = [5, 5]", None),
    "value": ("units = 60", "units = 60\nvalue = [0.5, 0.5]", 0.5),
    "a large value": ("units = 60", "units = 60\nvalue = [-4e6, -4e6]", -4e6),
    "one component": ("[[0, 10], [-5, 5]]", "[[0, 10], [3, 3]]", None),
    "all components": ("[[0, 10], [-5, 5]]", "[[0, 0], [3, 3]]", None),
    "one action, one step": ("horizon = 4", "horizon = 1", None),
}


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [*(("importance-sampling", kind) for kind in POINTS), ("gpope", "reward 0"), ("gpope", "one component")],
)
def test_a_range_of_one_point_still_gets_noise(doors, fixed_noise, algorithm, kind):
    evaluate = functools.partial(doors["python"], algorithm=algorithm)
    old, new, value = POINTS[kind]
    assert old in BOUNDS_TOML
    bounds = BOUNDS_TOML.replace(old, new)
    found = evaluate(LOG, bounds=bounds)
    fixed_noise(2)
    again = evaluate(LOG, bounds=bounds)
    assert found.numbers[3] > 0.0
    released = [0, *range(5, len(found.numbers))]
    assert (found.numbers[released] != again.numbers[released]).all()
    assert all(m["noise_multiplier"] > 0.0 for m in found.certificate["mechanisms"])
    if value is not None:
        # public scale: as noisy as a range of max(|v|, 1) to either side
        half = max(abs(value), 1.0)
        wide = evaluate(
            LOG, bounds=BOUNDS_TOML + f"value = [{value - half}, {value + half}]\nmax_cumulative_ratio = 1\n"
        )
        point = evaluate(LOG, bounds=BOUNDS_TOML + f"value = [{value}, {value}]\nmax_cumulative_ratio = 1\n")
        assert point.numbers[3] == pytest.approx(wide.numbers[3], rel=1e-12)


def test_the_value_function_of_a_single_point_is_that_point():
    release = library.evaluate(LOG, "uniform", Budget(1.0, 1e-5), bounds=replace(BOUNDS, return_range=(0.5, 0.5)),
                               algorithm=library.GPOPE(steps=2))  # fmt: skip
    assert release.value_function is not None
    assert (release.value_function(np.zeros((3, 2))) == 0.5).all()


def test_continuous_actions_within_a_single_point(evaluate, fixed_noise):
    bounds = BOUNDS_TOML.replace("actions = 2", "action = [[1.5, 1.5]]")
    target = {"target-policy": "column:target_prob"}
    found = evaluate(LOG, bounds=bounds, **target)
    assert found.numbers[3] > 0.0
    # a density may be above one, but not zero
    assert not evaluate(changed("behavior_prob", 1.5), bounds=bounds, **target).same(
        evaluate(ABSENT, bounds=bounds, **target)
    )
    assert evaluate(changed("behavior_prob", 0.0), bounds=bounds, **target).same(
        evaluate(ABSENT, bounds=bounds, **target)
    )


# --- budgets, seeds, formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "epsilon", "holds"), [pytest.param(200, 1.0, False, marks=pytest.mark.slow), (200, 0.01, True)]
)
def test_the_published_formula_never_stands_behind_a_certificate(units, epsilon, holds):
    """Whether or not its precondition holds: the theorem does not."""
    config = library.GPOPE(calibration="as-published", steps=units)
    plan = make_plan(config, replace(BOUNDS, units=units), Budget(epsilon, 1e-5), ["uniform"])
    assert plan.claim is not None
    assert all(condition.holds for condition in plan.claim.conditions) is holds
    release = library.evaluate(
        LOG, "uniform", Budget(epsilon, 1e-5), bounds=replace(BOUNDS, units=units), algorithm=config
    )
    assert release.certificate["status"] == "as published"
    assert release.certificate["schema"] == "dprl.statement/1"


def test_the_published_formula_is_refused_elsewhere():
    sigma = noise_multiplier(200, 200, 1.0, 1e-5)
    bounds = replace(BOUNDS, units=200)
    with pytest.raises(library.DprlError, match=r"costs epsilon = .* more than the budget of 1"):
        make_plan(
            library.GPOPE(steps=200, sampling_rate=1 / 200, noise_multiplier=sigma),
            bounds,
            Budget(1.0, 1e-5),
            ["uniform"],
        )
    with pytest.raises(library.DprlError, match="noise_multiplier contradicts calibration = 'as-published'"):
        make_plan(
            library.GPOPE(calibration="as-published", noise_multiplier=2.0), bounds, Budget(1.0, 1e-5), ["uniform"]
        )
    assert make_plan(library.GPOPE(steps=5), bounds, Budget(1.0, 1e-5), ["uniform"]).claim is None


@pytest.mark.parametrize(
    "options",
    [{"step_size": 1e300}, {"step_size": 1e9}, {"step_size": 1e-300}, {"clip_norm": 1e-50, "step_size": 1e50},
     {"clip_norm": 1e90}, {"clip_norm": 1e90, "step_size": 1e-90},
     {"clip_norm": 1e32, "step_size": 1e-32}, {"step_size": 1e300, "calibration": "as-published"}],
)  # fmt: skip
def test_steps_beyond_single_precision_are_refused(options):
    with pytest.raises(library.DprlError, match="choose both nearer to 1"):
        make_plan(library.GPOPE(steps=2, **options), BOUNDS, Budget(1.0, 1e-5), ["uniform"])


@pytest.mark.parametrize(
    "options",
    [{"step_size": 1e4, "project": False}, {"clip_norm": 1e-25, "step_size": 1e29},
     *(pytest.param(options, marks=pytest.mark.slow)
       for options in ({"step_size": 1e4}, {"step_size": 1e-29}, {"clip_norm": 1e3, "step_size": 1.0}))],
)  # fmt: skip
def test_extreme_steps_that_are_taken_give_numbers(options, monkeypatch):
    seen = []
    front = sys.modules["dprl.release.private_rows"]
    plain = front.run_on_host
    monkeypatch.setattr(front, "run_on_host", lambda *a, **k: seen.append(plain(*a, **k)) or seen[-1])
    config = library.GPOPE(steps=3, **options)
    library.evaluate(LOG, "uniform", Budget(1.0, 1e-5), bounds=BOUNDS, algorithm=config)
    assert np.isfinite(np.asarray(seen[0][1])).all()


# --- where hyper-parameters came from -----------------------------------------------------------------------------


def test_provenance_stands_in_the_certificate(dprl, trial):
    """What counts as one, and what does not: tests/test_config.py."""
    run, said = trial.folder / "run.toml", "charged: charge 1 of trial"
    run.write_text(f'second_moment_weight = 0.5\n[provenance]\nsquare_scale = "{said}"\n')
    assert dprl(*trial.arguments(config=run)).code == 0
    options = json.loads((trial.out / "certificate.json").read_text())["assumed_public"]["hyper_parameters"]
    assert options["second_moment_weight"] == {"value": 0.5, "provenance": said}
    assert options["variance_margin"]["provenance"] == "library default (public)"
    assert dprl("verify", trial.out).code == 0
    assert said in (trial.out / "report.html").read_text()


# --- one budget, two runs -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_releases_at_once_on_a_budget_for_one(trial):
    arguments = [[str(a) for a in trial.arguments(epsilon="0.6", delta="6e-6", out=trial.folder / f"results{i}")]
                 for i in range(2)]  # fmt: skip
    running = [subprocess.Popen([sys.executable, "-m", "dprl", *a], stderr=subprocess.PIPE, text=True)
               for a in arguments]  # fmt: skip
    said = [process.communicate(timeout=120)[1] for process in running]
    found = [(process.returncode, err) for process, err in zip(running, said, strict=True)]
    assert sorted(code for code, _ in found) == [0, 2], found
    (refusal,) = (err for code, err in found if code)
    assert refusal.startswith("error: ")
    assert refusal.count("\n") == 1
    assert "left for 'trial'" in refusal
    assert trial.charges() == 1
    written = [i for i in range(2) if (trial.folder / f"results{i}" / "certificate.json").exists()]
    assert [found[i][0] for i in written] == [0]
    assert float(Ledger.open(trial.ledger).spent("trial").epsilon) == 0.6
