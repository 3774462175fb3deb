"""The baselines' noise has the law that their accounting is about; less or more by half is told apart."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from dprl.mechanisms.noise import SeededNoise
from dprl_papers.baselines.record_noise import noisy_minimum, normal_vector

MANY = 4000


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_normal_numbers_have_their_standard_deviation(factor, holds):
    found = np.asarray(normal_vector(SeededNoise.from_seed(3), 2.5 * factor, MANY))
    low, high = chi2.ppf([1e-6, 1.0 - 1e-6], MANY)
    assert (low < np.sum((found / 2.5) ** 2) < high) == holds


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_the_lesser_of_two_is_chosen_as_often_as_laplace_numbers_say(factor, holds):
    """P(two Laplace numbers of scale b differ by more than g) is exp(-g/b) (1 + g/(2b)) / 2."""
    sensitivity, rho, gap = 0.7, 0.08, 2.0
    scale = sensitivity / math.sqrt(2.0 * rho)
    values = jnp.array([1.0, 1.0 + gap / factor])  # as if the noise were larger by the factor
    noise = SeededNoise.from_seed(4)
    choose = jax.jit(jax.vmap(lambda step: noisy_minimum(noise, step, values, sensitivity, rho)))
    wrong = int(choose(jnp.arange(MANY)).sum())
    expected = 0.5 * math.exp(-gap / scale) * (1.0 + gap / (2.0 * scale))
    assert (binomtest(wrong, MANY, expected).pvalue > 1e-6) == holds
