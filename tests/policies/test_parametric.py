from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.policies.parametric import CONSTANT, Parametric

BOX = ((-2.0, 2.0), (0.0, 10.0))
DISCRETE = ("softmax", "softmax:fourier:2", "mlp:5")
GAUSSIAN = ("gaussian", "gaussian:fourier:2", "mlp:5:gaussian")


def _theta(policy, seed=0):
    draws = np.random.default_rng(seed).normal(size=policy.size)
    return jnp.asarray(
        policy.initial(jax.random.normal(jax.random.key(1), (policy.random_weights,))) + draws, jnp.float32
    )


def _states(rows=7, seed=3):
    low, high = np.array(BOX).T
    return (low + (high - low) * np.random.default_rng(seed).random((rows, 2))).astype(np.float32)


@pytest.mark.parametrize("kind", DISCRETE)
def test_probabilities_log_probabilities_draws_and_the_greedy_action_agree(kind):
    policy = Parametric(kind, BOX, actions=3)
    theta, states = _theta(policy), _states()
    p = np.asarray(jax.jit(policy.probabilities)(theta, states))
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-6)
    assert p.max() - p.min() > 0.2
    log_prob, draw = jax.jit(policy.log_prob), jax.jit(policy.draw)
    for a in range(3):
        logs = log_prob(theta, states, np.full(len(states), a))
        np.testing.assert_allclose(np.exp(logs), p[:, a], rtol=2e-5)
    np.testing.assert_array_equal(jax.jit(policy.greedy)(theta, states), p.argmax(1))
    # inversion of the cumulative distribution
    coins = np.linspace(0.0, 1.0, 2001, endpoint=False, dtype=np.float32)
    for row, state in zip(p, states, strict=True):
        drawn = np.asarray(draw(theta, np.tile(state, (len(coins), 1)), coins))
        np.testing.assert_allclose(np.bincount(drawn, minlength=3) / len(coins), row, atol=1e-3)


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_gaussian_scores_are_those_of_the_normal_distribution(kind):
    policy = Parametric(kind, BOX, action=((-1.0, 3.0), (0.0, 5.0)), std=0.3)
    theta, states = _theta(policy), _states()
    actions = np.asarray(policy.draw(theta, states, policy.coins(jax.random.key(2), (len(states),))))
    mean = np.asarray(policy.greedy(theta, states))
    assert actions.shape == mean.shape == (7, 2)
    logs = np.asarray(policy.log_prob(theta, states, actions))
    np.testing.assert_allclose(logs, -0.5 * (((actions - mean) / 0.3) ** 2).sum(1), rtol=1e-4, atol=1e-5)
    within = policy.to_environment(np.array([[-1.0, -1.0], [1.0, 9.0], [0.0, 0.0]]))
    np.testing.assert_allclose(within, [[-1.0, 0.0], [3.0, 5.0], [1.0, 2.5]])
    with pytest.raises(DprlError, match="densities"):
        policy.probabilities(theta, states)


def test_features_are_scaled_by_public_bounds():
    policy = Parametric("softmax:fourier:1", BOX, actions=2)
    rows = np.asarray(policy.feature_rows(np.array([[-2.0, 10.0], [0.0, 5.0], [99.0, -99.0]], np.float32)))
    np.testing.assert_allclose(rows[0], [CONSTANT, -1.0, 1.0, 1.0, -1.0], atol=1e-6)
    np.testing.assert_allclose(rows[1], [CONSTANT, 0.0, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(rows[2], [CONSTANT, 1.0, -1.0, -1.0, 1.0], atol=1e-6)
    tabular = Parametric("tabular", ((3.0, 6.0),), actions=2)
    np.testing.assert_array_equal(tabular.feature_rows(np.array([[4.0]], np.float32)), [[0.0, 1.0, 0.0, 0.0]])


def test_sizes_and_the_start():
    sizes = {"softmax": 9, "softmax:fourier:2": 21, "mlp:5": 5 * 3 + 5 * 3 + 3, "gaussian": 6, "mlp:4:gaussian": 22}
    for kind, size in sizes.items():
        facts = {"action": ((0.0, 1.0),) * 2} if "gaussian" in kind else {"actions": 3}
        policy = Parametric(kind, BOX, **facts)
        start = policy.initial(jax.random.normal(jax.random.key(0), (policy.random_weights,)))
        assert policy.size == size == len(start)
        np.testing.assert_allclose(policy.preferences(start, _states()), 0.0, atol=1e-7)
    assert Parametric("tabular", ((0.0, 3.0),), actions=2).size == 8


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("soft", {"actions": 2}, "Unknown policy"),
        ("mlp:0", {"actions": 2}, "Unknown policy"),
        ("mlp:x", {"actions": 2}, "Unknown policy"),
        ("softmax:fourier", {"actions": 2}, "Unknown policy"),
        ("gaussian", {"actions": 2}, "continuous"),
        ("softmax", {"action": ((0.0, 1.0),)}, "discrete"),
        ("softmax", {}, "either"),
        ("tabular", {"actions": 2}, "one component"),
        ("gaussian", {"action": ((0.0, 1.0),), "std": 0.0}, "standard deviation"),
        ("mlp:1000000", {"actions": 9}, "parameters"),
    ],
)
def test_what_is_no_policy_is_refused_in_a_sentence(kind, facts, words):
    with pytest.raises(DprlError, match=words):
        Parametric(kind, BOX, **facts)
