"""Feature maps against quadrature, and against each other in NumPy and JAX."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.value_functions.features import MAX_FEATURES, Features, make_features

CONTINUOUS = ((-3.0, 5.0), (0.0, 1e-3))
WHOLE = ((-1.0, 2.0), (5.0, 7.0))
MAPS = {
    "columns": make_features("columns", CONTINUOUS),
    "columns of one": make_features("columns", ((0.0, 1.0),)),
    "fourier:1": make_features("fourier:1", CONTINUOUS),
    "fourier:3": make_features("fourier:3", CONTINUOUS),
    "fourier:7 of one": make_features("fourier:7", ((-2.0, 2.0),)),
    "fourier-coupled:4 of one": make_features("fourier-coupled:4", ((-1.0, 3.0),)),
    "tabular": make_features("tabular", WHOLE),
    "tabular of one": make_features("tabular", ((0.0, 9.0),)),
}


def quadrature(features: Features) -> tuple[np.ndarray, np.ndarray]:
    """States and weights that integrate products of two features exactly, under the uniform distribution."""
    if features.name == "tabular":
        axes = [(np.arange(low, high + 1), np.ones(int(high - low) + 1)) for low, high in features.bounds]
    else:
        points, weights = np.polynomial.legendre.leggauss(40)
        axes = [(low + (high - low) * (points + 1) / 2, weights) for low, high in features.bounds]
    states = np.array(list(itertools.product(*(p for p, _ in axes))))
    weight = np.array([math.prod(w) for w in itertools.product(*(w for _, w in axes))])
    return states, weight / weight.sum()


def in_jax(features: Features) -> Callable[[np.ndarray], jax.Array]:
    """Compiled whole: one operation after the other takes several times as long."""
    return jax.jit(lambda states: features(states, jnp))


def inside(features: Features, unit: np.ndarray) -> np.ndarray:
    low, high = np.array(features.bounds).T
    states = low + (high - low) * unit
    return np.round(states) if features.name == "tabular" else states


@pytest.mark.parametrize("name", MAPS)
def test_orthonormal_under_the_uniform_distribution(name):
    features = MAPS[name]
    states, weight = quadrature(features)
    phi = features(states)
    assert phi.shape == (len(states), features.size)
    np.testing.assert_allclose((phi * weight[:, None]).T @ phi, np.eye(features.size), atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_constant_is_one_and_no_feature_vector_is_longer_than_the_bound(name, seed):
    features = MAPS[name]
    states = inside(features, np.random.default_rng(seed).random((20, len(features.bounds))))
    phi = features(states)
    np.testing.assert_allclose(phi @ features.constant(), 1.0, atol=1e-12)
    assert (np.linalg.norm(phi, axis=1) <= features.norm_bound * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", MAPS)
def test_the_norm_bound_is_reached(name):
    features = MAPS[name]
    corner = np.array([[low for low, _ in features.bounds]])
    assert np.linalg.norm(features(corner)) == pytest.approx(features.norm_bound)


def test_the_coupled_fourier_basis():
    """Konidaris' cosines: each of mean square one and with its mean, but not orthogonal to each other."""
    features = make_features("fourier-coupled:3", CONTINUOUS)
    states, weight = quadrature(features)
    phi = features(states)
    low, high = np.array(CONTINUOUS).T
    x = (states - low) / (high - low)
    frequencies = list(itertools.product(range(4), repeat=2))
    cosines = [np.cos(math.pi * (x @ np.array(c))) * (math.sqrt(2.0) if any(c) else 1.0) for c in frequencies]
    np.testing.assert_allclose(phi, np.array(cosines).T, atol=1e-12)
    gram = (phi * weight[:, None]).T @ phi
    np.testing.assert_allclose(np.diag(gram), 1.0, atol=1e-12)
    # the mean of cos(pi (x + y)) is -4 / pi^2
    assert gram[0, frequencies.index((1, 1))] == pytest.approx(-4 * math.sqrt(2.0) / math.pi**2)
    np.testing.assert_allclose(phi @ features.constant(), 1.0)
    longest = np.linalg.norm(phi, axis=1)
    assert longest.max() <= features.norm_bound
    assert np.linalg.norm(features(low[None])) == pytest.approx(features.norm_bound)
    np.testing.assert_allclose(in_jax(features)(states), phi, atol=1e-12)
    assert features.name == "fourier-coupled:3"


