"""Sums over the units of a log where JAX sees several devices: each takes other units, and the digits stay the same.

A device computes whole slices of units in the compiled shapes of one device, so that a unit's vector is the same to the
last bit wherever it is computed; clipped vectors are int64 grid points, whose sums are exact and are all-reduced. The
rows are on every device. Several processors of a host are seen with
``XLA_FLAGS=--xla_force_host_platform_device_count=N``, one GPU alone with ``CUDA_VISIBLE_DEVICES=0``.

Trials of an experiment need nothing of this: ``jit(vmap(...))`` over noise keys goes where the keys were put, with
``jax.device_put(keys, NamedSharding(mesh, PartitionSpec("units")))``.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dprl.engine.layouts import UnitRows

UNITS = "units"
"""The mesh's one axis."""
_EVERYWHERE, _APART = PartitionSpec(), PartitionSpec(UNITS)
_PLACED: dict[tuple[int, Mesh], tuple[Any, ...]] = {}


def unit_mesh() -> Mesh | None:
    """Return this process's devices as one axis; None where there is one device, or where the user chose a default."""
    devices = jax.local_devices()
    if len(devices) == 1 or jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return None
    return Mesh(np.array(devices), (UNITS,))


def all_reduced(mesh: Mesh, summed: Callable[[Any, Any], jax.Array], same: Any, apart: Any) -> jax.Array:
    """Add ``summed(same, part)`` up over the devices; each has another part of the leading axis of ``apart``.

    Exact where the sums are whole numbers; may be traced.
    """

    def here(same: Any, part: Any) -> jax.Array:
        return jax.lax.psum(summed(same, part), UNITS)

    # a loop in `summed` may start from zeros that are the same everywhere: what is checked would refuse it
    return jax.shard_map(here, mesh=mesh, in_specs=(_EVERYWHERE, _APART), out_specs=_EVERYWHERE, check_vma=False)(
        same, apart
    )


def sum_over_devices(
    mesh: Mesh,
    block_sum: Callable[..., jax.Array],
    width: Callable[[int], int],
    program: Any,
    stage: int,
    mechanism: Any,
    state: Any,
    data: UnitRows,
    included: np.ndarray,
) -> np.ndarray:
    """Return ``(dimension,)`` int64: the sum of ``block_sum`` over all blocks of the ``included`` ``(units,)``.

    Args:
        mesh: see :func:`unit_mesh`.
        block_sum: compiled; takes program, stage, mechanism, state, the columns of ``data``, and row indices ``(B, L)``
            and which units count ``(B,)`` as :meth:`UnitRows.chunks` gives them.
        width: of row indices of that length: units in a slice, of which ``block_sum`` adds up one after the other.
    """
    rate, total = mechanism.sampling_rate, np.zeros(mechanism.dimension, dtype=np.int64)
    expected = max(1, round(data.declared * rate))
    options, apart, there = (program, stage, mechanism), NamedSharding(mesh, _APART), None
    for index, live, spread in _grouped(data.chunks(included, rate), mesh.size, width, expected, data.padding):
        # as a NumPy array it is waited for: no two all-reductions are under way
        if not spread:
            total += np.asarray(block_sum(*options, state, data.columns, index, live))
            continue
        if there is None:
            there = jax.device_put(state, NamedSharding(mesh, _EVERYWHERE)), _placed(data, mesh)
        total += np.asarray(_all_reduced(mesh, block_sum, *options, *there, *jax.device_put((index, live), apart)))
    return total


def _grouped(
    chunks: Iterator[tuple[np.ndarray, np.ndarray]],
    devices: int,
    width: Callable[[int], int],
    expected: int,
    padding: int,
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yield the same units in blocks of as many whole slices for each device, or in one block that one device takes.

    Which of them, and the size, follow from the length of the bucket and public facts alone, as a block's size does.
    """
    for length, blocks in itertools.groupby(chunks, key=lambda chunk: chunk[0].shape[1]):
        index, live = np.zeros((0, length), dtype=np.int32), np.zeros(0, dtype=bool)
        size = 0
        for more, counts in blocks:
            slice_units = min(len(more), width(length))
            if slice_units == len(more) and expected <= len(more):  # all that is expected is one slice
                yield more, counts, False
                continue
            together = devices * slice_units
            size = together * -(-len(more) // together)
            index, live = np.concatenate([index.astype(more.dtype), more]), np.concatenate([live, counts])
            while len(index) >= size:
                yield index[:size], live[:size], True
                index, live = index[size:], live[size:]
        if len(index):
            missing = size - len(index)
            filler = np.full((missing, length), padding, dtype=index.dtype)
            yield np.concatenate([index, filler]), np.concatenate([live, np.zeros(missing, dtype=bool)]), True


def _placed(data: UnitRows, mesh: Mesh) -> tuple[Any, ...]:
    """Return the rows on every device. They stay there for as long as ``data`` lives."""
    key = id(data), mesh
    if key not in _PLACED:
        _PLACED[key] = jax.device_put(data.columns, NamedSharding(mesh, _EVERYWHERE))
        weakref.finalize(data, _PLACED.pop, key, None).atexit = False
    return _PLACED[key]


@partial(jax.jit, static_argnames=("mesh", "block_sum", "program", "stage", "mechanism"))
def _all_reduced(
    mesh: Mesh,
    block_sum: Callable[..., jax.Array],
    program: Any,
    stage: int,
    mechanism: Any,
    state: Any,
    arrays: tuple[Any, ...],
    index: Any,
    live: Any,
) -> jax.Array:
    def here(same: Any, units: Any) -> jax.Array:
        return block_sum(program, stage, mechanism, *same, *units)

    return all_reduced(mesh, here, (state, arrays), (index, live))
