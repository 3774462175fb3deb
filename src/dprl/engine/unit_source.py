"""Sources of units, what one more person does to them, and how units are summed, on one device or on several.

Coins and noise are not drawn here. Sums are of int64 grid points, so they are exact: no digit depends on where the
units are, or on the order and the blocks in which they are added.

Where JAX sees several devices, each device takes a part of the units. A device computes whole slices of units in the
same compiled shapes as a single device does, so that a unit's vector is the same to the last bit wherever it is
computed; the sums are all-reduced. The rows are on every device. JAX sees several CPU devices with
``XLA_FLAGS=--xla_force_host_platform_device_count=N``, and only one GPU with ``CUDA_VISIBLE_DEVICES=0``.

Trials of an experiment need none of this: ``jit(vmap(...))`` over noise keys runs where the keys are, and
``jax.device_put(keys, NamedSharding(mesh, PartitionSpec("units")))`` puts them on several devices.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Num, Shaped

from dprl.arrays import AnyArray, Mask
from dprl.engine.layouts import UnitRows
from dprl.engine.program import QuickProgram
from dprl.mechanisms.gaussian_sum import GaussianSum, Stability

Included = Mask | range
"""Units that take part in a step: a private participation mask, or the public places of the step's batch."""
UNITS = "units"
"""Name of the only axis of the mesh."""
_EVERYWHERE, _APART = PartitionSpec(), PartitionSpec(UNITS)
_PLACED: dict[tuple[int, Mesh], tuple[Any, ...]] = {}


class Units(Protocol):
    """Units of privacy, and what one more person does to them."""

    @property
    def units(self) -> int:
        """Number of units, which is private; or number of places, where every unit has a public place."""
        ...

    @property
    def stability(self) -> tuple[Stability, ...]:
        """Everything that one more person may do to the set of units."""
        ...


class Source(Units, Protocol):
    """Units whose vectors are summed where the units are: in memory, in files, on other machines, or as they arrive."""

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: Any) -> Num[AnyArray, " dim"]:
        """Return the exact sum of the clipped vectors of the ``included`` units. Private."""
        ...


class Blocks(Units, Protocol):
    """Units whose rows compiled code can take by their numbers."""

    def block(self, units: Any, state: Any = None) -> Any:
        """Return the rows of the ``units``.

        Where people interact with a policy, their rows are what they do under the policy of the ``state``.
        """
        ...


def clipped_sum(program: Any, stage: int, mechanism: Any, state: Any, block: Any, included: Mask) -> Num[Array, " dim"]:
    """Return the exact sum of a block's clipped vectors, by the program's own, quicker way if it has one."""
    if isinstance(program, QuickProgram):
        return program.clipped_sum(stage, mechanism, state, block, included)
    return mechanism.clipped_sum(program.contribution(stage, state, block), included)


def sum_of_blocks(
    program: Any, stage: int, mechanism: GaussianSum, state: Any, blocks: Iterable[tuple[Any, Any]], several: bool
) -> Int[np.ndarray, " dim"]:
    """Return the sum over blocks of rows that were made on the host.

    Args:
        blocks: pairs of rows ``(B, ...)`` and a mask ``(B,)`` of those that count; all blocks have one size.
        several: whether there may be more than one block. If so, several devices share the blocks.
    """
    mesh = unit_mesh() if several and mechanism.certifies else None
    together, left = 1 if mesh is None else mesh.size, iter(blocks)
    total = np.zeros(mechanism.dimension, np.int64)
    while some := list(itertools.islice(left, together)):
        size = together * len(some[0][1])
        given = some[0] if together == 1 else jax.tree.map(lambda *x, n=size: padded(np.concatenate(x), n), *some)
        total = total + np.asarray(_block_sum(program, stage, mechanism, state, given, mesh))
    return total


def padded(rows: Shaped[np.ndarray, "rows ..."], count: int) -> Shaped[np.ndarray, "count ..."]:
    """Append zeros to ``rows``, up to ``count`` rows in all."""
    return np.pad(rows, [(0, count - len(rows))] + [(0, 0)] * (rows.ndim - 1))


