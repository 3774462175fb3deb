"""Sums of clipped gradients of a network without any user's gradient: for users of one step each.

A user's gradient by a layer's weights is the outer product of what went into the layer and of the derivative by what
came out, so its norm is the product of theirs, and the sum of all users' is one product of matrices. That is done in
single precision, a few users at a time; what its rounding can add to a user's part is taken off the clip. Proof:
docs/proofs/ghost-clipping.md.

Goodfellow (2015), "Efficient per-example gradient computations"; Li, Tramer, Liang and Hashimoto (2022), "Large
language models can be strong differentially private learners" (ghost clipping).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.mechanisms.grid import clip_to_grid
from dprl.mechanisms.user_sum import FloatUserSum, UserSum

CHUNK = 128
"""Most users whose gradients are summed in single precision; chunks are then added on the integer grid."""
MOST_USERS = 2**19
"""Of a block: the sum's whole numbers then stay below 2**53."""
_UNIT = 2.0**-24  # roundoff of float32
_GRID = 2.0**-20  # of the whole clip norm: the grid's rounding, which is of a chunk's sum and not of each user
_TINY = 2.0**-80  # a squared length below it may have lost digits: such a factor counts as zero


class Layer(NamedTuple):
    """One layer of a network, for all users of a block.

    Attributes:
        inputs: ``(m, in)``.
        deltas: ``(m, out)``: derivatives of each user's objective by the layer's sums.
        bias: whether the layer adds a bias.
    """

    inputs: Any
    deltas: Any
    bias: bool = False

    @property
    def size(self) -> int:
        """Its weights and biases."""
        return self.deltas.shape[1] * (self.inputs.shape[1] + self.bias)


def clip_of(mechanism: UserSum, layers: Sequence[Layer]) -> float:
    """The norm that gradients are clipped to here: that of the mechanism's first part, less what rounding can add."""
    widest = max(layer.inputs.shape[1] + layer.deltas.shape[1] for layer in layers)
    rounding = (2 * CHUNK * (CHUNK + 1) + widest + 32) * _UNIT
    bound = (mechanism.parts[0][1] - _GRID * mechanism.clip_norm) * (1.0 - rounding)
    if bound <= 0.0:
        raise DprlError("The gradient's part of the clip norm is too small.")
    return bound


