"""Public modes: the few smooth functions of the state that a small budget can measure.

Modes lie in the span of the features that were asked for, and are orthonormal under the uniform distribution: product
cosines for Fourier and tabular features, the constant and the linear functions for columns. The first mode is the
constant 1, and smoother modes come before others.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from dprl.value_functions.features import Columns, Features, Fourier, Tabular

MOST_COLUMNS = 64
"""Components of the observation up to which statistics of ``columns``, quadratic in them, are worth it."""
_ONE_COMPONENT, _MOST_MODES = 9, 36
_HIGHEST_OF_TABLE = 5
Orders = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Modes:
    """Public arrays over ``K`` modes.

    Attributes:
        to_features: ``(n, K)`` matrix. The function sum_k c_k mode_k has the weights ``to_features @ c`` over the
            features, and ``phi @ to_features`` are the modes at a state.
        extreme: ``(E, K)`` squares of the modes at points that include the maximum of any weighted sum of the squares.
    """

    to_features: Float[np.ndarray, "n K"]
    extreme: Float[np.ndarray, "E K"]

    @property
    def size(self) -> int:
        """Number of modes."""
        return self.to_features.shape[1]


def has_modes(features: Features) -> bool:
    """Tell whether the modes of these features are known and few enough."""
    if isinstance(features, Columns):
        return features.size <= MOST_COLUMNS + 1
    return isinstance(features, Tabular | Fourier)


@lru_cache(maxsize=64)
def make_modes(features: Features) -> Modes:
    """Return the modes of a feature map, a function of public facts only."""
    if isinstance(features, Tabular):
        values = _cosines(_orders_of(features), features.counts)
        return Modes(values / math.sqrt(features.size), values**2)  # indicators are scaled by sqrt(S)
    # each mode is a feature, and all are largest at the same corner, where all cosines, or all columns, are largest
    low, high = np.array(features.bounds, dtype=np.float64).T
    if isinstance(features, Columns):
        rows, corner = np.array([0, *(1 + np.flatnonzero(high > low))]), high
    elif isinstance(features, Fourier):
        rows, corner = np.ravel_multi_index(np.transpose(_orders_of(features)), (features.order + 1,) * len(low)), low
    else:
        raise TypeError(f"no modes are known for features of type {type(features).__name__}")
    return Modes(np.eye(features.size)[:, rows], features(corner[None])[:, rows] ** 2)


def _cosines(orders: list[Orders], counts: tuple[int, ...]) -> Float[np.ndarray, "S K"]:
    """Return the product cosines of these orders at all states of a grid, each in the middle of its cell."""
    out = np.ones((math.prod(counts), len(orders)))
    cells = np.unravel_index(np.arange(len(out)), counts)
    for cell, count, order in zip(cells, counts, np.array(orders).T, strict=True):
        scale = np.where(order, math.sqrt(2.0), 1.0)
        out *= scale * np.cos(math.pi * (cell[:, None] + 0.5) / count * order)
    return out


def _orders_of(features: Tabular | Fourier) -> list[Orders]:
    """Return the orders of the modes: shells of equal frequency, lowest first, as many whole ones as are allowed."""
    varies = [high > low for low, high in features.bounds]
    if isinstance(features, Tabular):
        wanted = _ONE_COMPONENT - 1 if sum(varies) <= 1 else _HIGHEST_OF_TABLE
        highest = [min(wanted, count - 1) for count in features.counts]
    else:
        highest = [features.order] * len(varies)
    # an order above the number of modes cannot be among the lowest
    ranges = [range(min(h, _MOST_MODES) + 1 if v else 1) for h, v in zip(highest, varies, strict=True)]
    shells: dict[int, list[Orders]] = {}
    for index in itertools.product(*ranges):
        shells.setdefault(sum(j * j for j in index), []).append(index)
    chosen: list[Orders] = []
    for square in sorted(shells):
        if chosen and len(chosen) + len(shells[square]) > _MOST_MODES:
            break
        chosen += shells[square]
    return chosen