@partial(jax.jit, static_argnames=("program", "stage", "mechanism", "mesh"))
def _block_sum(program: Any, stage: int, mechanism: Any, state: Any, given: Any, mesh: Any) -> Any:
    def total_of(state: Any, given: Any) -> Any:
        return clipped_sum(program, stage, mechanism, state, *given)

    return total_of(state, given) if mesh is None else all_reduced(mesh, total_of, state, given)


# --- several devices ------------------------------------------------------------------------------------------------


def unit_mesh() -> Mesh | None:
    """Return a mesh of this process's devices; None where there is only one, or where the user set a default device."""
    devices = jax.local_devices()
    if len(devices) == 1 or jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return None
    return Mesh(np.array(devices), (UNITS,))


def all_reduced(mesh: Mesh, summed: Callable[[Any, Any], jax.Array], same: Any, apart: Any) -> jax.Array:
    """Return the sum of ``summed(same, part)`` over the devices, each of which has a part of ``apart``'s leading axis.

    The result is exact where the sums are whole numbers. Arguments may be traced.
    """

    def here(same: Any, part: Any) -> jax.Array:
        return jax.lax.psum(summed(same, part), UNITS)

    # a loop in `summed` may start from zeros that are the same on all devices, which check_vma would refuse
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
        block_sum: compiled function of program, stage, mechanism, state, the columns of ``data``, and row indices
            ``(B, L)`` with a mask ``(B,)`` of the units that count, as :meth:`UnitRows.chunks` gives them.
        width: function that gives, for units of a length, the number of units in a slice; ``block_sum`` adds up one
            slice after the other.
    """
    rate, total = mechanism.sampling_rate, np.zeros(mechanism.dimension, dtype=np.int64)
    expected = max(1, round(data.declared * rate))
    options, apart, same = (program, stage, mechanism), NamedSharding(mesh, _APART), None
    for index, live, spread in _grouped(data.chunks(included, rate), mesh.size, width, expected, data.padding):
        # np.asarray waits for the result, so that no two all-reductions run at once
        if not spread:
            total += np.asarray(block_sum(*options, state, data.columns, index, live))
            continue
        if same is None:
            same = jax.device_put(state, NamedSharding(mesh, _EVERYWHERE)), _placed(data, mesh)
        total += np.asarray(_all_reduced(mesh, block_sum, options, same, jax.device_put((index, live), apart)))
    return total


def _grouped(
    chunks: Iterator[tuple[np.ndarray, np.ndarray]],
    devices: int,
    width: Callable[[int], int],
    expected: int,
    padding: int,
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yield the same units in groups of blocks, and whether several devices share a group.

    A group has so many blocks that every device gets the same number of whole slices. Where only one slice is expected,
    each block goes to one device. The number of blocks and their size follow only from the length of the bucket and
    from public facts.
    """
    for (block, length), blocks in itertools.groupby(chunks, key=lambda chunk: chunk[0].shape):
        slices = max(1, block // width(length))
        spread = slices > 1 or expected > block
        together = devices // math.gcd(devices, slices) if spread else 1
        while some := list(itertools.islice(blocks, together)):
            index, live = (np.concatenate(parts) for parts in zip(*some, strict=True))
            missing = together * block - len(live)
            filled = np.pad(index, [(0, missing), (0, 0)], constant_values=padding)
            yield filled, np.pad(live, (0, missing)), spread


def _placed(data: UnitRows, mesh: Mesh) -> tuple[Any, ...]:
    """Return the rows, copied to every device. The copies live as long as ``data``."""
    key = id(data), mesh
    if key not in _PLACED:
        _PLACED[key] = jax.device_put(data.columns, NamedSharding(mesh, _EVERYWHERE))
        weakref.finalize(data, _PLACED.pop, key, None).atexit = False
    return _PLACED[key]


@partial(jax.jit, static_argnames=("mesh", "block_sum", "options"))
def _all_reduced(
    mesh: Mesh, block_sum: Callable[..., jax.Array], options: tuple[Any, ...], same: tuple[Any, Any], units: Any
) -> jax.Array:
    return all_reduced(mesh, lambda same, units: block_sum(*options, *same, *units), same, units)
