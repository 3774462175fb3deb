"""What the noise of a paper tells by its first noisy sum alone, and the words in which ``dprl calibrate`` says it."""

from __future__ import annotations

import math
from typing import Any

from dprl.accounting.budget import Budget
from dprl.cli.running import rounded_down
from dprl.data.bounds_file import read_bounds
from dprl.engine.options import ValueFunctionConfig
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION
from dprl.policies.loading import ColumnPolicy
from dprl_papers.one_unit import MOVED, RELATION


def noise_in_words(
    config: ValueFunctionConfig, budget: Budget, *, bounds: Any, features: str
) -> tuple[dict[str, Any], str]:
    """Return the noise of a calibration as published and what the theorem behind it assumes, as data and in words."""
    plan = make_plan(config, read_bounds(bounds), budget, [ColumnPolicy()], features, TOTAL_VARIATION)
    mechanism, units = plan.stages[-1].mechanism, plan.bounds.units
    assert plan.claim is not None
    conditions = plan.claim.conditions
    multiplier = MOVED * mechanism.noise_multiplier  # over one clip norm, as papers print it
    least = initial_release_epsilon(units, multiplier, MOVED, budget.delta)
    made = {
        "algorithm": plan.name,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": RELATION,
        "units": units,
        "noise_multiplier": multiplier,
        "sampling_rate": mechanism.sampling_rate,
        "steps": mechanism.steps,
        "preconditions": plan.claim.preconditions,
        "epsilon_at_least": least,
    }
    lines = [
        f"as published: noise multiplier {multiplier:.6g} (noise standard deviation over the bound on "
        f"a gradient), {mechanism.steps} steps of one unit each",
        f"claimed: epsilon {budget.epsilon:g}, delta {budget.delta:g}; this certifies nothing",
        *(f"{c.statement}: this {'holds' if c.holds else 'does not hold'} here" for c in conditions),
        f"epsilon of the first noisy sum alone is at least {rounded_down(least)}, {RELATION}",
    ]
    return made, "\n".join(lines)


def initial_release_epsilon(units: int, sigma: float, push: float, delta: float) -> float:
    """Return epsilon of (p_0, d_0) alone: exact for the pair below, and so a lower bound for Algorithm 1.

    Two data sets of n records, all of which push by -G v but for the one that is replaced, which pushes by the rest of
    ``push`` the other way, v a unit vector. What is released is N(0, sigma^2) against
    (1 - 1/n) N(0, sigma^2) + (1/n) N(push G, sigma^2) along v. The likelihood ratio increases, so with the threshold x
    at which it is e^epsilon, delta(epsilon) = (1-q) Q(x) + q Q(x - s) - e^epsilon Q(x) with s = push/sigma, Q the
    normal tail and q = 1/n; it decreases in epsilon.

    Args:
        units: n.
        sigma: over G.
        push: how far the replaced record moves the sum, over G.
    """
    from scipy.optimize import brentq

    shift = push / sigma

    def excess(epsilon: float) -> float:
        return _mixture_delta(epsilon, 1.0 / units, shift) - delta

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-10, rtol=1e-12))  # type: ignore[arg-type]


def _mixture_delta(epsilon: float, rate: float, shift: float) -> float:
    """Return sup_S P(S) - e^epsilon Q(S) of P = (1-rate) N(0, 1) + rate N(shift, 1) and Q = N(0, 1)."""
    from scipy.special import log_ndtr, ndtr

    # log(e^epsilon - 1 + rate), without e^epsilon
    log_gap = epsilon + math.log1p(-(1.0 - rate) * math.exp(-epsilon))
    x = (log_gap - math.log(rate)) / shift + shift / 2.0
    return float(rate * ndtr(shift - x) - math.exp(log_gap + float(log_ndtr(-x))))
