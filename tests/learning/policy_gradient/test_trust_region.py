"""Steps as long as released gradients allow: less the noise, and whatever the unit of rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.environments.people import People
from dprl.environments.simulators import facts_of
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.estimator import Trajectory
from dprl.learning.policy_gradient.people_sources import CompiledPeople, PeopleOnHost
from dprl.learning.policy_gradient.pg_plan import make_pg_plan, program_of
from dprl.learning.policy_gradient.trainer import run_compiled, run_on_host
from dprl.learning.policy_gradient.trust_region import (
    DAMPING,
    LEAST_DAMPING,
    PREFERENCE_RADIUS,
    SHARP_PREFERENCES,
    WARM_UP,
    public_states,
    scale_preferences,
    share_of_step,
    sharpened,
    squared_changes,
    whitened,
)
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric

SOFTMAX = Parametric("softmax", ((-1.0, 1.0),) * 2, actions=3)
GAUSSIAN = Parametric("gaussian", ((-1.0, 1.0),) * 2, action=((-1.0, 1.0),))
BUDGET = Budget(1.0, 1e-6)


def changed(policy: Parametric, gradient: Any, std: float = 0.0) -> np.ndarray:
    gradient, zero = jnp.asarray(gradient, jnp.float32), jnp.zeros(policy.size, jnp.float32)
    return np.asarray(squared_changes(policy, zero, gradient, gradient, std, public_states(policy)))


@pytest.mark.parametrize("policy", [SOFTMAX, GAUSSIAN], ids=["softmax", "gaussian"])
def test_a_change_of_linear_preferences_is_signal_and_noise(policy):
    gradient = np.random.default_rng(1).normal(size=policy.size).astype(np.float32)
    states = public_states(policy)
    change = np.asarray(policy.preferences(jnp.asarray(gradient), states))  # linear: what changes by adding it
    if not policy.gaussian:
        change = change - change.mean(axis=1, keepdims=True)
    whole = (change**2).sum(axis=1).mean()
    np.testing.assert_allclose(changed(policy, gradient), [whole, 0.0], rtol=1e-5)
    share = policy.size * 0.3**2 / (gradient**2).sum()
    np.testing.assert_allclose(changed(policy, gradient, 0.3), [whole * (1.0 - share), whole * share], rtol=1e-4)


def test_of_noise_alone_all_is_noise_on_average():
    draws = jnp.asarray(np.random.default_rng(2).normal(size=(4000, SOFTMAX.size)) * 0.7, jnp.float32)
    zero, states = jnp.zeros(SOFTMAX.size, jnp.float32), public_states(SOFTMAX)
    signal, noise = np.asarray(jax.vmap(lambda g: squared_changes(SOFTMAX, zero, g, g, 0.7, states))(draws)).T
    assert abs(signal.mean()) < 4.0 * signal.std() / np.sqrt(len(signal))
    raw = np.mean([changed(SOFTMAX, g)[0] for g in draws[:50]])
    assert abs(signal.mean()) < 0.1 * raw
    assert noise.mean() == pytest.approx(raw, rel=0.2)


def test_the_same_for_all_actions_is_no_change_of_a_softmax():
    tabular = Parametric("tabular", ((0.0, 2.0),), actions=4)
    row = np.random.default_rng(3).normal(size=3)
    constant = jnp.asarray(np.tile(row, 4), jnp.float32)  # parameters lie by action, then state
    np.testing.assert_allclose(
        tabular.preferences(constant, public_states(tabular)), np.tile(row[:, None], 4), rtol=1e-6
    )
    assert changed(tabular, constant)[0] == pytest.approx(0.0, abs=1e-10)
    other = jnp.asarray(np.random.default_rng(4).normal(size=tabular.size), jnp.float32)
    np.testing.assert_allclose(changed(tabular, other + constant), changed(tabular, other), rtol=1e-5)
    np.testing.assert_array_equal(changed(tabular, jnp.zeros(tabular.size), 1.0), 0.0)


NETWORK = Parametric("mlp:5", ((-1.0, 1.0),) * 2, actions=3)
FOURIER = Parametric("softmax:fourier:2", ((-1.0, 1.0), (0.0, 5.0)), actions=3)


@pytest.mark.parametrize("policy", [SOFTMAX, GAUSSIAN, FOURIER], ids=["softmax", "gaussian", "fourier"])
@pytest.mark.parametrize("std", [0.0, 0.05])
def test_a_direction_is_the_gradient_in_features_that_are_all_alike(policy, std):
    gradient = np.random.default_rng(7).normal(size=policy.size).astype(np.float32)
    features = np.asarray(policy.feature_rows(public_states(policy)), np.float64)
    moments, damping = features.T @ features / len(features), LEAST_DAMPING + DAMPING * std**2
    level, one = np.trace(moments) / policy.features, np.eye(policy.features)
    inverse = (1.0 + damping) * np.linalg.inv(moments / level + damping * one)
    found = np.asarray(whitened(policy, jnp.asarray(gradient), std))
    np.testing.assert_allclose(found, np.kron(np.eye(policy.outputs), inverse) @ gradient, rtol=2e-3, atol=1e-3)


def test_a_direction_is_the_gradient_itself_where_noise_rules_and_where_features_are_alike_or_many():
    wide = Parametric("softmax", ((-1.0, 1.0),) * 300, actions=2)
    tabular = Parametric("tabular", ((0.0, 2.0),), actions=4)
    for policy, std in ((SOFTMAX, 1e4), (tabular, 0.0), (NETWORK, 0.0), (wide, 0.0)):
        gradient = np.random.default_rng(8).normal(size=policy.size).astype(np.float32)
        found = whitened(policy, jnp.asarray(gradient), std)
        np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-6)


def test_a_component_that_never_changes_leaves_a_direction_finite():
    for kind in ("softmax", "softmax:fourier:3"):
        policy = Parametric(kind, ((-1.0, 1.0), (2.0, 2.0)), actions=2)
        gradient = np.random.default_rng(10).normal(size=policy.size).astype(np.float32)
        found = np.asarray(whitened(policy, jnp.asarray(gradient), 0.0))
        assert np.linalg.norm(found) < 1.1 * (1.0 + LEAST_DAMPING) / LEAST_DAMPING * np.linalg.norm(gradient)


def test_the_first_step_goes_the_whitened_way():
    for options in ({}, {"natural": True}, {"step_size": 1.0}):
        config = DPPG(users=400_000, policy="softmax", baseline_weight=0.0, scale_weight=0.0, **options)
        program, rates = program_of(make_pg_plan(config, facts_of(Paying()), BUDGET))
        start, policy = program.init(rates, ActionCoins.from_jax_key(jax.random.key(0))), program.shape.policy
        y = program.shape.batch * np.random.default_rng(9).normal(size=program.shape.dimension)
        theta = np.asarray(program.update(0, start, jnp.asarray(y), 0).theta)
        std = program.mechanism.noise_std_of_step / program.shape.batch
        way = np.asarray(whitened(policy, jnp.asarray(y, jnp.float32), std))
        along = theta @ way / np.linalg.norm(theta) / np.linalg.norm(way)
        assert (along > 1.0 - 1e-5) == (not options)


@pytest.mark.parametrize("which", [0, 1], ids=["signal", "noise"])
def test_a_step_shrinks_by_how_far_it_would_go_beyond_the_radius(which):
    late = 99
    for times, share in ((0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (4.0, 0.25), (1e6, 1e-6)):
        squared = np.full(2, 1e-4)
        squared[which] = (times * PREFERENCE_RADIUS / 3.0) ** 2
        assert share_of_step(late, 100, 3.0, squared) == pytest.approx(share, rel=1e-5)
    assert share_of_step(late, 100, 3.0, np.array([-5.0, 0.0])) == 1.0  # less than the noise accounts for
    # the first steps grow from nothing
    first = int(100 * WARM_UP)
    grow = [float(share_of_step(t, 100, 1.0, np.zeros(2))) for t in (0, 4, first, first + 1)]
    np.testing.assert_allclose(grow, [1 / (first + 1), 5 / (first + 1), 1.0, 1.0], rtol=1e-6)


def test_where_the_radius_binds_the_size_of_gradients_does_not_count():
    gradient = jnp.asarray(np.random.default_rng(5).normal(size=SOFTMAX.size), jnp.float32)
    moves = [
        k * gradient * 1e9 * share_of_step(50, 100, 1e9, changed(SOFTMAX, k * gradient, k * 0.2))
        for k in (1e-3, 1.0, 1e3)
    ]
    np.testing.assert_allclose(moves[0], moves[1], rtol=1e-4)
    np.testing.assert_allclose(moves[2], moves[1], rtol=1e-4)


@pytest.mark.parametrize("policy", [SOFTMAX, NETWORK], ids=["softmax", "network"])
@pytest.mark.parametrize(
    ("size", "factor"), [(0.1, 3.0), (SHARP_PREFERENCES / 2.0, 2.0), (2.0 * SHARP_PREFERENCES, 1.0)]
)
def test_a_released_policy_is_sharpened_up_to_a_size(policy, size, factor):
    theta = jnp.asarray(np.random.default_rng(6).normal(size=policy.size), jnp.float32)
    states = public_states(policy)
    centred = lambda theta: (p := np.asarray(policy.preferences(theta, states))) - p.mean(1, keepdims=True)  # noqa: E731
    theta = scale_preferences(policy, theta, size / np.sqrt((centred(theta) ** 2).sum(1).mean()))
    found = sharpened(policy, theta, 3.0)
    np.testing.assert_allclose(centred(found), factor * centred(theta), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(policy.greedy(found, states), policy.greedy(theta, states))


@dataclass(frozen=True)
class Paying:
    """Four states at random, of which each pays best for another action; rewards in any unit."""

    unit: float = 1.0
    observation_bounds = ((0.0, 1.0),)
    actions, horizon, discount = 2, 6, 0.9

    @property
    def reward_bounds(self) -> tuple[float, float]:
        return (-1.0 * self.unit, 2.0 * self.unit)

    def reset(self, key: Any) -> Any:
        return jax.random.uniform(key, dtype=jnp.float32)

    def observe(self, state: Any) -> Any:
        return state[None]

    def step(self, key: Any, state: Any, action: Any) -> Any:
        reward = jnp.where(action == (state > 0.5), 2.0, -1.0) * self.unit
        return jax.random.uniform(key, dtype=jnp.float32), reward.astype(jnp.float32), jnp.zeros((), bool)


def test_a_step_is_as_long_as_the_noise_of_the_released_sum_allows():
    options = DPPG(users=4000, policy="softmax", baseline_weight=0.0, scale_weight=0.0)
    program, rates = program_of(make_pg_plan(options, facts_of(Paying()), BUDGET))
    shape, std = program.shape, program.mechanism.noise_std_of_step
    start = program.init(rates._replace(step_size=np.float32(1e6)), ActionCoins.from_jax_key(jax.random.key(0)))
    for seed, loud in ((0, 1.0), (1, 1.0), (2, 5.0)):
        y = loud * std * np.random.default_rng(seed).normal(size=shape.dimension)
        theta = program.update(0, start, jnp.asarray(y), 0).theta
        change = np.asarray(shape.policy.preferences(theta, public_states(shape.policy)))
        moved = np.sqrt(((change - change.mean(axis=1, keepdims=True)) ** 2).sum(axis=1).mean())
        noise = shape.policy.size * std**2 / (y**2).sum()
        longest = PREFERENCE_RADIUS / (1.0 + WARM_UP * shape.steps)
        assert moved == pytest.approx(longest / np.sqrt(max(noise, 1.0 - noise)), rel=1e-3)


@pytest.mark.parametrize("unit", [1000.0, pytest.param(0.001, marks=pytest.mark.slow)])
def test_rewards_in_another_unit_give_the_same_policy(unit):
    learned = []
    for environment in (Paying(), Paying(unit)):
        program, rates = program_of(make_pg_plan(DPPG(users=600), facts_of(environment), BUDGET))
        assert program.shape.adaptive
        people, coins = CompiledPeople(environment, program.shape), ActionCoins.from_jax_key(jax.random.key(1))
        state, _ = run_compiled(program, people, SeededNoise.from_seed(1), rates, coins)
        learned.append(np.asarray(state.theta))
    assert np.abs(learned[0]).max() > 0.1
    np.testing.assert_allclose(learned[1], learned[0], atol=1e-3)


@pytest.mark.parametrize("noise", ["square-root", "independent"])
def test_the_noise_of_a_step_is_that_of_what_is_released(noise):
    class Nobody(People):
        def batch(self, first, count, act):
            shape = (count, 6)
            return Trajectory(
                np.zeros((*shape, 1), np.float32), np.zeros(shape, np.int32), np.zeros(shape, np.float32),
                np.zeros(count, np.int32), np.ones(count, bool),
            )  # fmt: skip

    config = DPPG(users=60, steps=6, policy="mlp:200", noise=noise)
    program, rates = program_of(make_pg_plan(config, facts_of(Paying()), Budget(1.0, 1e-3)))
    mechanism, sums = program.mechanism, []

    class Recorded:
        def step(self, step, count, compute):
            sums.append(np.asarray(mechanism.scaled(points := compute())))
            return points

    coins = ActionCoins.from_jax_key(jax.random.key(0))
    run_on_host(program, PeopleOnHost(Nobody(), 60), SeededNoise.from_seed(3), rates, coins, journal=Recorded())
    assert np.std(sums[-1]) == pytest.approx(mechanism.noise_std_of_step, rel=0.1)
