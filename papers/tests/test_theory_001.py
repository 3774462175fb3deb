"""Paper 001's bounds: against a linear program over all mechanisms, closed forms, and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from dprl_papers.paper_001_functional_q.theory import (
    garnet,
    largest_of_path,
    largest_success,
    noise_loss,
    optimal_values,
    printed_bound,
    right_bound,
)


def largest_success_by_program(functions: int, epsilon: float, delta: float) -> float:
    """Largest success by linear programming over all mechanisms that have one answer for each of a few functions."""
    k = functions
    pairs = [(j, other) for j in range(k) for other in range(k) if j != other]
    size = k * k + len(pairs) * k  # P(answer i under r_j), and the positive parts of the differences of a pair
    rows, limits = [], []
    for number, (j, other) in enumerate(pairs):
        parts = k * k + number * k + np.arange(k)
        for i in range(k):
            row = np.zeros(size)
            row[[j * k + i, other * k + i, parts[i]]] = 1.0, -math.exp(epsilon), -1.0
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(size)
        row[parts] = 1.0
        rows.append(row)
        limits.append(delta)
    totals = np.zeros((k, size))
    for j in range(k):
        totals[j, j * k : (j + 1) * k] = 1.0
    gain = np.zeros(size)
    gain[np.arange(k) * (k + 1)] = 1.0 / k
    found = linprog(-gain, A_ub=np.array(rows), b_ub=limits, A_eq=totals, b_eq=np.ones(k), bounds=(0.0, 1.0))
    return float(-found.fun)


@pytest.mark.parametrize(("functions", "epsilon", "delta"), [(2, 0.9, 1e-4), (3, 0.45, 0.05), (5, 2.0, 0.0)])
def test_no_mechanism_does_better_and_one_does_as_well(functions, epsilon, delta):
    found = largest_success_by_program(functions, epsilon, delta)
    assert found == pytest.approx(largest_success(functions, epsilon, delta), abs=1e-9)


def test_the_issue_s_numbers():
    assert [round(largest_success(k, 0.9, 1e-4), 3) for k in (2, 10)] == [0.711, 0.215]
    assert largest_success(1, 0.9, 1e-4) == 1.0


def test_value_iteration_solves_a_garnet():
    """Against the linear program of the paper's appendix D, Eq. (4)."""
    following, weights, rewards = garnet(12, 3, 4, np.random.default_rng(0))
    assert all(len(set(row)) == 4 for row in following.reshape(-1, 4))
    P = np.zeros((3, 12, 12))
    for a in range(3):
        for s in range(12):
            P[a, s, following[a, s]] = weights[a, s]
    A = np.concatenate([0.9 * P[a] - np.eye(12) for a in range(3)])
    found = linprog(np.ones(12), A_ub=A, b_ub=-rewards.reshape(-1), bounds=(None, None))
    np.testing.assert_allclose(optimal_values(following, weights, rewards, 0.9), found.x, atol=1e-7)


def test_proposition_10_fails_where_the_closed_forms_say():
    """One action that stays: E|z|/(1 - gamma) whatever n is. All states absorbed in one: E max of m normals."""
    mean, error = noise_loss(1000, 1, 2.0, 0.9, 5, "identity")
    exact = 2.0 * math.sqrt(2.0 / math.pi) / 0.1
    assert mean == pytest.approx(exact, abs=5 * error)
    assert exact > printed_bound(1000, 2.0, 0.9) * 10
    mean, error = noise_loss(3, 100, 1.0, 0.9, 100, "absorbing")
    assert mean == pytest.approx(25.08, abs=5 * error)  # E max of 100 normals is 2.5076
    assert mean > math.sqrt(3) * printed_bound(3, 1.0, 0.9)  # even without the 1/sqrt(n)
    for kind, actions in (("garnet", 2), ("garnet", 10), ("identity", 1), ("absorbing", 100)):
        assert noise_loss(50, actions, 1.0, 0.9, 3, kind)[0] <= right_bound(50, actions, 1.0, 0.9)


@pytest.mark.slow
def test_the_largest_value_of_a_path_grows_like_a_root_of_a_logarithm():
    slow, fast = largest_of_path(1.0, 300), largest_of_path(2222.0, 300)
    assert slow == pytest.approx(1.04, abs=0.25)
    assert fast == pytest.approx(3.97, abs=0.15)
    assert fast / slow < math.sqrt(2222.0) / 8
