"""Policies given by an array: a table of probabilities, and a softmax of linear preferences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl.errors import DprlError


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """Policy that gives row ``s - low`` of a table for a state with the only component ``s``.

    States may be NumPy or JAX arrays; the result is of the same kind. Components are rounded to the nearest whole
    number and clamped to the rows of the table; a NaN state has NaN probabilities.

    Attributes:
        table: ``(S, A)`` probabilities, each row summing to 1.
        low: state of the first row.
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


@dataclass(frozen=True, eq=False)
class SoftmaxPolicy:
    """Policy ``softmax(features(states) @ weights / temperature)``.

    States may be NumPy or JAX arrays; the result is of the same kind.

    Attributes:
        weights: ``(n, A)`` preferences of each action, for each feature.
        features: map from states ``(N, d)`` to ``(N, n)``, row by row; by default a constant 1 and the components.
        temperature: a number above 0; towards 0 the policy becomes greedy.
    """

    weights: np.ndarray
    features: Callable[[Any], Any] | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 2 or 0 in weights.shape or not np.all(np.isfinite(weights)):
            raise DprlError("A softmax policy needs finite weights of shape (features, actions).")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise DprlError("The temperature of a softmax policy must be a finite number above 0.")
        object.__setattr__(self, "weights", weights)

    def __call__(self, states: Any, /) -> Any:
        """Return action probabilities ``(N, A)`` at ``states`` ``(N, d)``."""
        xp = states.__array_namespace__()
        states = xp.asarray(states, dtype=xp.float64)
        if self.features is None:
            phi = xp.concatenate([xp.ones((states.shape[0], 1), dtype=xp.float64), states], axis=1)
        else:
            phi = self.features(states)
        # one feature at a time, because a matrix product may round a row differently beside other rows
        table = xp.asarray(self.weights)
        preferences = sum(phi[:, i : i + 1] * table[i] for i in range(phi.shape[1])) / self.temperature
        weights = xp.exp(preferences - xp.max(preferences, axis=1, keepdims=True))
        return weights / xp.sum(weights, axis=1, keepdims=True)
