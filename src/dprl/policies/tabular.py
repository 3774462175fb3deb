"""A table of action probabilities over whole-numbered states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl.errors import DprlError


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """Row ``s - low`` of a table, for the state's one component ``s``; NumPy or JAX arrays in, the same out.

    Components are rounded to the nearest whole number and cut to the table; a NaN state has NaN probabilities.

    Attributes:
        table: ``(S, A)`` probabilities, each row summing to 1.
        low: the state of the first row.
    """

    table: np.ndarray
    low: int = 0

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float64)
        if table.ndim != 2 or 0 in table.shape:
            raise DprlError("A tabular policy needs a table of shape (states, actions).")
        if not (np.all(table >= 0) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-6)):
            raise DprlError("Each row of a tabular policy must be non-negative and sum to 1.")
        object.__setattr__(self, "table", table)

    def __call__(self, states: Any, /) -> Any:
        """Return action probabilities ``(N, A)`` at ``states`` ``(N, d)``."""
        xp = states.__array_namespace__()
        component = xp.asarray(states[:, 0], dtype=xp.float64)
        known = ~xp.isnan(component)
        index = xp.clip(xp.round(xp.where(known, component, 0.0)) - self.low, 0, len(self.table) - 1)
        rows = xp.asarray(self.table)[index.astype(xp.int64)]
        return xp.where(known[:, None], rows, xp.nan)
