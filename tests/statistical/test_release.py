"""What a mechanism releases, end to end, from both sources: its distribution, with power, and what cannot be told.

A test of a correct release fails with a probability of at most 1e-6; that it would notice a wrong one is measured.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, kstest, kstwo, norm
from tests.statistical.reachability import unreachable_in_float64, unreachable_on_grid

from dprl.mechanisms.arithmetic import clip_to_grid, grid_step
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise

FALSE_ALARM = 1e-6
DIMENSION = 200_000
SOURCES = {"secure": lambda seed: SecureNoise(bytes([seed]) * 32), "seeded": SeededNoise.from_seed}


@pytest.fixture(params=SOURCES)
def make(request):
    return SOURCES[request.param]


def mechanism(noise_multiplier: float = 2.5, dimension: int = DIMENSION) -> GaussianSum:
    return GaussianSum(parts=((dimension, 0.7),), noise_multiplier=noise_multiplier, steps=10)


def released(source, step: int, noise_multiplier: float = 2.5) -> np.ndarray:
    """A release of one unit whose vector is zero, over the standard deviation that the honest one has."""
    made = mechanism(noise_multiplier)
    total = made.clipped_sum(jnp.zeros((1, DIMENSION)), jnp.ones(1, dtype=bool))
    return np.asarray(made.release(total, made.draw(source, step))) / mechanism().noise_std


def chi_square_accepts(x: np.ndarray) -> bool:
    """The sum of squares of standard normals, two-sided."""
    low, high = chi2.ppf([FALSE_ALARM / 2, 1.0 - FALSE_ALARM / 2], len(x))
    return bool(low <= np.sum(x**2) <= high)


def ks_accepts(x: np.ndarray) -> bool:
    return bool(kstest(x, norm.cdf).statistic <= kstwo.isf(FALSE_ALARM, len(x)))


@pytest.mark.parametrize("accepts", [chi_square_accepts, ks_accepts])
def test_a_release_is_standard_normal_noise_and_no_less(make, accepts):
    source = make(1)
    assert all(accepts(released(source, step)) for step in range(3))
    # 0.95 of the noise; a third less; half as much again: each run is caught
    for wrong in (0.95, 2.0 / 3.0, 1.5):
        assert not any(accepts(released(source, step, 2.5 * wrong)) for step in range(3))


@pytest.mark.parametrize("releases", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_power_is_what_it_is_said_to_be(make, releases):
    """All of 40 releases with 0.95 of the noise are rejected: at a power below 0.84 that has a probability of 1e-3."""
    source = make(2)
    for step in range(releases):
        wrong = released(source, step, 0.95 * 2.5)
        assert not chi_square_accepts(wrong)
        assert not ks_accepts(wrong)
    # the chi-square's power can be computed: of the wrong variance, what is left between its limits
    low, high = chi2.ppf([FALSE_ALARM / 2, 1.0 - FALSE_ALARM / 2], DIMENSION)
    assert chi2.cdf(high / 0.95**2, DIMENSION) - chi2.cdf(low / 0.95**2, DIMENSION) < 1e-9


def test_the_noise_of_two_steps_is_not_the_same_noise(make):
    source = make(3)
    a, b = released(source, 0), released(source, 1)
    assert abs(float(np.corrcoef(a, b)[0, 1])) < norm.isf(FALSE_ALARM / 2) / DIMENSION**0.5
    # a sum over both steps has the variance of two draws, not of one counted twice
    assert chi_square_accepts((a + b) / 2.0**0.5)
    assert not chi_square_accepts((a + a) / 2.0**0.5)


OUTPUTS = 100_000
MULTIPLIER = 3.7306  # of the Gaussian mechanism at epsilon 1, delta 1e-5


def test_every_released_number_is_possible_under_the_neighbour():
    """100,000 releases without and with one more person: each integer can be drawn in the other case too."""
    made = mechanism(MULTIPLIER, OUTPUTS)
    person = np.asarray(clip_to_grid(jnp.ones((1, 1)), made.clip_norm))[0, 0]
    assert 2**32 <= person < 2**33
    source = SecureNoise(b"reachability".ljust(32))
    for step, (present, absent) in enumerate([(0, person), (person, 0)]):
        # a column of its own for each output: the same one-person sum, 100,000 times
        noisy = made.release(jnp.full(OUTPUTS, present, dtype=jnp.int64), made.draw(source, step))
        points = np.asarray(noisy) / grid_step(made.clip_norm)
        assert (np.abs(points) < 2**53).all()
        integers = points.astype(np.int64)
        np.testing.assert_array_equal(integers, points)
        assert not unreachable_on_grid(integers - present, made.noise_on_grid).any()
        assert not unreachable_on_grid(integers - absent, made.noise_on_grid).any()


def test_the_attack_finds_what_no_table_holds():
    std = mechanism(MULTIPLIER).noise_on_grid
    far = np.array([int(8.8 * std), int(9.3 * std), -int(9.3 * std), int(13.0 * std), 0, -1])
    assert unreachable_on_grid(far, std).tolist() == [False, True, True, True, False, False]


def test_float64_noise_betrays_a_fifth_of_its_outputs():
    """``total + normal * std`` at epsilon 1, delta 1e-5, totals 0 and 1: the usual arithmetic, the same attack."""
    normal = np.random.default_rng(0).standard_normal(OUTPUTS)
    outputs = 0.0 + normal * MULTIPLIER
    assert not unreachable_in_float64(outputs, 0.0, MULTIPLIER).any()
    assert unreachable_in_float64(outputs, 1.0, MULTIPLIER).mean() > 0.2
    # to try more doubles changes nothing
    assert unreachable_in_float64(outputs, 1.0, MULTIPLIER, 40).mean() > 0.2


def test_the_same_law_as_opendp_draws():
    """An oracle written by others: opendp's exact discrete Gaussian at the same scale, two samples."""
    pytest.importorskip("opendp")
    import opendp.prelude as dp

    dp.enable_features("contrib")
    count, std = 40_000, 1.3 * 2.0**24
    vectors = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")

    def theirs(scale: float) -> np.ndarray:
        return np.array(dp.m.make_gaussian(*vectors, scale=scale)([0] * count))

    ours = SecureNoise.fresh().gaussian(0, count, std)
    # the Kolmogorov-Smirnov distance of two samples of this size, at the stated level
    limit = (np.log(2.0 / FALSE_ALARM) / count) ** 0.5

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        both = np.sort(np.concatenate([a, b]))
        share = [np.searchsorted(np.sort(x), both, side="right") / len(x) for x in (a, b)]
        return float(np.abs(share[0] - share[1]).max())

    same = theirs(std)
    assert distance(ours, same) <= limit
    for wrong in (0.9, 2.0 / 3.0, 1.5):
        assert distance(ours, theirs(wrong * std)) > limit
    ratio = float(np.sum((ours / std) ** 2) / np.sum((same / std) ** 2))
    assert abs(np.log(ratio)) <= norm.isf(FALSE_ALARM / 2) * (4.0 / count) ** 0.5 < abs(np.log(0.95**2))
