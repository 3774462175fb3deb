"""GPOPE's error recursion: the second moment against iteration, a Lyapunov solver and Monte Carlo; errata E9 to E11."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.value_functions.features import make_features
from dprl_papers.domains.chain import DOMAIN, Chain
from dprl_papers.paper_004_gpope.recursion import Recursion, gradient_variance, public_units, second_moment


def random_recursion(seed: int, n: int = 3) -> Recursion:
    rng = np.random.default_rng(seed)
    A = np.eye(n) + 0.3 * rng.normal(size=(n, n))
    root = rng.normal(size=(n, n))
    return Recursion(A, rng.normal(size=n), root @ root.T + 0.5 * np.eye(n), rng.normal(size=2 * n))


def chain() -> Recursion:
    moments = Chain().mspbe()
    return Recursion(moments.A, moments.b, moments.C)


def test_the_second_moment_is_that_of_direct_iteration():
    """M <- B M B' + beta^2 std^2 I, step by step."""
    recursion, beta, std = random_recursion(0), 0.1, 0.7
    updates = [0, 1, 2, 3, 8, 13, 64, 100]
    got = [second_moment(recursion, beta, i, std) for i in updates]
    B, M, seen = np.eye(6) - beta * recursion.Q, np.outer(recursion.xi, recursion.xi), {}
    for i in range(101):
        seen[i] = (np.trace(M), np.trace(recursion.metric @ M[:3, :3]))
        M = B @ M @ B.T + (beta * std) ** 2 * np.eye(6)
    np.testing.assert_allclose(got, [seen[i] for i in updates], rtol=1e-10)


def test_the_noise_of_many_updates_is_the_solution_of_the_lyapunov_equation():
    """tr T_N = tr(P - (B^N)' P B^N) with P = I + B' P B, by scipy, on the chain."""
    from scipy.linalg import solve_discrete_lyapunov

    recursion, beta, std = chain(), 1.0, 0.01
    B = np.eye(78) - beta * recursion.Q
    P = solve_discrete_lyapunov(B.T, np.eye(78))
    for N in (1, 1000, 30_000):
        last = np.linalg.matrix_power(B, N)
        expected = (beta * std) ** 2 * np.trace(P - last.T @ P @ last)
        got = second_moment(recursion, beta, N, std).distance - second_moment(recursion, beta, N, 0.0).distance
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_second_moment_is_the_mean_of_simulated_runs():
    recursion, beta, std, N, runs = random_recursion(1, n=2), 0.2, 0.5, 30, 40_000
    rng = np.random.default_rng(2)
    x = np.tile(recursion.start, (runs, 1))
    for _ in range(N):
        gradient = x @ recursion.Q.T - np.r_[np.zeros(2), recursion.b]
        x = x - beta * (gradient + std * rng.normal(size=x.shape))
    residual = recursion.b - x[:, :2] @ recursion.A.T
    errors = np.einsum("ri,ij,rj->r", residual, np.linalg.inv(recursion.C), residual)
    distances = ((x - np.concatenate([recursion.theta, recursion.w])) ** 2).sum(axis=1)
    got = second_moment(recursion, beta, N, std)
    for sample, value in ((errors, got.mspbe), (distances, got.distance)):
        assert abs(sample.mean() - value) < 5.0 * sample.std() / np.sqrt(runs)
        assert sample.std() / np.sqrt(runs) < 0.01 * value


def test_with_one_trajectory_a_step_the_second_moment_is_a_lower_bound():
    """The exact moment, averaged over the drawn (Q_i, b_i), is above; and equal where all trajectories are alike."""
    rng = np.random.default_rng(3)
    n, beta, std, N = 2, 0.1, 0.3, 50
    for spread in (0.0, 0.5):
        parts = []
        for _ in range(4):
            A, root = np.eye(n) + spread * rng.normal(size=(n, n)), spread * rng.normal(size=(n, n))
            parts.append((A, np.ones(n) + spread * rng.normal(size=n), np.eye(n) + root @ root.T))
        recursion = Recursion(*(np.mean([p[k] for p in parts], axis=0) for k in range(3)))  # type: ignore[arg-type]
        # second moment of (theta, w, 1): an affine map for each trajectory
        M = np.zeros((2 * n + 1, 2 * n + 1))
        M[-1, -1] = 1.0
        noise = np.diag(np.r_[np.full(2 * n, (beta * std) ** 2), 0.0])
        for _ in range(N):
            total = np.zeros_like(M)
            for A, b, C in parts:
                step = np.eye(2 * n + 1)
                step[: 2 * n, : 2 * n] -= beta * np.block([[np.zeros((n, n)), -A.T], [A, C]])
                step[n : 2 * n, -1] = beta * b
                total += step @ M @ step.T / len(parts)
            M = total + noise
        centre = np.concatenate([recursion.theta, recursion.w])
        exact = np.trace(M[:-1, :-1]) - 2.0 * centre @ M[:-1, -1] + centre @ centre
        got = second_moment(recursion, beta, N, std).distance
        if spread:
            assert got < 0.99 * exact
        else:
            assert got == pytest.approx(exact, rel=1e-9)