@pytest.mark.parametrize("bounds", [((-3.0, 5.0),), CONTINUOUS])
def test_the_radial_basis(bounds):
    """Gaussian bumps two distances wide over their sum, by the definition; of mean square one on average."""
    features = make_features("rbf:5", bounds)
    states, weight = quadrature(features)
    low, high = np.array(bounds).T
    x = (states - low) / (high - low)
    bumps = np.exp(-0.5 * ((x[:, :, None] - np.linspace(0.0, 1.0, 5)) / (2.0 / 4.0)) ** 2)
    bumps /= bumps.sum(axis=2, keepdims=True)
    products = bumps[:, 0] if len(bounds) == 1 else (bumps[:, 0, :, None] * bumps[:, 1, None, :]).reshape(-1, 25)
    phi = features(states)
    assert features.size == phi.shape[1] == 5 ** len(bounds)
    np.testing.assert_allclose(phi / products, features.scale ** len(bounds), rtol=1e-10)
    assert weight @ np.sum(phi**2, axis=1) == pytest.approx(features.size, rel=1e-4)
    np.testing.assert_allclose(phi @ features.constant(), 1.0, atol=1e-12)
    assert (np.linalg.norm(phi, axis=1) <= features.norm_bound * (1 + 1e-12)).all()
    np.testing.assert_allclose(in_jax(features)(states), phi, atol=1e-12)
    assert features.name == "rbf:5"


@pytest.mark.parametrize("name", MAPS)
def test_outside_the_bounds_a_state_counts_as_the_nearest_inside(name):
    features = MAPS[name]
    beyond = np.array([[low - 100.0 for low, _ in features.bounds], [high + 100.0 for _, high in features.bounds]])
    np.testing.assert_array_equal(features(beyond), features(np.array(features.bounds).T))


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [*((name, np.float64, 1e-14) for name in ("columns", "fourier:3", "tabular")),
     *((name, np.float32, 3e-6) for name in ("columns", "fourier:7 of one", "tabular"))],
)  # fmt: skip
def test_numpy_and_jax_agree(name, dtype, tolerance):
    features = MAPS[name]
    states = inside(features, np.random.default_rng(0).random((50, len(features.bounds)))).astype(dtype)
    ours, theirs = features(states), in_jax(features)(states)
    assert ours.dtype == theirs.dtype == dtype
    np.testing.assert_allclose(ours, theirs, atol=tolerance * math.sqrt(features.size))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spec", ["columns", "fourier:2", "tabular"])
def test_a_component_with_a_single_value_is_no_division_by_zero(spec, dtype):
    features = make_features(spec, ((4.0, 4.0), (0.0, 2.0)))
    states = np.array([[4.0, 1.0], [9.0, 2.0]], dtype=dtype)
    for phi in (features(states), np.asarray(in_jax(features)(states))):
        assert np.isfinite(phi).all()
        np.testing.assert_allclose(phi @ features.constant(), 1.0, atol=1e-6)


def test_tabular_counts_states_without_gaps():
    features = MAPS["tabular"]
    states, _ = quadrature(features)
    np.testing.assert_array_equal(features.index(states), np.arange(features.size))  # type: ignore[attr-defined]
    assert features.size == 4 * 3


@pytest.mark.parametrize(
    ("spec", "bounds", "words"),
    [
        ("tabular", ((0.0, 1.5),), "whole-number observation bounds"),
        ("tabular", ((0.0, 1e6), (0.0, 1e6)), f"more than {MAX_FEATURES} states"),
        ("fourier:0", ((0.0, 1.0),), "order of at least 1"),
        ("rbf:1", ((0.0, 1.0),), "at least two"),
        ("rbf:65", ((0.0, 1.0),) * 2, "more than 4096"),
        ("fourier-coupled:0", ((0.0, 1.0),), "order of at least 1"),
        ("fourier-coupled:9", ((0.0, 1.0),) * 5, f"fourier-coupled:9 has more than {MAX_FEATURES} features"),
        ("fourier-coupled:x", ((0.0, 1.0),), "no features called"),
        ("fourier:9", ((0.0, 1.0),) * 5, f"fourier:9 has more than {MAX_FEATURES} features"),
        ("fourier:999999", ((0.0, 1.0),) * 1000, "choose a lower order"),
        ("tabular", ((0.0, 1e50),) * 200, "more than"),
        *((spec, ((0.0, 1.0),), "no features called")
          for spec in ("fourier", "fourier:", "fourier:-1", "fourier:²", "fourier:" + "9" * 5000, "Columns", "",
                       "tabular:3", 3, None)),
    ],
)  # fmt: skip
def test_refusals(spec, bounds, words):
    with pytest.raises(DprlError, match=words):
        make_features(spec, bounds)
