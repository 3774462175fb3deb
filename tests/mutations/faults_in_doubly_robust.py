"""Faults in doubly robust values."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.evaluation import doubly_robust_estimates, doubly_robust_query, stratified
from dprl.evaluation.doubly_robust_estimates import AdaSSPWithSums

from .planting import fault, gives


@fault(
    "estimates cut at two half-widths of the value range",
    "it is unbiased for every value function",
    (doubly_robust_estimates, "estimates"),
)
def _(original: Any, query: Any, *more: Any) -> Any:
    *ends, weight = original(query, *more)
    low, high = query.bounds.value_interval(query.config.discount)
    return [*(np.clip(x, query.centre - high + low, query.centre + high - low) for x in ends), weight]


# What was cut is then worth what the value function says, and not all that it may be.
fault("a baseline where the weights are cut", "units are plain sums", (doubly_robust_query.DoublyRobustQuery, "sides"))(
    gives(1)
)


@fault(
    "a reach of products that are never cut", "no unit exceeds its clip norm", (doubly_robust_query, "largest_distance")
)
def _(original: Any, *facts: Any, both: Any) -> Any:
    return 0.3 * original(*facts, both=both)


@fault(
    "a trajectory is of every group of strata",
    "no unit is longer than the clip norm",
    (stratified, "_strata_of_groups"),
)
def _(original: Any, *given: Any) -> Any:
    found = original(*given)
    return None if found is None else np.ones_like(found)


@fault(
    "a baseline with a unit's own rewards in it",
    "values are unbiased around what was learned of the same people",
    (AdaSSPWithSums, "own_parts"),
)
def _(original: Any, *given: Any) -> Any:
    return 0.0 * original(*given)
