from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.learning.policy_gradient import estimator
from dprl.learning.policy_gradient.estimator import Rates, RunShape, Trajectory, return_interval, returns_to_go
from dprl.learning.policy_gradient.trainer import log_barrier_gradient
from dprl.learning.policy_gradient.trust_region import TARGET_FILL
from dprl.policies.parametric import Parametric

S, A = 3, 4
TABLE = Parametric("tabular", ((0.0, S - 1.0),), actions=A)
RNG = np.random.default_rng(5)
THETA = jnp.asarray(RNG.normal(size=TABLE.size), jnp.float32)
REWARDS = RNG.uniform(-1.0, 1.0, (S, A))
# compiled whole: one operation after the other takes several times as long
contribution, advantages = (jax.jit(f, static_argnums=0) for f in (estimator.contribution, estimator.advantages))
RATES = Rates(*map(np.float32, (1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.2, 0.3, 0.0, 1.0)))
SCALED = RATES._replace(scale_weight=np.float32(0.1))


def _shape(**options):
    base = {"policy": TABLE, "places": 10, "batch": 10, "steps": 1, "horizon": 1, "bootstrap": "none"}
    return RunShape(**(base | options))


def _bandit(state, action):
    return Trajectory(
        jnp.array([[state]], jnp.float32),
        jnp.array([action], jnp.int32),
        jnp.array([REWARDS[state, action]], jnp.float32),
        jnp.int32(1),
        jnp.bool_(True),
    )


def _value(theta):
    logits = jnp.asarray(theta, jnp.float64).reshape(A, S).T
    return jnp.mean(jnp.sum(jax.nn.softmax(logits, axis=1) * REWARDS, axis=1))


@pytest.mark.parametrize("baseline", [0.0, 0.4])
def test_expected_vector_of_a_tabular_bandit_is_the_exact_gradient(baseline):
    probabilities = np.asarray(TABLE.probabilities(THETA, np.arange(S, dtype=np.float32)[:, None]), np.float64)
    expected = np.zeros(TABLE.size + 1)
    for s, a in itertools.product(range(S), range(A)):
        found = contribution(_shape(), RATES, THETA, jnp.float32(baseline), _bandit(s, a))
        expected += probabilities[s, a] / S * np.asarray(found, np.float64)
    np.testing.assert_allclose(expected[:-1], jax.grad(_value)(THETA), atol=2e-7)
    np.testing.assert_allclose(expected[-1], 0.2 * _value(THETA), atol=1e-7)


def test_log_barrier_gradient_is_equation_8_and_the_derivative_of_equation_3():
    pi = np.asarray(TABLE.probabilities(THETA, np.arange(S, dtype=np.float32)[:, None]), np.float64)
    by_hand = ((1.0 / A - pi) / S).T.reshape(-1)  # Eq. (8) over lambda
    found = np.asarray(log_barrier_gradient(TABLE, THETA))
    np.testing.assert_allclose(found, by_hand, atol=1e-7)

    def barrier(theta):  # Eq. (3) less J, over lambda
        p = jax.nn.softmax(theta.reshape(A, S).T, axis=1)
        return jnp.sum(jnp.log(p)) / (A * S) + jnp.log(float(A))

    theta, h = jnp.asarray(THETA, jnp.float64), 1e-5
    for i in range(TABLE.size):
        up, down = (barrier(theta.at[i].add(e)) for e in (h, -h))
        assert abs((up - down) / (2 * h) - found[i]) < 1e-6


def test_returns_to_go_by_hand():
    rewards, length = jnp.array([1.0, 2.0, 4.0, 9.0], jnp.float32), jnp.int32(3)
    found = returns_to_go(rewards, length, 0.0, jnp.float32(0.5))
    np.testing.assert_allclose(found[:3], [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4.0])
    found = returns_to_go(rewards, length, 8.0, jnp.float32(0.5))
    np.testing.assert_allclose(found[:3], [4.0, 6.0, 8.0])


