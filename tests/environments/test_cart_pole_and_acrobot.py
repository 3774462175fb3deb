from __future__ import annotations

import jax
import numpy as np
import pytest

from dprl.environments.acrobot import Acrobot
from dprl.environments.cart_pole import OBSERVED, CartPole
from dprl.errors import DprlError

gymnasium = pytest.importorskip("gymnasium")

# States to step from: about a tenth of Cart Pole's and a fifth of Acrobot's terminate. Beyond half of Acrobot's largest
# speeds one step multiplies a last digit by up to 1e4, in Gymnasium too.
CASES = {
    "CartPole-v1": (CartPole(), (2.4, 3.0, 0.21, 3.0)),
    "Acrobot-v1": (Acrobot(), (np.pi, np.pi, 2 * np.pi, 4.5 * np.pi)),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_gymnasiums(name):
    environment, spread = CASES[name]
    oracle = gymnasium.make(name).unwrapped
    rng = np.random.default_rng(0)
    states = rng.uniform(-1.0, 1.0, (1000, 4)) * spread
    actions = rng.integers(0, environment.actions, 1000)
    following, rewards, over = jax.jit(jax.vmap(lambda s, a: environment.step(None, s, a)))(states, actions)
    observed = np.asarray(jax.vmap(environment.observe)(following))
    low, high = np.array(environment.observation_bounds).T
    theirs = []
    oracle.reset(seed=0)
    for state, action in zip(states, actions, strict=True):
        oracle.state, oracle.steps_beyond_terminated = state.copy(), None
        seen, reward, terminated, _, _ = oracle.step(int(action))
        theirs.append((oracle.state, seen, reward, terminated))
    state, seen, reward, terminated = (np.array(part) for part in zip(*theirs, strict=True))
    np.testing.assert_allclose(following, state, rtol=0, atol=1e-12)
    np.testing.assert_allclose(observed, np.clip(seen, low, high), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(rewards, reward)
    np.testing.assert_array_equal(over, terminated)
    assert 50 < np.sum(over) < 500


@pytest.mark.parametrize("name", CASES)
def test_starts_and_facts_are_gymnasiums(name):
    environment, _ = CASES[name]
    made = gymnasium.make(name)
    assert environment.actions == made.action_space.n
    starts = np.asarray(jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 4000)))
    half = 0.05 if name == "CartPole-v1" else 0.1
    states = []
    for seed in range(200):
        made.reset(seed=seed)
        states.append(np.array(made.unwrapped.state))
    for drawn in (starts, np.array(states)):
        assert np.abs(drawn).max() <= half
        assert np.abs(drawn).max() > 0.98 * half
        assert np.abs(drawn.mean(axis=0)).max() < 5 * half / np.sqrt(3 * len(drawn))
    low, high = np.array(environment.observation_bounds).T
    if name == "Acrobot-v1":
        assert environment.horizon == made.spec.max_episode_steps
        np.testing.assert_allclose(low, made.observation_space.low, rtol=1e-6)
        np.testing.assert_allclose(high, made.observation_space.high, rtol=1e-6)
    else:
        # a state that does not terminate is not clamped but for its velocities
        ends = (made.unwrapped.x_threshold, made.unwrapped.theta_threshold_radians)
        assert all(0 <= OBSERVED[i] - end < 1e-4 for i, end in zip((0, 2), ends, strict=True))
    with pytest.raises(DprlError, match="horizon must be at least 1"):
        type(environment)(horizon=0)


def test_states_of_observations_of_acrobot():
    links = Acrobot()
    states = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 4)) * CASES["Acrobot-v1"][1]
    np.testing.assert_allclose(links.states_of(jax.vmap(links.observe)(states)), states, atol=2e-6)
