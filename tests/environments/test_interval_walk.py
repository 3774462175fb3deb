"""The interval walk: states on the grid, its transitions and its public matrix, the returns that bound all others."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

from dprl.environments.interval_walk import IntervalWalk
from dprl.environments.learning_source import open_environment
from dprl.errors import DprlError


@pytest.mark.parametrize("dimensions", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps(dimensions):
    """States stay on the grid, moves go the action's way by up to a quarter, ends stop, and actions are not paid."""
    walk = IntervalWalk(dimensions=dimensions)
    assert walk.facts.dimensions == dimensions
    keys = jax.random.split(jax.random.key(0), 4000)
    actions = np.arange(4000) % walk.actions
    states = np.asarray(jax.jit(jax.vmap(walk.reset))(keys))
    following, reward, over = map(np.asarray, jax.jit(jax.vmap(walk.step))(keys[::-1], states, actions))
    grid = 2**walk.depth
    for values in (states, following):
        assert np.array_equal(values * grid, np.round(values * grid))
        assert values.min() >= 0.0
        assert values.max() <= 1.0
    np.testing.assert_allclose(states.mean(0), 0.5, atol=5 / np.sqrt(12 * 4000))
    np.testing.assert_allclose(reward, np.mean(0.5 - np.abs(states - 0.5), axis=1), rtol=1e-12)
    assert np.array_equal(reward, np.asarray(walk.reward(states, actions + 1)))
    assert not over.any()
    own = np.arange(4000), actions // 2
    others = np.arange(dimensions) != (actions // 2)[:, None]
    assert np.array_equal(following[others], states[others])
    moved = (following - states)[own] * np.where(actions % 2 == 1, 1.0, -1.0)
    assert moved.min() >= 0.0
    assert moved.max() <= 0.25
    free = (states[own] > 0.25) & (states[own] < 0.75)
    np.testing.assert_allclose(moved[free].mean(), 0.125, atol=5 * 0.25 / np.sqrt(12 * free.sum()))
    assert np.sum(np.isin(following[own], (0.0, 1.0))) > 100  # some were stopped


def test_transition_matrix_is_the_walks():
    walk = IntervalWalk()
    points = np.sort(np.concatenate([[0.0, 1.0], np.random.default_rng(0).random(30)]))
    P = walk.transition_matrix(points)
    np.testing.assert_allclose(P.sum(-1), 1.0, rtol=1e-12)
    assert P.min() >= 0.0
    # expectations of the interpolation of any function, by simulation of the moves
    values = np.random.default_rng(1).normal(size=32)
    moves = (np.arange(20000) + 0.5) / 80000
    for action, sign in ((0, -1.0), (1, 1.0)):
        ends = np.clip(points[:, None] + sign * moves, 0.0, 1.0)
        np.testing.assert_allclose(P[action] @ values, np.interp(ends, points, values).mean(1), atol=1e-6)
    # the kernel of width 1/4: how fast it turns with the state, which the output variant's sensitivity needs
    even = np.linspace(0.0, 1.0, 257)
    slope = np.abs(np.diff(walk.transition_matrix(even), axis=1)).sum(-1).max() * 256
    assert slope == pytest.approx(8.0)


def test_returns_of_the_random_and_of_the_best_policy():
    """10.895 and 20.542, which every normalised return is between; the best policy walks to the middle."""
    from dprl_papers.paper_001_functional_q.returns import BEST, RANDOM

    walk, n = IntervalWalk(), 513
    points = np.linspace(0.0, 1.0, n)
    P, reward = walk.transition_matrix(points), np.asarray(walk.reward(points[:, None], 0))
    start = np.full(n, 1.0 / (n - 1))
    start[[0, -1]] /= 2.0
    by_chance = best = to_middle = np.zeros(n)
    for _ in range(walk.horizon):
        by_chance = reward + P.mean(0) @ by_chance
        best = reward + np.max(P @ best, axis=0)
        to_middle = reward + np.where(points < 0.5, P[1] @ to_middle, P[0] @ to_middle)
    assert start @ by_chance == pytest.approx(RANDOM, abs=2e-3)
    assert start @ best == pytest.approx(BEST, abs=2e-3)
    assert start @ to_middle == pytest.approx(start @ best, abs=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(IntervalWalk, dimensions=4), "dimensions must be 1, 2 or 3"),
        (partial(IntervalWalk, horizon=0), "horizon must be at least 1"),
        (lambda: IntervalWalk(dimensions=2).transition_matrix(np.array([0.0, 1.0])), "in one dimension alone"),
        (lambda: IntervalWalk().transition_matrix(np.array([0.0, 0.5])), "increase from 0 to 1"),
        (partial(open_environment, "chain"), "Unknown environment 'chain'"),
        (partial(open_environment, "gymnasium:"), "Unknown environment 'gymnasium:'"),
        (partial(open_environment, "interval-walk", {"units": 1}), "leave --bounds out"),
        (partial(open_environment, "gymnasium:CartPole-v1"), "Public bounds are missing"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(DprlError, match=message):
        call()
