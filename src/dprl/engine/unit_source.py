"""Where units come from, what one more person does to them, and how they are summed, on one device or on several.

Coins and noise are not drawn here. Sums are of int64 grid points, so they are exact: where the units are, and in which
order and blocks they are added, changes no digit.

Where JAX sees several devices each takes other units. A device computes whole slices of units in the compiled shapes of
one device, so that a unit's vector is the same to the last bit wherever it is computed; the sums are all-reduced. The
rows are on every device. Several processors of a host are seen with
``XLA_FLAGS=--xla_force_host_platform_device_count=N``, one GPU alone with ``CUDA_VISIBLE_DEVICES=0``.

Trials of an experiment need nothing of this: ``jit(vmap(...))`` over noise keys goes where the keys were put, with
``jax.device_put(keys, NamedSharding(mesh, PartitionSpec("units")))``.
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
from dprl.engine.options import QuickProgram
from dprl.mechanisms.gaussian_sum import GaussianSum, Stability

Included = Mask | range
"""Who takes part in a step: a private participation mask, or the public places of its batch."""
UNITS = "units"
"""The mesh's one axis."""
_EVERYWHERE, _APART = PartitionSpec(), PartitionSpec(UNITS)
_PLACED: dict[tuple[int, Mesh], tuple[Any, ...]] = {}


class Units(Protocol):
    """Units of privacy, and what one more person does to them."""

    @property
    def units(self) -> int:
        """Number of units, private; or number of places, where every unit has a public one."""
        ...

    @property
    def stability(self) -> tuple[Stability, ...]:
        """All that one more person may do to the set of units."""
        ...


class Source(Units, Protocol):
    """Units whose vectors are summed where they are: in memory, in files, on other machines, as they arrive."""

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: Any) -> Num[AnyArray, " dim"]:
        """Return the exact sum of the clipped vectors of those who are ``included``. Private."""
        ...


class Blocks(Units, Protocol):
    """Units whose rows compiled code can take by their numbers."""

    def block(self, units: Any, state: Any = None) -> Any:
        """Return the rows of the ``units``.

        People who meet a policy do what they do when it is the policy of the ``state``.
        """
        ...


def clipped_sum(program: Any, stage: int, mechanism: Any, state: Any, block: Any, included: Mask) -> Num[Array, " dim"]:
    """Return the exact sum of a block's clipped vectors, by the program's quicker way if it has one."""
    if isinstance(program, QuickProgram):
        return program.clipped_sum(stage, mechanism, state, block, included)
    return mechanism.clipped_sum(program.contribution(stage, state, block), included)


def sum_of_blocks(
    program: Any, stage: int, mechanism: GaussianSum, state: Any, blocks: Iterable[tuple[Any, Any]], several: bool
) -> Int[np.ndarray, " dim"]:
    """Return the sum over blocks of rows that were made on the host.

    Args:
        blocks: rows ``(B, ...)`` and which of them count ``(B,)``, all of one size.
        several: whether there may be more than one block: then each device takes others, where there are several.
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
    options, apart, same = (program, stage, mechanism), NamedSharding(mesh, _APART), None
    for index, live, spread in _grouped(data.chunks(included, rate), mesh.size, width, expected, data.padding):
        # as a NumPy array it is waited for: no two all-reductions are under way
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
    """Yield the same units in so many blocks at a time that each device has as many whole slices of them, and whether
    several devices share them: where all that is expected is one slice, one device takes each block.

    How many blocks, and their size, follow from the length of the bucket and public facts alone.
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
    """Return the rows on every device. They stay there for as long as ``data`` lives."""
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
