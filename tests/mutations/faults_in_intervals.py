"""Faults in what is said of a value: its interval, its errors, and whether it says anything."""

from __future__ import annotations

import dataclasses
from typing import Any

from dprl.bounds import Bounds
from dprl.engine.plan import Plan
from dprl.evaluation import importance_intervals as intervals
from dprl.evaluation import importance_sampling as importance

from .planting import Planting, fault, gives


@fault(
    "an interval of sampling error and noise alone, where ratios are cut",
    "what is cut is counted",
    (importance, "bounded_estimate"),
)
def _(original: Any, facts: Any, parts: list[float]) -> Any:
    found = original(facts, parts)
    half = facts.t * (found.privacy_standard_error**2 + found.sampling_standard_error**2) ** 0.5
    middle = sum(found.interval) / 2.0
    return dataclasses.replace(found, interval=(middle - half, middle + half))


@fault("products cut at the largest ratio of one step, as if nothing were", "what is cut is counted")
def _(planting: Planting) -> None:
    planting.replace(Bounds, "cuts_products", lambda original: lambda bounds: False)
    planting.replace(Bounds, "cumulative_ratio", lambda original: lambda bounds: float(bounds.max_importance_ratio))


fault(
    "a mean weight that nobody looks at", "a ratio declared too small shows in the weights", (intervals, "weight_notes")
)(gives(()))


@fault(
    "people who may be missing are left out of the interval",
    "a few people who are not there are counted though weights do not show them",
    (intervals, "end_with_missing_people"),
)
def _(original: Any, end: Any, *mean: Any) -> Any:
    return end


@fault(
    "the number of people of a subgroup is taken as it is",
    "the interval holds where the number of people is noisy",
    (intervals, "farthest_ratio"),
)
def _(original: Any, mean: float, error: float, share: float, share_error: float, t: float) -> Any:
    return mean + t * error


@fault(
    "a noisy variance that is taken as it is",
    "a sampling error comes with how large it may be",
    (intervals, "variance_at_most"),
)
def _(original: Any, variance: Any, *error: Any) -> Any:
    return max(variance, 0.0)


@fault(
    "an interval that leaves the declared range",
    "no interval leaves the declared range and values outside are said to be",
    (intervals, "within_range"),
)
def _(original: Any, value: Any, ends: Any, *declared: Any) -> Any:
    return (ends, ())


fault("a release that can say nothing", "hopeless settings are refused and say what to change", (Plan, "hopeless"))(
    gives([False])
)
