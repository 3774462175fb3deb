from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import odeint

from dprl.environments.hiv import EFFICACY, HIV, STEADY_STATES, derivative, integrate
from dprl.errors import DprlError


def rates(y, t, e1, e2):
    """The model of Adams et al., written down a second time."""
    T1, T2, T1s, T2s, V, E = y
    infected = T1s + T2s
    first, second = (1 - e1) * 8e-7 * V * T1, (1 - 0.34 * e1) * 1e-4 * V * T2
    return [
        1e4 - 0.01 * T1 - first,
        31.98 - 0.01 * T2 - second,
        first - 0.7 * T1s - 1e-5 * E * T1s,
        second - 0.7 * T2s - 1e-5 * E * T2s,
        (1 - e2) * 100 * 0.7 * infected - 13 * V - ((1 - e1) * 8e-7 * T1 + (1 - 0.34 * e1) * 1e-4 * T2) * V,
        1 + 0.3 * infected / (infected + 100) * E - 0.25 * infected / (infected + 500) * E - 0.1 * E,
    ]


WIDTH = 64
STEP = jax.jit(jax.vmap(HIV().step, in_axes=(None, 0, 0)))


def simulate(starts, actions):
    """States ``(N, T, 6)``, rewards and ends ``(N, T)``; compiled once, for 64 trajectories side by side."""
    state = np.resize(starts, (WIDTH, 6))
    steps = []
    for t in range(actions.shape[1]):
        state, reward, over = STEP(None, state, np.resize(actions[:, t], WIDTH))
        steps.append((np.asarray(state), np.asarray(reward), np.asarray(over)))
    return [np.stack(column, axis=1)[: len(starts)] for column in zip(*steps, strict=True)]


def test_trajectories_are_odeints():
    """Sixty steps of random treatment from the steady states, from near them, and from a fresh infection.

    The oracle's tolerance is such that its own error is well below the 1e-6 that is asked.
    """
    rng = np.random.default_rng(0)
    steady = np.array(list(STEADY_STATES.values()))
    near = steady[1:] * np.exp(rng.uniform(-0.5, 0.5, (2, 6)))
    infected = steady[:1] + np.array([[0.0, 0.0, 0.0, 0.0, 1.0, 0.0]])
    starts = np.vstack([steady, near, infected])
    actions = rng.integers(0, 4, (len(starts), 60))
    states, rewards, over = simulate(starts, actions)
    assert np.all(np.isfinite(states))
    assert not over.any()
    peak = 0.0
    for i, start in enumerate(starts):
        y = start
        for t in range(60):
            e1, e2 = EFFICACY[actions[i, t]]
            y = odeint(rates, y, [0.0, 5.0], args=(e1, e2), rtol=1e-11, atol=1e-13, mxstep=50_000)[1]
            np.testing.assert_allclose(states[i, t], y, rtol=1e-6, atol=1e-9)
            reward = -0.1 * y[4] - 20000 * e1**2 - 2000 * e2**2 + 1000 * y[5]
            assert rewards[i, t] == pytest.approx(reward, rel=1e-6, abs=1e-2)
        peak = max(peak, states[i, :, 4].max())
    assert peak > 1e6  # the stiff part was visited


def test_steady_states_are_steady():
    """The first exactly, the others to the digits in which they are given."""
    for name, state in STEADY_STATES.items():
        rate = np.asarray(derivative(np.array(state), 0.0, 0.0)) / np.maximum(np.array(state), 1.0)
        assert np.max(np.abs(rate)) < (1e-12 if name == "uninfected" else 2e-3)
    stable = np.array([STEADY_STATES["unhealthy"], STEADY_STATES["healthy"]])
    states, _, _ = simulate(stable * 1.05, np.zeros((2, 300), int))  # a disturbance fades
    np.testing.assert_allclose(states[:, -1], stable, rtol=2e-3)


def test_no_start_gives_anything_but_finite_non_negative_states():
    rng = np.random.default_rng(1)
    starts = np.concatenate(
        [
            10 ** rng.uniform(-5, 8, (40, 6)),
            10 ** rng.uniform(-5, 8, (10, 6)) * (rng.random((10, 6)) < 0.5),
            [[np.nan] * 6, [np.inf] * 6, [-1.0] * 6, [0.0] * 6, [1e8] * 6, [1e-300] * 6],
        ]
    )
    actions = rng.integers(0, 4, (len(starts), 12))
    states, rewards, _ = simulate(starts, actions)
    assert np.all(np.isfinite(states))
    assert np.all(states >= 0)
    assert np.all(states <= 1e8)
    assert np.all(np.isfinite(rewards))


def test_a_group_gives_what_its_members_give_alone():
    """Batches are cut into groups and filled up; neither changes a trajectory."""
    rng = np.random.default_rng(2)
    starts = np.array(STEADY_STATES["unhealthy"]) * np.exp(rng.uniform(-1, 1, (70, 6)))
    e1 = rng.choice([0.0, 0.7], 70)
    together = jax.jit(jax.vmap(integrate, in_axes=(0, 0, None)))
    found = together(starts, e1, 0.3)
    for shift in (1, 37):
        elsewhere = together(np.roll(starts, shift, axis=0), np.roll(e1, shift), 0.3)
        np.testing.assert_allclose(np.roll(elsewhere, -shift, axis=0), found, rtol=1e-12)
    # among others that are all alike
    alike = together(np.tile(starts[69], (70, 1)), np.full(70, e1[69]), 0.3)
    np.testing.assert_allclose(alike, np.tile(found[69], (70, 1)), rtol=1e-12)


def test_observations_are_clipped_logarithms():
    environment = HIV()
    state = np.array([1e6, 3198.0, 0.0, 1e-9, 1e9, 10.0])
    expected = [6.0, np.log10(3198.0), -5.0, -5.0, 8.0, 1.0]
    np.testing.assert_allclose(np.asarray(environment.observe(state)), expected, rtol=1e-6)
    assert environment.observation_bounds == ((-5.0, 8.0),) * 6
    assert environment.actions == 4


def test_starts():
    key = jax.random.key(0)
    np.testing.assert_array_equal(HIV(start="healthy").reset(key), STEADY_STATES["healthy"])
    starts = np.asarray(jax.jit(jax.vmap(HIV(perturbation=0.2).reset))(jax.random.split(key, 500)))
    shifts = np.log(starts / STEADY_STATES["unhealthy"])
    assert np.abs(shifts).max() <= 0.2
    assert shifts.std() == pytest.approx(0.4 / np.sqrt(12), rel=0.1)
    for wrong in ({"start": "cured"}, {"perturbation": -1.0}, {"perturbation": np.nan}, {"horizon": 0}):
        with pytest.raises(DprlError, match="hiv"):
            HIV(**wrong)


def test_random_treatment_stays_within_the_public_reward_bounds():
    """From all that a reset may give."""
    rng = np.random.default_rng(3)
    starts = np.concatenate([state * np.exp(rng.uniform(-0.2, 0.2, (20, 6))) for state in STEADY_STATES.values()])
    _, rewards, _ = simulate(starts, rng.integers(0, 4, (60, 100)))
    for start, own in zip(STEADY_STATES, np.split(rewards, 3), strict=True):
        low, high = HIV(start=start, perturbation=0.2).reward_bounds
        assert low <= own.min()
        assert own.max() <= high
