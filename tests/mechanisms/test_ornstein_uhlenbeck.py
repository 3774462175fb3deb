"""The path: its law exactly, by its coefficients; then what it computes; and the corrected Eq. (2)."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.stats import kstest

from dprl.accounting.reward_relation import DEPTHS
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.ornstein_uhlenbeck import PathParameters, parameters, positions_of, unit_path


def coefficients(p: PathParameters, position: int) -> dict[int, float]:
    """How much of each node's normal is in the value at ``position``, in one dimension: the law, for a test."""
    mean, spread = np.asarray(p.mean), np.asarray(p.spread)
    depth = len(mean)
    left, right = {0: 1.0}, {0: float(p.first), 2**depth: float(p.second)}
    if position == 2**depth:
        return right
    start = 0
    for level in range(depth):
        half = 2 ** (depth - 1 - level)
        middle = {n: float(mean[level]) * (left.get(n, 0.0) + right.get(n, 0.0)) for n in {**left, **right}}
        middle[start + half] = float(spread[level])
        if position >= start + half:
            left, start = middle, start + half
        else:
            right = middle
    return left


def bridge(left: float | None, right: float | None, decay: float) -> tuple[float, float, float]:
    """The law of a path of variance one given its nearest known values on either side: Eq. (2), corrected.

    Args:
        left, right: distance to the known value on that side, above 0; None where there is none.
        decay: of the kernel.

    Returns:
        Weight of the left value, weight of the right one, and the variance.
    """
    e = math.exp(-decay * left) if left is not None else 0.0
    f = math.exp(-decay * right) if right is not None else 0.0
    u = -math.expm1(-2.0 * decay * left) if left is not None else 1.0
    v = -math.expm1(-2.0 * decay * right) if right is not None else 1.0
    # 1 - e^2 f^2, without cancellation: two missing sides give 1
    whole = u + v - u * v
    return e * v / whole, f * u / whole, u * v / whole


def kernel(x, decay):
    return np.exp(-decay * np.abs(np.asarray(x)[:, None] - np.asarray(x)))


def places(depth, count=30):
    rng = np.random.default_rng(depth)
    edges = [0, 1, 2, 2 ** (depth - 1), 2 ** (depth - 1) - 1, 2**depth - 1, 2**depth]
    return np.unique(np.r_[edges, rng.integers(0, 2**depth, count)])


