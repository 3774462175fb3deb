"""Release arithmetic: from a unit's real vector to integer grid points whose norm is known exactly.

A clipped vector is rounded toward zero onto multiples of a public power of two, so its norm cannot grow. Sums of int64
are exact, hence independent of the order of the units and of how they are spread over blocks or machines. See
docs/proofs/clipped-gaussian-sum.md.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from dprl import x64 as x64
from dprl.arrays import AnyArray, module_of
from dprl.errors import DprlError

CLIP_BITS = 32
"""A clip norm is between 2**32 and 2**33 grid points: fine enough that rounding is far below any noise."""
MAX_UNITS = 2**28
"""Largest number of units whose clipped vectors, and the noise, still sum without overflow in int64."""
# Relative error of a float64 norm over up to 2**22 coordinates is below 2**-31; clipping a hair lower absorbs it.
_SLACK = 1.0 - 2.0**-30
MAX_DIMENSION = 2**22


def grid_step(clip_norm: float) -> float:
    """Return the grid's spacing: the power of two with ``2**32 <= clip_norm / step < 2**33``.

    >>> 2**32 <= 0.7 / grid_step(0.7) < 2**33
    True
    """
    # Outside this range squared norms leave float64, and a vector that should be clipped would pass as zero.
    if not 1e-100 <= clip_norm <= 1e100:
        raise DprlError("The clip norm must be a number between 1e-100 and 1e100.")
    return math.ldexp(1.0, math.frexp(clip_norm)[1] - 1 - CLIP_BITS)


def clip_to_grid(
    vectors: Float[AnyArray, "units dim"], clip_norm: float, step: float | None = None
) -> Int[AnyArray, "units dim"]:
    """Clip each row to L2 norm ``clip_norm`` and round it toward zero onto the grid.

    A row with any NaN, infinity or overflow becomes zero: it contributes nothing, and changes nothing else.

    Args:
        vectors: ``(units, dimension)``, any float type: a NumPy array if nothing is to be compiled, or a JAX array.
        clip_norm: public L2 bound.
        step: spacing of another grid, a power of two: the grid of the whole vector if the rows are only a part of it.

    Returns:
        ``(units, dimension)`` int64. The exact norm of each row is at most ``clip_norm`` divided by the grid's spacing,
        which is ``grid_step(clip_norm)`` if no other is given.
    """
    xp, x = module_of(vectors), vectors.astype(np.float64)
    with np.errstate(all="ignore"):  # a warning would tell that somebody's row overflows
        norm = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
        finite = xp.isfinite(norm)
        factor = xp.minimum(1.0, clip_norm * _SLACK / norm) * (1.0 / (step or grid_step(clip_norm)))
    # `where` after the product would let 0 * inf through; zero the row first.
    return xp.trunc(xp.where(finite, x, 0.0) * xp.where(finite, factor, 0.0)).astype(np.int64)
