"""How a Gaussian sum counts: exactly on a grid in a release, in single precision in experiments, plainly in oracles.

Only what :func:`sum_on_grid` gives has an exact sensitivity. The others are as fast or as true as can be, and nothing
that is made with them is private.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dprl import x64 as x64
from dprl.arrays import AnyArray, Mask, Step, module_of
from dprl.mechanisms.grid import clip_to_grid

Arithmetic = Literal["exact", "float", "unclipped", "plain"]
Participation = Literal["everyone", "Poisson", "once each"]
"""Which sums a unit takes part in: all, those of its coins, or those of the one batch that has its place."""
Members = tuple[Int[Array, " places"], Int[Array, ""]]
"""Indices of units, filled up with the number of all units; and how many they are."""
Parts = tuple[tuple[int, float], ...]
"""Dimension and clip norm of each part of a unit's vector, in order."""


def _each(vectors: Float[AnyArray, "units dim"], parts: Parts) -> Iterator[tuple[Float[AnyArray, "units part"], float]]:
    """Return the columns of each part, and its clip norm."""
    start = 0
    for size, clip_norm in parts:
        yield (vectors if len(parts) == 1 else vectors[:, start : start + size]), clip_norm
        start += size


def _joined(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else module_of(found[0]).concatenate(found, axis=-1)


def clipped_on_grid(vectors: Float[AnyArray, "units dim"], parts: Parts, step: float) -> Int[AnyArray, "units dim"]:
    """Clip each part of each vector apart, and give int64 grid points. A part that is not finite becomes zero."""
    return _joined([clip_to_grid(part, clip_norm, step) for part, clip_norm in _each(vectors, parts)])


def sum_on_grid(
    vectors: Float[AnyArray, "units dim"], included: Bool[AnyArray, " units"], parts: Parts, step: float
) -> Int[AnyArray, " dim"]:
    """Add up the clipped vectors of those who are ``included``, exactly, in int64 grid points."""
    xp, points = module_of(vectors), clipped_on_grid(vectors, parts, step)
    return xp.sum(xp.where(included[:, None], points, 0), axis=0)


def sum_in_float(
    vectors: Float[Array, "units dim"], included: Bool[Array, " units"], parts: Parts, clips: bool = True
) -> Float[Array, " dim"]:
    """Add up the same vectors in their own precision, which is several times faster."""
    found = []
    for part, clip_norm in _each(vectors, parts):
        square = jnp.sum(part * part, axis=1)
        # what is not finite contributes nothing, as on the grid
        finite = jnp.isfinite(square)
        # 1e-20: its power -3/2, of the derivative, is finite in single precision
        scale = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-20))) if clips else 1.0
        scale = jnp.where(included & finite, scale, 0.0).astype(part.dtype)
        found.append((scale @ jnp.where(finite[:, None], part, 0.0)).astype(jnp.float64))
    return _joined(found)


def sum_plainly(vectors: Float[Array, "units dim"], included: Bool[Array, " units"]) -> Float[Array, " dim"]:
    """Add up the vectors as they are, in float64."""
    return jnp.sum(jnp.where(included[:, None], vectors.astype(jnp.float64), 0.0), axis=0)


def listed(included: Mask, multiple: int) -> Members:
    """Return the indices of those who are ``included``, and how many they are.

    The list is filled up with the number ``units`` to a ``multiple``.
    """
    units = included.shape[0]
    order = jnp.flatnonzero(included, size=-(-units // multiple) * multiple, fill_value=units)
    return order, jnp.sum(included)


def few_listed(noise: Any, step: Step, units: int, rate: float, multiple: int) -> Members | None:
    """List few among many at the cost of few, as :func:`listed` does; None where they are not few.

    The list is as long as a batch is in all but one of 10^15 steps; what would follow is left out, so it is for
    experiments only.
    """
    mean = units * rate
    longest = -(-math.ceil(mean + 8.0 * math.sqrt(mean) + 16.0) // multiple) * multiple
    if 2 * longest > units:
        return None
    places = jnp.cumsum(noise.gaps(step, longest, rate) + 1.0) - 1.0
    order = jnp.minimum(places, float(units)).astype(jnp.int32)
    return order, jnp.sum(order < units)