def ghost_sum(mechanism: UserSum, layers: Sequence[Layer], included: Any, statistics: Any = None) -> jax.Array:
    """What ``mechanism.clipped_sum`` gives for users' gradients, without them, but for 0.3% of the clip norm.

    Args:
        mechanism: its first part is the gradient: for one layer after the other the weights ``(out, in)``, row by row,
            then the biases.
        layers: of one block of users; used in float32.
        included: ``(m,)`` booleans.
        statistics: ``(m, ...)``, the other parts of the users' vectors side by side, where there are any.

    Returns:
        ``(dimension,)`` int64 grid points; blocks add up exactly.

    Raises:
        DprlError: the layers or the statistics are not the mechanism's parts, or the block is too large.
    """
    (size, _), *others = mechanism.parts
    extra = sum(length for length, _ in others)
    if sum(layer.size for layer in layers) != size or (0 if statistics is None else statistics.shape[1]) != extra:
        raise DprlError("The layers and statistics of a sum must have the parts that its mechanism was made for.")
    included = jnp.asarray(included)
    users = included.shape[0]
    if users > MOST_USERS:
        raise DprlError(f"A block has at most {MOST_USERS} users.")
    bound, biases = clip_of(mechanism, layers), [layer.bias for layer in layers]
    chunks = -(-users // CHUNK)
    rows = -(-users // chunks)

    def in_chunks(a: Any) -> jax.Array:
        a = jnp.asarray(a)
        padded = jnp.pad(a, [(0, chunks * rows - users)] + [(0, 0)] * (a.ndim - 1))
        return padded.reshape(chunks, rows, *a.shape[1:])

    def add(totals: list[jax.Array], given: Any) -> tuple[list[jax.Array], None]:
        pairs, here = given
        some = [Layer(x, delta, bias) for (x, delta), bias in zip(pairs, biases, strict=True)]
        # whole numbers below 2**53, exact in float64
        parts = [jnp.round(part.astype(jnp.float64) * scale) for part in _chunk(some, here, bound)]
        return [total + part for total, part in zip(totals, parts, strict=True)], None

    scale = bound / mechanism.grid_step
    pairs = [tuple(in_chunks(a).astype(jnp.float32) for a in layer[:2]) for layer in layers]
    nothing = []
    for layer in layers:
        nothing.append(jnp.zeros((layer.deltas.shape[1], layer.inputs.shape[1]), dtype=jnp.float64))
        if layer.bias:
            nothing.append(jnp.zeros(layer.deltas.shape[1], dtype=jnp.float64))
    totals, _ = jax.lax.scan(add, nothing, (pairs, in_chunks(included)))
    total = jnp.concatenate([part.reshape(-1) for part in totals]).astype(jnp.int64)
    found, start = [total], 0
    for length, part_norm in others:
        points = clip_to_grid(jnp.asarray(statistics)[:, start : start + length], part_norm, mechanism.grid_step)
        found.append(jnp.sum(jnp.where(included[:, None], points, 0), axis=0))
        start += length
    return jnp.concatenate(found)


def _chunk(layers: Sequence[Layer], included: jax.Array, bound: float) -> list[jax.Array]:
    """Sums of the clipped gradients of one chunk, in units of ``bound``: weights ``(out, in)``, biases ``(out,)``."""
    squares = [
        (jnp.sum(x * x, axis=1).astype(jnp.float64) + bias, jnp.sum(delta * delta, axis=1).astype(jnp.float64))
        for x, delta, bias in layers
    ]
    norm = jnp.sqrt(sum(a * b for a, b in squares))
    kept = included & jnp.isfinite(norm)
    weight = jnp.minimum(1.0, bound / norm) / bound
    found = []
    for (x, delta, bias), (square_x, square_delta) in zip(layers, squares, strict=True):
        there = kept & (square_x >= _TINY) & (square_delta >= _TINY)
        length = jnp.where(there, jnp.sqrt(square_x), 1.0)
        # both factors have a norm of at most 1: no product leaves float32
        scale = jnp.where(there, weight * length, 0.0).astype(jnp.float32)
        inverse = (1.0 / length).astype(jnp.float32)
        left = jnp.where(there[:, None], delta, 0.0) * scale[:, None]
        right = jnp.where(there[:, None], x, 0.0) * inverse[:, None]
        found.append(jax.lax.dot(left.T, right, precision=jax.lax.Precision.HIGHEST))
        if bias:
            found.append(jnp.sum(left * inverse[:, None], axis=0))
    return found


def ghost_sum_in_float(mechanism: FloatUserSum, layers: Sequence[Layer], included: Any, statistics: Any) -> jax.Array:
    """:func:`ghost_sum` for experiments: what ``mechanism.clipped_sum`` gives, ``(dimension,)`` float64."""
    (_, clip_norm), *others = mechanism.exact.parts
    included = jnp.asarray(included)
    square = sum((jnp.sum(layer.inputs**2, axis=1) + layer.bias) * jnp.sum(layer.deltas**2, axis=1) for layer in layers)
    kept = included & jnp.isfinite(square)
    shrunk = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-30))) if mechanism.clips else 1.0
    found = []
    for layer in layers:
        left = jnp.where(kept[:, None], layer.deltas * jnp.asarray(shrunk, layer.deltas.dtype)[..., None], 0.0)
        found.append((left.T @ jnp.where(kept[:, None], layer.inputs, 0.0)).reshape(-1))
        if layer.bias:
            found.append(jnp.sum(left, axis=0))
    total = jnp.concatenate(found).astype(jnp.float64)
    if not others:
        return total
    (extra, other_norm), *_ = others
    rest = FloatUserSum(replace(mechanism.exact, parts=((extra, other_norm),)), clips=mechanism.clips)
    return jnp.concatenate([total, rest.clipped_sum(statistics, included)])
