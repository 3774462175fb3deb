from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import dprl.x64  # noqa: F401
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.policies import SoftmaxPolicy, TabularPolicy, check_policy, policy_probabilities

RNG = np.random.default_rng(3)
BOUNDS = Bounds(units=10, horizon=5, reward=(0, 1), observation=((3.0, 8.0),), actions=4)


def test_a_table_is_looked_up():
    table = RNG.dirichlet(np.ones(4), size=6)
    policy = TabularPolicy(table, low=3)
    check_policy(policy, BOUNDS)
    states = np.array([[3.0], [8.0], [5.0], [4.9], [-7.0], [1e30], [np.inf]])
    np.testing.assert_array_equal(policy(states), table[[0, 5, 2, 2, 0, 5, 5]])
    np.testing.assert_array_equal(policy_probabilities(policy, np.array([[np.nan], [3.0]]), 4), [[0] * 4, table[0]])


def test_preferences_become_probabilities():
    weights = RNG.normal(size=(3, 4))
    states = RNG.normal(size=(20, 2))
    with_constant = np.hstack([np.ones((20, 1)), states])
    np.testing.assert_allclose(
        SoftmaxPolicy(weights, temperature=0.5)(states), softmax(with_constant @ weights / 0.5, axis=1), rtol=1e-12
    )
    squares = SoftmaxPolicy(weights[:2], features=lambda s: s**2)
    np.testing.assert_allclose(squares(states), softmax(states**2 @ weights[:2], axis=1), rtol=1e-12)
    check_policy(SoftmaxPolicy(RNG.normal(size=(2, 4))), BOUNDS)
    # Preferences of any size neither overflow nor lose the sum.
    np.testing.assert_allclose(SoftmaxPolicy(weights * 1e6)(states).sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "policy", [TabularPolicy(RNG.dirichlet(np.ones(4), size=6), low=3), SoftmaxPolicy(RNG.normal(size=(2, 4)))]
)
def test_compiled_and_plain_agree(policy):
    states = RNG.uniform(3, 8, size=(30, 1)).astype(np.float32)
    compiled = jax.jit(policy)(jnp.asarray(states))
    assert isinstance(compiled, jax.Array)
    np.testing.assert_allclose(np.asarray(compiled), policy(states), rtol=1e-12)


@pytest.mark.parametrize("table", [[0.5, 0.5], [[0.5, 0.6]], [[1.5, -0.5]], [[np.nan, 1.0]], [[]]])
def test_a_table_that_is_none_is_refused(table):
    with pytest.raises(DprlError, match="tabular policy"):
        TabularPolicy(np.array(table))


@pytest.mark.parametrize(
    "arguments", [{"weights": [1.0]}, {"weights": [[np.inf]]}, {"weights": [[1.0]], "temperature": 0}]
)
def test_a_softmax_that_is_none_is_refused(arguments):
    with pytest.raises(DprlError, match="softmax policy"):
        SoftmaxPolicy(**arguments)
