"""Faults in doubly robust values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dprl.evaluation import around, reach

from .planting import Planting, fault


@fault("estimates cut at two half-widths of the value range", "values are enclosed")
def _(planting: Planting) -> None:
    def cut(original: Callable[..., Any]) -> Callable[..., Any]:
        def estimates(query: Any, *more: Any) -> Any:
            *ends, weight = original(query, *more)
            low, high = query.bounds.value_interval(query.config.discount)
            return [*(np.clip(x, query.centre - high + low, query.centre + high - low) for x in ends), weight]

        return estimates

    planting.replace(around, "estimates", cut)


@fault("a baseline where the weights are cut", "values are enclosed")
def _(planting: Planting) -> None:
    """What was cut is then worth what the value function says, and not all that it may be."""
    planting.replace(around.AroundQuery, "sides", lambda original: lambda query: 1)


@fault("a reach of products that are never cut", "no estimate is clipped")
def _(planting: Planting) -> None:
    planting.replace(reach, "farthest", lambda original: lambda *facts, both: 0.3 * original(*facts, both=both))
