"""Three layouts of rows for programs, and the block of a few units that each layout gives.

:class:`UnitRows` is for releases: its rows are flat, its memory is bounded, and the digits of a unit depend on no other
unit. :class:`PaddedUnits` is for experiments and tests. :class:`SharedTransitions` is for experiments with many trials
over a finite state space; if its transitions lie on a few diagonals, :class:`Bands` makes its products quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dprl import x64 as x64
from dprl.arrays import AnyArray
from dprl.engine.columns import COLUMNS, Columns
from dprl.engine.rows import Rows
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT, Stability

_CHUNK_ROWS = 1 << 13
# XLA rounds sums over very few rows differently; a block never has fewer than this.
LEAST_ROWS = 64
Chunk = tuple[Int[np.ndarray, "units rows"], Bool[np.ndarray, " units"]]
"""Row indices of some units, and a mask of the units that count."""


class LogRows(Columns):
    """Rows of a log to which one more person adds one unit."""

    stability: ClassVar[tuple[Stability, ...]] = ADDS_ONE_UNIT


# --- diagonals of transitions -------------------------------------------------------------------------------------


@jax.tree_util.register_static
@dataclass(frozen=True)
class Bands:
    """A public set of transitions on a few diagonals: ``states`` slots for each offset ``target - source``, by source.

    For chains, queues and corridors this is an exact rewriting of :class:`SharedTransitions`. Each state's phi is one
    scaled indicator, so that a product with phi is a scaling, and a product with the features of the next state is a
    shift. An update costs O(transitions) per unit rather than O(transitions x features). A slot whose target is outside
    of ``0 .. states - 1`` is a transition to the terminal state.
    """

    offsets: tuple[int, ...]
    states: int
    scale: float
    discount: float


def banded_gradients(
    bands: Bands, theta: jax.Array, w: jax.Array, weight: Any, weight_rho: Any, weight_rho_reward: Any
) -> tuple[jax.Array, jax.Array]:
    """Return ``[-A_i' w, A_i theta + C_i w - b_i]`` for each unit: two arrays ``(B, n)``, from weights ``(B, K)``."""
    u, v = bands.scale * w, bands.scale * theta
    primal = dual = jnp.zeros((weight.shape[0], bands.states), dtype=theta.dtype)
    for number, offset in enumerate(bands.offsets):
        band = slice(number * bands.states, (number + 1) * bands.states)
        rho = weight_rho[:, band]
        primal = primal - rho * u + bands.discount * _shift(rho * u, -offset)
        difference = v - bands.discount * _shift(v, offset)
        dual = dual + rho * difference - weight_rho_reward[:, band] + weight[:, band] * u
    return bands.scale * primal, bands.scale * dual


def _shift(x: jax.Array, offset: int) -> jax.Array:
    """Return ``y[..., s] = x[..., s + offset]``, zero where that index is outside of ``x``."""
    size = x.shape[-1]
    if abs(offset) >= size:
        return jnp.zeros_like(x)
    edges = [(0, 0, 0)] * (x.ndim - 1) + [(-offset, offset, 0)]
    return jax.lax.pad(x, jnp.zeros((), x.dtype), edges)


# --- a few units ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block(Columns):
    """Rows of ``B`` units as a program sees them: columns and coefficients by name.

    Either each unit has its own rows, padded to ``L`` with zero weight, and columns are ``(B, L, ...)``. Or all units
    share the ``L`` transitions of a finite set: then features and states are ``(L, ...)``, and a coefficient ``(B, L)``
    is the sum over all rows of a unit that have the same transition. A coefficient is linear in a row, so both give the
    same result.
    """

    bands: Bands | None = None  # diagonals of the shared transitions, if there are any

    @property
    def shared(self) -> bool:
        """Whether all units share their transitions."""
        return self.columns["phi"].ndim == 2


jax.tree_util.register_dataclass(Block, data_fields=["columns"], meta_fields=["bands"])


def project(
    coefficients: Float[AnyArray, "units rows"], features: Float[AnyArray, "*units rows n"]
) -> Float[Array, "units n"]:
    """Return the sum over rows of ``coefficients`` times ``features``, which the units share or have apart."""
    if features.ndim == 2:
        return jnp.matmul(coefficients, features)
    return jnp.einsum("bl,bln->bn", coefficients, features)


def project_phi(coefficients: Float[Array, "units rows"], block: Block) -> Float[Array, "units n"]:
    """Return the sum over rows of ``coefficients`` times the block's phi.

    Where the block has bands, no product of matrices is taken.
    """
    bands = block.bands
    if bands is None:
        return project(coefficients, block.phi)
    diagonals = (coefficients[:, i * bands.states : (i + 1) * bands.states] for i in range(len(bands.offsets)))
    return bands.scale * reduce(add, diagonals)


def apply(features: Float[Array, "*rows n"], theta: Float[Array, "n ..."]) -> Array:
    """Return the values theta'phi of each row, for one vector of weights or for several."""
    return features @ theta


# --- for releases ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnitRows(LogRows):
    """Flat rows of a log, for releases: the units' row indices are kept in buckets of similar length.

    Memory is O(transitions x features): no features are stored per unit, and padding at most doubles a bucket.

    Attributes:
        columns: columns by name, ``(N + 1, ...)`` or longer; all zero from the row ``padding`` on.
        buckets: for each bucket the unit numbers ``(U_b,)`` and their row indices ``(U_b, L_b)``.
        units: number of units in the log (private).
        declared: number of units that the curator declares (public).
        padding: index of the padding row, which is the number of the log's rows (private).
    """

    buckets: tuple[tuple[Int[np.ndarray, " _"], Int[np.ndarray, "_ _"]], ...]
    units: int
    declared: int
    padding: int

    def chunks(self, included: Bool[np.ndarray, " units"], sampling_rate: float = 1.0) -> Iterator[Chunk]:
        """Yield the row indices of the included units in blocks of fixed size, with masks of the units that count.

        A block's size follows only from the length of its bucket and from public facts. Compiled code of another shape
        may round a unit's sum differently, and the presence of one person must not change another person's digits. A
        batch takes as many blocks as it needs; the last block is filled up with units that do not count.
        """
        expected = max(1, round(self.declared * sampling_rate))
        if not included.any():  # an empty batch runs the same code as any other
            yield np.full((LEAST_ROWS, 1), self.padding, np.int32), np.zeros(LEAST_ROWS, dtype=bool)
        for members, index in self.buckets:
            chosen = index[included[members]]
            length = index.shape[1]
            block = min(1 << (expected - 1).bit_length(), _CHUNK_ROWS // length)
            block = max(block, -(-LEAST_ROWS // length), 1)
            for start in range(0, len(chosen), block):
                part = chosen[start : start + block]
                live = np.arange(block) < len(part)
                nobody = np.full((block - len(part), length), self.padding, index.dtype)
                yield np.concatenate([part, nobody]), live


jax.tree_util.register_dataclass(
    UnitRows, data_fields=["columns"], meta_fields=["buckets", "units", "declared", "padding"]
)


def gather(columns: Mapping[str, Any], index: Int[AnyArray, "units rows"]) -> Block:
    """Return the block of the rows ``index`` of :attr:`UnitRows.columns`."""
    return Block({name: x[index] for name, x in columns.items()})


def unit_rows(rows: Rows, declared: int) -> UnitRows:
    """Index the rows of all units in buckets, in each of which lengths differ by at most a factor of two.

    ``declared`` is the public number of units, from which the size of a block follows. The arrays of ``rows`` may be
    used without a copy, so they must not be changed afterwards.
    """
    lengths = rows.lengths
    kind = np.int32 if rows.padding < 2**31 - 1 else np.int64
    exponents = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    buckets = []
    for exponent in np.unique(exponents):
        members = np.flatnonzero(exponents == exponent)
        buckets.append((members, _padded_index(rows, members, 1 << exponent).astype(kind)))
    # device_put, unlike asarray, does not copy aligned memory: the features are in memory once, not twice
    return UnitRows(rows.with_room().mapped(jax.device_put), tuple(buckets), len(lengths), declared, rows.padding)


def _padded_index(rows: Rows, units: Any, length: int) -> Int[np.ndarray, "units length"]:
    """Return row indices of these units, followed by the index of the padding row after a unit's last row."""
    places = np.arange(length)
    index = rows.offsets[:-1][units][:, None] + places
    return np.where(places < rows.lengths[units][:, None], index, rows.padding)


# --- for experiments and tests --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaddedUnits(LogRows):
    """Rows of every unit, padded to one length: columns ``(U, L, ...)`` by name. For experiments and tests."""

    @property
    def units(self) -> int:
        """Number of units."""
        return self.columns["weight"].shape[0]

    def block(self, units: Any, state: Any = None) -> Block:
        """Return the rows of the units with these indices. The ``state`` is not used."""
        del state
        return Block(self.mapped(lambda x: x[units]))


jax.tree_util.register_dataclass(PaddedUnits, data_fields=["columns"], meta_fields=[])


def padded_units(rows: Rows, length: int | None = None) -> PaddedUnits:
    """Pad every unit to the length of the longest unit, or to a given ``length``."""
    length = max(int(rows.lengths.max(initial=0)), 1) if length is None else length
    index = _padded_index(rows, slice(None), length)
    return PaddedUnits(rows.mapped(lambda x: jnp.asarray(x[index])))


# --- for experiments with many trials -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedTransitions(LogRows):
    """A log over a finite, public set of transitions, for experiments with many trials.

    Attributes:
        columns: columns by name. A column that follows from the transition, such as the features, is ``(K, ...)``; of
            all others there are coefficients ``(U, K)``, summed over a unit's rows of each transition.
        bands: diagonals of the transitions, if there are any.
    """

    bands: Bands | None = None

    @property
    def units(self) -> int:
        """Number of units."""
        return self.columns["weight"].shape[0]

    def block(self, units: Any, state: Any = None) -> Block:
        """Return the rows of the units with these indices. The ``state`` is not used."""
        del state
        return Block(self.of_units(lambda x: x[units]).columns, self.bands)

    def of_units(
        self, change: Callable[[Any], Any], otherwise: Callable[[Any], Any] = lambda x: x
    ) -> SharedTransitions:
        """Return the same log with columns per unit changed by ``change``, and shared columns by ``otherwise``."""
        changed = {name: (otherwise if is_shared(name) else change)(x) for name, x in self.columns.items()}
        return SharedTransitions(changed, self.bands)


jax.tree_util.register_dataclass(SharedTransitions, data_fields=["columns"], meta_fields=["bands"])


def is_shared(name: str) -> bool:
    """Tell whether :class:`SharedTransitions` has the column ``name`` only once, for all units."""
    return name in ("phi", "delta_phi") or (name in COLUMNS and COLUMNS[name].of_transition)
