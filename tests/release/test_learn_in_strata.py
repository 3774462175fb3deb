"""A rule learned from a log whose propensities nobody wrote down, through the front door."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.report.comparisons import learned_words

from .resumable import Learning, fix_key, on_the_command_line, refused_before_the_charge

PEOPLE, BUDGET = 3_000, Budget(2.0, 1e-5)
VERIFIER = Path(__file__).parents[2] / "verify" / "dprl_verify.py"
BOUNDS = Bounds(
    units=PEOPLE, horizon=1, reward=(0.0, 1.0), observation=((0.0, 3.0),), actions=2, observation_names=("site",),
    strata=("site",),
)  # fmt: skip
STEPS = replace(BOUNDS, horizon=2, max_importance_ratio=4.0)


def columns(horizon: int = 1) -> dict[str, np.ndarray]:
    """The later a site comes, the more readily people are treated; at the first two it helps, at the others not."""
    rng, rows = np.random.default_rng(3), PEOPLE * horizon
    site = rng.integers(0, 4, rows)
    action = (rng.random(rows) < 0.3 + 0.13 * site).astype(int)
    reward = (rng.random(rows) < 0.25 + 0.1 * site + 0.35 * (action == (site < 2))).astype(float)
    who = np.repeat(np.arange(PEOPLE), horizon)
    return {
        "person_id": who, "episode_id": who, "t": np.tile(np.arange(horizon), PEOPLE), "observation_0": site,
        "action": action, "reward": reward, "terminated": np.tile(np.arange(horizon) == horizon - 1, PEOPLE),
    }  # fmt: skip


def learned(log=None, **options) -> dprl.Release:
    return dprl.learn(columns() if log is None else log, BUDGET, **{"bounds": BOUNDS, "person": "person_id"} | options)


def test_it_is_the_best_rule_and_is_valued_beside_what_was_done():
    found = learned(seed=1)
    assert found.chosen == "action 1 where site < 1.5; else action 0"
    assert list(found.values) == ["the learned policy", "logged", "always_0", "always_1"]
    truths = {"the learned policy": 0.75, "logged": 0.40 + 0.35 * np.mean([0.3, 0.43, 0.44, 0.31])}
    truths |= {"always_0": 0.575, "always_1": 0.575}
    for name, truth in truths.items():
        low, high = found.values[name].interval
        assert low < truth < high
        assert high - low < 0.2
    for contrast in found.contrasts:
        low, high = contrast["simultaneous_interval"]
        assert low < 0.75 - truths[contrast["against"]] < high
        assert contrast["sign"] == 1
        assert contrast["confounding"] > 1.0
    assert found.propensities is not None


def test_both_verifiers_believe_it_and_it_is_read_back(tmp_path):
    paths = learned().save(tmp_path / "out")
    names = {"estimate.json", "policy.json", "propensities.json", "report.html", "certificate.json"}
    assert set(paths) == names
    verified = verification.verify(tmp_path / "out")
    assert verified.private
    assert verified.epsilon == pytest.approx(2.0, abs=1e-3)
    subprocess.run([sys.executable, VERIFIER, tmp_path / "out"], check=True, capture_output=True)
    again = dprl.evaluate(
        columns(), [str(tmp_path / "out"), "logged"], BUDGET, bounds=BOUNDS, compare=["out:logged"], seed=1
    )
    assert again.contrasts[0]["sign"] == 1
    said = learned_words(json.loads((tmp_path / "out" / "estimate.json").read_text()))
    assert said["cases"] == [(["site < 1.5"], "action 1"), (["site >= 1.5"], "action 0")]
    assert said["against_best"].startswith("It is worth 0.")


def test_over_several_steps_it_is_compared_with_what_was_done():
    found = learned(columns(2), bounds=STEPS, seed=1, algorithm=dprl.Stratified(discount=1.0))
    assert found.chosen == "action 1 where site < 1.5; else action 0"
    assert list(found.values) == ["the learned policy", "logged"]
    paid = columns(2)["reward"].sum() / PEOPLE
    for name, truth in (("the learned policy", 1.5), ("logged", paid)):
        low, high = found.values[name].interval
        assert low < truth < high
    low, high = found.contrasts[0]["interval"]
    assert low < 1.5 - paid < high


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": replace(BOUNDS, strata=None), "algorithm": dprl.Stratified()}, "behavior_prob"),
        ({"learner": "advantage"}, "a rule has an action for each stratum"),
        ({"policies": ["always:1"]}, "a rule has an action for each stratum"),
        ({"behavior_policy": "uniform"}, "leave the behaviour policy out"),
        ({"bounds": STEPS, "algorithm": dprl.Stratified(overlap="trim")}, "nothing can be trimmed"),
        ({"bounds": replace(BOUNDS, censoring_hazard="estimate")}, "censor|where people are lost"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_before_the_charge(changes, words, tmp_path):
    refused_before_the_charge(tmp_path, words, learned, **changes)


def test_interrupted_before_the_values_it_comes_to_the_same_end(tmp_path, monkeypatch):
    fix_key(monkeypatch)
    whole, trial = (Learning(tmp_path / name, columns(), learned) for name in ("whole", "trial"))
    whole.finish()
    trial.stop_before_values()
    trial.finish()
    assert trial.contents() == whole.contents()


def test_the_command_line_plans_and_learns(tmp_path, said):
    arguments = [*on_the_command_line(tmp_path, columns(), BOUNDS, 2), "--person-column", "person_id"]
    out = tmp_path / "out"
    planned = said("plan", *arguments, "--learn")
    assert any(line.endswith("fitted-q with the basis strata of 4 functions") for line in planned)
    assert sum(line.startswith("the learned policy less ") for line in planned) == 3
    first, *rest = said("learn", *arguments, "--overlap", "trim", "--out", out)
    assert first.startswith("The learned policy, action 1 where site < 1.5; else action 0, is worth 0.")
    assert "learned by fitted Q iteration: it is the chosen one, not proven the best" in rest
    assert any("--estimator is an option of importance-sampling" in line for line in said(
        "learn", *arguments, "--estimator", "trajectory", "--out", str(tmp_path / "other"), code=2
    ))  # fmt: skip
