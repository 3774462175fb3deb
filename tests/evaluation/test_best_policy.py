"""The choice of the best policy: whose people choose, what a score is, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import dprl
from dprl.accounting import accountant, events
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.engine.ratios import step_ratios
from dprl.engine.sample_split import SHARE, SampleSplit
from dprl.errors import DprlError
from dprl.evaluation.best_policy import CHOICE_CUT, POINTS, cut_of_choice, make_choice
from dprl.evaluation.importance_vectors import further_columns, unit_parts
from dprl.evaluation.plan import make_plan, plan_of_best
from dprl.mechanisms.gaussian_sum import ALTERS_ONE_PLACE
from dprl.mechanisms.noise import SecureNoise

from . import helpers

BUDGET = dprl.Budget(1.0, 1e-5)
NOISE = SecureNoise(bytes(range(32)))


def tilted(number: int):
    """A policy of two actions that takes the second with a probability of its own."""

    def policy(states):
        return np.tile([1.0 - number / 10.0, number / 10.0], (len(states), 1))

    return policy


POLICIES = {f"tilted_{number}": tilted(number) for number in (1, 5, 9)}


def bounds_of(units: int, horizon: int = 1, **changes) -> Bounds:
    given = {"units": units, "horizon": horizon, "reward": (-1.0, 1.0), "observation": ((0.0, 1.0),), "actions": 2}
    return Bounds(**{**given, "max_importance_ratio": 1.8, **changes})


def log_of(units: int, bounds: Bounds, seed: int = 0):
    """The second action pays, the first costs."""
    rng, steps = np.random.default_rng(seed), bounds.horizon
    action = rng.integers(0, 2, units * steps)
    reward = np.where(rng.random(units * steps) < 0.8, 1.0, -1.0) * (2 * action - 1)
    columns = helpers.columns_of(action.reshape(units, steps), observation=rng.random(units * steps), reward=reward)
    return read_log(columns, bounds=bounds)


# --- two parts --------------------------------------------------------------------------------------------------------


def test_a_persons_coin_is_of_the_share_and_of_nothing_else():
    split = SampleSplit(1000, 0.3)
    first = split.in_first(NOISE, 20_000)
    assert binom.ppf(1e-7, 20_000, 0.3) <= first.sum() <= binom.isf(1e-7, 20_000, 0.3)
    np.testing.assert_array_equal(first[:50], split.in_first(NOISE, 50))  # by place, whoever else is there
    assert (split.first, split.second) == (300, 700)
    assert not np.array_equal(first, split.in_first(SecureNoise(bytes(32)), 20_000))


def test_a_part_without_people_and_a_source_of_places_are_refused():
    with pytest.raises(DprlError, match="leaves one of two parts empty"):
        SampleSplit(2, 0.1)
    with pytest.raises(DprlError, match="adds one unit"):
        SampleSplit(10, 0.5).in_first(NOISE, 10, ALTERS_ONE_PLACE)


def test_the_parts_of_a_log_have_everybodys_own_rows():
    log = log_of(40, bounds_of(40, horizon=3)).load(None)
    kept = np.arange(40) % 3 == 0
    some = log.of_units(kept, log.bounds)
    rows = np.repeat(kept, 3)
    assert some.units == some.episodes == kept.sum()
    np.testing.assert_array_equal(some.reward, log.reward[rows])
    np.testing.assert_array_equal(some.time(), log.time()[rows])
    nobody = log.of_units(np.zeros(40, bool), log.bounds)
    assert (nobody.units, nobody.episodes, len(nobody.reward)) == (0, 0, 0)


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("horizon", "estimator"), [(1, "auto"), (4, "trajectory"), (4, "per-decision")])
def test_a_score_has_a_spread_of_at_most_one_unit_and_sums_are_those_of_importance_sampling(horizon, estimator):
    bounds = bounds_of(300, horizon)
    log = log_of(300, bounds).load(None)
    choice = make_choice(1.0, estimator, bounds, POLICIES, 1.0, None)
    facts = choice.query.bounds
    scores = choice.unit_scores(log.of_units(np.ones(300, bool), facts))
    assert np.ptp(scores, axis=1).max() <= POINTS
    assert choice.mechanism.spread == (POINTS if horizon == 1 else POINTS // 2)
    # without cuts it is the weighted distance of the return to its middle, in the units of the mechanism
    if estimator != "per-decision":
        for place, policy in enumerate(POLICIES.values()):
            weight = step_ratios(policy, log).reshape(300, horizon).prod(axis=1)
            total = log.reward.reshape(300, horizon).sum(axis=1)
            expected = np.minimum(weight, facts.cumulative_ratio) / choice.query.scale.largest * total / horizon
            np.testing.assert_allclose(scores[:, place], expected * POINTS, rtol=1e-9, atol=1e-3)
    total = choice.total(log)
    assert int(np.argmax(total)) == 2  # without noise: the policy that takes what pays
    np.testing.assert_array_equal(total, choice.mechanism.clipped(scores).sum(axis=0))


def test_products_are_cut_by_public_facts_and_no_later_than_for_values():
    many = bounds_of(10_000, 10, max_importance_ratio=3.0)
    assert cut_of_choice(many, 4_000) == CHOICE_CUT * np.sqrt(4_000)
    assert cut_of_choice(replace(many, max_cumulative_ratio=5.0), 4_000) == 5.0
    assert cut_of_choice(bounds_of(10_000), 4_000) == 1.8


# --- the plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [dprl.ImportanceSampling(), dprl.Recommended()])
def test_both_parts_may_spend_the_whole_budget(algorithm):
    bounds = bounds_of(5_000)
    plan = plan_of_best(algorithm, bounds, BUDGET, POLICIES, total_variation=2.0**-49)
    one = list(POLICIES.values())[:1]
    alone = make_plan(algorithm, replace(bounds, units=3_000), BUDGET, one, total_variation=2.0**-49, share=0.6)
    assert plan.value_mechanism == alone.value_mechanism
    assert plan.event == events.parallel([events.pure(1.0), alone.event])
    assert accountant.epsilon_of(plan.event, plan.delta_of_event) == plan.epsilon_of_event == 1.0
    assert plan.first.split == SampleSplit(5_000, SHARE)
    assert plan.bounds.units == 3_000


def test_of_one_policy_it_is_the_ordinary_plan():
    bounds = bounds_of(5_000)
    one = plan_of_best(dprl.ImportanceSampling(), bounds, BUDGET, {"tilted_1": POLICIES["tilted_1"]})
    other = make_plan(dprl.ImportanceSampling(), bounds, BUDGET, [POLICIES["tilted_1"]])
    assert one.first is None
    assert (one.event, one.value_mechanism, one.bounds) == (other.event, other.value_mechanism, other.bounds)


def test_what_cannot_be_planned_is_refused():
    bounds = bounds_of(5_000)
    with pytest.raises(DprlError, match="at most 1000 policies"):
        make_choice(1.0, "auto", bounds, dict.fromkeys(range(1001)), 1.0, None)
    with pytest.raises(DprlError, match="doubly-robust has no intervals for a part"):
        plan_of_best(dprl.DoublyRobust(), bounds, BUDGET, POLICIES)
    with pytest.raises(DprlError, match="choosing_share must be"):
        plan_of_best(dprl.ImportanceSampling(), bounds, BUDGET, POLICIES, share=1.5)


# --- intervals of a part ----------------------------------------------------------------------------------------------


def test_an_interval_counts_that_the_number_of_people_in_a_part_varies():
    """On-policy with rewards of one: all that varies is how many people there are."""
    bounds = helpers.bandit_bounds(400, 1.0, actions=1)
    plan = make_plan(dprl.ImportanceSampling(), bounds, dprl.Budget(200.0, 1e-3), [helpers.bandit_policy], share=0.5)
    whole = make_plan(dprl.ImportanceSampling(), bounds, dprl.Budget(200.0, 1e-3), [helpers.bandit_policy])
    above, below = np.full((1, 1), 1.0), np.zeros((1, 1))
    hits = {"part": 0, "whole": 0}
    for trial in range(400):
        people = np.random.default_rng(trial).binomial(800, 0.5)
        for name, asked in (("part", plan), ("whole", whole)):
            query = asked.query
            parts = [part @ query.strategy.T for part in unit_parts(query, above, below)]
            one = np.concatenate([*parts, further_columns(query, above, below, np.ones(1))], axis=1)
            (estimate,) = query.decode(asked.value_mechanism, people * one[0])
            hits[name] += estimate.interval[0] <= 1.0 <= estimate.interval[1] and "says-nothing" not in estimate.notes
    assert hits["part"] >= 368
    assert hits["whole"] < 300
