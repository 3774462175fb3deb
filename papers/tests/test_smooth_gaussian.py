"""Noise scaled by smooth sensitivity: its scale, and the epsilon that it really has, against other formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, ncx2, norm

from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_delta, gaussian_noise_multiplier
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl_papers.baselines.smooth_gaussian import (
    OutputGaussian,
    SmoothGaussian,
    _hockey_stick,
    smooth_delta,
    smooth_epsilon,
)

LEVEL = 5e-7


def published(epsilon: float, dimension: int, calibration="published") -> SmoothGaussian:
    return SmoothGaussian(epsilon=epsilon, delta=1e-5, dimension=dimension, calibration=calibration)


def by_noncentral_chi_square(dimension: int, shift: float, scale: float, epsilon: float) -> float:
    """The same divergence in closed form: the loss is a multiple of |z - c|^2 plus a constant, for c on the axis."""
    curvature = (1.0 / scale**2 - 1.0) / 2.0
    centre = shift / (2.0 * curvature * scale**2)
    constant = -curvature * centre**2 + shift**2 / (2.0 * scale**2) + dimension * math.log(scale)
    radius = (epsilon - constant) / curvature
    tail = ncx2.sf if curvature > 0.0 else ncx2.cdf
    near = tail(radius, dimension, centre**2)
    far = tail(radius / scale**2, dimension, ((centre - shift) / scale) ** 2)
    return near - math.exp(epsilon) * far


def scale_accepted(draws: np.ndarray, std: float) -> bool:
    statistic = float(np.sum((draws / std) ** 2))
    return chi2.ppf(LEVEL, draws.size) <= statistic <= chi2.ppf(1.0 - LEVEL, draws.size)


@pytest.mark.parametrize("calibration", ["published", "exact"])
def test_noise_has_the_stated_scale_and_no_other(calibration):
    """In a correct mechanism this fails with a probability of at most 1e-6."""
    mechanism, bound, answer = published(0.3, 50, calibration), 0.7, np.linspace(-3.0, 2.0, 50)
    noise = SeededNoise.from_seed(1).stream("lsw")
    draws = np.stack([mechanism.add_noise(answer, bound, noise, step) - answer for step in range(200)])
    std = bound * mechanism.noise_over_bound
    assert scale_accepted(draws, std)
    assert not scale_accepted(draws, std * 2.0 / 3.0)
    assert not scale_accepted(draws, std * 1.5)
    # every step and every coordinate has a draw of its own, but for chance at 32 bits
    assert len(np.unique(draws)) > 0.99 * draws.size


def test_noise_of_a_global_sensitivity_has_the_stated_scale_and_no_other():
    mechanism, answer = OutputGaussian(sensitivity=0.2, noise_multiplier=30.0, dimension=10_000), np.ones(10_000)
    draws = mechanism.add_noise(answer, SeededNoise.from_seed(2)) - answer
    assert scale_accepted(draws, 6.0)
    assert not scale_accepted(draws, 4.0)
    assert not scale_accepted(draws, 9.0)


def test_published_constants_are_those_of_the_paper():
    for epsilon, delta, d in ((0.1, 1e-5, 39), (0.7, 1e-6, 3)):
        mechanism, log = SmoothGaussian(epsilon=epsilon, delta=delta, dimension=d), math.log(2.0 / delta)
        assert mechanism.noise_over_bound == pytest.approx(5.0 * math.sqrt(2.0 * log) / epsilon, rel=1e-12)
        assert mechanism.beta == pytest.approx(epsilon / (4.0 * (d + log)), rel=1e-12)


@pytest.mark.parametrize("dimension", [2, 3, 10, 39])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_divergence_is_that_of_the_noncentral_chi_square(dimension, epsilon):
    """At the worst scales and between, where the divergence is about delta: quadrature against a closed form."""
    mechanism = published(epsilon, dimension)
    for sign in (-1.0, -0.5, 0.5, 1.0):
        for alpha, at in ((mechanism.alpha, mechanism.true_epsilon), (5.0 * mechanism.alpha, epsilon)):
            scale = math.exp(sign * mechanism.beta / 2.0)
            got = _hockey_stick(dimension, alpha * min(1.0, scale), scale, at)
            expected = by_noncentral_chi_square(dimension, alpha * min(1.0, scale), scale, at)
            # in two dimensions the integrand has a square root's kinks
            assert got == pytest.approx(expected, rel=1e-3 if dimension == 2 else 1e-4, abs=1e-9)


def test_divergence_is_that_of_counted_losses():
    """Against nothing but the two densities: half a million draws, at a delta that they can see."""
    d, shift, scale, epsilon, count = 5, 0.8, math.exp(-0.15), 0.3, 500_000
    rng = np.random.default_rng(0)

    def loss(x: np.ndarray) -> np.ndarray:
        far = x - shift * np.eye(1, d)[0]
        return -(x**2).sum(axis=1) / 2.0 + (far**2).sum(axis=1) / (2.0 * scale**2) + d * math.log(scale)

    # E_P[(1 - exp(epsilon - loss))_+], which needs no draws from Q
    gains = np.maximum(1.0 - np.exp(epsilon - loss(rng.normal(size=(count, d)))), 0.0)
    error = gains.std() / math.sqrt(count)
    assert abs(gains.mean() - _hockey_stick(d, shift, scale, epsilon)) < 5.0 * error < 0.01 * gains.mean()


def test_without_smoothness_to_pay_for_it_is_the_gaussian_mechanism():
    for epsilon, multiplier in ((0.1, 20.0), (1.0, 3.0)):
        assert smooth_delta(epsilon, 7, 1.0 / multiplier, 0.0) == pytest.approx(gaussian_delta(epsilon, multiplier))
        star = gaussian_noise_multiplier(Budget(epsilon, 1e-5))
        assert smooth_epsilon(1e-5, 7, 1.0 / star, 0.0) == pytest.approx(epsilon, rel=1e-6)


def test_what_the_published_noise_really_costs():
    """Claimed 0.1 in 39 dimensions it has an epsilon of .0129: by the closed form, on a finer grid of scales."""
    mechanism = published(0.1, 39)
    assert mechanism.true_epsilon == pytest.approx(0.0129, abs=5e-5)

    def worst(epsilon: float) -> float:
        scales = np.exp(mechanism.beta / 2.0 * np.linspace(-1.0, 1.0, 40))
        return max(by_noncentral_chi_square(39, mechanism.alpha * min(1.0, s), s, epsilon) for s in scales)

    assert worst(mechanism.true_epsilon * 0.999) > 1e-5 > worst(mechanism.true_epsilon * 1.001)
    # with beta in place of its half, as psi itself moves
    assert smooth_epsilon(1e-5, 39, mechanism.alpha, mechanism.beta) == pytest.approx(0.0182, abs=5e-5)


@pytest.mark.parametrize(("dimension", "epsilon"), [(39, 0.1), (39, 1.0), (39, 3.0), (2, 1.0)])
def test_exact_calibration_spends_what_it_claims(dimension, epsilon):
    exact, paper = published(epsilon, dimension, "exact"), published(epsilon, dimension)
    assert exact.true_epsilon == pytest.approx(epsilon, rel=1e-6)
    assert paper.true_epsilon < epsilon
    # more noise than without a scale that moves, less than the paper's
    assert gaussian_noise_multiplier(Budget(epsilon, 1e-5)) < exact.noise_over_bound < paper.noise_over_bound / 5.0


def test_divergence_grows_with_the_distance():
    for scale in (0.97, 1.03):
        values = [_hockey_stick(6, shift, scale, 0.05) for shift in np.linspace(0.0, 1.0, 30)]
        assert np.all(np.diff(values) > 0.0)


def test_it_certifies_nothing():
    with pytest.raises(DprlError, match="no privacy event"):
        published(1.0, 3).event()
    with pytest.raises(DprlError, match="no privacy event"):
        OutputGaussian(sensitivity=1.0, noise_multiplier=1.0, dimension=3).event()
    secure = SecureNoise(bytes(32))
    with pytest.raises(DprlError, match="reproducible noise only"):
        published(1.0, 3).add_noise(np.zeros(3), 1.0, secure)
    with pytest.raises(DprlError, match="reproducible noise only"):
        OutputGaussian(sensitivity=1.0, noise_multiplier=1.0, dimension=3).add_noise(np.zeros(3), secure)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"dimension": 1}]
)
def test_bad_facts_are_refused(wrong):
    with pytest.raises(DprlError, match="Smooth sensitivity needs"):
        SmoothGaussian(**{"epsilon": 1.0, "delta": 1e-5, "dimension": 3, **wrong})


def test_bad_sensitivities_are_refused():
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(DprlError, match="positive finite"):
            OutputGaussian(sensitivity=wrong, noise_multiplier=1.0, dimension=3)
    with pytest.raises(DprlError, match="shape"):
        published(1.0, 3).add_noise(np.zeros(4), 1.0, SeededNoise.from_seed(0))


def test_shape_is_normal():
    draws = published(1.0, 100_000).add_noise(np.zeros(100_000), 1.0, SeededNoise.from_seed(3))
    ranks = norm.cdf(draws * published(1.0, 100_000).alpha)
    counts = np.histogram(ranks, bins=100, range=(0.0, 1.0))[0]
    assert np.sum((counts - 1000.0) ** 2 / 1000.0) <= chi2.ppf(1.0 - 1e-6, 99)
