"""The single-precision sum of experiments against the mechanism of a release."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum
from dprl.mechanisms.float_sum import FloatSum
from dprl.mechanisms.noise import SeededNoise

EXACT = ClippedGaussianSum(clip_norm=0.7, noise_multiplier=1.5, dimension=5, sampling_rate=0.5, steps=3)


def test_it_is_the_same_sum_but_for_rounding():
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(50, 5)) * np.geomspace(0.01, 3.0, 50)[:, None])
    vectors = vectors.astype(jnp.float32).at[7].set(jnp.inf).at[8, 2].set(jnp.nan)
    noise, fast = SeededNoise.from_seed(3), FloatSum(EXACT)
    for step in range(3):
        included = EXACT.coins(noise, step, 50)
        assert np.array_equal(included, fast.coins(noise, step, 50))
        exact = EXACT.release(EXACT.clipped_sum(vectors, included), EXACT.draw(noise, step))
        rough = fast.release(fast.clipped_sum(vectors, included), fast.draw(noise, step))
        np.testing.assert_allclose(rough, exact, atol=2e-6)
    everybody = jnp.ones(50, dtype=bool)
    np.testing.assert_allclose(
        fast.clipped_sum(vectors, everybody), EXACT.scaled(EXACT.clipped_sum(vectors, everybody)), atol=2e-6
    )


def test_the_factor_multiplies_what_is_released():
    fast, slow = FloatSum(EXACT, 3.0), FloatSum(EXACT)
    total, draw = jnp.arange(5.0), jnp.ones(5)
    np.testing.assert_allclose(fast.release(total, draw), 3.0 * slow.release(total, draw))
    assert (fast.dimension, fast.sampling_rate, fast.steps) == (5, 0.5, 3)


def test_it_cannot_be_released():
    with pytest.raises(DprlError, match="cannot be released"):
        FloatSum(EXACT).event()


RARE = ClippedGaussianSum(clip_norm=1.0, noise_multiplier=1.0, dimension=2, sampling_rate=0.002, steps=1)
UNITS, STEPS = 1000, 4000


def batches(rate: float = RARE.sampling_rate) -> tuple[np.ndarray, np.ndarray]:
    """Lists ``(STEPS, K)`` and counts ``(STEPS,)`` of many steps."""
    fast, noise = FloatSum(dataclasses.replace(RARE, sampling_rate=rate)), SeededNoise.from_seed(5)
    order, count = jax.vmap(lambda step: fast.members(noise, step, UNITS, 4))(jnp.arange(STEPS, dtype=jnp.uint32))
    return np.asarray(order), np.asarray(count)


def test_few_among_many_are_drawn_as_coins_would_draw_them():
    order, count = batches()
    assert order.shape[1] < 50  # a list of the heads, not of everybody
    for row, n in zip(order, count, strict=True):
        assert np.all(np.diff(row[:n]) > 0)
        assert np.all(row[n:] == UNITS)

    def fits(rate: float) -> bool:
        expected = stats.binom.pmf(np.arange(8), UNITS, rate)
        expected = STEPS * np.append(expected, 1.0 - expected.sum())
        found = np.bincount(np.minimum(count, 8), minlength=9)
        return stats.chisquare(found, expected).pvalue > 1e-6

    assert fits(RARE.sampling_rate)
    assert not fits(RARE.sampling_rate / 1.5)
    assert not fits(RARE.sampling_rate * 1.5)
    places = order[order < UNITS]
    assert stats.chisquare(np.bincount(places // 50, minlength=20)).pvalue > 1e-6
    # of one unit the next ones' coins tell nothing: neighbours meet as often as anybody
    together = np.sum(np.diff(order, axis=1)[order[:, 1:] < UNITS] == 1)
    expected = STEPS * (UNITS - 1) * RARE.sampling_rate**2
    assert abs(together - expected) < 5.0 * np.sqrt(expected)


def test_many_are_listed_from_their_coins():
    fast, noise = FloatSum(dataclasses.replace(RARE, sampling_rate=0.5)), SeededNoise.from_seed(1)
    order, count = fast.members(noise, 0, UNITS, 32)
    assert np.array_equal(order[:count], np.flatnonzero(fast.coins(noise, 0, UNITS)))
    assert np.all(np.asarray(order[count:]) == UNITS)
    assert len(order) % 32 == 0
