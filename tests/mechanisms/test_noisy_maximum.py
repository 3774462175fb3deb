"""The noisy maximum: the stated probabilities and no others, whoever one more unit is; exact sums of what is cut."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from dprl.accounting import events
from dprl.accounting.rows import KINDS, read_rows
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum, heads_of, heads_of_exponential, uniform_below, words_of

SPREAD = 1000


def mechanism(candidates: int, epsilon: float = 1.0, spread: int = SPREAD) -> NoisyMaximum:
    return NoisyMaximum(candidates=candidates, spread=spread, epsilon=epsilon)


def noise(number: int) -> SecureNoise:
    return SecureNoise(number.to_bytes(32, "little"))


def permute_and_flip(scores: list[int], rate: float) -> np.ndarray:
    """McKenna and Sheldon's probabilities, by going through all sets of heads: whoever has heads, each alike."""
    heads = [math.exp(-rate * (max(scores) - s)) for s in scores]
    out = np.zeros(len(scores))
    for coins in itertools.product((0, 1), repeat=len(scores)):
        chance = math.prod(p if coin else 1.0 - p for p, coin in zip(heads, coins, strict=True))
        if chance:
            out += chance * np.array(coins) / sum(coins)
    return out


def counted(chooses: NoisyMaximum, scores: list[int], trials: int, seed: int = 0) -> np.ndarray:
    found = [chooses.choose(noise(seed * trials + t), np.array(scores)) for t in range(trials)]
    return np.bincount(found, minlength=len(scores))


def fits(counts: np.ndarray, chances: np.ndarray) -> bool:
    expected = counts.sum() * chances
    return float(np.sum((counts - expected) ** 2 / expected)) <= chi2.ppf(1.0 - 1e-6, len(chances) - 1)


@pytest.mark.parametrize("scores", [[0, 0, 0], [0, -400, -900, -2500], [5, 1005]])
def test_the_winner_has_the_probabilities_of_permute_and_flip(scores):
    chooses = mechanism(len(scores))
    counts = counted(chooses, scores, 6000)
    assert fits(counts, permute_and_flip(scores, chooses.rate))
    if len(set(scores)) > 1:  # and neither two thirds nor three halves of the stated epsilon, nor the exponential's
        assert not fits(counts, permute_and_flip(scores, chooses.rate * 2 / 3))
        assert not fits(counts, permute_and_flip(scores, chooses.rate * 3 / 2))
        softmax = np.exp(chooses.rate * (np.array(scores, float) - max(scores)))
        assert not fits(counts, softmax / softmax.sum())


def test_it_is_the_largest_score_plus_exponential_noise():
    """Ding et al. (2021): the same distribution, sampled by other means."""
    scores, chooses = np.array([0, -300, -1200]), mechanism(3)
    rng = np.random.default_rng(0)
    noisy = scores + rng.exponential(1.0 / chooses.rate, (200_000, 3))
    others = np.bincount(np.argmax(noisy, axis=1), minlength=3) / 200_000
    np.testing.assert_allclose(permute_and_flip(list(scores), chooses.rate), others, atol=5e-3)


def test_without_noise_it_is_the_maximum():
    chooses = mechanism(50, epsilon=1000.0, spread=1)
    scores = np.random.default_rng(1).permutation(50)
    assert all(chooses.choose(noise(t), scores) == int(np.argmax(scores)) for t in range(20))


@given(
    st.lists(st.integers(-3000, 3000), min_size=1, max_size=5),
    st.lists(st.integers(0, SPREAD), min_size=5, max_size=5),
    st.integers(-5000, 5000),
    st.floats(0.05, 8.0),
)
def test_no_unit_moves_the_odds_by_more_than_epsilon(scores, moved, shift, epsilon):
    """A unit may move all scores by as much as it likes, and two of them apart by the spread."""
    chooses = mechanism(len(scores), epsilon)
    one = permute_and_flip(scores, chooses.rate)
    two = permute_and_flip([s + m + shift for s, m in zip(scores, moved, strict=False)], chooses.rate)
    assert np.all(one <= math.exp(epsilon) * two * (1.0 + 1e-9))
    assert np.all(two <= math.exp(epsilon) * one * (1.0 + 1e-9))


