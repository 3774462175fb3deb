"""Sums of clipped gradients of units of several rows, without forming any unit's gradient: layers of a transformer.

A unit's gradient with respect to a layer's weights is the product of two matrices, which have a row for each position
of the unit's sequences: the layer's inputs, and the derivatives with respect to its outputs. The norm of the gradient
follows from inner products of these rows, and the sum of all units' clipped gradients is one matrix product. Rounding
is charged for in :mod:`dprl.mechanisms.ghost` but not here: rows of a unit may cancel, and the proof there needs rows
that do not. So these sums are only for experiments. A release forms the units' vectors and gives them to
``clipped_sum``.

Goodfellow (2015), "Efficient per-example gradient computations"; Li, Tramer, Liang and Hashimoto (2022), "Large
language models can be strong differentially private learners"; Bu, Wang, Zha and Karypis (2023), "Differentially
private optimization on large model at small cost" (one backward pass, and the cheaper of two norms for each layer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum


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


Layer = Dense | Lookup | Scale


def norms_of(layers: Sequence[Layer]) -> Float[Array, " units"]:
    """Return the L2 norm of each unit's whole gradient."""
    # inner products may round to a little below zero
    return jnp.sqrt(jnp.maximum(sum(layer.squares() for layer in layers), 0.0))


def ghost_sum_of_rows(mechanism: GaussianSum, layers: Sequence[Layer], included: Any) -> Float[Array, " dim"]:
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


def _without(layer: Layer, kept: jax.Array) -> Layer:
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
