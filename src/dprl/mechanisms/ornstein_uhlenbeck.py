"""Stationary Ornstein-Uhlenbeck path on a grid as a stateless function: exact in law, at the same cost everywhere.

A value is made of the normals of the two ends and of the middles of ever smaller intervals around the position. Each
middle is drawn given the two ends of its interval, which by the Markov property is the same as given all values drawn
before. In several dimensions the path is the tensor product, with covariance ``exp(-decay |x - y|_1)``. Proof:
docs/proofs/functional-noise.md, "The path". Paper 001, Algorithm 2 and Eq. (2), corrected: docs/papers/001.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting.reward_relation import DEPTHS, LARGEST_DECAY, answer_step
from dprl.errors import DprlError
from dprl.mechanisms.node_noise import NodeNoise

_CLIP = 12.0
"""Answers are clipped so many standard deviations outside of the bounds of a reward."""
_COARSEST = 7  # for positions in more dimensions than a path has, which only name states


class PathParameters(NamedTuple):
    """Numbers of a path, passed as data so that one compiled program serves every budget.

    Attributes:
        mean: ``(D,)`` weight of either neighbour at each of the D levels of halving.
        spread: ``(D,)`` standard deviation given both neighbours, for a path of variance one.
        first, second: weight and standard deviation of the second end given the first.
        std: standard deviation of the path.
        step: spacing of the answers, which are its multiples.
        low, high: bounds to which answers are clipped after the path is added.
    """

    mean: Any
    spread: Any
    first: Any
    second: Any
    std: Any
    step: Any
    low: Any
    high: Any


def parameters(decay: float, depth: int, std: float, low: float, high: float) -> PathParameters:
    """Return the numbers of a path with kernel ``std^2 exp(-decay |x - y|)`` on the multiples of ``2^-depth``.

    Args:
        decay: above 0.
        depth: levels of halving D, 1 to 24.
        std: standard deviation of the path, in units of the reward; above 0.
        low, high: bounds of the rewards to which the path is added.
    """
    if not (0.0 < decay <= LARGEST_DECAY):
        raise DprlError(f"The decay of a path must be above 0 and at most {LARGEST_DECAY:.0f}.")
    if not (math.isfinite(std) and std > 0.0 and math.isfinite(low) and low <= high < math.inf):
        raise DprlError("A path needs a positive standard deviation and finite bounds of the reward.")
    if not 1 <= depth <= 24:
        raise ValueError("depth must be between 1 and 24")
    gaps = decay * 2.0 ** -np.arange(1.0, depth + 1.0)
    return PathParameters(
        # e^-g / (1 + e^-2g) and (1 - e^-2g) / (1 + e^-2g), in forms that keep every digit
        mean=jnp.asarray(0.5 / np.cosh(np.minimum(gaps, 700.0))),
        spread=jnp.asarray(np.sqrt(np.tanh(gaps))),
        first=jnp.float64(math.exp(-decay)),
        second=jnp.float64(math.sqrt(-math.expm1(-2.0 * decay))),
        std=jnp.float64(std),
        step=jnp.float64(answer_step(std)),
        low=jnp.float64(low - _CLIP * std),
        high=jnp.float64(high + _CLIP * std),
    )


def unit_path(noise: NodeNoise, p: PathParameters, positions: jax.Array, path: jax.Array) -> jax.Array:
    """Return the path of variance one at grid positions. The same position and path always give the same value.

    Args:
        noise: source of the path's normals, made from a stream that only one mechanism uses.
        positions: ``(N, d)`` int64 from 0 to ``2^D``, d from 1 to 3.
        path: ``(N,)`` numbers of paths, below 2^32; different paths are independent.

    Returns:
        ``(N,)`` float64.
    """
    depth, dimensions = p.mean.shape[0], positions.shape[1]
    nodes = [_nodes(positions[:, i], depth) for i in range(dimensions)]
    # one leading axis per dimension, positions last: quickest for compiled code
    axes = range(dimensions)
    apart = tuple(jnp.expand_dims(n, [j for j in axes if j != i]) for i, n in enumerate(nodes))
    values = noise.normals(apart, path)
    for i in range(dimensions):
        values = _descend(p, positions[:, i], values)
    return values


def _nodes(position: jax.Array, depth: int) -> jax.Array:
    """Return ``(depth + 2, N)``: both ends, then the middles of ever smaller intervals around each position."""
    row = jnp.arange(depth + 2)[:, None]
    shift = jnp.clip(depth + 2 - row, 1, depth)
    inside = jnp.minimum(position, 2**depth - 1)[None]
    middles = ((inside >> shift) << shift) + (1 << (shift - 1))
    # not `concatenate`: if the path is a constant, the compiler would take minutes
    return jnp.where(row == 0, 0, jnp.where(row == 1, 2**depth, middles))


def _descend(p: PathParameters, position: jax.Array, normals: jax.Array) -> jax.Array:
    """Return ``(..., N)``: the values at each position, from the ``(depth + 2, ..., N)`` normals of its nodes."""
    depth = p.mean.shape[0]
    inside = jnp.minimum(position, 2**depth - 1)
    left = normals[0]
    right = end = p.first * left + p.second * normals[1]
    for level in range(depth):
        middle = p.mean[level] * (left + right) + p.spread[level] * normals[2 + level]
        goes_right = (inside >> (depth - 1 - level)) & 1 == 1
        left, right = jnp.where(goes_right, middle, left), jnp.where(goes_right, right, middle)
    return jnp.where(position == 2**depth, end, left)


def positions_of(units: Any) -> Any:
    """Return ``(N, d)`` int64: positions on a path's grid, for observations scaled to [0, 1]."""
    xp = np if isinstance(units, np.ndarray) else jnp
    return xp.round(units * 2.0 ** DEPTHS.get(units.shape[1], _COARSEST)).astype(np.int64)
