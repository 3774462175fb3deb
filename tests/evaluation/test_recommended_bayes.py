from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from dprl.evaluation import recommended_bayes as bayes
from dprl.evaluation.recommended_modes import Modes, make_modes
from dprl.value_functions.features import make_features

# compiled whole: one operation after the other takes several times as long
condition = jax.jit(bayes.condition)


def density(modes: Modes, moments: jax.Array, variances: jax.Array) -> jax.Array:
    return jax.jit(lambda m, v: bayes.density(modes, m, v))(moments, variances)


LINE = ((0.0, 38.0),)
SQUARE = ((-1.0, 1.0), (0.0, 3.0))


@pytest.mark.parametrize("precision", [3.0, 30.0, 1000.0])
@pytest.mark.parametrize("seed", range(4))
def test_water_filling_is_the_optimum(precision: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = 6
    variances, caps = rng.exponential(0.1, size) + 1e-4, rng.uniform(1.0, 3.0, size)

    def left(x: np.ndarray) -> float:
        return float(np.sum(variances / (1.0 + variances * precision**2 * x)))

    x = np.asarray(bayes.water_fill(jnp.asarray(variances), caps, precision))
    assert np.all(x >= 0)
    assert caps @ x == pytest.approx(1.0, abs=1e-9)
    best = optimize.minimize(
        left,
        np.full(size, 1.0 / caps.sum()),
        jac=lambda x: -((variances * precision) ** 2) / (1.0 + variances * precision**2 * x) ** 2,
        bounds=[(0.0, None)] * size,
        constraints={"type": "eq", "fun": lambda x: caps @ x - 1.0, "jac": lambda _: caps},
        options={"ftol": 1e-14, "maxiter": 2000},
        method="SLSQP",
    )
    assert left(x) <= best.fun * (1.0 + 1e-6)
    assert left(x) == pytest.approx(best.fun, rel=1e-3)


def test_little_budget_goes_to_the_constant_alone() -> None:
    x = np.asarray(bayes.water_fill(jnp.asarray([1 / 3, 1e-3, 1e-3]), np.array([1.0, 2.0, 2.0]), 10.0))
    np.testing.assert_allclose(x, [1.0, 0.0, 0.0], atol=1e-9)


def _case(seed: int, rows: int = 7, size: int = 4, models: int = 3) -> tuple[bayes.Evidence, bayes.Model]:
    rng = np.random.default_rng(seed)

    def covariance(n: int) -> np.ndarray:
        root = rng.normal(size=(n, n))
        return root @ root.T / n + 0.1 * np.eye(n)

    g, H = jnp.asarray(rng.normal(size=rows)), jnp.asarray(rng.normal(size=(rows, size)))
    evidence = bayes.Evidence(g, H, jnp.asarray(covariance(rows)), jnp.asarray(covariance(rows)))
    S = np.stack([covariance(size) for _ in range(models)])
    centre, extra = jnp.asarray(rng.normal(size=(models, size))), jnp.asarray(rng.uniform(size=models))
    return evidence, bayes.Model(centre, jnp.asarray(S), extra, jnp.asarray(rng.normal(size=models)))


@pytest.mark.parametrize("seed", range(3))
def test_posterior_is_gaussian_conditioning_weighed_by_marginal_likelihood(seed: int) -> None:
    evidence, models = _case(seed)
    g, H, R, Z = (np.asarray(x) for x in evidence)
    log, means, covariances = [], [], []
    for centre, S, extra, weight in zip(*(np.asarray(x) for x in models), strict=True):
        noise = R + extra * Z
        # in information form, the other way round than the code
        precision = np.linalg.inv(S) + H.T @ np.linalg.solve(noise, H)
        covariances.append(np.linalg.inv(precision))
        means.append(covariances[-1] @ (np.linalg.solve(S, centre) + H.T @ np.linalg.solve(noise, g)))
        log.append(weight + stats.multivariate_normal(H @ centre, H @ S @ H.T + noise).logpdf(g))
    weights = np.exp(log - np.logaddexp.reduce(log))
    mean = weights @ np.array(means)
    covariance = sum(
        w * (P + np.outer(m - mean, m - mean)) for w, P, m in zip(weights, covariances, means, strict=True)
    )
    got = condition(evidence, models)
    np.testing.assert_allclose(got.weights, weights, rtol=1e-7)
    np.testing.assert_allclose(got.mean, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got.covariance, covariance, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("features", ["tabular", "columns", "fourier:3"])
def test_a_random_shape_has_mean_square_one_and_no_constant(features: str) -> None:
    modes = make_modes(make_features(features, LINE if features == "tabular" else SQUARE))
    for power in bayes.POWERS:
        S = bayes.shape_prior(modes, power)
        # linear functions are not quite in the span of few cosines
        assert 0.98 <= np.trace(S) <= 1.0 + 1e-9
        assert np.abs(S[0]).max() < 1e-12
        assert np.linalg.eigvalsh(S).min() > -1e-12


@pytest.mark.parametrize("features", ["fourier:3", "fourier-coupled:2"])
def test_gram_matrix_of_exact_moments_is_the_exact_one(features: str) -> None:
    modes = make_modes(make_features(features, SQUARE))
    rng = np.random.default_rng(0)
    occupancy = rng.dirichlet(np.full(len(modes.grid), 0.05))  # few cells, as in concentrated logs
    moments = occupancy @ modes.second_grid
    variances = jnp.full(modes.second_size, 1e-12)
    cells = density(modes, jnp.asarray(moments), variances)
    H = jax.jit(lambda c, m, v: bayes.gram(modes, c, m, v))(cells, jnp.asarray(moments), variances)
    exact = modes.grid.T @ (occupancy[:, None] * modes.grid)
    np.testing.assert_allclose(H, exact, atol=2e-6)  # eigenvalues are cut at 1e-6


def test_density_of_pure_noise_is_nearly_uniform_and_of_a_clear_signal_is_the_signal() -> None:
    modes = make_modes(make_features("tabular", LINE))
    rng = np.random.default_rng(1)
    noise = np.full(modes.second_size, 0.3)
    flat = np.asarray(density(modes, jnp.asarray(rng.normal(0.0, 0.3, modes.second_size)), jnp.asarray(noise**2)))
    assert flat.min() >= 0
    assert flat.sum() == pytest.approx(1.0)
    assert np.abs(flat * len(flat) - 1.0).max() < 0.6
    truth = 1.0 + 0.8 * modes.second_grid[:, 0] / np.abs(modes.second_grid[:, 0]).max()
    truth = truth / truth.sum()
    found = density(modes, jnp.asarray(truth @ modes.second_grid), jnp.full(modes.second_size, 1e-10))
    np.testing.assert_allclose(found, truth, atol=1e-4)


def test_uniform_states_have_a_uniform_density_in_the_coupled_basis_too() -> None:
    modes = make_modes(make_features("fourier-coupled:3", SQUARE))
    cells = density(modes, jnp.asarray(modes.uniform), jnp.full(modes.second_size, 1e-6))
    np.testing.assert_allclose(cells * len(cells), 1.0, atol=1e-6)
    tilted = 1.0 + 0.3 * modes.grid[:, 1]
    tilted /= tilted.sum()
    found = density(modes, jnp.asarray(tilted @ modes.second_grid), jnp.full(modes.second_size, 1e-8))
    assert np.abs(found - tilted).sum() < 0.05


@pytest.mark.slow
def test_a_last_step_that_alone_pays_has_the_shape_of_the_discount_to_the_end() -> None:
    modes = make_modes(make_features("tabular", ((0.0, 38.0),)))
    K = modes.size
    rng = np.random.default_rng(5)
    D = np.zeros(K)
    D[:3] = 0.7, 0.1, 0.05
    truth = np.r_[-1.0, np.zeros(K - 1)] + 0.3 * D
    # returns are noisy, and the discount to the end is known well
    g = jnp.asarray(truth + 0.05 * rng.normal(size=(40, K)))
    R, nothing = jnp.eye(K) * 0.05**2, jnp.zeros((K, K))

    def errors(early: float | None, level: float = 0.7) -> tuple[np.ndarray, float]:
        """How far the shape is off in each draw, and how much the models of the last step weigh."""
        ends = bayes.Ends(jnp.asarray(D).at[0].set(level), 1e-6 * jnp.eye(K), -1.0, jnp.asarray(early or 0.0), 0.1)
        models = bayes.priors(modes)
        if early is not None:
            models = bayes.priors_with_ends(ends, modes, 1.0, jnp.asarray(truth))
        got = jax.vmap(lambda x: bayes.condition(bayes.Evidence(x, jnp.eye(K), R, nothing), models))(g)
        weight = float(got.weights[:, -len(bayes.TAUS_OF_ENDS) :].sum(axis=1).mean())
        return np.linalg.norm(np.asarray(got.mean - truth)[:, 1:], axis=1), weight

    without, (found, weight) = errors(None)[0], errors(0.0)
    assert weight > 0.5
    assert found.mean() < 0.8 * without.mean()
    # rewards before the end, or trajectories that do not end: as if nothing had been measured
    for early, level in ((1.0, 0.7), (0.0, 0.0)):
        found, weight = errors(early, level)
        assert weight < 1e-6
        np.testing.assert_allclose(found, without, rtol=1e-4)


def test_room_near_an_end_of_the_value_range() -> None:
    tight = jnp.eye(2) * 1e-4
    assert bayes.near_the_end(jnp.asarray([0.0, 0.3]), tight) == 1.0
    assert bayes.near_the_end(jnp.asarray([-0.7, 0.0]), tight) == pytest.approx(0.32)
    assert bayes.near_the_end(jnp.asarray([1.2, 0.0]), tight) == pytest.approx(0.05)


def _evidence_of(modes: object, theta: np.ndarray, std: float, seed: int) -> bayes.Evidence:
    K = len(theta)
    g = theta + np.random.default_rng(seed).normal(0.0, std, K)
    return bayes.Evidence(jnp.asarray(g), jnp.eye(K), jnp.eye(K) * std**2, jnp.zeros((K, K)))


@pytest.mark.slow
def test_reconciling_keeps_a_right_answer_and_drops_a_biased_constant() -> None:
    modes = make_modes(make_features("tabular", LINE))
    truth = np.zeros(modes.size)
    truth[:3] = -0.7, 0.1, 0.02
    errors = []
    for seed in range(20):
        evidence = _evidence_of(modes, truth, 0.05, seed)
        right = bayes.reconcile(modes, evidence, jnp.asarray(truth))
        biased = bayes.reconcile(modes, evidence, jnp.asarray(truth + 0.5 * np.eye(modes.size)[0]))
        errors.append([np.linalg.norm(x.mean - truth) for x in (right, biased)] + [abs(biased.mean[0] - truth[0])])
    right_error, _, constant_error = np.mean(errors, axis=0)
    assert right_error < 0.05  # nine coefficients with noise of 0.05 have 0.15
    assert constant_error < 0.08


def test_all_of_it_runs_under_jit_and_vmap() -> None:
    evidence, models = _case(0)
    many = jax.tree.map(lambda x: jnp.stack([x, 2.0 * x]), evidence)
    got = jax.jit(jax.vmap(lambda e: bayes.condition(e, models).mean))(many)
    np.testing.assert_allclose(got[0], condition(evidence, models).mean, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_elimination_is_the_cholesky_factor_and_its_determinant(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size + 3))
    M, B = root @ root.T, rng.normal(size=(size, 4))
    L = np.linalg.cholesky(M)
    done, log_pivots = bayes.whiten(jnp.asarray(M), jnp.asarray(B))
    np.testing.assert_allclose(done, np.linalg.solve(L, B), rtol=1e-8, atol=1e-10)
    assert float(log_pivots) == pytest.approx(np.sum(np.log(np.diag(L))))


def test_power_iteration_finds_the_largest_eigenvalue() -> None:
    root = np.random.default_rng(0).normal(size=(30, 30))
    H = root @ root.T
    assert float(bayes.largest_eigenvalue(jnp.asarray(H))) == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-3)
