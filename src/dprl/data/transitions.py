"""A log by transitions: every row stands for itself, as the privacy unit "transition" has it.

Privacy unit: one tuple (s, a, r, s'). What a row becomes is made of its own cells alone: the next state stands in it,
there is no time step and no identifier, and no row is checked against another one. So no row that is broken, missing
or repeated changes what any other row contributes. What follows for the guarantee: docs/proofs/transition.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dprl.data.trajectories import Trajectories, by_reason, cells_of_rows, defects_of_rows, flags, next_in_the_row
from dprl.protocols import Bounds

TRANSITION = "transition"


def assemble_transitions(columns: Mapping[str, np.ndarray], bounds: Bounds) -> Trajectories:
    """Return every row as an episode and a unit of its own, clamped and marked; nothing in the rows makes this raise.

    Rows are in the order of their clamped contents, bit by bit: no identifier says which was first, and two that are
    the same in everything are interchangeable. So the result does not depend on the order in which they stand.

    Args:
        columns: as :func:`~dprl.data.trajectories.assemble` takes them, with ``next_observation``; identifiers,
            ``t`` and ``truncated`` are left alone.
        bounds: public bounds; ``units`` is the declared number of transitions.
    """
    rows = np.arange(len(columns["reward"]))
    following, known = next_in_the_row(columns, rows, bounds)
    broken = np.zeros(len(rows), dtype=bool)
    for _, found in defects_of_rows(columns, rows, bounds):
        broken |= found
    offsets = np.arange(len(rows) + 1, dtype=np.int64)
    log = Trajectories(
        **cells_of_rows(columns, rows, bounds),
        next_observation=following,
        terminated=flags(columns, "terminated", rows),
        has_next=known,
        episode_offsets=offsets,
        unit_offsets=offsets,
        valid=~broken,
        bounds=bounds,
        unit=TRANSITION,
    )
    order = _canonical_order(log)
    return replace(
        log,
        **{name: getattr(log, name)[order] for name in _PER_ROW},
        target_prob={name: values[order] for name, values in log.target_prob.items()},
    )


_PER_ROW = (
    "observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "has_next", "valid",
)  # fmt: skip


def _canonical_order(log: Trajectories) -> np.ndarray:
    """Return ``(N,)`` rows in the order of the bits of their contents, which tell 0.0 from -0.0."""
    parts = [getattr(log, name) for name in _PER_ROW] + [log.target_prob[name] for name in sorted(log.target_prob)]
    table = np.column_stack([part.astype(np.float64) for part in parts])
    keys = np.ascontiguousarray(table.T).view(np.int64)
    return np.lexsort(keys)


def count_defects_of_rows(columns: Mapping[str, np.ndarray], bounds: Bounds) -> dict[str, int]:
    """Return number of rows that contribute nothing, by reason; one with several defects counts under each. NOT
    private.
    """
    defects = by_reason(defects_of_rows(columns, np.arange(len(columns["reward"])), bounds))
    return {reason: int(rows.sum()) for reason, rows in defects.items()}
