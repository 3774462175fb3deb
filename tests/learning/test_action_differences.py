"""What noise adds to the differences of actions, and answers without it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.learning import q_updates
from dprl.learning.q_updates import CELLS_PER_COMPONENT, COSINE_ORDER, Rates, Transitions
from dprl.value_functions.features import Fourier

# compiled whole: one operation after the other takes several times as long
shrink_action_differences = jax.jit(q_updates.shrink_action_differences, static_argnums=0)


def rates(std: float, decay: float = 2.0) -> Rates:
    return Rates(*[np.float64(0.0)] * 8, np.float64(std), np.float64(decay))


def samples(states: np.ndarray, actions: np.ndarray, answers: np.ndarray) -> Transitions:
    nothing = np.zeros(len(states))
    return Transitions(jnp.asarray(states, jnp.float32), jnp.asarray(actions), jnp.asarray(answers), nothing, nothing)


def drawn(rng: np.random.Generator, number: int, inputs: int, actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return states in the middle of cells, and actions of which the last is rarely taken."""
    states = (rng.integers(0, CELLS_PER_COMPONENT[inputs], (number, inputs)) + 0.5) / CELLS_PER_COMPONENT[inputs]
    return states, np.minimum(rng.integers(0, 2 * actions, number), actions - 1)


@pytest.mark.parametrize(("inputs", "actions"), [(1, 2), (1, 3), (2, 4)])
def test_it_takes_away_the_share_that_the_noise_explains(inputs: int, actions: int):
    """Against matrices of samples: the differences are linear in the answers, and so is their covariance."""
    rng = np.random.default_rng([inputs, actions])
    states, chosen = drawn(rng, 400, inputs, actions)
    known = np.arange(400) < 300
    features = Fourier(((0.0, 1.0),) * inputs, COSINE_ORDER)(states)
    n = features.shape[1]
    to_coefficients = np.zeros((actions, n, 400))
    for a in range(actions):
        mine = known & (chosen == a)
        rows = features[mine]
        to_coefficients[a][:, mine] = np.linalg.solve(rows.T @ rows + np.eye(n), rows.T)
    to_differences = (to_coefficients - to_coefficients.mean(axis=0)).reshape(actions * n, 400)
    same = chosen[:, None] == chosen
    kernel = same * np.exp(-3.0 * np.abs(states[:, None] - states).sum(axis=2))
    covariance = to_differences @ kernel @ to_differences.T
    answers = rng.normal(size=400) + np.where(chosen == 0, states[:, 0], 0.0)
    differences = to_differences @ answers
    found = differences @ np.linalg.pinv(covariance, hermitian=True) @ differences
    part = np.einsum("np,np->n", features, differences.reshape(actions, n)[chosen])
    for expected_share in (0.0, 0.25, 1.0, 1.0):
        std = np.sqrt(expected_share * found / ((actions - 1) * n))
        got = shrink_action_differences(actions, rates(std, 3.0), samples(states, chosen, answers), jnp.asarray(known))
        np.testing.assert_allclose(got, answers - expected_share * part, atol=2e-4)
    got = shrink_action_differences(actions, rates(100.0 * std, 3.0), samples(states, chosen, answers), known)
    np.testing.assert_allclose(got, answers - part, atol=2e-4)  # never more than all of it


def test_differences_beyond_the_noise_stay_and_what_paths_add_goes():
    rng = np.random.default_rng(1)
    states, chosen = drawn(rng, 3000, 1, 2)
    places = np.unique(states)
    root = np.linalg.cholesky(np.exp(-2.0 * np.abs(places[:, None] - places)) + 1e-9 * np.eye(len(places)))
    cell = np.searchsorted(places, states[:, 0])
    left: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(60):
        noise = (root @ rng.normal(size=(len(places), 2)))[cell, chosen]
        for apart, gaps in left.items():
            answers = noise + 20.0 * apart * chosen
            got: Any = np.asarray(
                shrink_action_differences(2, rates(1.0), samples(states, chosen, answers), jnp.ones(3000, bool))
            )
            gap = got[chosen == 1].mean() - got[chosen == 0].mean()
            was = answers[chosen == 1].mean() - answers[chosen == 0].mean()
            gaps.append(float(gap / was))
    assert min(left[True]) > 0.9
    assert np.median(left[False]) < 0.35


def test_actions_that_nobody_took_change_nothing_of_the_others():
    states = np.linspace(0.0, 1.0, 50)[:, None]
    answers = np.sin(states[:, 0])
    got = shrink_action_differences(2, rates(1e-6), samples(states, np.zeros(50, int), answers), jnp.ones(50, bool))
    np.testing.assert_allclose(got, answers, atol=1e-6)
