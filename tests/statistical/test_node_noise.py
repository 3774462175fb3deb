"""Normals by address: the right law, and for a release the right digits."""

from __future__ import annotations

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, kstest, norm

from dprl.mechanisms.node_noise import normal_of_words
from dprl.mechanisms.noise import SecureNoise, SeededNoise

LEVEL = 5e-7


@pytest.mark.parametrize(
    "source", [SecureNoise(b"n" * 32), pytest.param(SeededNoise.from_seed(3), marks=pytest.mark.slow)]
)
def test_normals_are_standard_and_independent(source):
    node, path = jnp.arange(20_000)[:, None], jnp.arange(3)
    draws = np.asarray(source.nodes().normals((node,), path))
    assert draws.shape == (20_000, 3)
    assert draws.dtype == np.float64
    flat = draws.ravel()
    assert kstest(flat, norm.cdf).pvalue > LEVEL
    assert kstest(flat / 0.95, norm.cdf).pvalue < LEVEL
    assert chi2.ppf(LEVEL, flat.size) <= np.sum(flat**2) <= chi2.ppf(1.0 - LEVEL, flat.size)
    for a, b in ((draws[:, 0], draws[:, 1]), (draws[:, 1], draws[:, 2]), (draws[:-1, 0], draws[1:, 0])):
        for power in (1, 2):
            assert abs(np.corrcoef(a**power, b**power)[0, 1]) < norm.isf(LEVEL / 2) / len(a) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("source", [SecureNoise(b"n" * 32), SeededNoise.from_seed(3)])
def test_normals_of_nodes_with_two_numbers_are_standard(source):
    grid = source.nodes().normals((jnp.arange(90)[:, None], jnp.arange(80)[None]), jnp.int64(0))
    assert len(np.unique(grid)) >= grid.size - 20  # float32 normals of 23 bits coincide now and then
    assert kstest(np.ravel(grid), norm.cdf).pvalue > LEVEL


def test_a_secure_normal_has_all_the_digits_that_its_proof_counts():
    """Against 50 digits, the whole cell of the words: within 2^-46 up to 8 standard deviations."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (4, 400), dtype=np.uint64)
    words[0, :200] >>= rng.integers(1, 33, 200).astype(np.uint64)  # tails: leading zeros
    words[0, :150] |= np.uint64(2**31) * rng.integers(0, 2, 150, dtype=np.uint64)
    words[:, -3:] = np.array([[0, 2**31, 2**31 - 1], [0, 0, 2**32 - 1], [0, 0, 2**32 - 1], [0, 0, 2**32 - 1]])
    found = np.asarray(normal_of_words(*(jnp.asarray(w.astype(np.uint32)) for w in words)))
    assert np.isfinite(found).all()
    worst, far = 0.0, 0
    with mpmath.workdps(50):
        for w, x in zip(words.T.tolist(), found.tolist(), strict=True):
            high, low = (w[0] << 32) + w[1], (w[2] << 32) + w[3]
            assert x == 0.0 or (x > 0.0) == (high >= 2**63)
            cell = mpmath.mpf((high % 2**63 << 64) + low)
            for p in (cell * mpmath.mpf(2) ** -128, (cell + 1) * mpmath.mpf(2) ** -128):
                if abs(x) <= 8.0:
                    worst = max(worst, float(abs(mpmath.ncdf(-abs(x)) - p) / mpmath.npdf(x)))
                else:
                    far += 1
    assert worst < 2.0**-47
    assert 0 < far < 200