@pytest.mark.parametrize("decay", [1e-3, 1.0, 20.0, 2222.0, 2.0**16])
@pytest.mark.parametrize("depth", DEPTHS.values())
def test_the_covariance_is_the_kernel(decay, depth):
    """A value is a sum of independent normals, so its coefficients say all of the law."""
    k = places(depth)
    p = parameters(decay, depth, 1.0, 0.0, 1.0)
    weights = [coefficients(p, int(i)) for i in k]
    assert all(len(w) <= depth + 2 for w in weights)
    gram = np.array([[sum(v * b.get(n, 0.0) for n, v in a.items()) for b in weights] for a in weights])
    np.testing.assert_allclose(gram, kernel(k / 2.0**depth, decay), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "dimensions", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_a_value_is_its_coefficients_times_the_normals_of_its_nodes(dimensions):
    depth, decay = DEPTHS[dimensions], 3.0
    p = parameters(decay, depth, 1.0, 0.0, 1.0)
    noise = (SeededNoise.from_seed(7) if dimensions == 2 else SecureNoise(b"p" * 32)).nodes()
    k = places(depth, 4)[:9]
    positions = np.stack([np.roll(k, i) for i in range(dimensions)], axis=1)
    path = np.arange(len(k)) % 3
    found = np.asarray(jax.jit(unit_path)(noise, p, jnp.asarray(positions), jnp.asarray(path)))
    terms = [list(itertools.product(*(coefficients(p, int(i)).items() for i in x))) for x in positions]
    whose = np.repeat(np.arange(len(k)), [len(t) for t in terms])
    flat = [term for part in terms for term in part]
    nodes = tuple(jnp.asarray([term[i][0] for term in flat]) for i in range(dimensions))
    weights = np.array([np.prod([w for _, w in term]) for term in flat])
    normals = np.asarray(noise.normals(nodes, jnp.asarray(path[whose])))
    np.testing.assert_allclose(np.bincount(whose, weights * normals), found, rtol=0, atol=2e-13)
    # of the product kernel, at one point
    np.testing.assert_allclose(np.bincount(whose, weights**2), 1.0, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("source", "decay", "trials"),
    [(SeededNoise.from_seed(5), 20.0, 20_000)]
    + [pytest.param(SeededNoise.from_seed(6), decay, 20_000, marks=pytest.mark.slow) for decay in (1.0, 20.0, 2222.0)]
    + [pytest.param(SecureNoise(b"o" * 32), decay, 20_000, marks=pytest.mark.slow) for decay in (1.0, 20.0, 2222.0)],
)
def test_paths_against_a_dense_kernel(source, decay, trials):
    k = places(20, 9)[-14:]
    p = parameters(decay, 20, 1.0, 0.0, 1.0)
    positions = jnp.tile(jnp.asarray(k), trials)[:, None]
    path = jnp.repeat(jnp.arange(trials), len(k))
    values = np.asarray(jax.jit(unit_path)(source.nodes(), p, positions, path)).reshape(trials, len(k))
    dense = kernel(k / 2.0**20, decay)
    assert np.abs(values.mean(0)).max() < 5.5 / trials**0.5
    assert np.abs(values.T @ values / trials - dense).max() < 5.5 * 2**0.5 / trials**0.5

    def whitened(covariance):
        return np.linalg.solve(np.linalg.cholesky(covariance), values.T).ravel()

    assert kstest(whitened(dense), "norm").pvalue > 1e-6
    assert kstest(whitened(0.9 * dense), "norm").pvalue < 1e-6


def test_the_same_question_has_the_same_answer_however_it_is_asked():
    k = jnp.asarray(np.random.default_rng(2).integers(0, 2**20 + 1, (60, 1)))
    p, noise, path = parameters(4.0, 20, 1.0, 0.0, 1.0), SeededNoise.from_seed(8).nodes(), jnp.arange(60) % 2
    whole = np.asarray(jax.jit(unit_path)(noise, p, k, path))
    assert len(np.unique(whole)) == 60
    np.testing.assert_array_equal(np.asarray(jax.jit(unit_path)(noise, p, k[::-1], path[::-1]))[::-1], whole)
    scanned = jax.jit(lambda: jax.lax.scan(lambda c, x: (c, unit_path(noise, p, x[0][None], x[1][None])), 0, (k, path)))
    np.testing.assert_array_equal(np.ravel(scanned()[1]), whole)


@pytest.mark.parametrize("decay", [1.0, 20.0, 2222.0])
def test_the_bridge_is_what_dense_conditioning_gives(decay):
    rng = np.random.default_rng(3)
    for x in np.sort(rng.random((300, 3)) / min(decay, 100.0), axis=1):
        a, b = np.diff(x)
        dense = kernel(x, decay)
        for left, right, known in ((a, b, [0, 2]), (a, None, [0]), (None, b, [2])):
            weights = np.linalg.solve(dense[np.ix_(known, known)], dense[known, 1])
            variance = 1.0 - dense[1, known] @ weights
            found = bridge(left, right, decay)
            expected = dict(zip(known, weights, strict=True))
            np.testing.assert_allclose(found, (expected.get(0, 0.0), expected.get(2, 0.0), variance), atol=1e-10)
    assert bridge(None, None, decay) == (0.0, 0.0, 1.0)


def test_a_level_of_the_tree_is_a_bridge_in_the_middle():
    p = parameters(20.0, 20, 1.0, 0.0, 1.0)
    for level in range(20):
        half = 2.0 ** -(level + 1)
        left, right, variance = bridge(half, half, 20.0)
        np.testing.assert_allclose([p.mean[level]] * 2 + [p.spread[level] ** 2], [left, right, variance], rtol=1e-9)


def test_the_coefficients_have_the_digits_that_the_proof_counts():
    u = 2.0**-53
    with mpmath.workdps(40):
        for decay in (1.0, 4.0, 20.0, 2222.0, 2.0**16):
            p = parameters(decay, 20, 1.0, 0.0, 1.0)
            for level in range(20):
                gap = mpmath.mpf(decay) * mpmath.mpf(2) ** -(level + 1)
                mean, spread = 1 / (2 * mpmath.cosh(gap)), mpmath.sqrt(mpmath.tanh(gap))
                # beside 700 both are nothing
                assert abs(float(p.mean[level]) - mean) <= 4 * u * mean + mpmath.mpf(10) ** -300
                assert abs(float(p.spread[level]) - spread) <= 3 * u * spread


def test_grid_positions():
    found = positions_of(np.array([[0.0], [1.0], [2.0**-20], [0.49 * 2.0**-20]]))
    assert found.ravel().tolist() == [0, 2**20, 1, 0]
    k = np.random.default_rng(0).integers(0, 2**20 + 1, 1000)[:, None]
    np.testing.assert_array_equal(positions_of(k * 2.0**-20), k)
    x = np.random.default_rng(1).random((1000, 1))
    assert np.abs(positions_of(x) * 2.0**-20 - x).max() <= 2.0**-21
    np.testing.assert_array_equal(positions_of(jnp.asarray(x)), positions_of(x))


@pytest.mark.parametrize("arguments", [(0.0, 1.0), (np.nan, 1.0), (2.0**17, 1.0), (1.0, 0.0), (1.0, np.inf)])
def test_a_path_that_is_none_is_refused(arguments):
    decay, std = arguments
    with pytest.raises(DprlError):
        parameters(decay, 20, std, 0.0, 1.0)
