from __future__ import annotations

import jax
import numpy as np
import pytest

from dprl.environments.mountain_car import MountainCar

gymnasium = pytest.importorskip("gymnasium")


def test_steps_are_gymnasiums():
    """The same actions from the same start, by chance and with the push that swings the car up to the goal."""
    car = MountainCar()
    oracle = gymnasium.make("MountainCar-v0").unwrapped
    rng = np.random.default_rng(0)
    step = jax.jit(lambda state, action: car.step(None, state, action))
    reached = walls = 0
    for episode in range(12):
        state = np.array([rng.uniform(-1.2, 0.55), rng.uniform(-0.07, 0.07)])
        oracle.reset(seed=episode)
        oracle.state = tuple(state)
        for _ in range(200):
            action = int(rng.integers(3)) if episode % 2 else (2 if state[1] >= 0 else 0)
            expected, reward, terminated, _, _ = oracle.step(action)
            following, ours, over = step(state, action)
            np.testing.assert_allclose(np.asarray(following), oracle.state, rtol=0, atol=1e-14)
            np.testing.assert_allclose(np.asarray(car.observe(following)), expected, rtol=0, atol=1e-7)
            assert float(ours) == reward
            assert bool(over) == terminated
            walls += expected[0] == np.float32(-1.2)
            state = np.array(oracle.state)
            if terminated:
                reached += 1
                break
    assert reached
    assert walls


def test_facts_and_starts_are_gymnasiums():
    car = MountainCar()
    made = gymnasium.make("MountainCar-v0")
    low, high = np.array(car.observation_bounds).T
    np.testing.assert_allclose(low, made.observation_space.low, rtol=1e-6)
    np.testing.assert_allclose(high, made.observation_space.high, rtol=1e-6)
    assert car.actions == made.action_space.n
    assert car.horizon == made.spec.max_episode_steps
    starts = np.asarray(jax.vmap(car.reset)(jax.random.split(jax.random.key(0), 4000)))
    assert np.all(starts[:, 1] == 0)
    assert starts[:, 0].min() >= -0.6
    assert starts[:, 0].max() <= -0.4
    assert starts[:, 0].mean() == pytest.approx(-0.5, abs=5 * 0.2 / np.sqrt(12 * 4000))
