from __future__ import annotations

import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.policies import TabularPolicy
from dprl_papers.domains.chain import Chain

RNG = np.random.default_rng(5)


def transition_matrix(chain: Chain, table: np.ndarray) -> np.ndarray:
    """Dense transitions over all states, the absorbing one included."""
    n = chain.length
    P = np.zeros((n, n))
    P[n - 1, n - 1] = 1.0
    for s in range(n - 1):
        for a in range(chain.actions):
            advance = (1 - chain.stay) * (a + 1) / chain.actions
            P[s, s + 1] += table[s, a] * advance
            P[s, s] += table[s, a] * (1 - advance)
    return P


def dense_values(chain: Chain, table: np.ndarray) -> np.ndarray:
    P = transition_matrix(chain, table)
    n = chain.length - 1
    return np.linalg.solve(np.eye(n) - chain.discount * P[:n, :n], P[:n, n])


@pytest.mark.parametrize("chain", [Chain(), Chain(actions=3), Chain(length=2), Chain(length=7, stay=0.0, discount=0.5)])
def test_values_solve_bellmans_equation(chain):
    table = RNG.dirichlet(np.ones(chain.actions), size=chain.length - 1)
    np.testing.assert_allclose(chain.values(table), dense_values(chain, table), rtol=1e-12)
    np.testing.assert_allclose(chain.values(TabularPolicy(table)), dense_values(chain, table), rtol=1e-12)
    uniform = np.full_like(table, 1 / chain.actions)
    np.testing.assert_allclose(chain.values(), dense_values(chain, uniform), rtol=1e-12)


def test_the_papers_chain():
    """Without actions: advancing takes a geometric time, so V(s) = g^k / discount with k steps to go."""
    chain = Chain()
    g = 0.5 * 0.99 / (1 - 0.5 * 0.99)
    np.testing.assert_allclose(chain.values(), g ** np.arange(39, 0, -1) / 0.99, rtol=1e-12)


def test_values_with_steps_to_go():
    chain = Chain(length=6, actions=2)
    table = RNG.dirichlet(np.ones(2), size=5)
    P = transition_matrix(chain, table)[:5]
    V = np.zeros(5)
    for steps in range(1, 30):
        V = P[:, 5] + chain.discount * P[:, :5] @ V
        np.testing.assert_allclose(chain.values(table, steps=steps), V, rtol=1e-12)
    np.testing.assert_allclose(chain.values(table, steps=5000), chain.values(table), rtol=1e-12)


def enumerated_mspbe(chain: Chain, behavior: np.ndarray, target: np.ndarray):
    """Every trajectory up to the horizon, by brute force over actions and moves."""
    n, gamma = chain.length - 1, chain.discount
    A, b, C = np.zeros((n, n)), np.zeros(n), np.zeros((n, n))

    def features(s: int) -> np.ndarray:
        return np.eye(n)[s] if s < n else np.zeros(n)

    def go(s: int, path: list, probability: float) -> None:
        if s == n or len(path) == chain.horizon:
            for s0, a, s1 in path:
                rho = target[s0, a] / behavior[s0, a]
                phi = features(s0)
                A[:] += probability / len(path) * rho * np.outer(phi, phi - gamma * features(s1))
                b[:] += probability / len(path) * rho * phi * (s1 == n)
                C[:] += probability / len(path) * np.outer(phi, phi)
            return
        for a in range(chain.actions):
            advance = (1 - chain.stay) * (a + 1) / chain.actions
            for following, p in ((s + 1, advance), (s, 1 - advance)):
                if p > 0:
                    go(following, [*path, (s, a, following)], probability * behavior[s, a] * p)

    for s in range(n):
        go(s, [], 1 / n)
    return A, b, C


@pytest.mark.parametrize("chain", [Chain(length=4, actions=2, horizon=5), Chain(length=3, actions=1, horizon=9)])
def test_mspbe_is_the_sum_over_all_trajectories(chain):
    behavior = RNG.dirichlet(np.ones(chain.actions) * 3, size=chain.length - 1)
    target = RNG.dirichlet(np.ones(chain.actions) * 3, size=chain.length - 1)
    found = chain.mspbe(behavior, target)
    for ours, theirs in zip(found, enumerated_mspbe(chain, behavior, target), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    for ours, theirs in zip(chain.mspbe(behavior), enumerated_mspbe(chain, behavior, behavior), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


def test_mspbe_of_the_papers_chain():
    """By exchangeability each of the k states still ahead takes 1/k of a trajectory's length in expectation."""
    mspbe = Chain().mspbe()
    ahead = 39 - np.arange(39)
    np.testing.assert_allclose(np.diag(mspbe.C), np.cumsum(1 / ahead) / 39, rtol=1e-12)
    assert np.count_nonzero(mspbe.C - np.diag(np.diag(mspbe.C))) == 0
    theta = np.linalg.solve(mspbe.A, mspbe.b)
    # The 1/length weights move the fixed point away from the values, a little.
    assert 1e-3 < np.sqrt(np.mean((theta - Chain().values()) ** 2)) < 2e-2


def test_a_target_beyond_the_behaviour_and_impossible_chains_are_refused():
    chain = Chain(length=3, actions=2)
    with pytest.raises(DprlError, match="every action"):
        chain.mspbe(np.array([[1.0, 0.0]] * 2), np.array([[0.5, 0.5]] * 2))
    with pytest.raises(DprlError, match="shape"):
        chain.values(np.ones((3, 2)) / 2)
    for wrong in ({"length": 1}, {"stay": 1.0}, {"actions": 0}, {"horizon": 0}, {"discount": 1.5}):
        with pytest.raises(DprlError, match="chain"):
            Chain(**wrong)