def test_epsilon_is_attained_and_a_spread_of_twice_that_would_break_it():
    chooses = mechanism(2)
    behind, ahead = (permute_and_flip([0, score], chooses.rate)[1] for score in (-2 * SPREAD, -SPREAD))
    assert math.isclose(ahead / behind, math.e, rel_tol=1e-12)
    # scores of both signs are as far apart as twice their size: half the rate is right there
    further = permute_and_flip([0, 0], chooses.rate)[1]
    assert further / behind > math.e * 1.3


@given(st.floats(1e-6, 1e3), st.integers(1, 2**32))
def test_the_rate_times_the_spread_is_at_most_epsilon_exactly(epsilon, spread):
    chooses = mechanism(3, epsilon, spread)
    assert Fraction(chooses.rate) * spread <= Fraction(epsilon)
    assert chooses.rate * spread >= epsilon * (1.0 - 1e-12)


# --- units' scores ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=3), st.lists(st.floats(-9e3, 9e3)))
def test_one_more_unit_moves_two_scores_by_at_most_the_spread(one, others):
    chooses = mechanism(3)
    rest = np.resize(np.array(others or [0.0]), (4, 3))
    alone, beside = rest, np.vstack([rest[:2], [one], rest[2:]])
    moved = chooses.clipped_sum(beside, np.ones(5, bool)) - chooses.clipped_sum(alone, np.ones(4, bool))
    assert moved.min() >= 0
    assert moved.max() - moved.min() <= SPREAD
    assert moved.tolist() == chooses.clipped(np.array([one]))[0].tolist()


def test_scores_are_rounded_toward_zero_and_only_differences_count():
    chooses = mechanism(3)
    cut = chooses.clipped(np.array([[1.9, -1.9, 0.0], [700.0, -700.0, 0.0], [np.nan, 5.0, 1.0], [9e300, 0.0, 1.0]]))
    assert cut.tolist() == [[2, 0, 1], [1000, 0, 700], [0, 0, 0], [1000, 0, 1]]
    assert chooses.clipped_sum(np.full((2, 3), np.nan), np.array([True, False])).tolist() == [0, 0, 0]


# --- coins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 4), Fraction(5)])
def test_coins_of_an_exponential(exponent):
    heads = sum(heads_of_exponential(exponent, words_of(noise(7), t)) for t in range(4000))
    chance = math.exp(-exponent)
    assert abs(heads - 4000 * chance) <= 5.0 * math.sqrt(4000 * chance * (1.0 - chance)) + 1e-9


def test_a_coin_compares_digit_by_digit():
    third = 2**64 // 3  # the first digit of a third in base 2^64, and every other one
    assert heads_of(Fraction(1, 3), iter([third - 1]))
    assert not heads_of(Fraction(1, 3), iter([third + 1]))
    assert heads_of(Fraction(1, 3), iter([third, third, third - 1]))
    assert not heads_of(Fraction(1, 2), iter([2**63]))  # equal to the last digit is not below
    assert heads_of(Fraction(1, 1), iter([]))


def test_words_beyond_the_last_multiple_are_dropped():
    assert uniform_below(3, iter([2**64 - 1, 5])) == 2
    assert uniform_below(1, iter([17])) == 0


@pytest.mark.parametrize("source", [noise(3), SeededNoise.from_seed(3)])
def test_words_are_a_function_of_key_stream_step_and_block(source):
    stream = source.stream("choice")
    first = [int(w) for w in stream.words(0, 0, 8)]
    assert first == [int(w) for w in source.stream("choice").words(0, 0, 8)]
    others = (stream.words(1, 0, 8), stream.words(0, 1, 8), source.stream("other").words(0, 0, 8))
    assert all(not set(first) & {int(w) for w in words} for words in others)


# --- what it is and what it costs -------------------------------------------------------------------------------------


def test_its_row_is_read_back_and_its_event_is_pure():
    row = mechanism(7).describe("choice of a policy")
    assert KINDS[row["name"]](**row) == read_rows("certificate.json", {"mechanisms": [row]})[0]
    assert mechanism(7).event() == events.pure(1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"candidates": 0},
        {"candidates": 1001},
        {"spread": 0},
        {"spread": 2**33},
        {"epsilon": 0.0},
        {"epsilon": math.inf},
    ],
)
def test_what_is_out_of_range_is_refused(change):
    with pytest.raises(DprlError):
        NoisyMaximum(**{"candidates": 2, "spread": 5, "epsilon": 1.0, **change})


def test_one_candidate_wins():
    assert mechanism(1).choose(noise(0), np.array([-5])) == 0
