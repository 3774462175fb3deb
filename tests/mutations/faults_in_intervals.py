"""Faults in what is said of a value: its interval, its errors, and whether it says anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dprl.engine.plan import Plan
from dprl.evaluation import importance_intervals as intervals
from dprl.evaluation import importance_sampling as importance
from dprl.protocols import Bounds

from .planting import Planting, fault


@fault("an interval of sampling error and noise alone, where ratios are cut", "what is cut is counted")
def _(planting: Planting) -> None:
    def narrow(original: Callable[..., Any]) -> Callable[..., Any]:
        def estimate(known: Any, parts: list[float]) -> Any:
            found = original(known, parts)
            half = known.t * (found.privacy_standard_error**2 + found.sampling_standard_error**2) ** 0.5
            middle = sum(found.interval) / 2.0
            return dataclasses.replace(found, interval=(middle - half, middle + half))

        return estimate

    planting.replace(importance, "between_bounds", narrow)


@fault("products cut at the largest ratio of one step, as if nothing were", "what is cut is counted")
def _(planting: Planting) -> None:
    planting.replace(Bounds, "cuts_products", lambda original: lambda bounds: False)
    planting.replace(Bounds, "cumulative_ratio", lambda original: lambda bounds: float(bounds.max_importance_ratio))


@fault("a mean weight that nobody looks at", "false facts show")
def _(planting: Planting) -> None:
    planting.replace(intervals, "weight_notes", lambda original: lambda *mean: ())


@fault("people who may be missing are left out of the interval", "missing people are counted")
def _(planting: Planting) -> None:
    planting.replace(intervals, "with_missing", lambda original: lambda end, *mean: end)


@fault("a noised variance that is taken as it is", "sampling errors are bounded")
def _(planting: Planting) -> None:
    planting.replace(intervals, "variance_at_most", lambda original: lambda variance, *error: max(variance, 0.0))


@fault("an interval that leaves the declared range", "sampling errors are bounded")
def _(planting: Planting) -> None:
    planting.replace(intervals, "within_range", lambda original: lambda value, ends, *declared: (ends, ()))


@fault("a release that can say nothing", "the hopeless is refused")
def _(planting: Planting) -> None:
    planting.replace(Plan, "hopeless", lambda original: lambda plan: [False])
