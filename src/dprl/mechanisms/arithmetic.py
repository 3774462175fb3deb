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

from dprl import x64 as x64
from dprl.mechanisms.grid import clip_to_grid

Arithmetic = Literal["exact", "float", "unclipped", "plain"]
Participation = Literal["everyone", "Poisson", "once each"]
"""Which sums a unit takes part in: all, those of its coins, or those of the one batch that has its place."""
Parts = tuple[tuple[int, float], ...]
"""Dimension and clip norm of each part of a unit's vector, in order."""


def _each(vectors: jax.Array, parts: Parts) -> Iterator[tuple[jax.Array, float]]:
    """Return the columns of each part, and its clip norm."""
    start = 0
    for size, clip_norm in parts:
        yield (vectors if len(parts) == 1 else vectors[:, start : start + size]), clip_norm
        start += size


def _joined(found: list[jax.Array]) -> jax.Array:
    return found[0] if len(found) == 1 else jnp.concatenate(found, axis=-1)


def clipped_on_grid(vectors: jax.Array, parts: Parts, step: float) -> jax.Array:
    """Clip each part of each vector apart: ``(B, dimension)`` int64 grid points; a part that is not finite is zero."""
    return _joined([clip_to_grid(part, clip_norm, step) for part, clip_norm in _each(vectors, parts)])


def sum_on_grid(vectors: jax.Array, included: jax.Array, parts: Parts, step: float) -> jax.Array:
    """Add up the clipped vectors of those who are ``included``: ``(dimension,)`` int64 grid points, exact."""
    points = clipped_on_grid(vectors, parts, step)
    return jnp.sum(jnp.where(included[:, None], points, 0), axis=0)


def sum_in_float(vectors: jax.Array, included: jax.Array, parts: Parts, clips: bool = True) -> jax.Array:
    """Add up the same vectors in their own precision: ``(dimension,)`` float64, several times faster."""
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


def sum_plainly(vectors: jax.Array, included: jax.Array) -> jax.Array:
    """Add up the vectors as they are: ``(dimension,)`` float64."""
    return jnp.sum(jnp.where(included[:, None], vectors.astype(jnp.float64), 0.0), axis=0)


def listed(included: jax.Array, multiple: int) -> tuple[jax.Array, jax.Array]:
    """Return the indices of those ``included`` ``(units,)`` and how many they are.

    The list is filled up with the number ``units`` to a ``multiple``.
    """
    units = included.shape[0]
    order = jnp.flatnonzero(included, size=-(-units // multiple) * multiple, fill_value=units)
    return order, jnp.sum(included)


def few_listed(noise: Any, step: Any, units: int, rate: float, multiple: int) -> tuple[jax.Array, jax.Array] | None:
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
