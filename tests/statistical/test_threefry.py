"""Threefry2x32-20 against its published known answers and against JAX's own."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.random import threefry_2x32
from scipy.special import erfinv
from scipy.stats import chi2, kstest, norm

from dprl.mechanisms import threefry

WORD = st.integers(0, 2**32 - 1)
# kat_vectors of the Random123 library: key, counter, answer
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


def ours(key, counter):
    x0, x1 = (jnp.array([c], dtype=jnp.uint32) for c in counter)
    return tuple(int(w[0]) for w in threefry.threefry2x32(jnp.array(key, dtype=jnp.uint32), x0, x1))


@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN)
def test_known_answers(key, counter, answer):
    assert ours(key, counter) == answer


@settings(deadline=None, max_examples=100)
@given(WORD, WORD, WORD, WORD)
def test_agrees_with_jax(k0, k1, c0, c1):
    key, counter = jnp.array([k0, k1], dtype=jnp.uint32), jnp.array([c0, c1], dtype=jnp.uint32)
    theirs = threefry_2x32(key, counter)
    assert ours((k0, k1), (c0, c1)) == tuple(int(w) for w in theirs)


@pytest.mark.parametrize("count", [1, 7, 8, 15, 16, 17, 31, 33, 1000])
def test_bits_have_the_asked_for_length_and_no_repeats(count):
    key = jnp.array([1, 2], dtype=jnp.uint32)
    words = np.asarray(threefry.bits(key, jnp.uint32(3), count))
    assert words.shape == (count,)
    assert len(set(words.tolist())) == count
    # an element's word is threefry of (element, step), in one of the two output words
    half = -(-count // 16) * 8
    for i in {0, count // 2, count - 1}:
        assert words[i] == ours((1, 2), (i % half, 3))[i // half]


def test_normals_are_standard_finite_and_symmetric():
    draws = np.asarray(threefry.normal(jnp.array([4, 5], dtype=jnp.uint32), jnp.uint32(6), 500_000))
    assert draws.dtype == np.float32
    assert np.isfinite(draws).all()
    assert kstest(draws, norm.cdf).pvalue > 1e-4
    assert kstest(draws / 0.98, norm.cdf).pvalue < 1e-4
    squares = float(np.sum(draws.astype(np.float64) ** 2))
    assert chi2.ppf(1e-4, len(draws)) <= squares <= chi2.ppf(1.0 - 1e-4, len(draws))


def test_every_word_gives_a_finite_normal_that_is_the_quantile(monkeypatch):
    """All of the 2^23 uniforms would take long: both ends, the middle and a sample, against float64."""
    rng = np.random.default_rng(0)
    top = np.r_[0:2_000, 2**22 - 1_000 : 2**22 + 1_000, 2**23 - 2_000 : 2**23, rng.integers(0, 2**23, 20_000)]
    top = np.unique(np.r_[top, 2**23 - 1 - top])
    words = jnp.asarray(top.astype(np.uint32) << 9)
    monkeypatch.setattr(threefry, "_padded_bits", lambda key, step, count: words)
    draws = np.asarray(threefry.normal(jnp.zeros(2, dtype=jnp.uint32), jnp.uint32(0), len(top)))
    assert np.isfinite(draws).all()
    np.testing.assert_allclose(draws, 2**0.5 * erfinv((2.0 * top + 1.0) / 2.0**23 - 1.0), rtol=3e-6, atol=1e-8)
    np.testing.assert_allclose(draws, -draws[::-1], rtol=3e-6)
