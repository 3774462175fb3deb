"""The sampler of round(N(0, std^2)): its tables against 60 digits, its values against the integers."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from dprl.mechanisms import rounded_gaussian as module
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.rounded_gaussian import MAX_STD, MIN_STD, TOTAL_VARIATION, exp_near_zero, propose, table

LEVEL = 5e-7
STDS = [MIN_STD, 2.0**24 * 1.9999, 0.7 * 2.0**33, 3.3 * 2.0**40, MAX_STD]
SIGN = 1 << 63


def draws(seed: int, count: int, std: float) -> np.ndarray:
    return SecureNoise(bytes([seed]) * 32).gaussian(0, count, std)


def proposed(words: list[tuple[int, int]], std: float) -> tuple[list[int], list[bool]]:
    """Value and acceptance of proposals given as their two words."""
    values, rejected = propose(np.array(words, dtype=np.uint64).T[None].copy(), table(std))
    accepted = np.ones(len(words), dtype=bool)
    accepted[rejected] = False
    return values[0].tolist(), accepted.tolist()


def weights(std: float) -> list[int]:
    """Of the bins on one side, as exact integers."""
    limits = [0, *(int(t) for t in table(std).thresholds)]
    return [b - a for a, b in pairwise(limits)]


def envelope(std: float) -> list[mpmath.mpf]:
    width = 1 << table(std).width_bits
    return [
        mpmath.exp(-(mpmath.mpf(j * width) ** 2) / (2 * mpmath.mpf(std) ** 2))
        for j in range(len(table(std).thresholds))
    ]


@pytest.mark.parametrize("std", STDS)
def test_weights_are_those_of_the_envelope(std):
    thresholds, width = table(std).thresholds, 1 << table(std).width_bits
    assert 32 <= std / width < 64
    assert len(thresholds) == math.ceil(12.5 * std / width) <= 800
    with mpmath.workdps(60):
        exact = envelope(std)
        total, running = mpmath.fsum(exact), mpmath.mpf(0)
        for threshold, value in zip(thresholds[:-1], exact, strict=False):
            running += value
            assert abs(int(threshold) - running / total * 2**63) <= mpmath.mpf("0.5000001")
    assert int(thresholds[-1]) == 2**63
    # no gap in what can be drawn, out to 8.85 standard deviations
    assert min(weights(std)) >= 0
    assert min(weights(std)[: math.ceil(8.85 * std / width)]) > 0


@pytest.mark.parametrize("std", STDS)
def test_distance_from_the_exact_distribution_is_below_the_stated_bound(std):
    """Weights rounded to 2^-63 and the cut tail: the parts of the error that can be computed exactly."""
    with mpmath.workdps(60):
        exact = envelope(std)
        total = mpmath.fsum(exact)
        rounding = mpmath.fsum(abs(w - e / total * 2**63) for w, e in zip(weights(std), exact, strict=True)) / 2**63
        tail = 2 * mpmath.ncdf(mpmath.mpf("-12.5"))
        # acceptance is at least 1/2, so conditioning on it at most doubles a difference
        assert rounding + tail < TOTAL_VARIATION / 4


@pytest.mark.parametrize("std", STDS)
def test_the_guide_gives_every_bin_its_weight_to_the_last_word(std):
    """Counted over all 2^64 first words: the cells that the guide knows, and searches in the others."""
    guide, limits = table(std).guide, [0, *(int(t) for t in table(std).thresholds)]
    size, half = 1 << 48, len(table(std).guide) // 2
    for side in (0, 1):
        found = [0] * (len(limits) - 1)
        for cell in range(half):
            low = cell * size
            known = int(guide[cell + side * half])
            if known == module._UNKNOWN:
                for j in range(bisect_right(limits, low) - 1, bisect_left(limits, low + size)):
                    found[j] += min(limits[j + 1], low + size) - max(limits[j], low)
            else:
                assert (known < 0) == bool(side)
                found[known ^ -side] += size
        assert found == weights(std)


@pytest.mark.parametrize("std", STDS)
def test_what_the_guide_knows_is_accepted_at_the_far_end_of_its_bin(std):
    made = table(std)
    width, limits, half = 1 << made.width_bits, [0, *(int(t) for t in made.thresholds)], len(made.guide) // 2
    known = 0
    with mpmath.workdps(50):
        sure = [
            (b - a) * mpmath.exp(-mpmath.mpf((2 * j + 1) * width**2) / (2 * mpmath.mpf(std) ** 2))
            for j, (a, b) in enumerate(pairwise(limits))
        ]
        for cell in range(half):
            j = int(made.guide[cell])
            if j == module._UNKNOWN:
                continue
            assert ((cell + 1) << 48) - 1 - limits[j] < (1 - mpmath.mpf(2) ** -50) * sure[j]
            assert int(made.guide[half + cell]) == -1 - j
            known += 1
    assert known > 0.95 * half


def test_the_guide_only_says_what_the_search_and_the_exponential_say():
    """The quick way and the exact one agree on random words, and where the guide's and the bins' decisions change."""
    rng, std = np.random.default_rng(3), 1.7 * 2.0**30
    made = table(std)
    words = rng.integers(0, 2**64, (40, 2, 1000), dtype=np.uint64)
    cells = np.arange(1000, dtype=np.uint64) * np.uint64(65) << np.uint64(48)
    near = np.r_[made.thresholds[:-1], made.thresholds[:-1] - np.uint64(1)]
    words[0, 0, : len(near)] = near[:1000]
    words[1, 0, : len(near)] = near[:1000] | np.uint64(SIGN)
    words[2, 0], words[3, 0] = cells, cells - np.uint64(1)
    words[2:6, 1], words[4:6, 0] = np.uint64((1 << made.width_bits) - 1), words[2:4, 0] ^ np.uint64(SIGN)
    values, rejected = propose(words, made)
    exact, accepted = module._decide(words[:, 0].ravel(), words[:, 1].ravel(), made)
    np.testing.assert_array_equal(values.ravel()[accepted], exact[accepted])
    np.testing.assert_array_equal(rejected, np.flatnonzero(~accepted))
    assert 0.005 < len(rejected) / values.size < 0.05


@pytest.mark.parametrize("std", [32.0, 45.7, 63.999])
def test_the_law_is_the_discrete_gaussian_integer_by_integer(monkeypatch, std):
    """Every probability of a small sampler, counted: for each place in each bin, the words that `propose` accepts."""
    monkeypatch.setattr(module, "MIN_STD", 32.0)
    made = table(std)
    width, limits = 1 << made.width_bits, [0, *(int(t) for t in made.thresholds)]
    bins = [(sign, low, high) for sign in (0, SIGN) for low, high in pairwise(limits) if high > low]
    places = [(sign + low, sign + high, place) for (sign, low, high), place in itertools.product(bins, range(width))]
    # of a bin's words the first is accepted at every place; the last that is
    first = np.array([low for low, _, _ in places], dtype=np.uint64)
    second = np.array([place for _, _, place in places], dtype=np.uint64)
    least, most = np.zeros(len(places), dtype=np.int64), np.array([high - low for low, high, _ in places])
    while (most - least > 1).any():
        middle = (least + most) // 2
        _, rejected = propose(np.stack([first + middle.astype(np.uint64), second])[None].copy(), made)
        accepted = np.ones(len(places), dtype=bool)
        accepted[rejected] = False
        least, most = np.where(accepted, middle, least), np.where(accepted, most, middle)
    drawn = propose(np.stack([first, second])[None].copy(), made)
    assert not len(drawn[1])
    assert len(np.unique(drawn[0])) == len(places)
    with mpmath.workdps(40):
        found = {k: mpmath.mpf(m) / width for k, m in zip(drawn[0][0].tolist(), most.tolist(), strict=True)}
        exact = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(std) ** 2)) for k in range(-1100, 1101)}
        of_found, of_exact = mpmath.fsum(found.values()), mpmath.fsum(exact.values())
        distance = mpmath.fsum(abs(found.get(k, 0) / of_found - p / of_exact) for k, p in exact.items()) / 2
    assert set(found) <= set(exact)
    assert distance * 2**53 < 7.6


def test_the_exponential_is_within_its_bound():
    x = -np.r_[np.linspace(0.0, 0.392, 3001), np.random.default_rng(0).random(3000) * 0.392]
    with mpmath.workdps(40):
        error = max(abs(mpmath.mpf(float(y)) - mpmath.exp(float(v))) for y, v in zip(exp_near_zero(x), x, strict=True))
    assert float(error * 2**53) <= 1.26
    few = np.concatenate([exp_near_zero(part) for part in np.array_split(x, len(x) // 10)])
    np.testing.assert_array_equal(few, exp_near_zero(x))
    assert exp_near_zero(np.zeros(1))[0] == 1.0


@pytest.mark.parametrize("std", [MIN_STD * 1.3, 2.0**32 * 1.1, MAX_STD])
@pytest.mark.parametrize("modulus", [2, 4, 16, 256])
def test_no_residue_is_rarer_than_another(std, modulus):
    """A scaled floating-point normal skips integers; here every residue of small powers of two comes equally often."""
    found = draws(1, 100_000, std)
    observed = np.bincount(found % modulus, minlength=modulus)
    expected = len(found) / modulus
    assert float(np.sum((observed - expected) ** 2 / expected)) <= chi2.isf(LEVEL, modulus - 1)


def test_the_residue_test_rejects_a_scaled_float32_normal():
    found = np.round(np.random.default_rng(0).normal(size=100_000).astype(np.float32) * np.float32(MAX_STD))
    observed = np.bincount(found.astype(np.int64) % 256, minlength=256)
    assert float(np.sum((observed - len(found) / 256) ** 2 / (len(found) / 256))) > chi2.isf(LEVEL, 255)


@pytest.mark.parametrize("std", [MIN_STD, 2.0**33])
def test_positive_and_negative_are_equally_likely(std):
    found = draws(2, 200_000, std)
    positive, negative = int(np.sum(found > 0)), int(np.sum(found < 0))
    both = positive + negative
    assert binom.ppf(LEVEL, both, 0.5) <= positive <= binom.isf(LEVEL, both, 0.5)
    # the law of k and -k, magnitude by magnitude
    edges = np.quantile(np.abs(found), np.linspace(0, 1, 41))[1:-1]
    a, b = (np.bincount(np.searchsorted(edges, x), minlength=40) for x in (found[found > 0], -found[found < 0]))
    assert float(np.sum((a - b) ** 2 / (a + b))) <= chi2.isf(LEVEL, 40)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 200), st.integers(0, 2**18), st.sampled_from([0, 1]))
def test_a_candidate_is_accepted_by_the_ratio_of_density_and_envelope(bin_index, offset, sign):
    """The decision flips where the word's share of its bin crosses exp(-(k^2 - edge^2) / (2 std^2))."""
    std = MIN_STD
    limits, width_bits = [0, *(int(t) for t in table(std).thresholds)], table(std).width_bits
    place, low, high = offset % 2**width_bits, limits[bin_index], limits[bin_index + 1]
    edge = bin_index << width_bits
    k = -edge - 2**width_bits + place if sign else edge + place
    with mpmath.workdps(40):
        ratio = mpmath.exp(-(mpmath.mpf(k) ** 2 - mpmath.mpf(edge) ** 2) / (2 * mpmath.mpf(std) ** 2))
        cut, margin = int(ratio * (high - low)), ((high - low) >> 50) + 1
    cuts = [(low + c, e) for c, e in ((cut - margin, True), (cut + margin, False)) if 0 <= c < high - low]
    values, accepted = proposed([(word | sign << 63, place) for word, _ in cuts], std)
    assert values == [k] * len(cuts)
    assert accepted == [expected for _, expected in cuts]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 500), st.integers(0, 255), st.sampled_from(STDS))
def test_counts_and_repeats(count, seed, std):
    found = draws(seed, count, std)
    assert found.shape == (count,)
    np.testing.assert_array_equal(found, draws(seed, count, std))
    assert (np.abs(found) <= 12.5 * std + 2.0**40).all()


@pytest.mark.parametrize(
    "std", [MIN_STD / 2, np.nextafter(MIN_STD, 0.0), np.nextafter(MAX_STD, np.inf), np.nan, np.inf]
)
def test_scales_without_a_proof_are_refused(std):
    with pytest.raises(ValueError, match="outside the range"):
        draws(0, 1, std)