@pytest.mark.parametrize(
    ("bootstrap", "terminated", "last"),
    [
        ("none", False, 1.0),
        ("bound", False, 1.0 + 0.5 * 2.0),
        ("baseline", False, 1.0 + 0.5 * 1.25),
        ("bound", True, 1.0),
        ("baseline", True, 1.0),
    ],
)
def test_time_limit_is_no_end(bootstrap, terminated, last):
    # rewards of 1 at discount 0.5: returns in [1, 2] with what follows the time limit, a baseline of 1.25 there
    low, high = return_interval((1.0, 1.0), 0.5, 3, bootstrap)
    assert (low, high) == ((1.0, 1.75) if bootstrap == "none" else (1.0, 2.0))
    rates = RATES._replace(discount=np.float32(0.5), middle=np.float32(1.5), half=np.float32(0.5))
    ones = jnp.ones(3, jnp.float32)
    user = Trajectory(jnp.zeros((3, 1), jnp.float32), jnp.zeros(3, jnp.int32), ones, jnp.int32(2), terminated)
    weights, statistic = advantages(_shape(bootstrap=bootstrap, horizon=3), rates, jnp.float32(-0.5), user)
    returns = np.array([1.0 + 0.5 * last, last])
    np.testing.assert_allclose(weights, [*((returns - 1.5) / 0.5 + 0.5), 0.0], atol=1e-6)
    np.testing.assert_allclose(statistic, np.mean((returns - 1.5) / 0.5), atol=1e-6)


def test_papers_estimator_weighs_every_score_by_the_whole_return():
    user = Trajectory(
        jnp.array([[0.0], [1.0], [2.0]], jnp.float32),
        jnp.array([1, 2, 3], jnp.int32),
        jnp.array([0.1, 0.2, 9.0], jnp.float32),
        jnp.int32(2),
        jnp.bool_(True),
    )
    found = contribution(_shape(estimator="reinforce", horizon=3, baseline=False), RATES, THETA, jnp.float32(0.0), user)
    pi = np.asarray(TABLE.probabilities(THETA, np.arange(S, dtype=np.float32)[:, None]))
    by_hand = np.zeros((S, A))
    for s, a in ((0, 1), (1, 2)):
        by_hand[s] += 0.3 * (np.eye(A)[a] - pi[s])
    np.testing.assert_allclose(found, by_hand.T.reshape(-1), atol=1e-6)


def test_of_a_group_each_ones_baseline_is_the_others_mean():
    actions = (0, 1, 3)
    group = jax.tree.map(lambda *x: jnp.stack(x), *(_bandit(1, a) for a in actions))
    found = contribution(_shape(interactions=3), RATES, THETA, jnp.float32(0.9), group)
    pi = np.asarray(TABLE.probabilities(THETA, np.array([[1.0]], np.float32)))[0]
    paid = REWARDS[1, list(actions)]
    by_hand = np.zeros((S, A))
    for i, a in enumerate(actions):
        others = np.delete(paid, i).mean()
        by_hand[1] += (paid[i] - others) * (np.eye(A)[a] - pi) / 3
    np.testing.assert_allclose(found[:-1], by_hand.T.reshape(-1), atol=1e-6)
    np.testing.assert_allclose(found[-1], 0.2 * paid.mean(), atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_who_answers_nothing_has_a_vector_of_zeros(scaled):
    nothing = _bandit(1, 2)._replace(length=jnp.int32(0))
    found = contribution(_shape(scaled=scaled), SCALED, THETA, jnp.float32(0.3), nothing, 4.0)
    np.testing.assert_array_equal(found, 0.0)
    group = jax.tree.map(lambda *x: jnp.stack(x), nothing, nothing)
    found = contribution(_shape(scaled=scaled, interactions=2), SCALED, THETA, jnp.float32(0.3), group, 4.0)
    np.testing.assert_array_equal(found, 0.0)


@pytest.mark.parametrize("growth", [1.0, 2.0, 50.0])
@pytest.mark.parametrize("baseline", [0.3, -0.6])
def test_with_a_growing_scale_gradient_and_return_over_the_baseline_grow_alike(growth, baseline):
    user = _bandit(1, 2)
    plain = contribution(_shape(), RATES, THETA, jnp.float32(baseline), user)
    found = contribution(_shape(scaled=True), SCALED, THETA, jnp.float32(baseline), user, growth)
    np.testing.assert_allclose(found[:-2], growth * plain[:-1], rtol=1e-5)
    paid = np.clip(growth * (REWARDS[1, 2] - baseline), -1.0, 1.0)
    filled = min(1.0, growth * np.linalg.norm(plain[:-1]) / np.sqrt(1.0 - 0.2**2 - 0.1**2))
    np.testing.assert_allclose(found[-2:], [0.2 * paid, 0.1 * (filled - TARGET_FILL) / (1.0 - TARGET_FILL)], rtol=1e-4)
