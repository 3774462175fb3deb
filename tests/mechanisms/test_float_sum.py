"""The single-precision sum of experiments against the mechanism of a release."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

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