def test_where_no_theta_has_an_error_of_zero_the_least_error_remains():
    """A of rank one, b outside its range: noiseless updates, and the MSPBE of their theta."""
    A, b, C = np.diag([1.0, 0.0]), np.ones(2), np.diag([1.0, 2.0])
    recursion = Recursion(A, b, C)
    np.testing.assert_allclose(recursion.theta, [1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(recursion.w, [0.0, 0.5], atol=1e-12)
    assert recursion.condition_residual(recursion.w) < 1e-12
    x = np.zeros(4)
    for _ in range(25):
        x = x - 0.3 * (recursion.Q @ x - np.r_[0.0, 0.0, b])
    got = second_moment(recursion, 0.3, 25, 0.0)
    assert got.mspbe == pytest.approx(recursion.mspbe(x[:2]))
    assert got.mspbe > recursion.mspbe(recursion.theta) == pytest.approx(0.5)


def test_an_unstable_step_size_gives_infinity():
    recursion = chain()
    assert np.isfinite(second_moment(recursion, 12.6, 10**6, 1.0).mspbe)
    assert second_moment(recursion, 100.0, 10**6, 1.0).mspbe == np.inf


def test_the_largest_stable_step_size_separates_the_two():
    recursion = chain()
    for factor, grows in ((0.999, False), (1.001, True)):
        B = np.eye(78) - factor * recursion.largest_stable_step * recursion.Q
        assert bool(np.abs(np.linalg.eigvals(B)).max() > 1.0) is grows


def test_the_optimality_condition_holds_with_a_theta_and_fails_with_its_transpose():
    """E9, on the chain: [0, -A'; A, C] (theta*, w*) = (0, b)."""
    numbers = chain().constants()
    assert numbers["residual"] < 1e-15
    assert numbers["residual as printed"] == pytest.approx(0.0553, abs=1e-4)
    assert numbers["norm of w*"] < 1e-13
    assert numbers["norm of w* as printed"] == pytest.approx(0.582, abs=1e-3)


def test_lemma_2_takes_the_spectral_radius_for_the_norm():
    """E10, on the chain; E11: 62 of 78 eigenvalues are complex."""
    recursion = chain()
    numbers = recursion.constants()
    assert numbers["norm of I - beta Q"] == pytest.approx(1.62, abs=0.005)
    assert numbers["radius of I - beta Q"] == pytest.approx(0.99984, abs=5e-6)
    assert numbers["complex eigenvalues"] == 62
    # no step size makes the norm smaller than 1, for (v, 0) goes to (v, -beta A v)
    for beta in (1e-3, 1.0, 11.4):
        assert np.linalg.norm(np.eye(78) - beta * recursion.Q, 2) > 1.0


def test_lemma_2_bounds_the_eigenvalues_wrongly():
    """E11: A = 1, C = 0.1 has 0.05 +- 0.9987i, the bound says 8.9; and 1/max|lambda| does not converge."""
    small = Recursion(np.eye(1), np.ones(1), np.array([[0.1]]))
    assert small.smallest == pytest.approx(0.05)
    assert small.constants()["lambda_min of A'C^-1A"] * 8.0 / 9.0 == pytest.approx(8.889, abs=1e-3)
    assert small.constants()["radius of I - beta Q"] == pytest.approx(1.38, abs=0.005)
    assert small.largest_stable_step < 1.0 / small.largest


def test_public_units_have_the_same_solution_and_the_same_error():
    features = make_features("tabular", DOMAIN.public.observation)
    moments = DOMAIN.moments(features)
    value = (-1.0, 3.0)
    plain, public = Recursion(*moments), Recursion(*public_units(moments, features.constant(), value))
    phi = features(np.arange(39.0)[:, None])
    np.testing.assert_allclose(1.0 + 2.0 * (phi @ public.theta), phi @ plain.theta, atol=1e-10)
    theta = np.random.default_rng(0).normal(size=39)
    assert plain.mspbe(features.constant() + 2.0 * theta) == pytest.approx(4.0 * public.mspbe(theta))


def test_the_variance_of_the_gradient_is_that_of_dense_matrices():
    """Eq. (4.1) with the matrices of Eq. (2.2), trajectory by trajectory."""
    log = DOMAIN.log(20, 0)
    features = make_features("tabular", DOMAIN.public.observation)
    rho = np.random.default_rng(1).random(len(log.reward))
    rows = rows_of(log, rho, features, 0.9, (-1.0, 1.0), dtype=np.float64)
    start = np.random.default_rng(2).normal(size=78)
    gradients = []
    for first, last in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        A, b, C = np.zeros((39, 39)), np.zeros(39), np.zeros((39, 39))
        for t in range(first, last):
            A += rho[t] * np.outer(rows.phi[t], rows.delta_phi[t]) / (last - first)
            b += rho[t] * rows.phi[t] * log.reward[t] / (last - first)
            C += np.outer(rows.phi[t], rows.phi[t]) / (last - first)
        gradients.append(np.r_[-A.T @ start[39:], A @ start[:39] + C @ start[39:] - b])
    expected = np.var(gradients, axis=0).sum()
    assert gradient_variance(rows, start) == pytest.approx(expected, rel=1e-10)


def test_on_the_chain_the_variance_at_zero_is_in_closed_form():
    """E|b_i|^2 = E[1/L^2], L the number of states to go plus a negative binomial number of failures to advance."""
    from scipy.stats import nbinom

    failures = np.arange(3000)
    squares = [np.sum(nbinom.pmf(failures, k, 0.5) / (k + failures) ** 2) for k in range(1, 40)]
    b = chain().b
    log = DOMAIN.log(4000, 0)
    tabular = make_features("tabular", DOMAIN.public.observation)
    rows = rows_of(log, np.ones(len(log.reward)), tabular, 0.99, (-1.0, 1.0))
    got = gradient_variance(rows, np.zeros(78)) / 39.0  # the features' squared norm
    standard_error = (1.0 / log.lengths() ** 2).std() / np.sqrt(4000)
    assert abs(got - (np.mean(squares) - b @ b)) < 3.0 * standard_error
    assert standard_error < 0.15 * got


def test_a_start_of_the_wrong_length_is_refused():
    with pytest.raises(DprlError, match="2 or 4 components"):
        Recursion(np.eye(2), np.ones(2), np.eye(2), np.ones(3))
