"""The release of all policies' values, whichever estimator it is: importance sampling, or doubly robust."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl.data.trajectories import Trajectories
from dprl.evaluation import around
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation.around import AroundQuery, Baseline
from dprl.evaluation.importance_sampling import Query
from dprl.evaluation.intervals import ValueEstimate
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.linear import ValueFunction

ValueQuery = Query | AroundQuery


def mechanism(query: ValueQuery, noise_multiplier: float) -> GaussianSum:
    """The one mechanism through which the trajectories are touched for their values."""
    return GaussianSum(parts=((query.dimension, query.clip_norm),), noise_multiplier=noise_multiplier)


def baseline_of(query: ValueQuery, function: ValueFunction | None) -> Baseline | None:
    """The released value function around which values are taken; None where they need none."""
    if not isinstance(query, AroundQuery):
        return None
    assert function is not None, "values around a value function are made after it"
    return around.baseline_of(query, function)


def unit_vectors(
    query: ValueQuery,
    trajectories: Trajectories,
    policies: Sequence[Any],
    behavior: Any = None,
    baseline: Baseline | None = None,
) -> np.ndarray:
    """``(U, dimension)`` vectors of the units, before they are clipped. Private."""
    if isinstance(query, AroundQuery):
        assert baseline is not None
        return around.unit_vectors(query, trajectories, policies, behavior, baseline)
    return importance.unit_vectors(query, trajectories, policies, behavior)


def decode(
    query: ValueQuery, mechanism: GaussianSum, noised: np.ndarray, baseline: Baseline | None = None
) -> list[ValueEstimate]:
    """Values and intervals of all target policies from the released vector: post-processing."""
    if isinstance(query, AroundQuery):
        assert baseline is not None
        return around.decode(query, mechanism, noised, baseline)
    return importance.decode(query, mechanism, noised)


def expect(query: ValueQuery, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
    """Of each target policy the privacy standard error, the largest sampling standard error, and the interval's
    half-width at that error, from public facts alone.
    """
    if isinstance(query, AroundQuery):
        return around.expect(query, mechanism)
    return importance.expect(query, mechanism)
