"""Where units come from: what the two loops ask of them, and what one more person does to them.

Coins and noise are not drawn here. Sums are of int64 grid points, so they are exact: where the units are, and in which
order and blocks they are added, changes no digit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Array, Int, Num, Shaped

from dprl.arrays import AnyArray, Mask
from dprl.engine.devices import all_reduced, unit_mesh
from dprl.engine.options import QuickProgram
from dprl.mechanisms.gaussian_sum import GaussianSum, Stability

Included = Mask | range
"""Who takes part in a step: a private participation mask, or the public places of its batch."""


class Source(Protocol):
    """Units whose vectors are summed where they are: in memory, in files, on other machines, as they arrive."""

    @property
    def units(self) -> int:
        """Number of units, private; or number of places, where every unit has a public one."""
        ...

    @property
    def stability(self) -> tuple[Stability, ...]:
        """All that one more person may do to the set of units."""
        ...

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: Any) -> Num[AnyArray, " dim"]:
        """Return the exact sum of the clipped vectors of those who are ``included``. Private."""
        ...


class Blocks(Protocol):
    """Units whose rows compiled code can take by their numbers."""

    @property
    def units(self) -> int:
        """Number of units, private; or number of places."""
        ...

    @property
    def stability(self) -> tuple[Stability, ...]:
        """All that one more person may do to the set of units."""
        ...

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
    while some := list(islice(left, together)):
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
