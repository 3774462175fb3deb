"""Visits of a bandit, as a file and in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.data.partition import partition

COMPONENTS, ACTIONS = 2, 3


def visits(rows: int, people: int, seed: int = 0, bad: bool = True) -> pa.Table:
    """Of about as many people, in no order; some rows name nobody, and some cells are no number or out of bounds."""
    draws = np.random.default_rng(seed)
    who = draws.permutation(people)[draws.integers(0, people, rows)]
    names: list[Any] = [f"p{i:05d}" for i in who]
    cells = draws.uniform(-1.2, 1.2, (rows, COMPONENTS + ACTIONS))
    if bad:
        names = [None if lost else name for name, lost in zip(names, draws.random(rows) < 0.1, strict=True)]
        cells[draws.random(cells.shape) < 0.02] = np.nan
        cells[draws.random(cells.shape) < 0.01] = np.inf
    columns = {f"observation_{i}": cells[:, i] for i in range(COMPONENTS)}
    columns |= {f"reward_{a}": cells[:, COMPONENTS + a] for a in range(ACTIONS)}
    return pa.table({"person_id": pa.array(names, pa.string()), **columns})


def bounds(units: int, horizon: int = 1) -> dict[str, Any]:
    public = {"observation": [[-1, 1]] * COMPONENTS, "reward": [-1, 1], "actions": ACTIONS}
    return public | {"units": units, "horizon": horizon}


def file_and_parts(folder: Path, table: pa.Table, parts: int = 3) -> tuple[Path, Path]:
    """Of the same name, for the name stands in a release."""
    file = folder / "visits.parquet"
    pq.write_table(table, file)
    (folder / "in_parts").mkdir()
    partition(file, "person_id", parts, folder / "in_parts" / file.name)
    return file, folder / "in_parts" / file.name
