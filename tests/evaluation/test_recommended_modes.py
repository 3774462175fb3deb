from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.evaluation.recommended_modes import make_modes
from dprl.evaluation.recommended_statistics import second_sums
from dprl.value_functions.features import Features, make_features

BOX3 = ((0.0, 1.0), (-2.0, 2.0), (5.0, 9.0))
CASES = [
    ("tabular", ((0.0, 38.0),)),
    ("tabular", ((0.0, 3.0),)),
    ("tabular", ((0.0, 6.0), (1.0, 4.0))),
    ("columns", ((0.0, 1.0),)),
    ("columns", BOX3),
    ("columns", ((0.0, 1.0), (3.0, 3.0))),
    ("fourier:5", ((0.0, 2.0),)),
    ("fourier:5", ((0.0, 2.0), (-1.0, 1.0))),
    ("fourier:2", BOX3),
    ("fourier-coupled:3", ((0.0, 2.0), (-1.0, 1.0))),
    ("fourier-coupled:5", ((0.0, 2.0),)),
    ("fourier:2", tuple((0.0, 1.0) for _ in range(6))),
]


def _states(features: Features, count: int = 400) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = np.array(features.bounds).T
    states = rng.uniform(low, high, (count, len(low)))
    corners = rng.integers(0, 2, states.shape) == 1
    states[:40] = np.where(corners, low, high)[:40]
    return np.round(states) if features.name == "tabular" else states


def _coupled(features: Features) -> bool:
    return features.name.startswith("fourier-coupled") and len(features.bounds) > 1


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{len(case[1])}")
def features(request: pytest.FixtureRequest) -> Features:
    return make_features(*request.param)


def test_modes_are_orthonormal_and_start_with_the_constant(features: Features) -> None:
    if _coupled(features):
        pytest.skip("the coupled basis is not orthogonal")
    modes = make_modes(features)
    low, high = np.array(features.bounds).T
    if features.name == "tabular":
        grid = np.stack([x.ravel() for x in np.meshgrid(*(np.arange(a, b + 1) for a, b in features.bounds))], axis=1)
        weights = np.ones(len(grid)) / len(grid)
    else:  # Gauss-Legendre is exact for columns and close for cosines
        varies = high > low
        nodes, w = np.polynomial.legendre.leggauss(24 if len(low) < 3 else 10 if len(low) < 4 else 4)
        axes = [nodes if v else np.zeros(1) for v in varies]
        parts = [w / 2 if v else np.ones(1) for v in varies]
        grid = np.stack([x.ravel() for x in np.meshgrid(*axes)], axis=1) / 2 + 0.5
        grid = low + grid * (high - low)
        weights = np.prod([x.ravel() for x in np.meshgrid(*parts)], axis=0)
    psi = features(grid) @ modes.to_features
    tolerance = 1e-9 if len(low) < 4 else 0.02
    np.testing.assert_allclose(psi.T @ (weights[:, None] * psi), np.eye(modes.size), atol=tolerance)
    np.testing.assert_allclose(psi[:, 0], 1.0)


def test_products_of_modes_are_the_sums_of_second_modes_that_are_stated(features: Features) -> None:
    modes = make_modes(features)
    phi = features(_states(features))
    psi = phi @ modes.to_features
    pairs = psi[:, :, None] * psi[:, None, :]
    if modes.table is not None:
        second = phi @ modes.table
    else:
        second = pairs.reshape(len(psi), -1) @ modes.from_products
    rebuilt = modes.product[0] + np.einsum("sl,lij->sij", second, modes.product[1:])
    np.testing.assert_allclose(rebuilt, pairs, atol=1e-9)


def test_extreme_squares_bound_every_weighted_norm(features: Features) -> None:
    modes = make_modes(features)
    phi = features(_states(features))
    psi = phi @ modes.to_features
    second = phi @ modes.table if modes.table is not None else np.einsum(
        "si,sj->sij", psi, psi
    ).reshape(len(psi), -1) @ modes.from_products  # fmt: skip
    rng = np.random.default_rng(1)
    for values, extreme in ((psi, modes.extreme), (second, modes.second_extreme)):
        for _ in range(20):
            weights = rng.exponential(size=values.shape[1]) ** 3
            assert (values**2 @ weights).max() <= (extreme @ weights).max() * (1.0 + 1e-9)


def test_linear_coefficients_fit_the_linear_functions(features: Features) -> None:
    modes = make_modes(features)
    states = _states(features, 2000)
    low, high = np.array(features.bounds).T
    psi = features(states) @ modes.to_features
    for i in np.flatnonzero(high > low):
        if features.name == "tabular":
            x = (states[:, i] - low[i] + 0.5) / (high[i] - low[i] + 1.0)
        else:
            x = (states[:, i] - low[i]) / (high[i] - low[i])
        error = psi @ modes.linear[:, i] - np.sqrt(3.0) * (2.0 * x - 1.0)
        assert np.sqrt(np.mean(error**2)) < 0.2


def test_grid_stands_for_the_uniform_distribution(features: Features) -> None:
    if _coupled(features):
        pytest.skip("the coupled basis is not orthogonal")
    modes = make_modes(features)
    exact = features.name == "tabular" or (features.name != "columns" and len(features.bounds) < 3)
    tolerance = 1e-9 if exact else 0.1
    np.testing.assert_allclose(modes.grid.T @ modes.grid / len(modes.grid), np.eye(modes.size), atol=tolerance)
    assert np.abs(modes.second_grid.mean(axis=0)).max(initial=0.0) < tolerance


def test_second_sums_agree_in_both_layouts(features: Features) -> None:
    modes = make_modes(features)
    phi = jnp.asarray(features(_states(features, 30)))
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(5, 30)))
    sums = jax.jit(lambda phi: second_sums(modes, weights, phi))
    shared, padded = sums(phi), sums(np.broadcast_to(phi, (5, *phi.shape)))
    np.testing.assert_allclose(shared, padded, atol=1e-9)
    assert shared.shape == (5, modes.second_size)
