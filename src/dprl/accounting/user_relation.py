"""When every user of a policy takes part once: which two sets of users are neighbours, and what one user moves.

Users stand in public slots, and slots in public batches; a relation says what one slot may be exchanged for. Noise may
be correlated over the rounds: a lower-triangular Toeplitz *strategy* with first column ``c_0 = 1, c_1, ... >= 0`` says
how. Proofs: docs/proofs/one-pass-users.md and correlated-noise.md.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Literal

from dprl.errors import DprlError, require

Relation = Literal["zero-out", "replace one"]
WORDS: dict[str, str] = {"zero-out": "zero out one", "replace one": "replace one"}
"""A relation as a certificate and a ledger call it."""
CLIPS: dict[str, float] = {"zero-out": 1.0, "replace one": 2.0}
"""Clip norms that one user moves a sum by, at most."""
MECHANISM = "Gaussian noise on sums over users"
"""Name of the mechanism in a certificate."""
MAX_STEPS = 2**20

_BANDED = re.compile(r"banded:([1-9][0-9]{0,6})")
_REACH = 13.0  # no secure draw lies as many standard deviations out
_ROUND = 2.0**-32  # a grid point over the clip norm, at most
_LARGEST = 2.0**28  # of the noise over what one user moves, below 2**34 grid points: it fits into int64
_ROOM = 1.01  # rounding may add so much to a column's norm; where it would add more, nothing is released


def bands_of(noise: str, steps: int) -> int:
    """Return how many coefficients of the strategy ``noise`` are not zero, among ``steps`` rounds.

    Args:
        noise: ``independent``, ``square-root``, or ``banded:B`` for the first B coefficients of the square root.
        steps: number of rounds.

    Raises:
        DprlError: no such noise.
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

    Those are the coefficients of ``(1 - x)^(-1/2)``: the square root of the matrix of prefix sums.

    >>> coefficients_of("banded:3", 10)
    [1.0, 0.5, 0.375]
    """
    found = [1.0]
    for k in range(1, bands_of(noise, steps)):
        found.append(found[-1] * (2 * k - 1) / (2 * k))
    return found


@lru_cache(maxsize=256)  # asked at every step
def column_norm_of(noise: str, steps: int, dimension: int, noise_multiplier: float) -> float:
    """Return how far one user of one round moves all rounds together, over how far it moves the sum of its own.

    The L2 norm of the strategy's first column, with what rounding to the grid and sums in float64 can add to it; 1 for
    independent noise. docs/proofs/correlated-noise.md, "Rounding".

    Args:
        noise, steps: of the strategy.
        dimension: coordinates of a sum.
        noise_multiplier: standard deviation of a draw over the sensitivity and this norm.

    Raises:
        DprlError: rounding would add a hundredth or more.
    """
    column = coefficients_of(noise, steps)
    bands = len(column)
    if bands == 1:
        return 1.0
    plain = math.sqrt(math.fsum(c * c for c in column))
    # of the noise in any round, over what one user moves: the inverse of the whole square root has coefficients whose
    # absolute values add up to 2 at most, that of a banded one coefficients of at most 1 each
    largest = 1.0 + (2.0 if bands == steps else steps) * _REACH * noise_multiplier * plain * _ROOM
    of_sums = 2.0 * (bands + 1) * 2.0**-53 * math.fsum(column) * largest
    extra = math.sqrt(dimension) * (_ROUND + of_sums)
    found = math.sqrt(1.0 + math.fsum((c + extra) ** 2 for c in column[1:]))
    exact = found <= plain * _ROOM and largest <= _LARGEST
    require(exact, "Correlated noise over so many steps and coordinates is not exact enough: use banded noise.")
    return found
