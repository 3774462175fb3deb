"""Environments that compile against those of Gymnasium: steps, starts and public facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from dprl.environments.acrobot import Acrobot
from dprl.environments.cart_pole import OBSERVATION_LIMITS, CartPole
from dprl.environments.mountain_car import MountainCar
from dprl.environments.pendulum import MAX_SPEED, MAX_TORQUE, Pendulum
from dprl.errors import DprlError

gymnasium = pytest.importorskip("gymnasium")


@dataclass(frozen=True)
class Case:
    """An environment, the states from which steps are tried, and the box of its starts."""

    environment: Any
    states: tuple[tuple[float, float], ...]
    starts: tuple[tuple[float, float], ...]


def around_zero(*ends: float) -> tuple[tuple[float, float], ...]:
    return tuple((-end, end) for end in ends)


# About a tenth of Cart Pole's steps end, a fifth of Acrobot's and some of Mountain Car's. Beyond half of Acrobot's
# largest speeds one step multiplies a last digit by up to 1e4, in Gymnasium too.
CASES = {
    "CartPole-v1": Case(CartPole(), around_zero(2.4, 3.0, 0.21, 3.0), around_zero(*[0.05] * 4)),
    "Acrobot-v1": Case(Acrobot(), around_zero(np.pi, np.pi, 2.0 * np.pi, 4.5 * np.pi), around_zero(*[0.1] * 4)),
    "MountainCar-v0": Case(MountainCar(), ((-1.2, 0.55), (-0.07, 0.07)), ((-0.6, -0.4), (0.0, 0.0))),
    "Pendulum-v1": Case(Pendulum(), around_zero(3.0 * np.pi, MAX_SPEED), around_zero(np.pi, 1.0)),
}
BY_NAME = pytest.mark.parametrize("name", CASES)


@BY_NAME
def test_steps_are_gymnasiums(name):
    environment, box = CASES[name].environment, np.array(CASES[name].states)
    oracle, rng = gymnasium.make(name).unwrapped, np.random.default_rng(0)
    states = rng.uniform(box[:, 0], box[:, 1], (1000, len(box)))
    if name == "Pendulum-v1":
        actions = rng.uniform(-3.0, 3.0, (1000, 1))  # beyond the bounds too
    else:
        actions = rng.integers(0, environment.actions, 1000)
    following, rewards, over = jax.jit(jax.vmap(lambda s, a: environment.step(None, s, a)))(states, actions)
    theirs = []
    oracle.reset(seed=0)
    for state, action in zip(states, actions, strict=True):
        oracle.state, oracle.steps_beyond_terminated = state.copy(), None
        seen, reward, terminated, _, _ = oracle.step(action)
        theirs.append((oracle.state, seen, reward, terminated))
    state, seen, reward, terminated = (np.array(part) for part in zip(*theirs, strict=True))
    np.testing.assert_allclose(following, state, rtol=0, atol=1e-11)
    low, high = np.array(environment.observation_bounds).T
    observed = np.asarray(jax.jit(jax.vmap(environment.observe))(following))
    np.testing.assert_allclose(observed, np.clip(seen, low, high), rtol=0, atol=2e-6)
    np.testing.assert_allclose(rewards, reward, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(over, terminated)
    assert (name == "Pendulum-v1") or 20 < np.sum(over) < 500
    least, most = environment.reward_bounds
    assert least <= rewards.min() <= rewards.max() <= most
    if name == "MountainCar-v0":
        assert np.sum(state[:, 0] == -1.2) > 5  # at the wall


@BY_NAME
def test_starts_are_gymnasiums(name):
    environment, (low, high) = CASES[name].environment, np.array(CASES[name].starts).T
    made = gymnasium.make(name)
    theirs = []
    for seed in range(200):
        made.reset(seed=seed)
        theirs.append(np.array(made.unwrapped.state))
    ours = np.asarray(jax.jit(jax.vmap(environment.reset))(jax.random.split(jax.random.key(0), 4000)))
    for drawn in (ours, np.array(theirs)):
        assert np.all((low <= drawn) & (drawn <= high))
        assert np.all(np.ptp(drawn, axis=0) >= 0.95 * (high - low))
        error = drawn.mean(axis=0) - (low + high) / 2.0
        assert np.all(np.abs(error) <= 5.0 * (high - low) / np.sqrt(12.0 * len(drawn)))


@BY_NAME
def test_facts_are_gymnasiums(name):
    environment, made = CASES[name].environment, gymnasium.make(name)
    with pytest.raises(DprlError, match="horizon must be at least 1"):
        type(environment)(horizon=0)
    if name == "Pendulum-v1":
        assert made.action_space.high[0] == MAX_TORQUE == environment.action_bounds[0][1]
    else:
        assert environment.actions == made.action_space.n
    if name == "CartPole-v1":
        # a state that does not terminate is not clamped but for its velocities
        ends = (made.unwrapped.x_threshold, made.unwrapped.theta_threshold_radians)
        assert all(0 <= OBSERVATION_LIMITS[i] - end < 1e-4 for i, end in zip((0, 2), ends, strict=True))
        return
    assert environment.horizon == made.spec.max_episode_steps
    low, high = np.array(environment.observation_bounds).T
    np.testing.assert_allclose(low, made.observation_space.low, rtol=1e-6)
    np.testing.assert_allclose(high, made.observation_space.high, rtol=1e-6)


def test_states_of_observations_of_acrobot():
    links, box = Acrobot(), np.array(CASES["Acrobot-v1"].states)
    states = np.random.default_rng(0).uniform(box[:, 0], box[:, 1], (200, 4))
    np.testing.assert_allclose(
        jax.jit(lambda states: links.states_of(jax.vmap(links.observe)(states)))(states), states, atol=2e-6
    )
