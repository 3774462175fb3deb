"""Importance sampling against brute force, closed forms and known values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.engine.ratios import cumulative_ratios, step_ratios
from dprl.engine.value_query import release_vector
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.least_noise import least_noise_strategy, public_patterns
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SeededNoise

from . import helpers, one_shot

ESTIMATORS = ("trajectory", "per-decision", "self-normalised")


def arm(action: int, actions: int):
    return lambda states: np.tile(np.eye(actions)[action], (len(states), 1))


def plain_values(config: ImportanceSampling, bounds: Bounds, log, policies) -> np.ndarray:
    """Values decoded from the un-noised sum."""
    plan = make_plan(config, bounds, Budget(1.0, 1e-6), policies)
    total = plan.query.unit_vectors(log, policies).sum(axis=0)
    return np.array([e.value for e in plan.query.decode(one_shot.quiet(plan.query), total)])


def test_ratios_against_a_plain_loop():
    log = one_shot.stepped(50)
    ratios = step_ratios(helpers.stepped_policy, log)
    got = cumulative_ratios(ratios, log)
    for e in range(log.episodes):
        product = 1.0
        for i in range(log.episode_offsets[e], log.episode_offsets[e + 1]):
            expected = min((0.6 if log.action[i] == 1 else 0.4) / 0.5, 1.2)
            assert ratios[i] == pytest.approx(expected)
            product *= expected
            assert got[i] == pytest.approx(min(product, 2.5), rel=1e-9)


def test_cumulative_ratio_survives_zeros_and_huge_products():
    bounds = Bounds(
        units=9, horizon=4, reward=(0, 1), observation=((0, 1),), actions=2,
        max_importance_ratio=1e6, max_cumulative_ratio=1e9,
    )  # fmt: skip
    columns = {
        "episode_id": [0] * 4 + [1] * 4, "t": [0, 1, 2, 3] * 2, "observation": [0.5] * 8,
        "action": [0, 1, 0, 0] + [0] * 4,
        "reward": [0.0] * 8, "behavior_prob": [1e-9] * 8, "terminated": [False] * 8,
    }  # fmt: skip
    log = read_log(columns, bounds=bounds).load()
    ratios = step_ratios(lambda s: np.tile([1.0, 0.0], (len(s), 1)), log)
    np.testing.assert_array_equal(cumulative_ratios(ratios, log), [1e6, 0, 0, 0, 1e6, 1e9, 1e9, 1e9])


def test_self_normalised_and_plain_values_against_textbook_formulas():
    log = one_shot.stepped(300, 1)
    product = cumulative_ratios(step_ratios(helpers.stepped_policy, log), log).reshape(300, 5)
    reward, discount = log.reward.reshape(300, 5), 0.9 ** np.arange(5)
    weight, returns = product[:, -1], (reward * discount).sum(axis=1)
    centre = sum(discount) / 2.0
    expected = {
        "trajectory": centre + np.mean(weight * (returns - centre)),
        "per-decision": centre + np.mean((product * (reward - 0.5) * discount).sum(axis=1)),
        "self-normalised": np.sum(weight * returns) / np.sum(weight),
    }
    for estimator in ESTIMATORS:
        config = ImportanceSampling(discount=0.9, estimator=estimator)
        got = plain_values(config, helpers.stepped_bounds(300), log, [helpers.stepped_policy])
        # rounding toward zero does not happen in the plain sum; the clip must not bite
        assert got[0] == pytest.approx(expected[estimator], rel=1e-9), estimator


def test_no_unit_exceeds_the_clip_norm_of_its_query():
    """The clip norm covers what honest rows can produce, so that clipping biases nothing."""
    log = one_shot.stepped(500, 2)
    for estimator in ESTIMATORS:
        policies = [helpers.stepped_policy, arm(0, 2), arm(1, 2)]
        plan = make_plan(ImportanceSampling(estimator=estimator), log.bounds, Budget(1.0, 1e-6), policies)
        vectors = plan.query.unit_vectors(log, policies)
        assert np.linalg.norm(vectors, axis=1).max() <= plan.query.clip_norm * (1 + 1e-9)


def test_people_with_several_trajectories_count_once():
    columns = helpers.bandit_log(6, 3)
    columns["person_id"] = [0, 0, 0, 1, 2, 2]
    bounds = helpers.bandit_bounds(3)
    log = read_log(columns, bounds=bounds, person="person_id").load()
    singles = read_log(helpers.bandit_log(6, 3), bounds=helpers.bandit_bounds(6)).load()
    plan = make_plan(ImportanceSampling(), bounds, Budget(1.0, 1e-6), [helpers.bandit_policy])
    f = plan.query.unit_vectors(singles, [helpers.bandit_policy])[:, 0]
    got = plan.query.unit_vectors(log, [helpers.bandit_policy])[:, 0]
    np.testing.assert_allclose(got, [f[:3].mean(), f[3], f[4:].mean()], rtol=1e-12)


def test_disjoint_arms_cost_what_one_costs():
    patterns = public_patterns([arm(i, 4) for i in range(4)], Bounds(
        units=9, horizon=1, reward=(0, 1), observation=((0, 1),), actions=4, max_importance_ratio=4
    ))  # fmt: skip
    assert sorted(map(tuple, patterns)) == sorted(map(tuple, np.eye(4)))
    strategy = least_noise_strategy(patterns)
    np.testing.assert_allclose(np.sum(np.linalg.inv(strategy) ** 2, axis=1), 1.0, rtol=0.02)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 4), st.integers(0, 10**6))
def test_strategy_is_feasible_and_no_worse_than_the_plain_one(policies, seed):
    rng = np.random.default_rng(seed)
    patterns = np.unique(rng.integers(0, 2, (6, policies)), axis=0).astype(float)
    patterns = patterns[patterns.any(axis=1)]
    strategy = least_noise_strategy(patterns)
    assert np.linalg.norm(patterns @ strategy.T, axis=1).max() <= 1.0 + 1e-9
    variance = np.sum(np.linalg.inv(strategy) ** 2)
    plain = policies * max(patterns.sum(axis=1))  # S = I / |c|
    assert variance <= plain * 1.02


def test_strategy_is_optimal_by_brute_force_for_two_policies():
    """Against a grid over all symmetric 2x2 Gram matrices."""
    patterns = np.array([[1.0, 0.0], [1.0, 1.0]])
    a, d, b = np.meshgrid(np.linspace(0.3, 1.0, 60), np.linspace(0.3, 3.0, 140), np.linspace(-1.5, 0.5, 100))
    possible = (a * d - b * b > 1e-6) & (a + 2 * b + d <= 1.0)
    best = ((a + d)[possible] / (a * d - b * b)[possible]).min()
    variance = np.sum(np.linalg.inv(least_noise_strategy(patterns)) ** 2)
    assert variance == pytest.approx(best, rel=0.03)


def coverage(generate, policy, bounds: Bounds, config: ImportanceSampling, epsilon: float, logs: int):
    """Fraction of intervals that hold the value, and their width over that of one that knows the variance."""
    large = read_log(generate(200_000, 10**6), bounds=bounds).load()
    plan = make_plan(config, bounds, Budget(epsilon, 1e-5), [policy])
    vectors = plan.query.unit_vectors(large, [policy])
    whole = replace(plan.query, bounds=replace(bounds, units=large.units))
    (exact,) = whole.decode(one_shot.quiet(whole), vectors.sum(axis=0))
    truth, spread = exact.value, exact.sampling_standard_error * math.sqrt(large.units / bounds.units)
    hits, widths = [], []
    for seed in range(logs):
        log = read_log(generate(bounds.units, seed), bounds=bounds).load()
        unit_vectors = plan.query.unit_vectors(log, [policy])
        noisy = release_vector(plan.value_mechanism, SeededNoise.from_seed(seed), unit_vectors)
        estimate = plan.query.decode(plan.value_mechanism, noisy)[0]
        low, high = estimate.interval
        hits.append(low <= truth <= high)
        widths.append((high - low) / 2.0 / (1.96 * math.hypot(spread, estimate.privacy_standard_error)))
    return np.mean(hits), np.mean(widths)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_intervals_of_several_decisions_cover(estimator):
    config = ImportanceSampling(discount=1.0, estimator=estimator)
    hit, width = coverage(helpers.stepped_log, helpers.stepped_policy, helpers.stepped_bounds(1000), config, 1.0, 500)
    assert hit >= 0.93
    assert width <= 1.25
