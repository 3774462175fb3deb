"""Renyi filter at one fixed order: for noise that is chosen step by step from what was released before.

Feldman and Zrnic, "Individual privacy accounting via a Renyi filter" (NeurIPS 2021), Theorem 4.3; Lecuyer, "Practical
privacy filters and odometers with Renyi differential privacy" (2021). If the Renyi divergences of order alpha of all
steps, each given the past, surely add up to at most B, all steps together are (alpha, B)-RDP. A privacy loss
distribution would need every step's noise beforehand. Relation: add or remove one. Proof: docs/proofs/renyi-filter.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dprl.accounting.schema import positive, whole
from dprl.accounting.slow_imports import slow_modules_later
from dprl.errors import require

with slow_modules_later():
    from dp_accounting import NeighboringRelation
    from dp_accounting import dp_event as dpe
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

WHOLE = 2**40
"""The budget in the filter's integer units; every cost is rounded up to a whole number of units."""
MOST_LEVELS = 64
NO_NOISE_HELPS = "raise the budget, or lower the sampling rate or the number of steps."
"""Advice to a user where no noise meets a budget."""
NORM_ROUNDING = 2.0**-8
"""Room for rounding in a computed norm's sensitivity, relative to the clip norm (docs/proofs/renyi-filter.md)."""
ORDERS = (*range(2, 33), *(round(32 * 1.06**k) for k in range(1, 96)))
"""Orders among which a plan chooses: whole numbers, for which the divergence is a finite sum."""
# room for rounding: log A_alpha is a sum of logarithms of up to some 1e5, in double precision
_ROUNDING = 1e-10
_TOLERANCE = 1e-6  # relative precision of a calibrated multiplier


@dataclass(frozen=True)
class RenyiFilterEvent(dpe.DpEvent):
    """Event of a stage under the filter, and of the releases that were charged to its order before the stage.

    No other event may be composed with it.

    Attributes:
        order: alpha, a whole number of at least 2.
        budget: RDP of that order that the steps of the stage may spend together.
        sampling_probability: Poisson rate of every step.
        noise_multipliers: levels z_k among which every step chooses.
        norm_multiplier: z_n, standard deviation of the noise on each sum's norm, over the clip norm.
        steps: largest number of steps.
        before: noise multipliers of the Gaussian releases of everybody before the stage.
    """

    order: int
    budget: float
    sampling_probability: float
    noise_multipliers: tuple[float, ...]
    norm_multiplier: float
    steps: int
    before: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.budget, self.norm_multiplier, *self.noise_multipliers, *self.before)
        sound = (
            whole(self.order)
            and whole(self.steps)
            and 2 <= self.order <= ORDERS[-1]
            and 1 <= len(self.noise_multipliers) <= MOST_LEVELS
            and 0.0 < self.sampling_probability <= 1.0
            and all(map(positive, numbers))
        )
        require(sound, "A Renyi filter needs a whole order of at least 2, a positive budget and up to 64 levels.")

    @property
    def rdp(self) -> float:
        """Return the RDP of the whole release, rounded up."""
        total = Fraction(self.budget) + sum(Fraction(gaussian_cost(self.order, z)) for z in self.before)
        return _rounded(total, 1)

    @property
    def parts(self) -> list[tuple[Any, ...]]:
        """Return the parts of the release, in order: the releases before the stage, and its steps under the filter."""
        before = [(1.0, z, 1) for z in self.before]
        of_steps = (self.noise_multipliers, self.steps, self.norm_multiplier, self.order, self.budget)
        return [*before, (self.sampling_probability, *of_steps)]

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at ``delta`` (Canonne, Kamath and Steinke 2020, Proposition 12, from dp_accounting)."""
        return epsilon_of_rdp(self.order, self.rdp, delta)


def effective_multiplier(noise_multiplier: float, norm_multiplier: float) -> float:
    """Return the noise multiplier of a sum and its norm together: ``(1/z^2 + (1 + 2^-8)^2/z_n^2)^(-1/2)``."""
    return 1.0 / math.hypot(1.0 / noise_multiplier, (1.0 + NORM_ROUNDING) / norm_multiplier)


def gaussian_cost(order: int, noise_multiplier: float) -> float:
    """Return the RDP of one Gaussian release of everybody, ``alpha / (2 z^2)``, rounded up."""
    return math.nextafter(order / (2.0 * noise_multiplier**2) * (1.0 + 2.0**-50), math.inf)


@functools.lru_cache(maxsize=4096)
def cost(order: int, sampling_rate: float, noise_multiplier: float) -> float:
    """Return an upper bound on the RDP of one Poisson-sampled Gaussian for add or remove one; ``inf`` without a bound.

    The larger of the two directions is ``D(mixture || Gaussian)`` (Mironov, Talwar and Zhang 2019, Theorem 5).
    """
    if sampling_rate == 1.0:
        return gaussian_cost(order, noise_multiplier)
    accountant = RdpAccountant([order], NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dpe.PoissonSampledDpEvent(sampling_rate, dpe.GaussianDpEvent(noise_multiplier)))
    found = float(accountant.rdp[0])
    return math.inf if math.isnan(found) else max(found, 0.0) * (1.0 + _ROUNDING) + _ROUNDING / (order - 1)


def integer_cost(order: int, sampling_rate: float, noise_multiplier: float, budget: float) -> int:
    """Return a step's cost in multiples of ``budget / 2^40``, rounded up; ``2^40 + 1`` for a step that never fits."""
    one = cost(order, sampling_rate, noise_multiplier)
    return math.ceil(Fraction(one) * WHOLE / Fraction(budget)) if one <= budget else WHOLE + 1


