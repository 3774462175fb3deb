"""Eq. (4) and its constants against finite differences and brute force; the simulated run against one written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dprl_papers.domains.chain import Chain
from dprl_papers.paper_000_dptd import theory
from dprl_papers.paper_000_dptd.theory import LinearProblem, chain, slope


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    phi, following = rng.normal(size=(2, 50, 4))
    return LinearProblem(
        phi.T @ (phi - 0.9 * following) / 50, phi.T @ rng.normal(size=50) / 50, phi.T @ phi / 50 + 0.1 * np.eye(4)
    )


def gradient(problem, theta, w):
    """Of F in theta, and in w."""
    return -problem.A.T @ w, problem.b - problem.A @ theta - problem.C @ w


def maximiser(problem, theta, box=math.inf):
    """w*(theta), the maximum of F(theta, .) over [-box, box]^d, by projected gradients in a box."""
    target = problem.b - problem.A @ theta
    w = np.linalg.solve(problem.C, target)
    if np.abs(w).max() <= box:
        return w
    w = np.clip(w, -box, box)
    step = 1.0 / np.linalg.eigvalsh(problem.C)[-1]
    for _ in range(100_000):
        moved = np.clip(w + step * (target - problem.C @ w), -box, box)
        if np.abs(moved - w).max() <= 1e-11 * problem.strong_concavity * step:
            return moved
        w = moved
    raise AssertionError


def utility_metric(problem, theta, w, p, kappa, box=1.0):
    """Eq. (4): |P(theta - kappa p) - theta|/kappa + |grad_theta F - p| + L_F |w - w*(theta)|."""
    moved = np.clip(theta - kappa * p, -box, box) - theta
    away = np.linalg.norm(gradient(problem, theta, w)[0] - p)
    lag = np.linalg.norm(w - maximiser(problem, theta, box))
    return np.linalg.norm(moved) / kappa + away + problem.lipschitz * lag


def objective(problem, theta, w):
    return w @ (problem.b - problem.A @ theta) - 0.5 * w @ problem.C @ w


def test_the_gradient_by_central_differences(problem):
    theta, w = np.random.default_rng(1).normal(size=(2, 4))
    found = np.concatenate(gradient(problem, theta, w))
    both, by_hand = np.concatenate([theta, w]), []
    for i in range(8):
        shift = 1e-5 * np.eye(8)[i]
        ends = [objective(problem, *np.split(both + sign * shift, 2)) for sign in (1.0, -1.0)]
        by_hand.append((ends[0] - ends[1]) / 2e-5)
    assert found == pytest.approx(by_hand, abs=1e-8)


def test_lipschitz_is_the_largest_quotient(problem):
    def change(direction):
        return np.concatenate(gradient(problem, *np.split(direction, 2))) - np.concatenate([np.zeros(4), problem.b])

    directions = np.random.default_rng(2).normal(size=(500, 8))
    assert max(np.linalg.norm(change(u)) / np.linalg.norm(u) for u in directions) <= problem.lipschitz
    u = directions[0]
    for _ in range(500):  # the gradient's matrix is symmetric: powers of it turn to where it is largest
        u = change(u) / np.linalg.norm(change(u))
    assert np.linalg.norm(change(u)) == pytest.approx(problem.lipschitz, rel=1e-6)
    assert problem.strong_concavity <= problem.lipschitz


def test_the_maximiser_in_a_box(problem):
    theta = np.array([1.0, -1.0, 0.5, 2.0])
    for box in (math.inf, 0.3):
        found = maximiser(problem, theta, box)
        asked = minimize(
            lambda w: -objective(problem, theta, w), np.zeros(4), bounds=[(-box, box)] * 4, options={"ftol": 1e-15}
        )
        assert objective(problem, theta, found) >= -asked.fun - 1e-12
        assert np.abs(found).max() <= box + 1e-12


def test_the_metric_is_zero_at_the_saddle_and_nowhere_else(problem):
    theta = np.linalg.solve(problem.A, problem.b)
    zero = np.zeros(4)
    assert utility_metric(problem, theta, zero, zero, kappa=0.1, box=100.0) == pytest.approx(0.0, abs=1e-9)
    # each of the three parts
    assert utility_metric(problem, theta, zero, 0.01 * np.ones(4), 0.1, 100.0) == pytest.approx(0.04)
    away = utility_metric(problem, theta, np.array([1.0, 0.0, 0.0, 0.0]), -problem.A[0], 0.1, 100.0)
    assert away == pytest.approx(np.linalg.norm(problem.A[0]) + problem.lipschitz)
    # theta at its bound, and a gradient that pushes outward: it does not count
    at_bound = utility_metric(problem, np.ones(4), zero, -np.ones(4), 0.1, 1.0)
    rest = 2.0 + problem.lipschitz * np.linalg.norm(maximiser(problem, np.ones(4), 1.0))
    assert at_bound == pytest.approx(rest)


def test_the_chain_is_paper_004_s():
    """Its solution is the values of that simulator; G is what every corner of the boxes has."""
    transitions = chain(5, 0.99)
    problem = transitions.problem
    values = np.linalg.solve(problem.A, problem.b)
    assert values == pytest.approx(Chain(length=6, discount=0.99).values(), rel=1e-12)
    largest = 0.0
    for k, (s, following) in enumerate(zip(transitions.state, transitions.following, strict=True)):
        for here, there, w in itertools.product((-1.0, 1.0), repeat=3):
            there = here if following == s else there
            delta = transitions.reward[k] + 0.99 * there * (following < 5) - here
            by_theta = np.zeros(6)
            by_theta[s] -= w
            by_theta[following] += 0.99 * w
            largest = max(largest, np.linalg.norm(by_theta[:5]) ** 2 + (delta - w) ** 2)
    assert transitions.gradient_bound() == pytest.approx(math.sqrt(largest))
    kappa, eta = problem.largest_steps()
    assert eta == problem.strong_concavity / (4.0 * problem.lipschitz**2)
    assert kappa <= eta / 9.0


def test_a_random_mdp_has_its_values_in_the_box():
    mdp = theory.random_mdp(10, 1)
    assert mdp.probability.sum() == pytest.approx(1.0)
    values = np.linalg.solve(mdp.problem.A, mdp.problem.b)
    assert 0.0 < values.min() < values.max() < 1.0
    assert mdp.problem.strong_concavity == pytest.approx(0.1)


def test_a_run_without_noise_is_algorithm_1():
    """Full gradients, written out; the metric of every iterate is Eq. (4)."""
    problem, T = chain().problem, 40
    kappa, eta = problem.largest_steps()
    theta = w = np.zeros(5)
    p, d = gradient(problem, theta, w)
    total = 0.0
    for t in range(T):
        total += utility_metric(problem, theta, w, p, kappa)
        nu = 1.0 / (4.0 * math.sqrt(t + 3.0))
        theta, w = (
            theta + nu * (np.clip(theta - kappa * p, -1.0, 1.0) - theta),
            w + nu * (np.clip(w + eta * d, -1.0, 1.0) - w),
        )
        g = gradient(problem, theta, w)
        p, d = (1.0 - 3.0 * nu) * p + 3.0 * nu * g[0], (1.0 - 3.0 * nu) * d + 3.0 * nu * g[1]
    found = theory.metrics(chain(), T, 0.0, full=True, seeds=2, seed=0)
    assert found == pytest.approx([total / T] * 2, rel=1e-10)


@pytest.mark.slow
def test_where_noise_enters():
    """One step from zero: both have all of it in p_0; at the second it is behind the momentum or in front of it."""
    transitions = chain()
    sigma = 1e6  # all else is lost in it
    after = theory.metrics(transitions, 40, sigma, full=False, seeds=200, seed=0)
    before = theory.metrics(transitions, 40, sigma, full=True, seeds=200, seed=0)
    # |grad F - p| alone counts: the mean norm of p over the iterates, whose variance is a recursion
    weights = 3.0 / (4.0 * np.sqrt(np.arange(39) + 3.0))
    expected = []
    for scale in (np.ones(39), weights):
        variance = [1.0]
        for a, b in zip(weights, scale, strict=True):
            variance.append((1.0 - a) ** 2 * variance[-1] + b**2)
        chi = math.sqrt(2.0) * math.gamma(3.0) / math.gamma(2.5)  # mean norm of five standard normals
        expected.append(chi * np.mean(np.sqrt(variance)))
    assert after.mean() / sigma == pytest.approx(expected[0], rel=0.02)
    assert before.mean() / sigma == pytest.approx(expected[1], rel=0.02)


def test_slopes_of_power_laws():
    xs = np.array([1.0, 2.0, 4.0, 8.0])
    ys = np.stack([3.0 * xs**-0.5, 5.0 * xs**-0.3])
    assert slope(xs, ys) == pytest.approx((-0.4, 0.1))


@pytest.mark.slow
def test_the_rates():
    found = {one.name: one for one in theory.rates([250, 500, 1000, 2000, 4000], 1.0, 1e-5)}
    assert found["published"].slope == pytest.approx(-0.25, abs=0.06)
    assert found["verified"].slope == pytest.approx(-0.5, abs=0.06)
    assert found["published-feasible"].slope > -0.05  # condition (i): noise that does not fall
