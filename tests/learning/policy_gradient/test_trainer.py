from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.environments.cart_pole import CartPole
from dprl.environments.pendulum import Pendulum
from dprl.environments.people import People
from dprl.learning.policy_gradient.estimator import Rates, RunShape, Trajectory
from dprl.learning.policy_gradient.people_sources import CompiledPeople, PeopleOnHost, rollout
from dprl.learning.policy_gradient.trainer import (
    PolicyGradient,
    natural_direction,
    released_parameters,
    run,
    run_compiled,
    run_on_host,
)
from dprl.learning.policy_gradient.trust_region import (
    FASTEST_GROWTH,
    LARGEST_GROWTH,
    QUIET_GROWTH,
    TARGET_FILL,
    next_growth,
    public_states,
)
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.step_noise import Correlation
from dprl.policies.parametric import Parametric

TABLE = Parametric("tabular", ((0.0, 2.0),), actions=4)
PAID = np.random.default_rng(5).uniform(-1.0, 1.0, (3, 4)).astype(np.float32)
_ROLLOUT = jax.jit(rollout, static_argnums=(0, 1, 4, 5))
RATES = Rates(*map(np.float32, (0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 0.2, 0.3, 0.0, 1.0)))


@dataclass(frozen=True)
class TableBandit:
    """A state at random, and the table's reward."""

    def reset(self, key: Any) -> Any:
        return jax.random.randint(key, (), 0, 3)

    def observe(self, state: Any) -> Any:
        return jnp.asarray(state, jnp.float32)[None]

    def step(self, key: Any, state: Any, action: Any) -> Any:
        return state, jnp.asarray(PAID)[state, action], jnp.ones((), bool)


def coins(seed):
    return ActionCoins.from_jax_key(jax.random.key(seed))


def _shape(**options):
    base = {"policy": TABLE, "places": 60, "batch": 20, "steps": 3, "horizon": 1, "bootstrap": "none", "block": 8}
    return RunShape(**(base | options))


def _mechanism(shape, multiplier=1.0, **options):
    parts = tuple((size, clip) for size, clip in zip(shape.parts, (0.97, 0.2, 0.1), strict=False))
    given = {"steps": shape.steps, "batch": shape.batch, "relation": "zero-out"} | options
    return GaussianSum(parts=parts, noise_multiplier=multiplier, **given)


def _plain(shape):
    return _mechanism(shape).unclipped(0.0)


def test_a_batch_without_noise_and_clip_climbs_the_exact_gradient():
    shape = _shape(places=40_000, batch=40_000, steps=1, block=4096)
    mechanism = _plain(shape)
    program, people = PolicyGradient(shape, mechanism), CompiledPeople(TableBandit(), shape)
    noise = SeededNoise.from_seed(0)
    state, history = jax.jit(lambda key: run(program, people, noise, RATES, key))(coins(3))
    exact = np.asarray(0.25 * (PAID - PAID.mean(1, keepdims=True)) / 3).T.reshape(-1)  # of the uniform policy
    step = np.asarray(history[1] - history[0]) / 0.5
    assert np.abs(step - exact).max() < 6 * 0.6 / np.sqrt(40_000)
    assert np.corrcoef(step, exact)[0, 1] > 0.99
    assert abs(float(state.baseline) - PAID.mean()) < 0.01


@pytest.mark.parametrize(
    "adaptive", [pytest.param(False, marks=pytest.mark.slow, id="fixed steps"), pytest.param(True, id="adaptive steps")]
)
def test_on_the_host_the_same_answers_give_the_same_run(adaptive):
    shape = _shape(places=55, baseline=True, adaptive=adaptive, scaled=adaptive)  # the last batch is not full
    rates = RATES._replace(scale_weight=np.float32(0.1), **({"scale": np.float32(0.1)} if adaptive else {}))
    mechanism = _mechanism(shape, 0.1, correlation=Correlation("square-root"))
    noise, key = SeededNoise.from_seed(2), coins(4)
    program, people = PolicyGradient(shape, mechanism), CompiledPeople(TableBandit(), shape)
    state, history = run_compiled(program, people, noise, rates, key)
    kept = np.asarray(history)
    answered = jax.jit(people.trajectories)

    class Source(People):
        def batch(self, first, count, act):
            t = first // 20
            np.testing.assert_allclose(act.theta, kept[t], atol=1e-6)
            places = [first + np.arange(8 * i, 8 * i + 8) for i in range(3)]
            rows = [answered(jnp.asarray(kept[t]), key.for_batch(t), slots) for slots in places]
            whole = jax.tree.map(lambda *x: np.concatenate(x)[:count], *rows)
            acted = act(whole.observations[:, 0], first + np.arange(count), np.zeros(count, int))
            np.testing.assert_array_equal(acted, whole.actions[:, 0])
            return whole

    done, sums = [], []

    class Recorded:
        def step(self, step, count, compute):
            points = compute()
            sums.append(np.asarray(mechanism.scaled(points)))
            return points

    asked = PeopleOnHost(Source(), shape.places)
    theirs, found = run_on_host(program, asked, noise, rates, key, done.append, Recorded())
    np.testing.assert_allclose(found, kept, atol=1e-6)
    # every iterate is a function of the noisy sums alone
    again, step = program.init(rates, key), jax.jit(lambda state, y: program.update(0, state, y, None))
    for before, y in zip(kept, sums, strict=False):
        np.testing.assert_allclose(before, again.theta, atol=1e-6)
        again = step(again, y)
    np.testing.assert_allclose(again.theta, state.theta, atol=1e-6)
    assert float(again.growth) == pytest.approx(float(state.growth), rel=1e-5)
    assert (float(state.growth) > 1.05) is adaptive  # vectors were scaled up on the way
    np.testing.assert_allclose(kept[:-1].mean(0), state.average, atol=1e-6)
    np.testing.assert_allclose(theirs.theta, state.theta, atol=1e-6)
    assert done == [1, 2, 3]


