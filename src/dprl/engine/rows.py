"""Make rows from a log, with the columns that :mod:`dprl.engine.columns` declares.

A row is one transition. Its columns hold features, rewards, importance ratios, a weight within its unit, and what a
program asks for by name. Every bit of a unit's rows depends only on that unit's transitions: columns are computed for
one step of all trajectories at a time, never as a prefix sum over the log. Symbols: docs/symbols.md. Rewards and values
are in public units: the value range [low, high] is mapped to [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt

from dprl.bounds import Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import ALWAYS, COLUMNS, Columns, RowInputs, Weighting
from dprl.errors import DprlError
from dprl.value_functions.features import Features

_LEAST_ROWS, _MOST_ROWS = 1 << 12, 1 << 20
"""Smallest and largest number of rows to which a log's rows are filled up."""


@dataclass(frozen=True)
class Rows(Columns):
    """Flat rows of a log, in the order of its units.

    Attributes:
        columns: columns ``(N + 1, ...)`` by name; the last row is the padding row, all zero.
        offsets: ``(U + 1,)``; unit ``u`` has the rows ``[offsets[u], offsets[u + 1])``.
    """

    columns: Mapping[str, Shaped[np.ndarray, "rows_and_one ..."]]
    offsets: Int[np.ndarray, " units_and_one"]

    @property
    def padding(self) -> int:
        """Index of the padding row."""
        return len(self.columns["weight"]) - 1

    @property
    def lengths(self) -> Int[np.ndarray, " units"]:
        """Number of rows of each unit."""
        return np.diff(self.offsets)

    def with_room(self) -> Rows:
        """Fill the rows up with zeros to the next power of two, so that logs of many sizes share compiled code.

        A log with very many rows is not filled up, because the copy takes much memory and saves little time.
        """
        size = max(_LEAST_ROWS, 1 << self.padding.bit_length())
        if size > _MOST_ROWS:
            return self

        def longer(x: np.ndarray) -> np.ndarray:
            out = _aligned_zeros((size, *x.shape[1:]), x.dtype)
            out[: len(x)] = x
            return out

        return Rows(self.mapped(longer), self.offsets)


def rows_of(
    log: Trajectories,
    ratios: Float[np.ndarray, " rows"],
    features: Features,
    discount: float,
    value: Interval,
    weighting: Weighting = "trajectory",
    dtype: Any = np.float32,
    columns: Iterable[str] = (),
    most: int | None = None,
) -> Rows:
    """Turn every transition of a log into a row: features, rewards, ratios, weights, and requested columns.

    Args:
        log, ratios, features, discount, value, weighting: see :class:`RowInputs`.
        dtype: dtype of the columns.
        columns: names of further columns among :data:`COLUMNS`.
        most: largest number of rows that are kept per unit, see :func:`subsample_rows`; by default all.

    Raises:
        DprlError: a name in ``columns`` is that of no column.
    """
    inputs, asked = RowInputs(log, ratios, features, discount, value, weighting), (*ALWAYS, *columns)
    if unknown := sorted(set(asked) - set(COLUMNS)):
        raise DprlError(f"Rows have no columns called {unknown[0]!r}; there are {', '.join(COLUMNS)}.")

    def padded(name: str) -> np.ndarray:
        x = COLUMNS[name].compute(inputs)
        return np.concatenate([x, np.zeros((1, *x.shape[1:]))]).astype(dtype)

    made = _features_of(inputs, dtype) | {name: padded(name) for name in asked}
    return subsample_rows(Rows(made, log.episode_offsets[log.unit_offsets]), most)


def _features_of(inputs: RowInputs, dtype: Any) -> dict[str, Float[np.ndarray, "rows_and_one n"]]:
    """Return ``phi`` and ``delta_phi`` ``(N + 1, n)``: phi(s_t), and phi(s_t) - gamma phi(s_{t+1}).

    Features of a terminal state are zero.
    """
    log, features, alive = inputs.log, inputs.features, inputs.alive
    n = len(log.reward)
    phi, delta = (_aligned_zeros((n + 1, features.row_size), dtype) for _ in range(2))
    for start in range(0, n, 1 << 14):
        part = slice(start, min(start + (1 << 14), n))
        phi[part] = features(log.observation[part])
        delta[part] = phi[part] - features(log.next_observation[part]) * (inputs.discount * alive[part])[:, None]
    return {"phi": phi, "delta_phi": delta}


