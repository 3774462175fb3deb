"""Sums of a network's clipped gradients, without forming any unit's gradient (ghost clipping).

A unit's gradient with respect to a layer's weights is the product of two matrices, which have a row for each of the
unit's steps or positions: the layer's inputs, and the derivatives with respect to its outputs. So the norm of the
gradient follows from inner products of these rows, and the sum of all units' clipped gradients is one matrix product.

:func:`ghost_sum` is for releases, for units of one row each: the norm of a unit's gradient is then the product of the
norms of two vectors. The matrix product is computed in single precision, a few units at a time. The clip norm is
reduced by what this rounding can add to a unit's part. Proof: docs/proofs/ghost-clipping.md.

:func:`ghost_sum_of_rows` is for units of several rows, such as layers of a transformer, and only for experiments: rows
of a unit may cancel, and the proof needs rows that do not. A release forms the vectors of such units and gives them to
``clipped_sum``.

Goodfellow (2015), "Efficient per-example gradient computations"; Li, Tramer, Liang and Hashimoto (2022), "Large
language models can be strong differentially private learners" (ghost clipping); Bu, Wang, Zha and Karypis (2023),
"Differentially private optimization on large model at small cost" (one backward pass, and the cheaper of two norms for
each layer).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import sum_in_float, sum_on_grid
from dprl.mechanisms.gaussian_sum import GaussianSum

# --- units of one row each ----------------------------------------------------------------------------------------

CHUNK = 200
"""Most units whose gradients are summed in single precision; chunks are then added on the integer grid."""
_SIDE_BY_SIDE = 8
"""Most chunks whose sums lie in memory together, so that the total is gone through once for all of them."""
_ONE_PASS = 2**18
"""Most weights whose sums are put side by side first, for one fast pass; more leave the cache, and copies cost more."""
MOST_UNITS = 2**19
"""Most units of a block: the sum's whole numbers then stay below 2**53."""
_UNIT = 2.0**-24  # roundoff of float32
_GRID = 2.0**-20  # share of the whole clip norm for rounding to the grid, once for a chunk's sum and not for each unit
_TINY = 2.0**-80  # a squared length below this may have lost digits: such a vector counts as zero


class SingleRowLayer(NamedTuple):
    """One layer of a network, for all units of a block.

    Attributes:
        inputs: ``(m, in)``.
        deltas: ``(m, out)``: derivatives of each unit's objective with respect to the layer's sums.
        bias: whether the layer adds a bias.
    """

    inputs: Any
    deltas: Any
    bias: bool = False

    @property
    def size(self) -> int:
        """Number of the layer's weights and biases."""
        return self.deltas.shape[1] * (self.inputs.shape[1] + self.bias)


def reduced_clip_norm(mechanism: GaussianSum, layers: Sequence[SingleRowLayer]) -> float:
    """Return the norm to which gradients are clipped: the clip norm of the first part, less what rounding can add."""
    widest = max(layer.inputs.shape[1] + layer.deltas.shape[1] for layer in layers)
    rounding = (2 * (CHUNK + 2) ** 2 / math.sqrt(3.0) + widest + 32) * _UNIT
    bound = (mechanism.parts[0][1] - _GRID * mechanism.clip_norm) * (1.0 - rounding)
    if bound <= 0.0:
        raise DprlError("The gradient's part of the clip norm is too small.")
    return bound


