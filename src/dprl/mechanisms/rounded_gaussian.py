"""Exact-to-2^-49 samples of round(N(0, std^2)) on the integers, from a stream of random 64-bit words.

Bins of a power-of-two width W cover [-12.5 std, 12.5 std]. A bin is drawn by integer weights (its upper envelope), a
point in it by w random bits, and the point is accepted with probability density / envelope. Every integer out to some
9 std is reachable and no floating-point gap is visible, unlike in a scaled float64 normal.
The bound on the total variation distance is derived in docs/proofs/rounded-gaussian.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from dprl.accounting.events import SAMPLER_TOTAL_VARIATION

TOTAL_VARIATION = SAMPLER_TOTAL_VARIATION
"""Distance of one draw from round(N(0, std^2)), for ``std >= MIN_STD``."""
MIN_STD = 2.0**24
MAX_STD = 2.0**44
_TAIL = 12.5
_BITS_OF_BINS = 5  # std / W is between 32 and 64

Words = Callable[[int], np.ndarray]


@lru_cache(maxsize=64)
def _table(std: float) -> tuple[np.ndarray, int]:
    """Cumulative 63-bit weights of the bins on one side, and log2 of the bin width."""
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
    return np.array(thresholds, dtype=np.uint64), width_bits


def rounded_gaussian(words: Words, count: int, std: float) -> np.ndarray:
    """``(count,)`` int64 draws of round(N(0, std^2)).

    Args:
        words: gives that many fresh uniform uint64; consumed in a fixed order, so the draw is a function of it.
        count: number of draws.
        std: standard deviation in grid points, between 2**24 and 2**44.
    """
    if not MIN_STD <= std <= MAX_STD:
        raise ValueError("std is outside the range for which the sampler's error is proved")
    thresholds, width_bits = _table(std)
    mask, inverse = np.uint64((1 << width_bits) - 1), 1.0 / (2.0 * std * std)
    out = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        # about 1% are rejected; ask for a little more than is missing, in blocks that bound the memory.
        ask = min(int((count - filled) * 1.05) + 8, 1 << 18)
        first, second, third = words(3 * ask).reshape(3, ask)
        index = np.searchsorted(thresholds, first >> np.uint64(1), side="right").astype(np.int64)
        negative = (first & np.uint64(1)).astype(np.int64)
        edge = index << width_bits
        magnitude = edge + (second & mask).astype(np.int64)
        # a negative sign means -1 - magnitude, so that zero is not drawn twice
        distance = magnitude + negative
        exponent = (distance - edge).astype(np.float64) * (distance + edge).astype(np.float64) * inverse
        accepted = (third >> np.uint64(11)).astype(np.float64) * 2.0**-53 < np.exp(-exponent)
        values = np.where(negative == 1, -1 - magnitude, magnitude)[accepted]
        take = min(len(values), count - filled)
        out[filled : filled + take] = values[:take]
        filled += take
    return out
