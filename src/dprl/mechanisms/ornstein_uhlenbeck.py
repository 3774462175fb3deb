"""Stationary Ornstein-Uhlenbeck path on a grid as a stateless function: exact in law, at the same cost everywhere.

A value is made of the normals of the two ends and of the middles of ever smaller intervals around the position. Each
middle is drawn given the two ends of its interval, which by the Markov property is the same as given all values drawn
before. In several dimensions the path is the tensor product, with covariance ``exp(-decay |x - y|_1)``. Proof:
docs/proofs/functional-noise.md, "The path". Paper 001, Algorithm 2 and Eq. (2), corrected: docs/papers/001.md.

The normal of a node (an end or a middle) is a function of the key, the node and the path. There is no state, so a path
can be asked anywhere, in any order and any number of times, inside compiled loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from dprl import x64 as x64
from dprl.accounting.reward_relation import DEPTHS, LARGEST_DECAY, answer_step
from dprl.errors import DprlError
from dprl.mechanisms import keystream, threefry

_KEY_WORDS = 8
_NODES = 3
_CLIP = 12.0
"""Answers are clipped so many standard deviations outside of the bounds of a reward."""
_COARSEST = 7  # for positions in more dimensions than a path has, which only name states


# --- normals of the nodes -----------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NodeNoise:
    """Standard normals by address, for a path.

    Use :meth:`SecureNoise.nodes` or :meth:`SeededNoise.nodes`. The key is never printed.

    Attributes:
        key: ``(8,)`` uint32 for ChaCha20 in a release, ``(2,)`` uint32 for threefry everywhere else; the length
            decides. Pass the whole object to a compiled function. If the function closed over the key, the key would be
            part of its program.
    """

    key: Any = field(repr=False)

    @property
    def secure(self) -> bool:
        """Whether the numbers come from ChaCha20."""
        return self.key.shape[-1] == _KEY_WORDS

    def normals(self, nodes: tuple[jax.Array, ...], path: jax.Array) -> jax.Array:
        """Return independent standard normals, one for each different (nodes, path).

        Args:
            nodes: one to three arrays that broadcast, of whole numbers below 2^32 that together name a node. Their
                number must always be the same for one key; otherwise two addresses could coincide.
            path: number of the path, below 2^32.

        Returns:
            float64, of the shape to which ``nodes`` and ``path`` broadcast.
        """
        if not 1 <= len(nodes) <= _NODES:
            raise ValueError("a node has one to three numbers")
        return _normals(self, tuple(jnp.asarray(n) for n in nodes), jnp.asarray(path))


# Compiled when called directly; inlined when called in a traced function.
@partial(jax.jit, inline=True)
def _normals(noise: NodeNoise, nodes: tuple[jax.Array, ...], path: jax.Array) -> jax.Array:
    address = jnp.broadcast_arrays(*(n.astype(jnp.uint32) for n in (*nodes, path)))
    if not noise.secure:
        # Every number before the last two goes into the key; the last two are the counter under that key.
        key = (noise.key[0], noise.key[1])
        for number in address[:-2]:
            key = threefry.threefry2x32(key, number, jnp.zeros_like(number))
        return threefry.normal_of(threefry.threefry2x32(key, address[-2], address[-1])[0]).astype(jnp.float64)
    none = jnp.zeros_like(address[0])
    first, second, third = (*address[:-1], *(none,) * (_NODES - len(nodes)))
    return normal_of_words(*keystream.block(noise.key, (first, second, third, address[-1]))[:4])


@partial(jax.jit, inline=True)
def normal_of_words(w0: jax.Array, w1: jax.Array, w2: jax.Array, w3: jax.Array) -> jax.Array:
    """Return float64 standard normals, each made of 128 bits: its sign and its tail probability.

    The words are uint32 of one shape. A normal is ``x = +-Phi^-1(p)`` with p uniform on ``(0, 1/2]`` to 127 bits; with
    63 bits, normals beyond 4.4 would be too coarse. The error of x is below 2^-46 for ``|x| <= 8`` (measured: 2^-48.7).
    """
    high = (w0.astype(jnp.uint64) << jnp.uint64(32)) | w1.astype(jnp.uint64)
    low = (w2.astype(jnp.uint64) << jnp.uint64(32)) | w3.astype(jnp.uint64)
    whole = (high & jnp.uint64(2**63 - 1)).astype(jnp.float64)
    part = (low.astype(jnp.float64) + 0.5) * 2.0**-64
    tail = jnp.minimum((whole + part) * 2.0**-64, 0.5)
    size = -ndtri(tail)
    return jnp.where(high >> jnp.uint64(63) == 1, size, -size)


# --- the path -----------------------------------------------------------------------------------------------------


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
