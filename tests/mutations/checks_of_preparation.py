"""The check of what stands before a log: a table is prepared person by person."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import dprl

from .lab import check, require

_BOUNDS: dict[str, Any] = {
    "units": 20, "horizon": 4, "reward": [0, 2], "observation": [[0, 1]] * 3, "actions": 2, "max_importance_ratio": 2,
    "prepare": {
        "person": "person", "step": "day", "action": "arm", "reward": "score", "outcome": "sum", "behavior_prob": 0.5,
        "observation": [{"previous": "score"}, "site"], "codes": {"site": ["a", "b"], "arm": ["no", "yes"]},
    },
}  # fmt: skip


@check
def a_persons_rows_become_what_they_become_alone() -> None:
    rng, rows = np.random.default_rng(0), 60
    table = pa.table({
        "person": rng.integers(0, 20, rows), "day": rng.permutation(rows), "arm": rng.choice(["no", "yes"], rows),
        "score": rng.uniform(0, 1, rows), "site": rng.choice(["a", "b", "c"], rows),
    })  # fmt: skip
    together = dprl.prepare(table, _BOUNDS)
    for person in range(20):
        own = pa.array(np.flatnonzero(np.asarray(table["person"]) == person))
        require(dprl.prepare(table.take(own), _BOUNDS).equals(together.take(own)), "somebody else's rows matter")
