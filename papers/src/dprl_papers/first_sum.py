"""The privacy of a paper's noise as the first noisy sum alone shows it, and the words for ``dprl calibrate``."""

from __future__ import annotations

import math
from typing import Any

from dprl.accounting.budget import Budget
from dprl.cli.audit import rounded_down
from dprl.data.bounds_file import read_bounds
from dprl.engine.program import ValueFunctionConfig
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION
from dprl.policies.loading import ColumnPolicy
from dprl_papers.one_unit import RELATION, SENSITIVITY_IN_CLIPS


def noise_in_words(
    config: ValueFunctionConfig, budget: Budget, *, bounds: Any, features: str
) -> tuple[dict[str, Any], str]:
    """Return the noise of a calibration as published, and the assumptions of its theorem, as data and in words."""
    plan = make_plan(config, read_bounds(bounds), budget, [ColumnPolicy()], features, TOTAL_VARIATION)
    mechanism, units = plan.stages[-1].mechanism, plan.bounds.units
    assert plan.claim is not None
    conditions = plan.claim.conditions
    multiplier = SENSITIVITY_IN_CLIPS * mechanism.noise_multiplier  # relative to one clip norm, as papers print it
    least = initial_release_epsilon(units, multiplier, SENSITIVITY_IN_CLIPS, budget.delta)
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
    """Return the epsilon of the first release (p_0, d_0) alone.

    It is exact for the pair of datasets below, and therefore a lower bound on the epsilon of Algorithm 1.

    Both datasets have n records. In the first, every record pushes the sum by -G v, where v is a unit vector. In the
    second, one record pushes by (``push`` - 1) G v instead. A step takes one of the n records. Along v, and up to the
    common shift by -G, the release is N(0, sigma^2) for the first and (1 - 1/n) N(0, sigma^2) + (1/n) N(push G,
    sigma^2) for the second. The likelihood ratio increases. Let x be the threshold at which it is e^epsilon, s =
    push/sigma, Q the normal tail and q = 1/n. Then delta(epsilon) = (1-q) Q(x) + q Q(x - s) - e^epsilon Q(x), which
    decreases in epsilon.

    Args:
        units: number of records n.
        sigma: standard deviation of the noise, over G.
        push: how far replacing the record moves the sum, over G.
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

    # log(e^epsilon - 1 + rate), computed without e^epsilon, which may overflow
    log_gap = epsilon + math.log1p(-(1.0 - rate) * math.exp(-epsilon))
    x = (log_gap - math.log(rate)) / shift + shift / 2.0
    return float(rate * ndtr(shift - x) - math.exp(log_gap + float(log_ndtr(-x))))
