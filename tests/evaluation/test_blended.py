"""Values that follow the value function: unbiased by enumeration, bounded, inside the range of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.engine.plan import Plan
from dprl.evaluation import blended
from dprl.evaluation.blended import BlendedQuery
from dprl.evaluation.importance_sampling import ImportanceQuery, ImportanceSampling, make_query
from dprl.evaluation.intervals import ValueEstimate
from dprl.evaluation.plan import make_plan
from dprl.value_functions.features import make_features
from dprl.value_functions.value_function import ValueFunction

from . import one_shot
from .doubly_robust_logs import GAMMA, process_bounds, small_process

CUT_BOUNDS = one_shot.extreme_bounds(400)
POLICIES = [one_shot.extreme_policy, lambda states: one_shot.extreme_policy(states)[:, ::-1]]


def function(theta: np.ndarray, bounds: Bounds) -> ValueFunction:
    return ValueFunction(theta, make_features("tabular", bounds.observation), bounds.value_interval(GAMMA))


def plan_of(bounds: Bounds = CUT_BOUNDS, epsilon: float = 1.0) -> Plan:
    return make_plan(dprl.Recommended(discount=GAMMA), bounds, Budget(epsilon, 1e-5), POLICIES, "tabular")


def query_of(plan: Plan, theta: np.ndarray) -> BlendedQuery:
    assert isinstance(plan.query, BlendedQuery)
    return plan.query.around(function(theta, plan.bounds))


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_blended_into_a_value_is_unbiased_where_nothing_is_cut(seed, monkeypatch):
    """By enumeration of all trajectories, for any value function."""
    monkeypatch.setattr(blended, "RATIO_CUT", 1e9)
    monkeypatch.setattr(blended, "CORRECTION_CLIP", 1e9)
    process = small_process(seed)
    bounds = process_bounds(len(process.chances), process.largest)
    sampling = make_query(ImportanceSampling(discount=GAMMA), bounds, np.ones((1, 1)))
    theta = np.random.default_rng(seed).uniform(-1.0, 1.0, 12)
    features = make_features("tabular", bounds.observation)
    theta /= np.linalg.norm(features(np.zeros((1, 1))))  # V in [-1, 1]
    query = BlendedQuery(sampling).around(function(theta, bounds))
    log = one_shot.load(process.columns, bounds)
    start, correction = query._weights
    vectors = query.unit_vectors(log, [process.policy])[:, sampling.dimension :]
    low, high = bounds.value_interval(GAMMA)
    units = process.chances @ (vectors / [start, correction]).sum(axis=1)
    assert (low + high) / 2.0 + (high - low) / 2.0 * units == pytest.approx(process.value, abs=1e-9)


def test_a_correction_is_what_the_rewards_say_against_the_value_function():
    """One trajectory by hand, cut at 5 and, where it is long, at the reach."""
    bounds = replace(CUT_BOUNDS, max_importance_ratio=4.0, max_cumulative_ratio=20.0, horizon=3, units=1)
    plan = plan_of(bounds)
    theta = np.array([0.5, -0.25, 0.0, 1.0, -1.0])
    query = query_of(plan, theta)
    columns = {
        "person_id": [0, 0, 0], "episode_id": [0, 0, 0], "t": [0, 1, 2], "x0": [1.0, 3.0, 0.0], "action": [1, 1, 1],
        "reward": [0.5, -0.5, 1.0], "behavior_prob": [0.25, 0.25, 0.8], "terminated": [0, 0, 1],
    }  # fmt: skip
    log = one_shot.load({name: np.array(x, float) for name, x in columns.items()}, bounds)
    low, high = bounds.value_interval(GAMMA)
    half = (high - low) / 2.0
    fractions = np.clip(plan.features(np.array([[1.0], [3.0], [0.0]])) @ theta, -1.0, 1.0)
    v = (low + high) / 2.0 + half * fractions
    weights = np.minimum(np.cumprod([3.2, 3.2, 1.0]), 5.0)
    surprises = [0.5 + GAMMA * v[1] - v[0], -0.5 + GAMMA * v[2] - v[1], 1.0 - v[2]]
    expected = np.clip(sum(GAMMA**t * w * s for t, (w, s) in enumerate(zip(weights, surprises, strict=True))) / half,
                       -blended.CORRECTION_CLIP, blended.CORRECTION_CLIP)  # fmt: skip
    start, correction = query._weights
    vector = query.unit_vectors(log, POLICIES)[0, query.inner.dimension :]
    assert vector[:2] == pytest.approx([start * fractions[0], correction * expected])


@pytest.mark.parametrize("known", [True, False])
def test_what_the_value_function_expects_after_the_log_is_no_part_of_the_value(known):
    """A trajectory that goes on: V of its next state, or of its last one, is taken from V at the start."""
    bounds = replace(CUT_BOUNDS, horizon=2, units=1)
    plan = plan_of(bounds)
    theta = np.array([0.5, -0.25, 0.0, 1.0, -1.0])
    query = query_of(plan, theta)
    columns = {
        "person_id": [0, 0], "episode_id": [0, 0], "t": [0, 1], "x0": [1.0, 3.0], "action": [1, 1],
        "reward": [0.5, 1.0], "behavior_prob": [0.5, 0.5], "terminated": [0, 0],
    }  # fmt: skip
    log = one_shot.load({name: np.array(x, float) for name, x in columns.items()}, bounds)
    if known:
        log = replace(log, next_observation=np.array([[3.0], [4.0]]), has_next=np.array([True, True]))
    (low, high), features = bounds.value_interval(GAMMA), make_features("tabular", bounds.observation)
    half = (high - low) / 2.0
    v = (low + high) / 2.0 + half * np.clip(features(np.arange(5.0)[:, None]) @ theta, -1.0, 1.0)
    after = v[4] if known else v[3]
    start, correction = query._weights
    logged = np.clip((v[1] - GAMMA**2 * after - (low + high) / 2.0) / half, -1.0, 1.0)
    surprise = (1.6 * (0.5 + GAMMA * v[3] - v[1]) + GAMMA * 2.5 * (1.0 + GAMMA * after - v[3])) / half
    vector = query.unit_vectors(log, POLICIES)[0, query.inner.dimension :]
    clipped = np.clip(surprise, -blended.CORRECTION_CLIP, blended.CORRECTION_CLIP)
    assert vector[:2] == pytest.approx([start * logged, correction * clipped])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.floats(0.1, 50.0))
def test_no_vector_is_clipped_whatever_the_rows_and_the_value_function(seed, size):
    plan = plan_of()
    query = query_of(plan, np.random.default_rng(seed).normal(size=5) * size)
    log = one_shot.load(one_shot.extreme_log(30, seed), CUT_BOUNDS)
    vectors = query.unit_vectors(log, POLICIES)
    assert vectors.shape == (30, query.dimension)
    assert np.linalg.norm(vectors, axis=1).max() <= query.clip_norm * (1.0 + 1e-12)


def test_the_interval_is_that_of_importance_sampling_and_holds_the_value():
    plan = plan_of()
    log = one_shot.load(one_shot.extreme_log(400, 3), CUT_BOUNDS)
    for theta in (np.zeros(5), np.full(5, 9.0), np.random.default_rng(1).normal(size=5)):
        query = query_of(plan, theta)
        total = query.unit_vectors(log, POLICIES).sum(axis=0)
        sampling = query.inner.decode(plan.value_mechanism, total[: query.inner.dimension])
        for mine, theirs in zip(query.decode(plan.value_mechanism, total), sampling, strict=True):
            assert mine.interval == theirs.interval
            assert mine.interval[0] <= mine.value <= mine.interval[1]


@pytest.mark.parametrize(("noise", "moved", "near"), [(0.0, 0.0, 3.0), (1e9, 0.0, 2.0), (0.0, 1e9, 2.0)])
def test_each_value_counts_by_its_error(noise, moved, near):
    sampled = ValueEstimate(2.0, (0.0, 5.0), 0.1, 0.1, bias_bound=1.0)
    found = blended.blend(sampled, 3.0, noise, moved)
    assert found.value == pytest.approx(near, abs=1e-6)
    assert found.privacy_standard_error == pytest.approx(noise if near == 3.0 else 0.1, abs=1e-6)


def test_the_noise_of_the_value_is_what_is_stated():
    """The spread of the value over draws of noise, against its standard error; a third more or less is refused."""
    plan = plan_of(epsilon=20.0)
    query = query_of(plan, np.array([0.2, 0.1, -0.3, 0.0, 0.4]))
    log = one_shot.load(one_shot.extreme_log(400, 5), CUT_BOUNDS)
    total = query.unit_vectors(log, POLICIES).sum(axis=0)
    rng = np.random.default_rng(0)
    draws = total + plan.value_mechanism.noise_std * rng.normal(size=(1_000, query.dimension))
    z, moved = [], []
    for draw in draws:
        sampled = query.inner.decode(plan.value_mechanism, draw[: query.inner.dimension])[0]
        found = query.decode(plan.value_mechanism, draw)[0]
        moved.append(found.value != sampled.value)
        z.append((found.value, found.privacy_standard_error))
    values, errors = np.array(z).T
    assert all(moved)
    assert 2.0 / 3.0 < np.std(values) / np.mean(errors) < 1.5


def test_only_the_default_asks_so_and_only_where_products_are_cut():
    assert isinstance(plan_of().query, BlendedQuery)
    uncut = replace(CUT_BOUNDS, max_cumulative_ratio=CUT_BOUNDS.max_importance_ratio**CUT_BOUNDS.horizon)
    assert isinstance(plan_of(uncut).query, ImportanceQuery)
    named = make_plan(dprl.TD(discount=GAMMA), CUT_BOUNDS, Budget(1.0, 1e-5), POLICIES, "tabular")
    assert isinstance(named.query, ImportanceQuery)


def test_the_value_function_is_released_where_the_values_say_nothing():
    """As without blended values: a value function alone may be what is wanted."""
    plan = plan_of(epsilon=0.05)
    assert all(plan.hopeless())
    plan.refuse_the_hopeless()
    assert plan.program is not None
