from __future__ import annotations

import jax
import numpy as np
import pytest

from dprl.environments.pendulum import MAX_SPEED, MAX_TORQUE, Pendulum
from dprl.errors import DprlError

gymnasium = pytest.importorskip("gymnasium")


def test_steps_are_gymnasiums():
    environment = Pendulum()
    oracle = gymnasium.make("Pendulum-v1").unwrapped
    rng = np.random.default_rng(0)
    states = rng.uniform(-1.0, 1.0, (500, 2)) * (3.0 * np.pi, MAX_SPEED)
    torques = rng.uniform(-3.0, 3.0, (500, 1))  # beyond the bounds too
    following, rewards, over = jax.jit(jax.vmap(lambda s, a: environment.step(None, s, a)))(states, torques)
    seen = np.asarray(jax.vmap(environment.observe)(following))
    theirs = []
    oracle.reset(seed=0)
    for state, torque in zip(states, torques, strict=True):
        oracle.state = state.copy()
        observed, reward, terminated, _, _ = oracle.step(torque)
        theirs.append((oracle.state, observed, reward, terminated))
    state, observed, reward, terminated = (np.array(part) for part in zip(*theirs, strict=True))
    np.testing.assert_allclose(following, state, rtol=0, atol=1e-11)
    np.testing.assert_allclose(seen, observed, rtol=0, atol=2e-6)
    np.testing.assert_allclose(rewards, reward, rtol=1e-6, atol=1e-6)
    assert not np.any(over)
    assert not np.any(terminated)
    low, high = environment.reward_bounds
    assert low <= rewards.min() <= rewards.max() <= high


def test_starts_and_facts_are_gymnasiums():
    environment, made = Pendulum(), gymnasium.make("Pendulum-v1")
    starts = np.asarray(jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 4000)))
    half = np.array([np.pi, 1.0])
    assert np.all(np.abs(starts).max(0) <= half)
    assert np.all(np.abs(starts).max(0) > 0.99 * half)
    low, high = np.array(environment.observation_bounds).T
    np.testing.assert_allclose(made.observation_space.low, low)
    np.testing.assert_allclose(made.observation_space.high, high)
    assert made.action_space.high[0] == MAX_TORQUE == environment.action_bounds[0][1]
    assert made.spec.max_episode_steps == environment.horizon
    with pytest.raises(DprlError, match="horizon"):
        Pendulum(horizon=0)