def test_who_is_not_there_contributes_nothing():
    # places beyond the last user, and users who answer nothing
    shape = _shape(places=1, batch=20, steps=1)

    class Nobody(People):
        def batch(self, first, count, act):
            assert (first, count) == (0, 1)
            return Trajectory(
                np.zeros((1, 1, 1), np.float32), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32),
                np.zeros(1, np.int32), np.ones(1, bool),
            )  # fmt: skip

    totals = []

    class Silent:
        """Releases nothing, and notes what would have been released."""

        def step(self, step, count, compute):
            totals.append(np.asarray(compute()))
            return np.zeros(shape.dimension, np.int64)

    program, noise = PolicyGradient(shape, _mechanism(shape)), SeededNoise.from_seed(1)
    state, _ = run_on_host(program, PeopleOnHost(Nobody(), 1), noise, RATES, coins(0), journal=Silent())
    np.testing.assert_array_equal(totals[0], program.mechanism.draw(noise, 0))
    np.testing.assert_array_equal(state.theta, 0.0)


@pytest.mark.parametrize("horizon", [pytest.param(5, marks=pytest.mark.slow), 45])
def test_rollouts_are_cut_at_the_time_limit_and_only_there(horizon):
    policy = Parametric("gaussian", Pendulum().observation_bounds, action=Pendulum().action_bounds)
    theta = jnp.zeros(policy.size, jnp.float32)
    found = _ROLLOUT(policy, Pendulum(), theta, coins(0).for_batch(0), 3, horizon)
    assert found.observations.shape == (3, horizon, 3)
    np.testing.assert_array_equal(found.length, horizon)
    assert not np.any(found.terminated)
    # the observations are those that the actions lead to
    state = jnp.asarray(
        [jnp.arctan2(found.observations[0, 0, 1], found.observations[0, 0, 0]), found.observations[0, 0, 2]]
    )
    step = jax.jit(lambda state, action: Pendulum().step(None, state, policy.to_environment(action)))
    for t in range(horizon - 1):
        state, reward, _ = step(state, found.actions[0, t])
        np.testing.assert_allclose(Pendulum().observe(state), found.observations[0, t + 1], atol=2e-4)
        np.testing.assert_allclose(reward, found.rewards[0, t], rtol=1e-3, atol=1e-3)


def test_rollouts_end_where_the_environment_ends():
    cart = CartPole(horizon=100)
    policy = Parametric("softmax", cart.observation_bounds, actions=2)
    left = jnp.zeros(policy.size, jnp.float32).at[0].set(50.0)  # always to the left: over within a dozen steps
    found = _ROLLOUT(policy, cart, left, coins(0).for_batch(0), 8, 100)
    assert np.all(found.terminated)
    assert np.all((np.asarray(found.length) >= 8) & (np.asarray(found.length) <= 11))
    for row in range(8):
        last = int(found.length[row]) - 1
        state = jnp.asarray(found.observations[row, last], jnp.float64)
        assert bool(cart.step(None, state, found.actions[row, last])[2])
    # each of several interactions of a user starts where the others do
    shape = RunShape(policy=policy, places=4, batch=4, steps=1, horizon=100, interactions=3)
    uniform = jnp.zeros(policy.size, jnp.float32)
    group = jax.jit(lambda k: CompiledPeople(cart, shape).trajectories(uniform, k, jnp.arange(4)))(
        coins(1).for_batch(0)
    )
    assert group.observations.shape == (4, 3, 100, 4)
    np.testing.assert_array_equal(group.observations[:, 0, 0], group.observations[:, 2, 0])
    assert np.any(np.asarray(group.length)[:, 0] != np.asarray(group.length)[:, 1])