def _aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros at a multiple of 64 bytes, because JAX copies an array that starts anywhere else."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


# --- fewer rows of each unit ----------------------------------------------------------------------------------------


def subsample_rows(rows: Rows, most: int | None) -> Rows:
    """Keep at most ``most`` rows of each unit, and scale their weights to the same sum as before; None keeps all.

    The cost of a network's gradient is proportional to the number of rows. The rows that are kept are evenly spaced
    among those that count, and a hash of the unit's states chooses the first one. So all of these rows are equally
    likely, and no row is kept because of what happens in it, such as an end. The choice depends only on that unit, to
    the last bit (docs/proofs/dptd.md). Where returns are asked for, the first row of each trajectory is kept, too,
    without a weight, and beyond ``most`` if necessary. The number of rows that are left follows from the number of rows
    before.

    Args:
        rows: rows with the column ``states``.
        most: largest number of rows per unit, at least 1; or None.
    """
    if most is None:
        return rows
    n, lengths, columns = rows.padding, rows.lengths, rows.columns
    units, owner = len(lengths), np.repeat(np.arange(len(lengths)), lengths)
    weight, usable = columns["weight"][:n].astype(np.float64), columns["weight"][:n] > 0.0
    first = columns["start"][:n] > 0.0 if "start" in columns else np.zeros(n, dtype=bool)
    room = np.maximum(most - np.bincount(owner[first], minlength=units), 1)[owner]
    count = np.bincount(owner[usable], minlength=units)[owner]
    before = np.append(0, np.cumsum(usable))  # whole numbers, so that the part from earlier units cancels exactly
    rank = before[:n] - before[rows.offsets[:-1]][owner]
    start = _hashed(columns["states"][:n], rows.offsets)[owner]
    spread = [np.ceil((rank + k) * room / np.maximum(count, 1) - start) for k in (0, 1)]
    chosen = usable & ((count <= room) | (spread[1] > spread[0]))
    # bincount adds the rows of a unit one by one, in their order
    whole, part = (np.bincount(owner, x, minlength=units) for x in (weight, np.where(chosen, weight, 0.0)))
    scaled = np.where(chosen, weight * (whole / np.where(part > 0.0, part, 1.0))[owner], 0.0)
    # a first row that was chosen is kept twice, once for its return and once for its weight
    twice = chosen & first & (count > room)
    order = np.sort(np.concatenate([np.flatnonzero(chosen | first), np.flatnonzero(twice)]))
    index = np.append(order, n)  # the padding stays last
    again = np.append(index[1:] == index[:-1], False)  # the first of two equal rows
    kept = rows.mapped(lambda x: x[index])
    kept["weight"] = np.where(again, 0.0, np.append(scaled, 0.0)[index]).astype(columns["weight"].dtype)
    if "start" in kept:
        kept["start"][1:][again[:-1]] = 0.0
    offsets = np.append(0, np.cumsum(np.bincount(owner[order], minlength=units)))
    return Rows(kept, offsets.astype(rows.offsets.dtype))


def _hashed(
    states: Float[np.ndarray, "rows d"], offsets: Int[np.ndarray, " units_and_one"]
) -> Float[np.ndarray, " units"]:
    """Return a number in [0, 1) for each unit, a hash of its states in their order."""
    bits = np.ascontiguousarray(states, dtype=np.float32).view(np.uint32).astype(np.uint64)
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    place = (np.arange(len(bits)) - offsets[:-1][owner]).astype(np.uint64)
    mixed = place
    for component in bits.T:
        mixed = _mix(mixed + component)
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64))  # modulo 2^64: differences are exact
    return (_mix(sums[offsets[1:]] - sums[offsets[:-1]]) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: UInt[np.ndarray, "*any"]) -> UInt[np.ndarray, "*any"]:
    """Mix the bits of ``z`` by SplitMix64 (Steele, Lea and Flood 2014)."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
