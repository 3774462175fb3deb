"""Weights of people who stay: without noise they give the value as if nobody had been lost."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.bounds_file import read_bounds
from dprl.data.readers import read_log
from dprl.environments.bandit import bandit_bounds
from dprl.errors import DprlError
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan

BUDGET = Budget(1.0, 1e-5)
STAYS = (0.75, 0.5)  # in states 0 and 1, whose rewards are the state and the action
BOUNDS = Bounds(
    units=256, horizon=2, reward=(0.0, 2.0), observation=((0.0, 1.0),), actions=2, max_importance_ratio=3.2,
    max_cumulative_ratio=3.2**2,
)  # fmt: skip
TARGET = 0.8  # chance of action 1, where the log has a half; action 1 leads to state 1, action 0 to state 0


def treats(states):
    return np.tile([1.0 - TARGET, TARGET], (len(states), 1))


def population() -> dict[str, list[float]]:
    """Every path as often as its probability says, of 256 people: who is lost in a row is not seen from there on."""
    names = ("episode_id", "t", "observation", "action", "reward", "behavior_prob", "terminated", "truncated")
    rows: dict[str, list[float]] = {name: [] for name in (*names, "censored", "uncensored_prob")}
    number = itertools.count()
    for first in (0, 1):
        for action, second in itertools.product((0, 1), repeat=2):
            for lost in (0, 1, 2):
                chance = 1.0 / 8.0
                for t, state in enumerate((first, action)):
                    if t <= lost:
                        chance *= (1.0 - STAYS[state]) if t == lost else STAYS[state]
                for _ in range(round(256 * chance)):
                    who = next(number)
                    for t, (state, done) in enumerate(((first, action), (action, second))):
                        if t <= lost:
                            gone = t == lost
                            reward = math.nan if gone else float(state + done)
                            cells = (who, t, float(state), done, reward, 0.5, t == 1 and not gone, gone)
                            for name, value in zip(names, cells, strict=True):
                                rows[name].append(value)
                            rows["censored"].append(gone)
                            rows["uncensored_prob"].append(STAYS[state])
    return rows


LOG = {name: np.array(values) for name, values in population().items()}
TRUTH = (0.5 + TARGET) + (TARGET + TARGET)  # of state and action in both steps


def without_noise(columns, config=None, bounds=BOUNDS, policy=treats):
    plan = make_plan(config or ImportanceSampling(discount=1.0), bounds, BUDGET, [policy])
    total = plan.query.unit_vectors(read_log(columns, bounds=bounds).load(), [policy]).sum(axis=0)
    return plan.query.decode(plan.value_mechanism, total)[0]


@pytest.mark.parametrize("estimator", ["trajectory", "per-decision"])
def test_weights_of_who_stays_give_the_value_as_if_nobody_were_lost(estimator):
    assert len(set(LOG["episode_id"])) == 256
    found = without_noise(LOG, ImportanceSampling(discount=1.0, estimator=estimator))
    assert found.value == pytest.approx(TRUTH, rel=1e-12)
    assert found.mean_weight == pytest.approx(1.0, rel=1e-12)
    ignored = {name: values for name, values in LOG.items() if name not in ("censored", "uncensored_prob")}
    assert abs(without_noise(ignored, ImportanceSampling(discount=1.0, estimator=estimator)).value - TRUTH) > 0.3


def test_a_declared_hazard_is_a_column_of_it():
    column = {**LOG, "uncensored_prob": [0.625] * len(LOG["t"])}
    rest = {name: values for name, values in LOG.items() if name != "uncensored_prob"}
    assert without_noise(rest, bounds=replace(BOUNDS, censoring_hazard=0.375)) == without_noise(column)


def test_nobody_is_missing_because_their_outcome_is():
    log = read_log(LOG, bounds=BOUNDS).load()
    assert log.valid.all()
    shown = read_log({**LOG, "reward": [0.0 if math.isnan(r) else r for r in LOG["reward"]]}, bounds=BOUNDS).load()
    np.testing.assert_array_equal(log.reward, shown.reward)


@pytest.mark.parametrize("chance", [0.0, -0.5, 1.5, math.nan, math.inf])
def test_a_chance_of_staying_that_is_none_costs_its_own_trajectory(chance):
    kept = next(i for i, gone in enumerate(LOG["censored"]) if not gone)
    values = [chance if i == kept else p for i, p in enumerate(LOG["uncensored_prob"])]
    log = read_log({**LOG, "uncensored_prob": values}, bounds=BOUNDS).load()
    assert log.episodes - log.valid.sum() == 1
    assert not log.valid[log.episode_of()[kept]]
    lost = next(i for i, gone in enumerate(LOG["censored"]) if gone)  # whose chance of staying plays no part
    if not math.isinf(chance):
        values = [chance if i == lost else p for i, p in enumerate(LOG["uncensored_prob"])]
        assert without_noise({**LOG, "uncensored_prob": values}) == without_noise(LOG)


REFUSED = {
    "a hazard of one": ({"censoring_hazard": 1.0}, {}, "bounds: censoring_hazard must be at least 0 and below 1"),
    "a negative one": ({"censoring_hazard": -0.1}, {}, "bounds: censoring_hazard must be at least 0 and below 1"),
    "no number": ({"censoring_hazard": "2%"}, {}, "bounds: censoring_hazard must be at least 0 and below 1"),
    "weights that would be cut": (
        {"censoring_hazard": 0.2, "max_importance_ratio": 1.2, "max_cumulative_ratio": None}, {},
        "bounds: max_importance_ratio must be at least 1.25, one over the chance of staying",
    ),
    "both": ({"censoring_hazard": 0.2}, {}, "The log has a column 'uncensored_prob': leave censoring_hazard out"),
    "who is lost": ({}, {"censored": None}, "The log has no column 'censored'"),
    "who is lost, by the bounds": (
        {"censoring_hazard": 0.2}, {"censored": None, "uncensored_prob": None}, "The log has no column 'censored'",
    ),
    "a ratio of one": (
        {"max_importance_ratio": 1.0, "max_cumulative_ratio": None}, {},
        "bounds: max_importance_ratio is 1, and the log has a column 'uncensored_prob'",
    ),
}  # fmt: skip


def test_hazards_of_one_decision_are_estimated_where_propensities_are():
    columns = {column: values for column, values in LOG.items() if column != "behavior_prob"}
    with pytest.raises(DprlError, match=r"^bounds: of one decision with strata hazards are estimated within them"):
        read_log(columns, bounds=replace(BOUNDS, horizon=1, max_cumulative_ratio=None, strata=()))
    with pytest.raises(DprlError, match=r"leave the behaviour policy out"):
        read_log(columns, bounds=replace(BOUNDS, strata=()), behavior_policy="uniform")


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused(name):
    facts, without, words = REFUSED[name]
    columns = {column: values for column, values in LOG.items() if column not in without}
    said = {fact: value for fact, value in (BOUNDS.as_dict() | facts).items() if value is not None}
    with pytest.raises(DprlError, match=f"^{words}"):
        read_log(columns, bounds=read_bounds(said))


def test_single_transitions_and_policies_to_be_learned_know_no_censoring():
    columns = {**LOG, "next_observation": LOG["observation"]}
    del columns["uncensored_prob"]
    with pytest.raises(DprlError, match=r"^The privacy unit transition knows no censoring"):
        read_log(columns, bounds=replace(BOUNDS, censoring_hazard=0.2), unit="transition")
    with pytest.raises(DprlError, match=r"^bounds: censoring_hazard is for logs that are evaluated"):
        bandit_bounds(replace(BOUNDS, censoring_hazard=0.2))
