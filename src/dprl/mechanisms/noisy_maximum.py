"""Noisy maximum: which of several candidates has the highest score, chosen with noise and exact from end to end.

Privacy unit: whatever one row of ``scores`` stands for. Relation: add or remove one. Released: the place of one
candidate, nothing else. The mechanism is permute-and-flip (McKenna and Sheldon 2020) on whole numbers: each candidate
tosses a coin that shows heads with probability ``exp(-rate (highest score - own score))``, and one of the candidates
with heads is drawn uniformly. The coins are exact (Canonne, Kamath and Steinke 2020), so the event is pure and nothing
is added to delta.
Proof: docs/proofs/noisy-maximum.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dprl.accounting import events
from dprl.accounting.rows import MAXIMUM, MOST_CANDIDATES, MaximumRow, certificate_row
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import MAX_UNITS
from dprl.mechanisms.keystream import BLOCK_BYTES

LARGEST_SPREAD = 2**32
"""Largest spread of one unit's scores: those of all units then add up exactly in int64."""
_WORD = 1 << 64
_PER_BLOCK = BLOCK_BYTES // 8


@dataclass(frozen=True, kw_only=True)
class NoisyMaximum:
    """Choice of one candidate by scores that are summed over units.

    Only differences of scores matter, so a unit that moves all scores equally changes nothing. The sensitivity is
    therefore a unit's *spread*: its largest score minus its smallest. For scores between -D and D the spread is at most
    2 D. For scores that are never negative it is at most the largest score. If the scores of each unit have one sign,
    it is half of what their range says.

    Attributes:
        candidates: number of candidates.
        spread: largest spread of one unit; a larger spread is cut.
        epsilon: epsilon of the choice.

    Raises:
        DprlError: a number is out of its range.
    """

    candidates: int
    spread: int
    epsilon: float

    steps = 1
    dimension = 1

    def __post_init__(self) -> None:
        if not 1 <= self.candidates <= MOST_CANDIDATES:
            raise DprlError(f"A choice is among 1 to {MOST_CANDIDATES} candidates.")
        if not 1 <= self.spread <= LARGEST_SPREAD:
            raise DprlError(f"The spread of scores must be a whole number from 1 to {LARGEST_SPREAD}.")
        if not (math.isfinite(self.epsilon) and 1e-6 <= self.epsilon <= 1e3):
            raise DprlError("The epsilon of a choice must be between 1e-6 and 1000.")

    @property
    def rate(self) -> float:
        """Rate of the coins per point of a score; in exact arithmetic ``rate * spread`` is at most epsilon."""
        rate = self.epsilon / self.spread
        while Fraction(rate) * self.spread > Fraction(self.epsilon):
            rate = math.nextafter(rate, 0.0)
        return rate

    def event(self) -> events.DpEvent:
        """Return the privacy event that the accountant composes."""
        return events.pure(self.epsilon)

    def describe(self, purpose: str) -> dict[str, Any]:
        """Return this mechanism as a row of a certificate."""
        return certificate_row(MaximumRow, self, name=MAXIMUM, purpose=purpose)

    # --- what it does -----------------------------------------------------------------------------------------------

    def clipped(self, scores: Float[np.ndarray, "units candidates"]) -> Int[np.ndarray, "units candidates"]:
        """Round units' scores toward zero and cut their spread. The results lie between 0 and :attr:`spread`.

        If a score of a unit is not finite, all its scores become zero. Only differences matter, so the smallest score
        of each unit becomes zero.
        """
        sound = np.isfinite(scores).all(axis=1, keepdims=True)
        limit = float(LARGEST_SPREAD)
        points = np.trunc(np.clip(np.where(sound, scores, 0.0), -limit, limit)).astype(np.int64)
        return np.minimum(points - points.min(axis=1, keepdims=True), self.spread)

    def clipped_sum(
        self, scores: Float[np.ndarray, "units candidates"], included: np.ndarray
    ) -> Int[np.ndarray, " candidates"]:
        """Add up the clipped scores of one block of units, exactly and in any order.

        Args:
            scores: one row per unit; rows of units that are not ``included`` may hold anything.
            included: participation mask.
        """
        if len(scores) > MAX_UNITS:
            raise DprlError("Scores are added up over at most 2^28 units at a time.")
        present = np.asarray(included, dtype=bool)[:, None]
        total: Any = np.sum(np.where(present, self.clipped(scores), 0), axis=0, dtype=np.int64)
        return total

    def choose(self, noise: Any, total: Int[np.ndarray, " candidates"]) -> int:
        """Return the place of the candidate that wins.

        Args:
            noise: stream that only this mechanism uses, with :meth:`~dprl.mechanisms.noise.SecureNoise.words`.
            total: sum of the clipped scores of all units.
        """
        points = [int(point) for point in np.asarray(total)]
        if len(points) != self.candidates:
            raise ValueError("there must be a score for each candidate")
        rate, highest = Fraction(self.rate), max(points)
        heads = [
            place
            for place, point in enumerate(points)
            if heads_of_exponential(rate * (highest - point), words_of(noise, place))
        ]
        return heads[uniform_below(len(heads), words_of(noise, self.candidates))]


def words_of(noise: Any, step: int) -> Iterator[int]:
    """Yield 64-bit words that belong to one ``step`` of a stream, as many as are asked for."""
    block = 0
    while True:
        yield from map(int, noise.words(step, block, _PER_BLOCK))
        block += 1


def heads_of(probability: Fraction, words: Iterator[int]) -> bool:
    """Return true with exactly this probability: a uniform number is compared with it in digits of 64 bits."""
    numerator, denominator = probability.numerator, probability.denominator
    if numerator >= denominator:
        return True
    while True:
        digit, numerator = divmod(numerator * _WORD, denominator)
        word = next(words)
        if word != digit:
            return word < digit
        if numerator == 0:
            return False


def heads_of_exponential(exponent: Fraction, words: Iterator[int]) -> bool:
    """Return true with exactly the probability ``exp(-exponent)`` (Canonne, Kamath and Steinke 2020, Algorithm 1)."""
    while exponent > 1:
        if not _heads_below_one(Fraction(1), words):
            return False
        exponent -= 1
    return _heads_below_one(exponent, words)


def _heads_below_one(exponent: Fraction, words: Iterator[int]) -> bool:
    """Return the same for an exponent of at most one.

    Coins with the probabilities ``exponent / 1``, ``exponent / 2``, ... are tossed until one shows tails. The result is
    true if the number of tosses is odd.
    """
    turn = 1
    while heads_of(exponent / turn, words):
        turn += 1
    return turn % 2 == 1


def uniform_below(count: int, words: Iterator[int]) -> int:
    """Return a whole number below ``count``, exactly uniform: words beyond the last whole multiple are dropped."""
    whole = _WORD - _WORD % count
    return next(word for word in words if word < whole) % count
