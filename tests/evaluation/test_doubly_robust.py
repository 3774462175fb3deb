"""Doubly robust values: unbiased or enclosed by enumeration, plain averages, bounded, and covered by intervals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.engine.columns import ReturnRanges, remaining_return
from dprl.engine.layouts import unit_rows
from dprl.engine.loop import noiseless, run_on_host
from dprl.engine.plan import Plan
from dprl.engine.ratios import step_ratios
from dprl.errors import DprlError
from dprl.evaluation import doubly_robust_estimates
from dprl.evaluation.doubly_robust import DoublyRobust
from dprl.evaluation.doubly_robust_query import DoublyRobustQuery
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features
from dprl.value_functions.value_function import in_public_units

from . import one_shot
from .doubly_robust_logs import GAMMA, one_decision, process_bounds, small_process, trajectories, walk
from .helpers import bandit_bounds


def expected(process: SimpleNamespace, fractions: np.ndarray, cumulative: float | None = None) -> Any:
    """Means of estimates and weight under the behaviour policy, by enumeration, with this ``(12,)`` baseline."""
    bounds = process_bounds(len(process.chances), process.largest, cumulative)
    query = DoublyRobustQuery(DoublyRobust(discount=GAMMA), bounds, make_features("tabular", bounds.observation), 1)
    log = one_shot.load(process.columns, bounds)
    at_rows = fractions[log.observation[:, 0].astype(int)]
    found = doubly_robust_estimates.estimates(query, log, step_ratios(process.policy, log), at_rows)
    return query, [float(process.chances @ x) for x in found]


def baselines(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.zeros(12), np.ones(12), rng.random(12), rng.random(12)]


@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_unbiased_for_every_value_function(seed):
    process = small_process(seed)
    assert process.chances.sum() == pytest.approx(1.0)
    for fractions in baselines(seed):
        query, (value, weight) = expected(process, fractions)
        assert query.sides == 1
        assert value == pytest.approx(process.value, rel=1e-8)
        assert weight == pytest.approx(1.0, rel=1e-8)


@pytest.mark.parametrize("cumulative", [1.0, 1.2, 2.0, 3.0])
def test_the_value_is_enclosed_whatever_is_cut(cumulative):
    """For every baseline; and the distance of both ends is what the weights lack where the baseline is not used."""
    process = small_process(0)
    assert process.largest > 1.5
    gaps = []
    for fractions in baselines(3):
        query, (low, high, weight) = expected(process, fractions, cumulative)
        assert low <= process.value <= high
        assert weight + (high - low) / query.losses[0] == pytest.approx(1.0, abs=1e-9)
        gaps.append(high - low)
    assert min(gaps) > 0.0
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-9)


@pytest.mark.parametrize("cumulative", [None, 1.2, 3.0])
def test_what_the_log_does_not_show_is_bounded_by_what_weights_lack(cumulative):
    process = small_process(2, blind=True)
    for fractions in baselines(4):
        query, (*ends, weight) = expected(process, fractions, cumulative)
        lack = 1.0 - weight - (ends[-1] - ends[0]) / query.losses[0]
        assert ends[0] - lack * query.losses[0] <= process.value <= ends[-1] + lack * query.losses[0]
        assert weight < 0.97


# --- what a unit can say ------------------------------------------------------------------------------------------


REACHES = {
    "one decision": (1, 50.0, 50.0, (0.0, 1.0), None),
    "nothing is cut": (3, 2.0, 8.0, (-1.0, 2.0), None),
    "cut late": (3, 2.0, 5.0, (0.0, 1.0), None),
    "cut at once": (2, 3.0, 1.5, (0.5, 1.0), None),
    "a known return": (3, 1.5, 2.0, (0.0, 1.0), (0.0, 1.0)),
}


def paths(bounds: Bounds, known: ReturnRanges, baseline: ReturnRanges) -> np.ndarray:
    """``(2, P)`` L and U of all trajectories whose weights, rewards and baselines are from a few of each."""
    ratio, limit = bounds.max_importance_ratio, bounds.cumulative_ratio
    # and just above where the baseline is used no more
    bends = [limit / ratio**i * above for i in range(4) for above in (1.0, 1.0 + 1e-7)]
    after = np.unique([0.0, 1.0, *(ratio**i for i in (1, 2, 3)), *bends])
    weight, total, left = (
        np.ones(1),
        np.zeros((2, 1)),
        np.array([np.inf if bounds.return_range is None else bounds.return_range[1]]),
    )
    over = [total]
    for t in range(bounds.horizon):
        options = itertools.product(after, bounds.reward, (baseline.low[t], baseline.high[t]))
        found = []
        for x, reward, v in options:
            may = (x <= np.minimum(weight * ratio, limit) * (1 + 1e-12)) & (reward <= left + 1e-12)
            safe = weight * ratio <= limit * (1 + 1e-12)
            for use_v in (True, False):
                keep = may & (safe == use_v)
                w = weight[keep]
                ends = np.array([v, v]) if use_v else np.array([known.low[t], known.high[t]])
                step = GAMMA**t * (x * reward + (w - x) * ends[:, None])
                found.append((np.full(len(w), x), total[:, keep] + step, left[keep] - GAMMA**t * reward))
        weight, total, left = (np.concatenate([f[i] for f in found], axis=-1) for i in range(3))
        over.append(total)
    return np.concatenate(over[1:], axis=1)


@pytest.mark.parametrize("case", REACHES)
@pytest.mark.parametrize("part", [(0.0, 1.0), (0.2, 0.6), (0.5, 0.5)])
def test_the_reach_is_that_of_the_farthest_trajectory(case, part):
    """By enumeration, forwards; where returns are known to be small it may be larger."""
    horizon, ratio, limit, reward, value = REACHES[case]
    bounds = Bounds(
        units=9, horizon=horizon, reward=reward, observation=((0.0, 1.0),), actions=2, max_importance_ratio=ratio,
        max_cumulative_ratio=limit, return_range=value,
    )  # fmt: skip
    known = remaining_return(bounds, GAMMA)
    baseline = known.part(*part)
    ends = paths(bounds, known, baseline)
    for a, b in ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (0.6, 0.8), (-0.8, 0.6), (0.6, -0.8)):
        found = float((a * ends[0] + b * ends[1]).max())
        bound = doubly_robust_estimates.largest_combination(bounds, GAMMA, known, baseline, a, b)
        assert bound >= found - 1e-9
        if value is None:
            assert bound == pytest.approx(found, abs=1e-5)
    both = bounds.cuts_products
    radius = doubly_robust_estimates.largest_distance(bounds, GAMMA, known, baseline, 0.3, both=both)
    farthest = float((np.hypot(*(ends - 0.3)) if both else np.abs(ends[0] - 0.3)).max())
    assert radius >= farthest - 1e-9
    if value is None:
        assert radius <= farthest * (1.0 / math.cos(math.pi / doubly_robust_estimates.DIRECTIONS)) * (1 + 1e-6)


def test_what_can_still_come_is_what_bounds_allow():
    bounds = bandit_bounds(9, horizon=4, return_range=(0.0, 1.5))
    known = remaining_return(bounds, 1.0)
    np.testing.assert_allclose(known.low, [0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(known.high, [1.5, 1.5, 1.5, 1.0])
    without = remaining_return(replace(bounds, return_range=None, reward=(0.5, 1.0)), 0.5)
    np.testing.assert_allclose(without.low, 0.5)
    np.testing.assert_allclose(without.high, [1.875, 1.75, 1.5, 1.0])


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 2.5, 100.0]))
def test_no_unit_exceeds_its_clip_norm(seed, cumulative):
    log = one_shot.extreme(60, seed)
    log = replace(log, bounds=replace(log.bounds, max_cumulative_ratio=cumulative, return_range=None))
    plan = plan_of(log.bounds, policies=[one_shot.extreme_policy] * 2)
    theta = np.random.default_rng(seed).uniform(-0.5, 0.5, 5)
    vectors = vectors_of(plan, log, theta, [one_shot.extreme_policy] * 2)
    assert vectors.shape == (60, plan.query.dimension)
    assert np.linalg.norm(vectors, axis=1).max() <= plan.value_mechanism.clip_norm * (1 + 1e-9)


# --- releases of them ---------------------------------------------------------------------------------------------


def plan_of(bounds: Bounds, policies: Any = None, epsilon: float = 50.0, **options: Any) -> Plan:
    policies = [one_shot.extreme_policy] if policies is None else policies
    return make_plan(DoublyRobust(discount=GAMMA, **options), bounds, Budget(epsilon, 1e-3), policies, "tabular")


def vectors_of(plan: Plan, log: Any, theta: np.ndarray, policies: Any = None) -> np.ndarray:
    assert isinstance(plan.query, DoublyRobustQuery)
    return plan.query.around(plan.function_of(theta)).unit_vectors(log, policies or [one_shot.extreme_policy])


def decoded(plan: Plan, total: np.ndarray, theta: np.ndarray) -> Any:
    """Without noise."""
    assert isinstance(plan.query, DoublyRobustQuery)
    return plan.query.around(plan.function_of(theta)).decode(one_shot.quiet(plan.query), total)


@pytest.mark.parametrize("cumulative", [2.5, 100.0])
def test_units_are_plain_sums(cumulative):
    """``V(s_0) + sum gamma^t w_t (r_t + gamma V(s_{t+1}) - V(s_t))`` by loops, with nothing after the last row."""
    log = one_shot.extreme(50, 3)
    bounds = replace(log.bounds, max_cumulative_ratio=cumulative, return_range=None)
    log = replace(log, bounds=bounds)
    plan = plan_of(bounds)
    theta = np.random.default_rng(1).uniform(-0.4, 0.4, 5)
    query: Any = plan.query.around(plan.function_of(theta))
    baseline = query.baseline
    low, high = query.remaining_return
    means = (1.0 + np.mean(high - low) / (high - low)[0]) / 2.0
    cell = np.clip((1.0 + math.sqrt(5.0) * theta) / 2.0 / means, 0.0, 1.0)
    ends = []
    for person in range(log.units):
        episodes, mean = range(log.unit_offsets[person], log.unit_offsets[person + 1]), np.zeros(2)
        for e in episodes:
            product, before, found = 1.0, np.zeros(2), np.zeros(2)
            for t, i in enumerate(range(log.episode_offsets[e], log.episode_offsets[e + 1])):
                fraction = cell[int(log.observation[i, 0])]
                v = np.full(2, low[t] + fraction * (high[t] - low[t]))
                if bounds.cuts_products and product * 1.6 > cumulative:
                    v = np.array([low[t], high[t]])
                ratio = min(product * (1.6 if log.action[i] == 1 else 0.4), cumulative)
                # the temporal difference of the step before has this V as its next one
                found += GAMMA**t * (product * v + ratio * (log.reward[i] - v))
                product = ratio
            mean += (found + before) / len(episodes)
        ends.append(mean)
    wanted = np.array(ends)[:, : query.sides]
    vectors = vectors_of(plan, log, theta)
    np.testing.assert_allclose(vectors[:, : query.sides] * baseline.radius + query.centre, wanted, rtol=1e-9, atol=1e-9)
    (found,) = decoded(plan, vectors.sum(axis=0), theta)
    means = wanted.mean(axis=0)
    assert means[0] - 1e-9 <= found.value <= means[-1] + 1e-9
    if query.sides == 1:
        assert found.value == pytest.approx(means[0])
        assert found.sampling_standard_error == pytest.approx(wanted.std() / math.sqrt(50), rel=1e-6)
    assert found.interval[0] <= found.value <= found.interval[1]


def test_on_policy_it_is_the_mean_return():
    """Without ratios the differences telescope: whatever the value function, f is the return."""
    log = one_shot.chain(60, 4)
    assert log.bounds.cumulative_ratio == 1.0
    plan = make_plan(DoublyRobust(), log.bounds, Budget(5.0, 1e-3), [one_shot.extreme_policy], "tabular")
    theta = np.random.default_rng(0).uniform(-0.1, 0.1, 39)
    query: Any = plan.query.around(plan.function_of(theta))
    baseline = query.baseline
    fractions = baseline.fractions(log)
    found, _ = doubly_robust_estimates.estimates(query, log, np.ones(len(log.reward)), fractions)
    np.testing.assert_allclose(found, [0.99 ** (n - 1) for n in log.lengths()], rtol=1e-9)


def test_every_policy_of_a_release_is_served():
    """Around the same value function: as each would be alone, for the noise of several."""
    log = one_shot.extreme(50, 3)
    other = lambda states: np.tile([0.6, 0.4], (len(states), 1))  # noqa: E731
    policies, theta = [one_shot.extreme_policy, other], np.linspace(-0.3, 0.3, 5)
    plan = plan_of(log.bounds, policies=policies)
    both = decoded(plan, vectors_of(plan, log, theta, policies).sum(axis=0), theta)
    for policy, found in zip(policies, both, strict=True):
        one = plan_of(log.bounds, policies=[policy])
        (alone,) = decoded(one, vectors_of(one, log, theta, [policy]).sum(axis=0), theta)
        assert (found.value, found.mean_weight) == pytest.approx((alone.value, alone.mean_weight))
    assert both[0].value != pytest.approx(both[1].value, abs=1e-3)
    assert plan.estimator == "doubly robust"
    assert plan.value_mechanism.noise_multiplier == pytest.approx(one.value_mechanism.noise_multiplier)


def test_a_unit_without_sound_rows_adds_nothing():
    log = one_shot.extreme(12, 1)
    plan, theta = plan_of(log.bounds), np.zeros(5)
    assert np.abs(vectors_of(plan, log, theta)).max() > 0.0
    broken = replace(log, valid=np.zeros_like(log.valid))
    assert np.abs(vectors_of(plan, broken, theta)).max() == 0.0


def test_stages_share_the_budget():
    plan = plan_of(one_shot.extreme_bounds(300), value_budget_fraction=0.6, epsilon=1.0)
    mu = [1.0 / m.noise_multiplier for m in (*(s.mechanism for s in plan.stages), plan.value_mechanism)]
    total = sum(x * x for x in mu)
    np.testing.assert_allclose(np.square(mu) / total, [0.08, 0.32, 0.6], rtol=1e-3)


def test_what_public_facts_forbid_is_refused():
    with pytest.raises(DprlError, match=r"^doubly-robust: the noise alone"):
        plan_of(one_decision.bounds(500), epsilon=0.1).refuse_the_hopeless()
    with pytest.raises(DprlError, match=r"^doubly-robust: the horizon"):
        plan_of(replace(walk.bounds(500), horizon=5000))


# --- a baseline from the same rows --------------------------------------------------------------------------------


def learned(plan: Plan, log: Any, policy: Any = one_shot.extreme_policy, seed: int = 0, exact: bool = False) -> Any:
    """The value function that is released of the log."""
    data, noise = unit_rows(plan.rows(log, step_ratios(policy, log)), log.bounds.units), SeededNoise.from_seed(seed)
    program: Any = plan.program
    weights = run_on_host(program, noise, data, mechanisms=noiseless(program) if exact else None)[1]  # type: ignore
    return plan.function_of(weights)


@pytest.mark.parametrize("modes", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_units_baseline_is_the_value_function_of_the_others(modes):
    """Of persons with several trajectories, without noise: what AdaSSP gives without the unit."""
    log = one_shot.extreme(60, 2)
    plan = plan_of(log.bounds, modes=modes)
    found = learned(plan, log, exact=True)
    rows = found.at_rows(log, one_shot.extreme_policy, None)
    owner = log.unit_of_episode()[log.episode_of()]
    for unit in range(0, log.units, 25):
        others = learned(plan, log.of_units(np.arange(log.units) != unit, log.bounds), exact=True)
        expected = in_public_units(others, log.observation[owner == unit])
        np.testing.assert_allclose(rows[owner == unit], expected, atol=1e-6)
    whole, margin = found.on_public_states()
    np.testing.assert_allclose(whole, in_public_units(found, np.arange(5.0)[:, None]), atol=1e-9)
    assert np.abs(rows - in_public_units(found, log.observation)).max() <= margin


def test_a_units_baseline_is_its_own_to_the_last_bit():
    """Whoever else is in the block, and in whatever order."""
    log = one_shot.extreme(60, 2)
    found = learned(plan_of(log.bounds, modes=4), log)
    kept = np.random.default_rng(0).random(log.units) < 0.4
    owner = log.unit_of_episode()[log.episode_of()]
    alone = found.at_rows(log.of_units(kept, log.bounds), one_shot.extreme_policy, None)
    np.testing.assert_array_equal(alone, found.at_rows(log, one_shot.extreme_policy, None)[kept[owner]])


def test_values_are_unbiased_around_what_was_learned_of_the_same_people():
    """A reward that is always .9, ratios of 10, a mode for each of 36 cells and hardly any noise."""
    people, errors = 999, []
    bounds = bandit_bounds(people, 10.0, observation=((0.0, 5.0), (0.0, 5.0)))
    always = lambda states: np.tile([0.0, 1.0], (len(states), 1))  # noqa: E731
    plan = plan_of(bounds, [always], epsilon=100.0, modes=36)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        states = rng.integers(0, 6, (people, 2)).astype(np.float64)
        taken = (rng.random((people, 1)) < 0.1).astype(np.int64)
        log = trajectories(bounds, taken, taken, np.full((people, 1), 0.9), np.where(taken == 1, 0.1, 0.9))
        log = replace(log, observation=states, next_observation=states)
        query: Any = plan.query.around(learned(plan, log, always, seed))
        errors.append(query.unit_vectors(log, [always])[:, 0].mean() * query.baseline.radius + query.centre - 0.9)
    assert abs(np.mean(errors)) < 3.0 * np.std(errors) / math.sqrt(60)
    assert np.std(errors) < 0.03  # where the old mean error was -.04


# --- coverage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log", "units", "epsilon"), [(one_decision, 4000, 1.0), (walk, 2000, 1.0), (walk, 1000, 8.0)])
def test_intervals_hold_the_value(log, units, epsilon):
    """One decision with ratios of 50, and ten steps with products of 28.9: a quick form of docs/coverage.md.

    The baseline is made of the same rows, without noise: the worst case of it.
    """
    trials, sides, useful = 80, [0, 0], []
    plan = make_plan(
        DoublyRobust(discount=log.discount), log.bounds(units), Budget(epsilon, 1e-6), [log.policy], "tabular"
    )
    query: Any = plan.query
    low, high = query.bounds.value_interval(log.discount)
    for seed in range(trials):
        rng = np.random.default_rng([seed, units])
        rows = log.read(units, rng)
        theta = log.learn(rows)
        vectors = vectors_of(plan, rows, theta, [log.policy])
        noise = plan.value_mechanism.noise_std * rng.normal(size=query.dimension)
        around_it = query.around(plan.function_of(theta))
        (found,) = around_it.decode(plan.value_mechanism, vectors.sum(axis=0) + noise)
        sides[0] += found.interval[1] < log.value
        sides[1] += found.interval[0] > log.value
        useful.append((found.interval[1] - found.interval[0]) / (high - low))
    assert max(sides) <= 8, sides  # of 80, where 2 are expected
    assert np.median(useful) < 0.5