def test_steps_fall_linearly_and_the_baseline_follows_what_is_released():
    shape = _shape(steps=5)
    rates = RATES._replace(final=np.float32(0.0), step_size=np.float32(2.0), baseline_gain=np.float32(0.5))
    program = PolicyGradient(shape, _mechanism(shape))
    state = program.init(rates, coins(0))
    y = np.zeros(shape.dimension)
    y[0], thetas, baselines = shape.batch, [0.0], [0.0]
    for value in (0.1, 0.3, -0.5, 9.0, 0.0):
        y[-1] = value * 0.2 * shape.batch
        state = program.update(0, state, y, None)
        thetas.append(float(state.theta[0]))
        baselines.append(float(state.baseline))
    np.testing.assert_allclose(np.diff(thetas), [2.0, 1.5, 1.0, 0.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(baselines[1:], [0.1, 0.2, -0.15, 0.425, 0.2125], atol=1e-6)


def test_scale_and_baseline_follow_what_is_released():
    shape = _shape(steps=5, scaled=True)
    rates = RATES._replace(scale_weight=np.float32(0.1), baseline_gain=np.float32(0.5))
    program = PolicyGradient(shape, _mechanism(shape, 0.004))
    state, growth, baseline = program.init(rates, coins(0)), 1.0, 0.0
    for t, (above, filled) in enumerate([(0.1, 0.0), (0.5, 0.1), (-0.2, 0.0), (0.3, 1.0), (0.0, 0.9)]):
        y = np.zeros(shape.dimension)
        y[-2:] = 0.2 * above * shape.batch, 0.1 * (filled - TARGET_FILL) / (1.0 - TARGET_FILL) * shape.batch
        state = program.update(0, state, y, None)
        baseline += max(0.5, 1.0 / (t + 1.0)) * above / growth
        growth = max(1.0, growth * np.exp(FASTEST_GROWTH * (TARGET_FILL - filled)))
        assert float(state.baseline) == pytest.approx(baseline, abs=1e-6)
        assert float(state.growth) == pytest.approx(growth, rel=1e-5)


def test_the_scale_hardly_follows_what_is_mostly_noise():
    assert float(next_growth(2.0, -7.0, 1e-3)) == pytest.approx(2.0 * np.exp(7.0 * FASTEST_GROWTH))
    assert float(next_growth(2.0, -7.0, 10.0)) == pytest.approx(2.0 * np.exp(7.0 * QUIET_GROWTH / 10.0))
    assert float(next_growth(2.0, 0.0, 1e-3)) == 2.0  # as when nobody answers
    assert float(next_growth(2.0, -700.0, 1e-3)) == LARGEST_GROWTH
    assert float(next_growth(2.0, 700.0, 1e-3)) == 1.0


def test_natural_direction_solves_with_the_fisher_matrix():
    policy = Parametric("softmax", ((-1.0, 1.0),) * 2, actions=3)
    theta = jnp.asarray(np.random.default_rng(0).normal(size=policy.size), jnp.float32)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=policy.size), jnp.float32)
    states = public_states(policy)
    p = np.asarray(policy.probabilities(theta, states), np.float64)
    phi = np.asarray(policy.feature_rows(states), np.float64)
    fisher = np.zeros((9, 9))
    for q, f in zip(p, phi, strict=True):
        fisher += np.kron(np.diag(q) - np.outer(q, q), np.outer(f, f)) / len(p)
    expected = np.linalg.solve(fisher * 9 / np.trace(fisher) + 0.1 * np.eye(9), gradient)
    found = jax.jit(natural_direction, static_argnums=0)(policy, theta, gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_what_is_released():
    shape = _shape(steps=4)
    history = np.arange(5.0)[:, None] * np.ones((1, TABLE.size))
    state = (
        PolicyGradient(shape, _mechanism(shape))
        .init(RATES, coins(0))
        ._replace(theta=history[-1], average=history[:-1].mean(0))
    )

    @dataclass
    class Config:
        release: str
        sharpness: float = 1.0

    assert released_parameters(Config("last"), TABLE, state, history, coins(0))[0] == 4.0
    assert released_parameters(Config("average"), TABLE, state, history, coins(0))[0] == 1.5
    flat = state._replace(theta=0.01 * np.arange(TABLE.size))
    sharper = released_parameters(Config("last", 3.0), TABLE, flat, history, coins(0))
    np.testing.assert_allclose(sharper, 0.03 * np.arange(TABLE.size), rtol=1e-6)
    drawn = [released_parameters(Config("uniform"), TABLE, state, history, coins(i))[0] for i in range(60)]
    assert set(drawn) == {0.0, 1.0, 2.0, 3.0}
