"""Clipping and addition in a Gaussian sum: exact on a grid in a release, in single precision in experiments.

In a release a clipped vector is rounded toward zero onto multiples of a public power of two, so its norm cannot grow.
Sums of int64 are exact, hence independent of the order of the units and of how they are spread over blocks or machines.
See docs/proofs/clipped-gaussian-sum.md.

Only the sums of :func:`sum_on_grid` have an exact sensitivity. The other sums are as fast or, for oracles, as accurate
as possible, and nothing that is made with them is private.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dprl import x64 as x64
from dprl.arrays import AnyArray, Mask, Step, module_of
from dprl.errors import DprlError

Arithmetic = Literal["exact", "float", "unclipped", "plain"]
Participation = Literal["everyone", "Poisson", "once each"]
"""Sums that a unit takes part in: all, those of its coins, or those of the one batch that has its place."""
Members = tuple[Int[Array, " places"], Int[Array, ""]]
"""Indices of units, filled up with the number of all units; and how many they are."""
Parts = tuple[tuple[int, float], ...]
"""Dimension and clip norm of each part of a unit's vector, in order."""

# --- the grid -----------------------------------------------------------------------------------------------------

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


# --- sums of units' vectors ---------------------------------------------------------------------------------------


def _each(vectors: Float[AnyArray, "units dim"], parts: Parts) -> Iterator[tuple[Float[AnyArray, "units part"], float]]:
    """Yield the columns of each part, and its clip norm."""
    start = 0
    for size, clip_norm in parts:
        yield (vectors if len(parts) == 1 else vectors[:, start : start + size]), clip_norm
        start += size


def _joined(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else module_of(found[0]).concatenate(found, axis=-1)


def clipped_on_grid(vectors: Float[AnyArray, "units dim"], parts: Parts, step: float) -> Int[AnyArray, "units dim"]:
    """Clip each part of each vector separately and return int64 grid points. A part that is not finite becomes zero."""
    return _joined([clip_to_grid(part, clip_norm, step) for part, clip_norm in _each(vectors, parts)])


def sum_on_grid(
    vectors: Float[AnyArray, "units dim"], included: Bool[AnyArray, " units"], parts: Parts, step: float
) -> Int[AnyArray, " dim"]:
    """Return the exact sum, in int64 grid points, of the clipped vectors of the ``included`` units."""
    xp, points = module_of(vectors), clipped_on_grid(vectors, parts, step)
    return xp.sum(xp.where(included[:, None], points, 0), axis=0)


def sum_in_float(
    vectors: Float[Array, "units dim"], included: Bool[Array, " units"], parts: Parts, clips: bool = True
) -> Float[Array, " dim"]:
    """Return the sum of :func:`sum_on_grid` in the vectors' own precision, which is several times faster."""
    found = []
    for part, clip_norm in _each(vectors, parts):
        square = jnp.sum(part * part, axis=1)
        # a part that is not finite contributes nothing, as on the grid
        finite = jnp.isfinite(square)
        # 1e-20: its power -3/2, which the derivative has, is finite in single precision
        scale = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-20))) if clips else 1.0
        scale = jnp.where(included & finite, scale, 0.0).astype(part.dtype)
        found.append((scale @ jnp.where(finite[:, None], part, 0.0)).astype(jnp.float64))
    return _joined(found)


def sum_plainly(vectors: Float[Array, "units dim"], included: Bool[Array, " units"]) -> Float[Array, " dim"]:
    """Return the sum of the ``included`` vectors in float64, without clipping."""
    return jnp.sum(jnp.where(included[:, None], vectors.astype(jnp.float64), 0.0), axis=0)


def member_list(included: Mask, multiple: int) -> Members:
    """Return the indices of the ``included`` units, and how many there are.

    The list is filled up to a multiple of ``multiple`` with the number of all units, which is no unit's index.
    """
    units = included.shape[0]
    order = jnp.flatnonzero(included, size=-(-units // multiple) * multiple, fill_value=units)
    return order, jnp.sum(included)


def small_member_list(noise: Any, step: Step, units: int, rate: float, multiple: int) -> Members | None:
    """Draw a small sample and list it as :func:`member_list` does, at its own cost; return None if it is not small.

    The list has room for the whole sample in all but one of 10^15 steps. What does not fit is left out, so this is for
    experiments only.
    """
    mean = units * rate
    longest = -(-math.ceil(mean + 8.0 * math.sqrt(mean) + 16.0) // multiple) * multiple
    if 2 * longest > units:
        return None
    places = jnp.cumsum(noise.gaps(step, longest, rate) + 1.0) - 1.0
    order = jnp.minimum(places, float(units)).astype(jnp.int32)
    return order, jnp.sum(order < units)
