"""Largest size of a unit's doubly robust estimate, from public facts only, by going back from the horizon.

The size is exact for one estimate; for a pair of estimates, or with a declared range of returns, it is an upper bound.
Symbols: R the largest importance ratio of one step, W the largest product of ratios, w the weight of a trajectory
before a step, x its weight after the step, V the baseline. Derivation: docs/proofs/doubly-robust.md.
"""

from __future__ import annotations

import math

import numpy as np

from dprl.bounds import Bounds, Interval
from dprl.engine.to_come import ToCome

DIRECTIONS = 16
_SMALLEST = 1e-9  # smaller weights do not matter
ROUNDING = 1.0 + 1e-9


def farthest(bounds: Bounds, discount: float, known: ToCome, baseline: ToCome, centre: float, *, both: bool) -> float:
    """Return the largest distance of a unit's lower estimate L from ``centre``.

    Args:
        bounds: public bounds of the log.
        discount: gamma.
        known: range of the returns that are still to come at each step.
        baseline: range of V at each step.
        centre: where the distance is measured from.
        both: measure the distance of the point (L, U) from (centre, centre) instead; U is the upper estimate.
    """
    if not both:
        ends = (largest(bounds, discount, known, baseline, sign, 0.0) - sign * centre for sign in (1.0, -1.0))
        return max(*ends, 1e-300) * ROUNDING
    radius = 0.0
    for angle in 2.0 * math.pi * np.arange(DIRECTIONS) / DIRECTIONS:
        a, b = math.cos(angle), math.sin(angle)
        radius = max(radius, largest(bounds, discount, known, baseline, a, b) - (a + b) * centre)
    # a point within the radius in all directions lies in the polygon around the circle
    return max(radius / math.cos(math.pi / DIRECTIONS), 1e-300) * ROUNDING


def largest(bounds: Bounds, discount: float, known: ToCome, baseline: ToCome, a: float, b: float) -> float:
    """Return the largest ``a L + b U`` that the rows of a trajectory can make, or an upper bound of it."""
    rewards = _back(bounds, discount, known, baseline, a, b, bounds.reward)
    low, high = bounds.reward
    if bounds.return_range is None or low < 0.0 < high:
        return rewards
    # where rewards have one sign, their weighted sum is at most the largest weight times the largest return
    most = bounds.cumulative_ratio * max((a + b) * known.low[0], (a + b) * known.high[0], 0.0)
    return min(rewards, most + _back(bounds, discount, known, baseline, a, b, (0.0, 0.0)))


def _back(
    bounds: Bounds, discount: float, known: ToCome, baseline: ToCome, a: float, b: float, rewards: Interval
) -> float:
    """Return the largest ``a L + b U`` with rewards in this range, by dynamic programming over the weight.

    What is still to come is piecewise convex in the weight, so it is largest at one of finitely many weights.
    """
    limit, ratio, both = bounds.cumulative_ratio, bounds.max_importance_ratio, a + b
    weights = _weights(bounds)
    reachable = np.minimum(weights * ratio, limit) * ROUNDING
    upto, downto = (np.searchsorted(weights, x, side="right") - 1 for x in (reachable, weights * ROUNDING))
    safe = np.full(len(weights), True) if not bounds.cuts_products else weights * ratio <= limit * ROUNDING
    unsafe = bounds.cuts_products & (weights * ratio * ROUNDING >= limit)
    reward = max(both * rewards[0], both * rewards[1])
    after = np.zeros(len(weights))
    for t in range(bounds.horizon - 1, -1, -1):
        to_go = discount * np.maximum(after, 0.0)  # a trajectory may end with any step
        ends = both * baseline.low[t], both * baseline.high[t]

        def best(value: float, where: np.ndarray, to_go: np.ndarray = to_go) -> np.ndarray:
            return weights * value + np.maximum.accumulate(weights * (reward - value) + to_go)[where]

        after = np.where(safe, np.maximum(best(min(ends), upto), best(max(ends), downto)), -np.inf)
        after = np.where(unsafe, np.maximum(after, best(a * known.low[t] + b * known.high[t], upto)), after)
    return float(after[np.searchsorted(weights, 1.0)])


def _weights(bounds: Bounds) -> np.ndarray:
    """Return ``(P,)`` ascending weights: where what is still to come may bend, and the largest after each number of
    steps.
    """
    limit, ratio = bounds.cumulative_ratio, bounds.max_importance_ratio
    if ratio <= 1.0:
        return np.array([0.0, 1.0])
    steps = min(bounds.horizon, math.ceil(math.log(limit) / math.log(ratio)) + 1)
    up = np.minimum(ratio ** np.arange(steps + 1.0), limit)
    if not bounds.cuts_products:
        return np.unique(np.append(0.0, up))
    count = min(bounds.horizon, math.ceil(math.log(limit / _SMALLEST) / math.log(ratio)))
    return np.unique(np.concatenate([[0.0], up, limit / ratio ** np.arange(count + 1.0)]))