def ghost_sum(
    mechanism: GaussianSum, layers: Sequence[SingleRowLayer], included: Any, statistics: Any = None
) -> jax.Array:
    """Return ``mechanism.clipped_sum`` of units' gradients without forming them, with a clip norm about 0.3% smaller.

    Args:
        mechanism: mechanism whose first part is the gradient: for each layer in turn the weights ``(out, in)``, row by
            row, then the biases.
        layers: layers of one block of units; used in float32.
        included: ``(m,)`` booleans.
        statistics: ``(m, ...)``, the other parts of the units' vectors side by side; None if there are none.

    Returns:
        ``(dimension,)`` int64 grid points; blocks add up exactly.

    Raises:
        DprlError: the layers or the statistics do not fit the mechanism's parts, or the block is too large.
    """
    (size, _), *others = mechanism.parts
    extra = sum(length for length, _ in others)
    if sum(layer.size for layer in layers) != size or (0 if statistics is None else statistics.shape[1]) != extra:
        raise DprlError("The layers and statistics of a sum must have the parts that its mechanism was made for.")
    included = jnp.asarray(included)
    users = included.shape[0]
    if users > MOST_UNITS:
        raise DprlError(f"A block has at most {MOST_UNITS} users.")
    bound, biases = reduced_clip_norm(mechanism, layers), [layer.bias for layer in layers]
    chunks = -(-users // CHUNK)
    groups = -(-chunks // _SIDE_BY_SIDE)
    each = -(-chunks // groups)
    rows = -(-users // (groups * each))

    def in_groups(a: Any) -> jax.Array:
        a = jnp.asarray(a)
        padded = jnp.pad(a, [(0, groups * each * rows - users)] + [(0, 0)] * (a.ndim - 1))
        return padded.reshape(groups, each * rows, *a.shape[1:])

    def one(given: Any) -> list[jax.Array]:
        pairs, here = given
        some = [SingleRowLayer(x, delta, bias) for (x, delta), bias in zip(pairs, biases, strict=True)]
        return _group(some, here, bound, mechanism.grid_step, each)

    given = [tuple(in_groups(a).astype(jnp.float32) for a in layer[:2]) for layer in layers], in_groups(included)
    totals = one(jax.tree.map(lambda a: a[0], given))
    if groups > 1:
        rest = jax.tree.map(lambda a: a[1:], given)
        totals, _ = jax.lax.scan(lambda t, g: (jax.tree.map(jnp.add, t, one(g)), None), totals, rest)
    total = jnp.concatenate([part.astype(jnp.int64) for part in totals])
    if not others:
        return total
    return jnp.concatenate([total, sum_on_grid(jnp.asarray(statistics), included, tuple(others), mechanism.grid_step)])


def _group(
    layers: Sequence[SingleRowLayer], included: jax.Array, bound: float, step: float, chunks: int
) -> list[jax.Array]:
    """Add up the clipped gradients of ``chunks`` chunks of equal size; each chunk's sum is rounded to the grid.

    Returns:
        Arrays of whole numbers in float64. In their order they hold the sums of all weights and biases.
    """
    squares = [(jnp.sum(x * x, axis=1), jnp.sum(delta * delta, axis=1)) for x, delta, _ in layers]
    norm = jnp.sqrt(
        sum(
            (a.astype(jnp.float64) + bias) * b.astype(jnp.float64)
            for (a, b), (_, _, bias) in zip(squares, layers, strict=True)
        )
    )
    kept = included & jnp.isfinite(norm)
    shrunk = jnp.where(kept, jnp.minimum(1.0 / bound, 1.0 / norm), 0.0).astype(jnp.float32)
    shrunk = jnp.where(shrunk >= _TINY**1.5, shrunk, 0.0)  # below this float32 has fewer digits
    sums, rows = [], len(included) // chunks
    for (x, delta, bias), (square_x, square_delta) in zip(layers, squares, strict=True):
        lengths = (square_x + bias >= _TINY) & (square_delta >= _TINY)
        factor = jnp.where(lengths, shrunk, 0.0)[:, None]
        left = jnp.where(factor > 0.0, delta * factor, 0.0).reshape(chunks, rows, -1)
        # a finite input of a unit that is left out is multiplied by zero
        right = jnp.where(jnp.isfinite(square_x)[:, None], x, 0.0).reshape(chunks, rows, -1)
        by_chunk = (((1,), (1,)), ((0,), (0,)))
        sums.append(jax.lax.dot_general(left, right, by_chunk, precision=jax.lax.Precision.HIGHEST))
        if bias:
            sums.append(jnp.sum(left, axis=1))
    sums = [part.reshape(chunks, -1) for part in sums]
    if sum(part.shape[1] for part in sums) <= _ONE_PASS:
        sums = [jnp.concatenate(sums, axis=1)]
    found = []
    for part in sums:
        # whole numbers below 2**53, exact in float64
        first, *others = (jnp.round(part[i].astype(jnp.float64) * (bound / step)) for i in range(chunks))
        found.append(sum(others, first))
    return found


def ghost_sum_in_float(
    mechanism: GaussianSum, layers: Sequence[SingleRowLayer], included: Any, statistics: Any
) -> jax.Array:
    """Return the sum of :func:`ghost_sum` in floating point, ``(dimension,)`` float64, for experiments."""
    (_, clip_norm), *others = mechanism.parts
    included, clips = jnp.asarray(included), mechanism.arithmetic == "float"
    lengths = [jnp.sum(layer.inputs**2, axis=1) for layer in layers]
    square = sum(
        (length + layer.bias) * jnp.sum(layer.deltas**2, axis=1) for layer, length in zip(layers, lengths, strict=True)
    )
    kept = included & jnp.isfinite(square)
    shrunk = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-30))) if clips else 1.0
    found = []
    for layer, length in zip(layers, lengths, strict=True):
        left = jnp.where(kept[:, None], layer.deltas * jnp.asarray(shrunk, layer.deltas.dtype)[..., None], 0.0)
        found.append((left.T @ jnp.where(jnp.isfinite(length)[:, None], layer.inputs, 0.0)).reshape(-1))
        if layer.bias:
            found.append(jnp.sum(left, axis=0))
    total = jnp.concatenate(found).astype(jnp.float64)
    if not others:
        return total
    return jnp.concatenate([total, sum_in_float(jnp.asarray(statistics), included, tuple(others), clips)])


# --- units of several rows, for experiments -----------------------------------------------------------------------


class Dense(NamedTuple):
    """Dense layer ``inputs @ weights``, for all units of a block. Its gradient is ``(in, out)``, then the biases.

    Attributes:
        inputs: ``(m, R, in)``.
        deltas: ``(m, R, out)``: derivatives of each unit's objective with respect to the layer's outputs.
        bias: whether the layer adds a bias.
    """

    inputs: Any
    deltas: Any
    bias: bool = True

    def squares(self) -> jax.Array:
        """Return ``(m,)`` squared norms of the units' gradients, computed in the way that needs fewer numbers."""
        rows, wide, out = self.inputs.shape[1], self.inputs.shape[2], self.deltas.shape[2]
        if rows * rows <= wide * out:
            found = _products(_inner(self.inputs), _inner(self.deltas))
        else:
            found = _length(jnp.einsum("mri,mro->mio", self.inputs, self.deltas))
        return found + _length(jnp.sum(self.deltas, axis=1)) if self.bias else found

    def total(self, weights: jax.Array) -> list[jax.Array]:
        """Return the sum of the units' gradients, each multiplied by the weight of its unit."""
        weighted = weights[:, None, None] * self.deltas
        found = [jnp.tensordot(self.inputs, weighted, ((0, 1), (0, 1)))]
        return [*found, jnp.sum(weighted, axis=(0, 1))] if self.bias else found


class Lookup(NamedTuple):
    """Table, such as an embedding, of which each row of a unit takes one line. Its gradient is ``(lines, out)``.

    Attributes:
        places: ``(m, R)`` whole numbers: the lines taken.
        deltas: ``(m, R, out)``.
        lines: number of lines of the table.
    """

    places: Any
    deltas: Any
    lines: int

    def squares(self) -> jax.Array:
        """Return ``(m,)`` squared norms of the units' gradients."""
        same = self.places[:, :, None] == self.places[:, None, :]
        return _products(same, _inner(self.deltas))

    def total(self, weights: jax.Array) -> list[jax.Array]:
        """Return the sum of the units' gradients, each multiplied by the weight of its unit."""
        weighted = (weights[:, None, None] * self.deltas).reshape(-1, self.deltas.shape[2])
        return [jax.ops.segment_sum(weighted, self.places.reshape(-1), self.lines)]


class Scale(NamedTuple):
    """Scaling ``gains * inputs + shifts`` of a normalisation. Its gradient is ``(k,)`` for gains, then for shifts.

    Attributes:
        inputs: ``(m, R, k)``, normalised.
        deltas: ``(m, R, k)``.
    """

    inputs: Any
    deltas: Any

    def squares(self) -> jax.Array:
        """Return ``(m,)`` squared norms of the units' gradients."""
        return _length(jnp.sum(self.inputs * self.deltas, axis=1)) + _length(jnp.sum(self.deltas, axis=1))

    def total(self, weights: jax.Array) -> list[jax.Array]:
        """Return the sum of the units' gradients, each multiplied by the weight of its unit."""
        weighted = weights[:, None, None] * self.deltas
        return [jnp.sum(self.inputs * weighted, axis=(0, 1)), jnp.sum(weighted, axis=(0, 1))]


RowLayer = Dense | Lookup | Scale


def norms_of(layers: Sequence[RowLayer]) -> Float[Array, " units"]:
    """Return the L2 norm of each unit's whole gradient."""
    # inner products may round to a little below zero
    return jnp.sqrt(jnp.maximum(sum(layer.squares() for layer in layers), 0.0))


def ghost_sum_of_rows(mechanism: GaussianSum, layers: Sequence[RowLayer], included: Any) -> Float[Array, " dim"]:
    """Return ``mechanism.clipped_sum`` of the units' gradients without forming them, for experiments.

    Args:
        mechanism: mechanism in floating point with one part, whose coordinates are the layers' gradients, one after the
            other.
        layers: layers of one block of units; numbers that are not finite change nothing in a unit that is left out.
        included: ``(m,)`` booleans.

    Raises:
        DprlError: the mechanism is for a release, has several parts, or has a part that does not fit the layers'
            gradients.
    """
    if mechanism.certifies:
        raise DprlError("A sum over units of several rows is for experiments: give a release the units' vectors.")
    if len(mechanism.parts) != 1:
        raise DprlError("The layers of a sum are one part: make the mechanism of one.")
    ((size, clip_norm),) = mechanism.parts
    norms = norms_of(layers)
    kept = jnp.asarray(included) & jnp.isfinite(norms)
    weights = jnp.minimum(1.0, clip_norm / jnp.maximum(norms, 1e-30)) if mechanism.arithmetic == "float" else 1.0
    weights = jnp.where(kept, weights, 0.0).astype(norms.dtype)
    found = [part.reshape(-1) for layer in layers for part in _without(layer, kept).total(weights)]
    if sum(part.shape[0] for part in found) != size:
        raise DprlError("The layers of a sum must have the part that its mechanism was made for.")
    return jnp.concatenate(found).astype(jnp.float64)


def _without(layer: RowLayer, kept: jax.Array) -> RowLayer:
    """Return the layer with zeros for the units that are left out, since zero times infinity is no number."""
    of = lambda a: jnp.where(kept[:, None, None], a, 0)  # noqa: E731
    if isinstance(layer, Lookup):
        return layer._replace(deltas=of(layer.deltas))
    return layer._replace(inputs=of(layer.inputs), deltas=of(layer.deltas))


def _inner(rows: jax.Array) -> jax.Array:
    """Return ``(m, R, R)`` inner products of each unit's rows."""
    return jnp.einsum("mri,msi->mrs", rows, rows)


def _products(first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.sum(first * second, axis=(1, 2))


def _length(a: jax.Array) -> jax.Array:
    """Return the squared length of each unit's array."""
    return jnp.sum(a * a, axis=tuple(range(1, a.ndim)))
