"""Intervals of importance sampling: what they must hold where something is cut, missing, or declared falsely.

Each log below made intervals that held the value in few of many logs, or none. How often they do in general is
measured in docs/coverage.md.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.engine.ratios import step_ratios
from dprl.errors import DprlError
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.intervals import ValueEstimate, end_with_missing_people
from dprl.evaluation.plan import make_plan

from .helpers import columns_of
from .many_logs import LOGS, bernoulli, estimates, first, hits, one_decision, several, without


@pytest.mark.parametrize("cumulative", [None, 4.0])
def test_what_is_cut_of_ten_decisions_is_counted(cumulative):
    """Products reach 357; at their end the value is far from the middle, towards which a cut pulls."""
    generate, policy, bounds, truth = several(300, 0.9, cumulative)
    found = estimates(generate, policy, bounds, ImportanceSampling(discount=1.0))
    assert hits(found, truth) >= 34
    assert all(e.bias_bound > 0.0 for e in found)
    assert np.mean([e.mean_weight for e in found]) < 0.95


def test_a_ratio_declared_too_small_shows_in_the_weights():
    found = estimates(bernoulli(100.0, 0.1), first, one_decision(1000, 10.0), ImportanceSampling(), 2.0)
    assert hits(found, 0.1) == LOGS
    assert all("weights-below-one" in e.notes for e in found)
    assert np.mean([e.mean_weight for e in found]) == pytest.approx(0.1, abs=0.05)


def test_wrong_behaviour_probabilities_show_in_the_weights():
    """The action is taken half of the time, where the log says a tenth: weights add up to five."""
    right = bernoulli(2.0, 0.1)
    generate = lambda people: right(people) | {"behavior_prob": np.full(people, 0.1)}  # noqa: E731
    found = estimates(generate, first, one_decision(1000, 10.0), ImportanceSampling())
    assert all({"weights-above-one", "says-nothing"} <= set(e.notes) for e in found)
    assert hits(found, 0.1) == LOGS


def test_people_who_are_not_there_show_in_the_weights():
    found = estimates(without(bernoulli(2.0, 0.1), 2), first, one_decision(2000, 2.0), ImportanceSampling())
    assert hits(found, 0.1) == LOGS
    assert all("weights-below-one" in e.notes for e in found)


@pytest.mark.parametrize("rate", [0.05, 0.95])
def test_a_few_people_who_are_not_there_are_counted_though_weights_do_not_show_them(rate):
    """Two in a hundred, of values near an end of the range: they take 1.8 standard errors away."""
    found = estimates(without(bernoulli(2.0, rate), 46), first, one_decision(10_000, 2.0), ImportanceSampling())
    assert hits(found, rate) >= 34
    assert sum("weights-below-one" in e.notes for e in found) < LOGS / 2


@pytest.mark.parametrize(("policies", "decisions"), [(1, 1), (3, 1), (2, 3)])
def test_people_are_counted_at_no_cost_of_norm(policies, decisions):
    """The released numbers hold the share of those who are there, and it costs policies that are asked alone nothing.

    The last is of logs of three decisions, where policies have no pattern in common.
    """
    bounds = replace(one_decision(60, 2.0), horizon=decisions, max_cumulative_ratio=2.0**decisions, actions=3)
    chances = [np.roll([0.6, 0.2, 0.2], k) for k in range(policies)]
    targets = [lambda states, p=p: np.tile(p, (len(states), 1)) for p in chances]
    query: Any = make_plan(ImportanceSampling(), bounds, Budget(1.0, 1e-6), targets).query
    rng, rows = np.random.default_rng(2), 60 * decisions
    action = rng.integers(0, 3, (60, decisions))
    reward = np.where(np.arange(rows) % (4 * decisions), rng.random(rows), np.nan)
    log = read_log(columns_of(action, 1 / 3, observation=0.0, reward=reward), bounds=bounds).load()
    vectors = query.unit_vectors(log, targets)
    assert vectors.shape == (60, query.dimension) == (60, 3 * policies + 1)
    assert np.linalg.norm(vectors, axis=1).max() <= query.clip_norm * (1 + 1e-9)
    weights = np.linalg.inv(query.strategy) @ vectors[:, policies : 2 * policies].T
    present = (vectors[:, -1] + weights.sum(axis=0) / query.most_weight) / importance.WEIGHT_SCALE
    np.testing.assert_allclose(present, np.arange(60) % 4 > 0, atol=1e-12)
    if policies == 1 or decisions > 1:
        assert query.clip_norm == pytest.approx(np.sqrt(1.0 + importance.WEIGHT_SCALE**2))


@pytest.mark.parametrize("case", range(30))
def test_with_missing_people_an_end_is_the_farthest_value_that_fits(case):
    """Against every value on a fine grid."""
    rng = np.random.default_rng(case)
    mean, error, share, noise = (
        rng.uniform(-0.3, 0.6),
        rng.uniform(0.01, 0.2),
        rng.uniform(0.8, 1.1),
        rng.uniform(0, 0.2),
    )
    values = np.linspace(0.0, 10.0, 2_000_001)
    fits = np.abs(mean - values * share) <= 1.96 * np.hypot(error, values * noise)
    end = mean + 1.96 * error
    found = end_with_missing_people(end, mean, error, share, noise, 1.96)
    if end <= 0.0:
        assert found == end
    else:
        assert found == pytest.approx(max(end, values[fits].max()), abs=1e-5)
    assert end_with_missing_people(0.1, 0.0, 0.05, 0.3, 0.2, 1.96) == np.inf


def test_true_facts_raise_no_alarm():
    found = estimates(bernoulli(10.0, 0.1), first, one_decision(1000, 10.0), ImportanceSampling())
    assert hits(found, 0.1) >= 34
    assert sum(bool({"weights-below-one", "weights-above-one"} & set(e.notes)) for e in found) <= 1
    assert np.median([e.bias_bound / (e.interval[1] - e.interval[0]) for e in found]) < 0.1


def test_no_interval_leaves_the_declared_range_and_values_outside_are_said_to_be():
    """A rate of 0.4% seen through the noise of the middle of [0, 1]: below 0 about as often as not."""
    found = estimates(bernoulli(2.0, 0.004), first, one_decision(400, 2.0), ImportanceSampling())
    assert all(0.0 <= e.interval[0] <= e.interval[1] <= 1.0 for e in found)
    outside = [not 0.0 <= e.value <= 1.0 for e in found]
    assert 5 < sum(outside) < 35
    assert outside == ["outside-range" in e.notes for e in found]


def test_a_public_baseline_narrows_the_interval_of_a_rare_event():
    """Against the middle of the range, from which nearly every return is equally far."""
    generate, bounds = bernoulli(2.0, 0.004), one_decision(4000, 2.0)
    middle = estimates(generate, first, bounds, ImportanceSampling())
    near = estimates(generate, first, bounds, ImportanceSampling(value_baseline=0.004))
    assert hits(near, 0.004) >= 34
    assert hits(middle, 0.004) >= 34
    widths = [np.median([e.interval[1] - e.interval[0] for e in found]) for found in (near, middle)]
    assert widths[0] < 0.6 * widths[1]


def test_a_sampling_error_comes_with_how_large_it_may_be():
    """One person in fifty has a weight of 50: a log may show little of the variance, and must say what it may be."""
    found = estimates(bernoulli(50.0, 0.05), first, one_decision(1000, 50.0), ImportanceSampling())
    true = np.sqrt((50.0 * 0.25 - 0.45**2) / 1000)
    enough = [e.sampling_standard_error_at_most >= 0.97 * true for e in found]
    assert sum(enough) >= 34
    assert all(e.sampling_standard_error_at_most >= e.sampling_standard_error for e in found)


def test_hopeless_settings_are_refused_and_say_what_to_change():
    plan = make_plan(ImportanceSampling(), one_decision(100, 20.0), Budget(0.1, 1e-4), [first])
    assert plan.hopeless() == [True]
    with pytest.raises(DprlError, match=r"noise alone .* more units, a larger epsilon, or a smaller"):
        plan.refuse_the_hopeless()
    plan = make_plan(ImportanceSampling(), one_decision(100, 20.0), Budget(10.0, 1e-4), [first])
    assert plan.hopeless() == [False]
    plan.refuse_the_hopeless()


def test_a_large_epsilon_is_named_as_what_it_is():
    """The rounding of the noise counts e^epsilon times: at 40 no number of draws is to blame."""
    with pytest.raises(DprlError, match="epsilon is too large"):
        make_plan(ImportanceSampling(), one_decision(100, 2.0), Budget(40.0, 1e-6), [first], total_variation=1e-17)
    with pytest.raises(DprlError, match="so many draws"):
        make_plan(ImportanceSampling(), one_decision(100, 2.0), Budget(1.0, 1e-6), [first], total_variation=1e-7)


def test_a_baseline_is_refused_where_it_means_nothing():
    bounds = several(300, 0.9, 4.0)[2]
    for config, facts in (
        (ImportanceSampling(value_baseline=1.0), bounds),
        (ImportanceSampling(value_baseline=0.5, estimator="self-normalised"), one_decision(300, 2.0)),
        (ImportanceSampling(value_baseline=7.0), one_decision(300, 2.0)),
    ):
        with pytest.raises(DprlError, match="value_baseline"):
            make_plan(config, facts, Budget(1.0, 1e-6), [first])


def test_the_largest_product_is_derived_from_public_facts():
    def derived(units: int, ratio: float, horizon: int) -> float:
        return replace(one_decision(units, ratio), horizon=horizon).cumulative_ratio

    assert derived(1000, 5.0, 1) == 5.0
    assert derived(1000, 1.0, 10) == 1.0
    assert derived(1000, 2.0, 10) == 10.0  # a tenth of the range is the standard error of a mean of weights of 10
    assert derived(10**4, 2.5, 10) == 50.0  # the two bounds of what is cut have twice the noise
    assert derived(10**6, 2.0, 20) == 500.0
    assert derived(10**4, 2.0, 8) == 256.0  # less than three times what an uncut product may be
    assert derived(100, 4.0, 10) == 4.0
    assert derived(1000, 1.4, 10) == pytest.approx(1.4**10)  # to cut 29 at 10 does not pay
    assert not replace(one_decision(1000, 1.4), horizon=10).cuts_products
    assert replace(one_decision(1000, 2.0), horizon=10).cuts_products


def enumerated(early: bool):
    """All trajectories of three decisions: columns, and their probabilities under behaviour and target policy.

    Two actions, of which one pays; the state is the number of times that it was taken. With ``early`` the first
    payment ends the trajectory. The behaviour policy never pays twice in a row.
    """
    rows, behavior, target = [], [], []
    for actions in itertools.product((0, 1), repeat=3):
        below = above = 1.0
        taken, last, kept = 0, 0, []
        for t, action in enumerate(actions):
            paying = 0.0 if last else 0.4
            own, theirs = (0.7, paying) if action else (0.3, 1.0 - paying)
            kept.append((len(behavior), t, taken, action, float(action), theirs, t == 2))
            below, above = below * theirs, above * own
            taken, last = taken + action, action
            if early and action:
                break
        if not early or (1 not in actions[: len(kept) - 1] and actions[len(kept) :] == (0,) * (3 - len(kept))):
            rows.append(kept)
            behavior.append(below)
            target.append(above)
    return rows, np.array(behavior), np.array(target)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("estimator", ["trajectory", "per-decision"])
def test_the_bounds_hold_whatever_is_cut_and_meet_where_nothing_is(estimator, early):
    """Against the expectation over all trajectories, computed without sampling."""
    rows, below, above = enumerated(early)
    names = ("episode_id", "t", "observation", "action", "reward", "behavior_prob", "terminated")
    columns = dict(zip(names, map(np.array, zip(*itertools.chain(*rows), strict=True)), strict=True))
    returns = np.array([sum(0.9 ** row[1] * row[4] for row in kept) for kept in rows])
    truth = float(above @ returns)
    possible = below > 0.0
    missing = float(above[~possible].sum())
    for limit in (1.0, 2.0, 5.0, None):
        bounds = Bounds(
            units=len(rows), horizon=3, reward=(0, 1), observation=((0, 3),), actions=2,
            max_importance_ratio=1.75, max_cumulative_ratio=1.75**3 if limit is None else limit,
        )  # fmt: skip
        log = read_log(columns, bounds=bounds).load()
        config = ImportanceSampling(discount=0.9, estimator=estimator)
        query = importance.make_query(config, bounds, np.ones((1, 1)))
        ratios = step_ratios(lambda s: np.tile([0.3, 0.7], (len(s), 1)), log)
        pair = [below[possible] @ x[possible] for x in importance.unit_pairs(query, log, ratios)]
        low, high, largest = query.scale
        floor, ceiling = low + query.scale.width * pair[0], high - query.scale.width * pair[1]
        assert floor - 1e-12 <= truth <= ceiling + 1e-12
        assert ceiling - floor == pytest.approx((1.0 - largest * sum(pair)) * (high - low))
        if limit is None and early:  # nothing is cut and everything can happen
            assert missing == 0.0
            assert (floor, ceiling) == (pytest.approx(truth), pytest.approx(truth))
        if limit is None and not early and estimator == "trajectory":
            assert largest * sum(pair) == pytest.approx(1.0 - missing)


def test_estimates_survive_as_plain_data_and_those_of_earlier_versions_are_read():
    found = estimates(bernoulli(100.0, 0.1), first, one_decision(1000, 10.0), ImportanceSampling(), 2.0)[0]
    assert ValueEstimate.from_mapping(json.loads(json.dumps({"name": "a", **found.as_dict()}))) == found
    earlier = {
        "name": "a", "value": 0.5, "interval": [0.4, 0.6], "privacy_standard_error": 0.01,
        "sampling_standard_error": 0.02, "reference": None,
    }  # fmt: skip
    assert ValueEstimate.from_mapping(earlier) == ValueEstimate(0.5, (0.4, 0.6), 0.01, 0.02)


@pytest.mark.parametrize("events", [2.0, 2.5])
def test_a_few_events_far_from_the_middle_are_counted(events):
    """On policy one person's return can lie twice as far from the mean as from the middle of the range."""
    units, rng = 2_000, np.random.default_rng(0)
    bounds, policy = one_decision(units, 1.0), lambda states: np.full((len(states), 2), 0.5)
    plan = make_plan(ImportanceSampling(discount=1.0), bounds, Budget(8.0, 1e-6), [policy])
    columns = columns_of(np.zeros((2, 1), dtype=int), observation_0=0.5, reward=np.array([0.0, 1.0]))
    nothing, event = plan.query.unit_vectors(read_log(columns, bounds=bounds).load(), [policy])
    held = 0
    for happened in rng.binomial(units, events / units, 2_000):
        noise = rng.normal(0.0, plan.value_mechanism.noise_std, len(event))
        noisy = (units - happened) * nothing + happened * event + noise
        low, high = plan.query.decode(plan.value_mechanism, noisy)[0].interval
        held += low <= events / units <= high
    assert held >= 0.95 * 2_000  # without that .935 and .938
