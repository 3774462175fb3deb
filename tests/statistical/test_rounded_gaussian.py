"""The sampler of round(N(0, std^2)): its tables against 60 digits, its values against the integers."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from dprl.mechanisms import rounded_gaussian as module
from dprl.mechanisms.rounded_gaussian import MAX_STD, MIN_STD, TOTAL_VARIATION, rounded_gaussian

LEVEL = 1e-4
STDS = [MIN_STD, 2.0**24 * 1.9999, 0.7 * 2.0**33, 3.3 * 2.0**40, MAX_STD]


def words(seed: int):
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)


@pytest.mark.parametrize("std", STDS)
def test_weights_are_those_of_the_envelope(std):
    thresholds, width_bits = module._table(std)
    width = 2**width_bits
    assert 32 <= std / width < 64
    assert len(thresholds) == math.ceil(12.5 * std / width)
    with mpmath.workdps(60):
        envelope = [
            mpmath.exp(-(mpmath.mpf(j * width) ** 2) / (2 * mpmath.mpf(std) ** 2)) for j in range(len(thresholds))
        ]
        total, running = mpmath.fsum(envelope), mpmath.mpf(0)
        for threshold, value in zip(thresholds[:-1], envelope, strict=False):
            running += value
            assert abs(int(threshold) - running / total * 2**63) <= mpmath.mpf("0.5000001")
    assert int(thresholds[-1]) == 2**63
    assert (np.diff(thresholds.astype(object)) >= 0).all()


@pytest.mark.parametrize("std", STDS)
def test_distance_from_the_exact_distribution_is_below_the_stated_bound(std):
    """Weights rounded to 2^-63 and the cut tail: the parts of the error that can be computed exactly."""
    thresholds, width_bits = module._table(std)
    width = 2**width_bits
    with mpmath.workdps(60):
        envelope = [
            mpmath.exp(-(mpmath.mpf(j * width) ** 2) / (2 * mpmath.mpf(std) ** 2)) for j in range(len(thresholds))
        ]
        total = mpmath.fsum(envelope)
        weights = np.diff(np.r_[0, thresholds.astype(object)])
        rounding = mpmath.fsum(abs(int(w) - e / total * 2**63) for w, e in zip(weights, envelope, strict=True)) / 2**63
        tail = 2 * mpmath.ncdf(mpmath.mpf("-12.5"))
        # acceptance is at least 1/2, so conditioning on it at most doubles a difference
        assert rounding + tail < TOTAL_VARIATION / 4


@pytest.mark.parametrize("std", [MIN_STD * 1.3, 2.0**32 * 1.1, MAX_STD])
@pytest.mark.parametrize("modulus", [2, 4, 16, 256])
def test_no_residue_is_rarer_than_another(std, modulus):
    """A scaled floating-point normal skips integers; here every residue of small powers of two comes equally often."""
    draws = rounded_gaussian(words(1), 100_000, std)
    observed = np.bincount(draws % modulus, minlength=modulus)
    expected = len(draws) / modulus
    assert float(np.sum((observed - expected) ** 2 / expected)) <= chi2.ppf(1.0 - LEVEL, modulus - 1)


def test_the_residue_test_rejects_a_scaled_float32_normal():
    draws = np.round(np.random.default_rng(0).normal(size=100_000).astype(np.float32) * np.float32(MAX_STD))
    observed = np.bincount(draws.astype(np.int64) % 256, minlength=256)
    assert float(np.sum((observed - len(draws) / 256) ** 2 / (len(draws) / 256))) > chi2.ppf(1.0 - LEVEL, 255)


@pytest.mark.parametrize("std", [MIN_STD, 2.0**33])
def test_positive_and_negative_are_equally_likely(std):
    draws = rounded_gaussian(words(2), 200_000, std)
    positive, negative = int(np.sum(draws > 0)), int(np.sum(draws < 0))
    assert binom.ppf(LEVEL, positive + negative, 0.5) <= positive <= binom.ppf(1.0 - LEVEL, positive + negative, 0.5)
    # the law of k and -k, magnitude by magnitude
    edges = np.quantile(np.abs(draws), np.linspace(0, 1, 41))[1:-1]
    a, b = (np.bincount(np.searchsorted(edges, x), minlength=40) for x in (draws[draws > 0], -draws[draws < 0]))
    assert float(np.sum((a - b) ** 2 / (a + b))) <= chi2.ppf(1.0 - LEVEL, 40)


def scripted(*triples: tuple[int, int, int]):
    """Words of which the first candidates are given; all others are rejected by a third word of ones in a far bin."""

    def give(count: int) -> np.ndarray:
        out = np.full((3, count // 3), 2**64 - 1, dtype=np.uint64)
        for i, triple in enumerate(triples):
            out[:, i] = triple
        return out.ravel()

    return give


def test_sign_and_magnitude_cover_every_integer_once():
    """With the first bin, the lowest bit is the sign and the second word the place: 0, -1, 1, -2, 2, ... each once."""
    triples = [(sign, place, 0) for place in range(4) for sign in (0, 1)]
    assert rounded_gaussian(scripted(*triples), 8, MIN_STD).tolist() == [0, -1, 1, -2, 2, -3, 3, -4]


def test_the_ends_of_a_bin_are_reached():
    thresholds, width_bits = module._table(MIN_STD)
    width = 2**width_bits
    first_of_second = (int(thresholds[0]) << 1, 0, 0)
    last_of_first = ((int(thresholds[0]) - 1) << 1, width - 1, 0)
    assert rounded_gaussian(scripted(last_of_first, first_of_second), 2, MIN_STD).tolist() == [width - 1, width]


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 200), st.integers(0, 2**18), st.sampled_from([0, 1]))
def test_a_candidate_is_accepted_by_the_ratio_of_density_and_envelope(bin_index, offset, sign):
    """The decision flips where the third word crosses exp(-(k^2 - edge^2) / (2 std^2))."""
    std = MIN_STD
    thresholds, width_bits = module._table(std)
    place = offset % 2**width_bits
    first = ((0 if bin_index == 0 else int(thresholds[bin_index - 1])) << 1) | sign
    edge = bin_index << width_bits
    k = edge + place + sign
    with mpmath.workdps(40):
        ratio = mpmath.exp(-(mpmath.mpf(k) ** 2 - mpmath.mpf(edge) ** 2) / (2 * mpmath.mpf(std) ** 2))
        cut = int(ratio * 2**53)
    filler = (0, 0, 0)  # always accepted, as zero
    for word, accepted in ((cut - 8, True), (cut + 8, False)):
        if 0 <= word < 2**53:
            found = rounded_gaussian(scripted((first, place, word << 11), filler), 1, std)[0]
            value = -1 - (edge + place) if sign else edge + place
            assert found == (value if accepted else 0)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 500), st.integers(0, 2**32), st.sampled_from(STDS))
def test_counts_and_repeats(count, seed, std):
    draws = rounded_gaussian(words(seed), count, std)
    assert draws.shape == (count,)
    np.testing.assert_array_equal(draws, rounded_gaussian(words(seed), count, std))
    assert (np.abs(draws) <= 12.5 * std + 2.0**40).all()


@pytest.mark.parametrize(
    "std", [MIN_STD / 2, np.nextafter(MIN_STD, 0.0), np.nextafter(MAX_STD, np.inf), np.nan, np.inf]
)
def test_scales_without_a_proof_are_refused(std):
    with pytest.raises(ValueError, match="outside the range"):
        rounded_gaussian(words(0), 1, std)
