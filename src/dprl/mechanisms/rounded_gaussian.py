"""Samples of round(N(0, std^2)) on the integers, exact to 2^-49, from random 64-bit words.

Bins of a power-of-two width W cover [-12.5 std, 12.5 std]. A first word draws a bin by integer weights, which are an
upper envelope of the density. A second word draws a point in the bin. The point is accepted with probability density /
envelope; the first word decides this by its place among the bin's words. Every integer out to some 9 std is reachable
and no floating-point gap is visible, unlike in a scaled float64 normal.

A table decides for 97 words in 100 without a search or an exponential, and never otherwise than these would. The bound
on the total variation distance is derived in docs/proofs/rounded-gaussian.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from dprl.accounting.events import SAMPLER_TOTAL_VARIATION

TOTAL_VARIATION = SAMPLER_TOTAL_VARIATION
"""Distance of one draw from round(N(0, std^2)), for ``std >= MIN_STD``."""
MIN_STD = 2.0**24
MAX_STD = 2.0**44
WORDS = 2
"""Words of 64 bits that one proposal takes."""
_TAIL = 12.5
_BITS_OF_BINS = 5  # std / W is between 32 and 64
_CELL_BITS = 16  # leading bits of the first word: the sign, and 15 of the 63 bits that choose the bin
_UNKNOWN = 1023  # a number that no bin has: there are at most 800 bins on a side
_DEGREE = 14  # degree of the exponential's Taylor polynomial
_FEW = 16  # for fewer numbers Python is faster than NumPy; both compute in float64, one operation at a time


@dataclass(frozen=True)
class Table:
    """Constants that the standard deviation fixes. Bin ``b`` is ``[b W, (b + 1) W)``, from ``-bins`` to ``bins - 1``.

    Attributes:
        width_bits: log2 of the bin width W.
        thresholds: ``(bins,)`` uint64, cumulative weights of the bins 0, 1, ... (and -1, -2, ...), of 2^63.
        guide: ``(65536,)`` int16: for all first words with the same leading 16 bits their bin, if they have only one
            and are accepted wherever in the bin the point lies; otherwise 1023.
        scale: ``-1 / (2 std^2)``.
    """

    width_bits: int
    thresholds: np.ndarray
    guide: np.ndarray
    scale: float


@lru_cache(maxsize=64)
def table(std: float) -> Table:
    """Return the table of ``std``, a standard deviation in grid points between 2**24 and 2**44."""
    if not MIN_STD <= std <= MAX_STD:
        raise ValueError("std is outside the range for which the sampler's error is proved")
    width_bits = math.floor(math.log2(std)) - _BITS_OF_BINS
    width = 1 << width_bits
    bins = math.ceil(_TAIL * std / width)
    with localcontext() as context:
        context.prec = 50
        scale = 2 * Decimal(std) ** 2
        envelope = [(-(Decimal(j * width) ** 2) / scale).exp() for j in range(bins)]
        total = sum(envelope)
        running, thresholds = Decimal(0), []
        for value in envelope:
            running += value
            thresholds.append(int((running / total * (1 << 63)).to_integral_value()))
        thresholds[-1] = 1 << 63
        sure, low = [], 0  # the words of a bin that are accepted even at its far end, by a margin
        for j, high in enumerate(thresholds):
            least = (-Decimal((2 * j + 1) * width**2) / scale).exp()
            sure.append(low + int((high - low) * least * (1 - Decimal(2) ** -49)))
            low = high
    limits = np.array(thresholds, dtype=np.uint64)
    return Table(width_bits, limits, _guide(limits, np.array(sure, dtype=np.uint64)), -1.0 / (2.0 * std * std))


def _guide(thresholds: np.ndarray, sure: np.ndarray) -> np.ndarray:
    size = np.uint64(1 << (64 - _CELL_BITS))
    lowest = np.arange(1 << (_CELL_BITS - 1), dtype=np.uint64) * size
    index = np.searchsorted(thresholds, lowest, side="right")
    known = lowest + (size - np.uint64(1)) < sure[index]
    return np.concatenate([np.where(known, index, _UNKNOWN), np.where(known, -1 - index, _UNKNOWN)]).astype(np.int16)


def propose(words: np.ndarray, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return a proposal of round(N(0, std^2)) for every two words, and which proposals are rejected (some 1%).

    The other proposals are independent draws. The computation uses only integers, and additions and multiplications of
    float64 one at a time, so its results are the same on every machine.

    Args:
        words: ``(rows, 2, P)`` uniform uint64, contiguous.
        table: table of the standard deviation.

    Returns:
        ``(rows, P)`` int64 values, and the places of the rejected values in the flattened array, in order.
    """
    count = words.shape[-1]
    # int64 from here on: the shifted numbers are below 2^63, and unsigned numbers convert slowly
    bins = table.guide[(words[:, 0] >> np.uint64(64 - _CELL_BITS)).view(np.int64)]
    values = words[:, 1].view("<i8") & ((1 << table.width_bits) - 1)
    values += bins.astype(np.int64) << table.width_bits

    doubtful = np.flatnonzero(bins == _UNKNOWN)
    place = doubtful + doubtful // count * count
    flat = words.reshape(-1)
    exact, accepted = _decide(flat[place], flat[place + count], table)
    values.reshape(-1)[doubtful] = exact
    return values, doubtful[~accepted]


def _decide(first: np.ndarray, second: np.ndarray, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return values of proposals and whether they are accepted, each from its two words without the table's guide."""
    sign = (first >> np.uint64(63)).view(np.int64)
    rest = first & np.uint64(2**63 - 1)
    index = np.searchsorted(table.thresholds, rest, side="right")
    high = table.thresholds[index]
    low = np.where(index > 0, table.thresholds[index - 1], np.uint64(0))
    place = second.view("<i8") & ((1 << table.width_bits) - 1)
    values = ((index ^ -sign) << table.width_bits) + place  # bin -1 - j mirrors bin j
    edge = index << table.width_bits
    beyond = np.abs(values) - edge
    exponent = beyond.astype(np.float64) * (beyond + 2 * edge).astype(np.float64) * table.scale
    limit = (high - low).astype(np.float64) * exp_near_zero(exponent)
    return values, (rest - low).astype(np.float64) < limit


_COEFFICIENTS = [1.0 / math.factorial(k) for k in range(_DEGREE, -1, -1)]


def exp_near_zero(x: np.ndarray) -> np.ndarray:
    """Return ``exp(x)`` for ``x`` in [-0.392, 0], within 1.26 units of 2^-53, with the same bits on every machine."""
    if x.size < _FEW:
        return np.array([_horner(v, 1.0) for v in x.tolist()])
    return _horner(x, np.ones_like(x))


def _horner(x: Any, one: Any) -> Any:
    result = _COEFFICIENTS[0] * one
    for coefficient in _COEFFICIENTS[1:]:
        result *= x
        result += coefficient
    return result