@functools.lru_cache(maxsize=64)
def integer_costs(event: RenyiFilterEvent) -> tuple[int, ...]:
    """Return the :func:`integer_cost` of a step at each level."""
    multipliers = (effective_multiplier(z, event.norm_multiplier) for z in event.noise_multipliers)
    return tuple(integer_cost(event.order, event.sampling_probability, z, event.budget) for z in multipliers)


def epsilon_of_rdp(order: int, rdp: float, delta: float) -> float:
    """Return the epsilon at ``delta`` of a release that is ``(order, rdp)``-RDP."""
    return float(compute_epsilon([order], [rdp], delta)[0]) if math.isfinite(rdp) else math.inf


def rdp_for(order: int, epsilon: float, delta: float) -> float:
    """Return the largest RDP of ``order`` that gives ``epsilon`` at ``delta``; zero where no positive RDP does."""
    rdp = epsilon - math.log1p(-1.0 / order) + math.log(delta * order) / (order - 1)
    while rdp > 0.0 and epsilon_of_rdp(order, rdp, delta) > epsilon:
        rdp *= 1.0 - 1e-12
    return max(rdp, 0.0)


# --- calibration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FilterPlan:
    """Order and noise with which a stage of constant noise runs to its last step.

    Attributes:
        order: alpha.
        budget: RDP that is left for the steps.
        before: noise multiplier of the Gaussian release that is paid first; None without such a release.
        noise_multiplier: noise multiplier of the constant schedule.
    """

    order: int
    budget: float
    before: float | None
    noise_multiplier: float


def plan_filter(
    epsilon: float, delta: float, sampling_rate: float, steps: int, norm: float, share: float = 0.0
) -> FilterPlan:
    """Return the plan at the order that lets constant noise be smallest; it is made from public facts only.

    Args:
        epsilon: epsilon of the whole release.
        delta: delta of the whole release.
        sampling_rate: Poisson rate of every step.
        steps: number of steps.
        norm: noise multiplier of the norm over that of the sums.
        share: share of the RDP that pays for a Gaussian release before the steps.

    Raises:
        DprlError: no order leaves anything for the steps.
    """
    best, here, places = FilterPlan(0, 0.0, None, math.inf), 0, range(0, len(ORDERS), 9)
    for stride in (9, 3, 1):
        for place in places:
            order, least = ORDERS[place], best.noise_multiplier
            found = _plan_at(order, rdp_for(order, epsilon, delta), sampling_rate, steps, norm, share, least)
            if found is not None:
                best, here = found, place
        none = f"No noise multiplier meets epsilon = {epsilon:g} at delta = {delta:g} under a Renyi filter"
        require(math.isfinite(best.noise_multiplier), f"{none}: {NO_NOISE_HELPS}")
        places = range(max(here - stride, 0), min(here + stride + 1, len(ORDERS)), max(stride // 3, 1))
    return best


def _plan_at(
    order: int, whole: float, rate: float, steps: int, norm: float, share: float, least: float
) -> FilterPlan | None:
    """Return the plan at one order with ``whole`` RDP to spend, or None if it needs no less noise than ``least``."""
    if whole <= 0.0:
        return None
    before = None if share == 0.0 else math.sqrt(order / (2.0 * share * whole)) * (1.0 + 1e-12)
    left = whole if before is None else _rounded(Fraction(whole) - Fraction(gaussian_cost(order, before)), -1)
    if left <= 0.0:
        return None

    def fits(z: float) -> bool:
        return steps * integer_cost(order, rate, effective_multiplier(z, norm * z), left) <= WHOLE

    high = 1.0 if least == math.inf else least / (1.0 + 2.0 * _TOLERANCE)
    largest = 1e8 if least == math.inf else high
    while not fits(high):
        high *= 2.0
        if high > largest:
            return None
    low = high / 2.0
    while low > 1e-3 and fits(low):
        low, high = low / 2.0, low
    return FilterPlan(order, left, before, smallest_accepted(fits, low, high, _TOLERANCE))


def smallest_accepted(accepted: Callable[[float], bool], low: float, high: float, tolerance: float = 0.0) -> float:
    """Return the smallest number that is accepted, to a relative tolerance, by halving on a logarithmic scale.

    Args:
        accepted: tells whether a number is accepted; every number above an accepted one must be accepted too.
        low: a number that is not accepted.
        high: a number that is accepted.
        tolerance: relative distance of the two ends at which halving stops; 0 for neighbours in double precision.
    """
    while high > low * (1.0 + tolerance):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (low, middle) if accepted(middle) else (middle, high)
    return high


def _rounded(number: Fraction, sign: int) -> float:
    """Return a number as a double that is not below it, or with a ``sign`` of -1 not above it."""
    value = float(number)
    return value if sign * value >= sign * number else math.nextafter(value, sign * math.inf)
