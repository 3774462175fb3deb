"""Fewer rows of each unit, evenly spaced: a gradient of a network costs as much as the rows it is made of.

Which rows of a unit are used depends on that unit alone, to the last bit (docs/proofs/dptd.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Flat rows of a log before they are indexed; see :func:`~dprl.engine.unit_data.rows_of`."""

    phi: np.ndarray
    delta_phi: np.ndarray
    reward: np.ndarray
    rho: np.ndarray
    weight: np.ndarray
    offsets: np.ndarray  # (U + 1,) rows of each unit
    extra: Mapping[str, np.ndarray] = {}


def thin(rows: Rows, most: int | None) -> Rows:
    """At most ``most`` rows of each unit, with weights that add up to what they did; None keeps all.

    The rows are evenly spaced over those that count, from a first one that a hash of the unit's states chooses: so each
    of them is as likely as any other, and none because of what happens there, such as an end. Where returns are asked
    for, the first row of each trajectory stays as well, with no weight, beyond ``most`` if it must: how many rows are
    left follows from how many there were.

    Args:
        rows: with the column of ``states``.
        most: at least 1.
    """
    if most is None:
        return rows
    n, lengths = len(rows.reward) - 1, np.diff(rows.offsets)
    units, owner = len(lengths), np.repeat(np.arange(len(lengths)), lengths)
    weight, usable = rows.weight[:n].astype(np.float64), rows.weight[:n] > 0.0
    first = rows.extra["start"][:n] > 0.0 if "start" in rows.extra else np.zeros(n, dtype=bool)
    room = np.maximum(most - np.bincount(owner[first], minlength=units), 1)[owner]
    count = np.bincount(owner[usable], minlength=units)[owner]
    before = np.append(0, np.cumsum(usable))  # whole numbers: what stands before a unit cancels exactly
    rank = before[:n] - before[rows.offsets[:-1]][owner]
    start = _hashed(rows.extra["states"][:n], rows.offsets)[owner]
    spread = [np.ceil((rank + k) * room / np.maximum(count, 1) - start) for k in (0, 1)]
    chosen = usable & ((count <= room) | (spread[1] > spread[0]))
    # bincount adds the rows of a unit one by one, in their order
    whole, part = (np.bincount(owner, x, minlength=units) for x in (weight, np.where(chosen, weight, 0.0)))
    scaled = np.where(chosen, weight * (whole / np.where(part > 0.0, part, 1.0))[owner], 0.0)
    # a first row that was chosen stands there twice, once for its return and once for its weight
    twice = chosen & first & (count > room)
    order = np.sort(np.concatenate([np.flatnonzero(chosen | first), np.flatnonzero(twice)]))
    index = np.append(order, n)  # the padding stays last
    again = np.append(index[1:] == index[:-1], False)  # the first of the two
    extra = {name: x[index] for name, x in rows.extra.items()}
    if "start" in extra:
        extra["start"][1:][again[:-1]] = 0.0
    return rows._replace(
        phi=rows.phi[index],
        delta_phi=rows.delta_phi[index],
        reward=rows.reward[index],
        rho=rows.rho[index],
        weight=np.where(again, 0.0, np.append(scaled, 0.0)[index]).astype(rows.weight.dtype),
        offsets=np.append(0, np.cumsum(np.bincount(owner[order], minlength=units))).astype(rows.offsets.dtype),
        extra=extra,
    )


def _hashed(states: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """``(units,)`` numbers in [0, 1), each from the states of one unit in their order."""
    bits = np.ascontiguousarray(states, dtype=np.float32).view(np.uint32).astype(np.uint64)
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    place = (np.arange(len(bits)) - offsets[:-1][owner]).astype(np.uint64)
    mixed = place
    for component in bits.T:
        mixed = _mix(mixed + component)
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64))  # modulo 2^64: differences are exact
    return (_mix(sums[offsets[1:]] - sums[offsets[:-1]]) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64 (Steele, Lea and Flood 2014)."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
