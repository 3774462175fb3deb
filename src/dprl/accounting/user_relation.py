"""Neighbouring sets of users, where every user of a policy takes part once, and how far one user moves the sums.

Users stand in public slots, and slots in public batches. A relation says what the user of one slot may be exchanged
for. Noise may be correlated over the rounds, by a lower-triangular Toeplitz *strategy* with first column
``c_0 = 1, c_1, ... >= 0``. Proofs: docs/proofs/one-pass-users.md and correlated-noise.md.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Literal

from dprl.errors import DprlError, require

UserRelation = Literal["zero-out", "replace one"]
RELATION_WORDS: dict[str, str] = {"zero-out": "zero out one", "replace one": "replace one"}
"""Words in which a certificate and a ledger state each relation."""
CLIPS_MOVED: dict[str, float] = {"zero-out": 1.0, "replace one": 2.0}
"""Largest number of clip norms by which one user moves a sum, under each relation."""
USER_SUMS = "Gaussian noise on sums over users"
"""Name of the mechanism in a certificate."""
MAX_STEPS = 2**20

_BANDED = re.compile(r"banded:([1-9][0-9]{0,6})")
_REACH = 13.0  # every secure draw lies within this many standard deviations
_ROUND = 2.0**-32  # largest grid step over the clip norm
_LARGEST = 2.0**28  # most noise over what one user moves, which is below 2**34 grid points: noise fits into int64
_ROOM = 1.01  # rounding may raise a column's norm by this factor; where it would add more, nothing is released


def bands_of(noise: str, steps: int) -> int:
    """Return how many coefficients of the strategy ``noise`` are not zero, among ``steps`` rounds.

    Args:
        noise: ``independent``, ``square-root``, or ``banded:B`` for the first B coefficients of the square root.
        steps: number of rounds.

    Raises:
        DprlError: there is no such noise, or the number of steps is out of range.
    """
    require(1 <= steps <= MAX_STEPS, f"The number of steps must be between 1 and {MAX_STEPS}.")
    if noise == "independent":
        return 1
    if noise == "square-root":
        return steps
    match = _BANDED.fullmatch(noise) if isinstance(noise, str) else None
    if match is None:
        raise DprlError("The noise must be independent, square-root or banded:B, with B a whole number from 1.")
    return min(int(match.group(1)), steps)


def coefficients_of(noise: str, steps: int) -> list[float]:
    """Return the first column of the strategy, as far as it is not zero: ``c_k = binom(2k, k) / 4^k``.

    These are the coefficients of ``(1 - x)^(-1/2)``, which belong to the square root of the matrix of prefix sums.

    >>> coefficients_of("banded:3", 10)
    [1.0, 0.5, 0.375]
    """
    found = [1.0]
    for k in range(1, bands_of(noise, steps)):
        found.append(found[-1] * (2 * k - 1) / (2 * k))
    return found


@lru_cache(maxsize=256)  # called at every step
def column_norm_of(noise: str, steps: int, dimension: int, noise_multiplier: float) -> float:
    """Return how far one user moves all rounds together, over how far the user moves the sum of their own round.

    This is the L2 norm of the strategy's first column, with what rounding to the grid and sums in float64 can add to
    the norm; it is 1 for independent noise. See docs/proofs/correlated-noise.md, "Rounding".

    Args:
        noise, steps: noise and number of rounds of the strategy, as for :func:`bands_of`.
        dimension: number of coordinates of a sum.
        noise_multiplier: standard deviation of a draw, divided by the sensitivity and by this norm.

    Raises:
        DprlError: rounding would add more than a hundredth, or the noise would be too large to be exact.
    """
    column = coefficients_of(noise, steps)
    bands = len(column)
    if bands == 1:
        return 1.0
    plain = math.sqrt(math.fsum(c * c for c in column))
    # largest noise in any round, over what one user moves: the coefficients of the inverse of the whole square root
    # have absolute values that add up to at most 2, those of the inverse of a banded one are at most 1 each
    largest = 1.0 + (2.0 if bands == steps else steps) * _REACH * noise_multiplier * plain * _ROOM
    of_sums = 2.0 * (bands + 1) * 2.0**-53 * math.fsum(column) * largest
    extra = math.sqrt(dimension) * (_ROUND + of_sums)
    found = math.sqrt(1.0 + math.fsum((c + extra) ** 2 for c in column[1:]))
    exact = found <= plain * _ROOM and largest <= _LARGEST
    require(exact, "Correlated noise over so many steps and coordinates is not exact enough: use banded noise.")
    return found
