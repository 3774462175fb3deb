"""Compute the epsilon of a privacy event.

The whole library uses one accountant: dp_accounting's privacy loss distribution (PLD) for the relation "add or remove
one". The one exception is noise that is chosen step by step during the release, for which no such distribution exists.
Its epsilon comes from the Renyi divergence (renyi_filter.py), for the same relation. Where a release divides the people
into disjoint parts, the part that costs the most counts (docs/proofs/two-parts.md).
``PLDAccountant(REPLACE_ONE)`` doubles the sensitivity inside and ``RdpAccountant(REPLACE_ONE)`` does not, so dprl never
asks an accountant for any other relation. Every epsilon is an upper bound.
"""

from __future__ import annotations

import functools
import math
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from dprl.accounting.events import DpEvent, ParallelDpEvent, Part, PureDpEvent, gaussians_of
from dprl.accounting.renyi_filter import RenyiFilterEvent
from dprl.accounting.schema import positive
from dprl.accounting.slow_imports import slow_modules_later
from dprl.errors import require

with slow_modules_later():
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from dp_accounting.pld.privacy_loss_mechanism import AdditiveNoisePrivacyLoss, AdjacencyType, GaussianPrivacyLoss

RELATION = "add or remove one"

# Grid step of the privacy losses: dp_accounting's default, refined or coarsened by powers of two. So a finer grid
# contains the coarser one, and epsilon stays monotone in the noise.
_GRID, _FINEST = 1e-4, 1e-4 * 2.0**-12
_FINE_POINTS, _STEP_POINTS, _TOTAL_POINTS = 1.5e5, 3e5, 4e6
_COARSEST = 0.1


def accountant_name(event: DpEvent | None = None) -> str:
    """Return the name and version of the accountant of ``event``, as a certificate states them."""
    kind = "PLDAccountant"
    if isinstance(event, RenyiFilterEvent):
        kind = f"RdpAccountant at order {event.order}, under a Renyi filter"
    return f"dp_accounting {metadata.version('dp-accounting')} {kind}, {RELATION}"


def epsilon_of(event: DpEvent, delta: float) -> float:
    """Return an upper bound on the epsilon of ``event`` at ``delta``, for add or remove one.

    The bound is ``math.inf`` where the accountant cannot resolve it: above some ten thousand, or for a ``delta`` of
    the order of the accountant's own truncation (1e-15 per composition).

    >>> from dprl.accounting.events import gaussian
    >>> 4.376 < epsilon_of(gaussian(1.0), 1e-5) < 4.379
    True

    Raises:
        DprlError: the event is neither built from Gaussians and Poisson-sampled Gaussians, nor a Renyi filter, nor
            pure, nor made of such events on disjoint parts of the people.
    """
    require(isinstance(delta, int | float) and 0.0 < delta < 1.0, "delta must be above 0 and below 1.")
    match event:
        case ParallelDpEvent():  # given who is in which part, neighbours differ in one part only: no sum
            require(not any(isinstance(one, ParallelDpEvent) for one in event.events), "Parts have no parts of theirs.")
            return max(epsilon_of(one, delta) for one in event.events)
        case PureDpEvent():
            return event.epsilon
        case RenyiFilterEvent():
            return event.epsilon(float(delta))
    return epsilon_of_parts(parts_of(event), float(delta))


def parts_of(event: DpEvent) -> tuple[Part, ...]:
    """Return the Gaussian parts of an event, sorted, so that their order in the event does not matter.

    Parts that compose exactly are merged: those without sampling, and those of equal rate and noise multiplier.
    """
    sampled: dict[tuple[float, float], int] = {}
    plain, precision = [], 0.0
    for rate, multiplier, count in reversed(gaussians_of(event)):
        require(count <= 10**12, "The accountant does not take more than 1e12 steps.")
        require(positive(multiplier), "The noise multiplier must be a positive finite number.")
        require(multiplier >= 1e-100, "The noise multiplier is too small to give any guarantee.")
        if rate == 1.0:
            plain.append((multiplier, count))
            precision += 1.0 / multiplier**2 * count
        else:
            sampled[rate, multiplier] = sampled.get((rate, multiplier), 0) + count
    parts = [(rate, multiplier, count) for (rate, multiplier), count in sampled.items()]
    if plain:
        # k Gaussians on the same data are one Gaussian: the inverse variances add up
        one = len(plain) == 1 and plain[0][1] == 1
        parts.append((1.0, plain[0][0] if one else 1.0 / math.sqrt(precision), 1))
    return tuple(sorted(parts))


@functools.lru_cache(maxsize=1024)
def epsilon_of_parts(parts: tuple[Part, ...], delta: float, coarser: float = 1.0) -> float:
    """Return the epsilon of the parts that :func:`parts_of` gives, on a grid that is ``coarser`` than the usual one.

    ``coarser`` is the factor between the two grid steps.
    """
    grid = _grid(parts)
    if grid > _COARSEST:
        return math.inf
    whole = None
    with np.errstate(all="ignore"):  # exp of a very large loss underflows to the mass it has
        for rate, multiplier, count in parts:
            one = gaussian_pld(rate, multiplier if rate < 1.0 else multiplier / math.sqrt(count), grid * coarser)
            steps = one.self_compose(count) if rate < 1.0 else one
            whole = steps if whole is None else whole.compose(steps)
        return 0.0 if whole is None else max(0.0, float(whole.get_epsilon_for_delta(delta)))


def _grid(parts: tuple[Part, ...]) -> float:
    """Return a grid step for the privacy losses that keeps the bound tight, and limits time and memory.

    Any grid gives a valid upper bound. The default of 1e-4 is refined where one step's loss (about rate / multiplier)
    would drown in one cell, whose rounding adds up over the steps. It is coarsened where the losses range so far
    that the arrays would not fit. As noise grows, both rules only ever refine the grid.
    """
    finest, total_range = _GRID, 0.0
    step_range = max((_width(rate, multiplier) for rate, multiplier, _ in parts), default=0.0)
    for rate, multiplier, count in parts:
        finest = min(finest, (0.02 if rate == 1.0 else 0.05) * rate / multiplier)
        width = _width(rate, multiplier)
        mean = min(math.log1p(rate**2 * math.expm1(min(1.0 / multiplier**2, 700.0))), rate / multiplier**2)
        total_range += width + min(count * width, count * mean + 20.0 * math.sqrt(count * mean))
    refined = max(finest, _FINEST, step_range / _FINE_POINTS)
    grid = _GRID
    while grid / 2.0 >= refined:
        grid /= 2.0
    coarse = max(step_range / _STEP_POINTS, total_range / _TOTAL_POINTS)
    while grid < coarse and grid <= _COARSEST:
        grid *= 2.0
    return grid


def _width(rate: float, multiplier: float) -> float:
    """Return the width of one step's loss range, with the noise cut at ten standard deviations as in dp_accounting."""
    largest = (0.5 / multiplier + 10.0) / multiplier
    if rate == 1.0:
        return 2.0 * largest
    # log(1 - rate + rate exp(loss)) above, log(1 - rate) below
    above = math.log1p(rate * math.expm1(largest)) if largest < 700.0 else largest + math.log(rate)
    return above + min(largest, -math.log1p(-rate))


def costly(parts: tuple[Part, ...]) -> bool:
    """Return whether :func:`epsilon_of_parts` takes so long that a search should begin on a coarser grid."""
    return max(_width(rate, multiplier) for rate, multiplier, _ in parts) > 2e4 * _grid(parts)


# --- privacy loss distributions of Gaussians --------------------------------------------------------------------
# The same as dp_accounting's, which inverts the loss at one point of its grid after another, in Python. Here the same
# formulas take the whole grid at once. Losses, discretisation and composition are dp_accounting's own.


def gaussian_pld(sampling_rate: float, noise_multiplier: float, grid: float) -> PrivacyLossDistribution:
    """Return the privacy losses of one Gaussian release over a Poisson sample, for add or remove one.

    Args:
        sampling_rate: rate of the Poisson sample; 1 for everybody.
        noise_multiplier: standard deviation of the noise over the sensitivity.
        grid: grid step of the losses, which are rounded to the pessimistic side.
    """
    if sampling_rate == 1.0:  # adding and removing a unit are the same
        return PrivacyLossDistribution(_distribution(1.0, noise_multiplier, grid, "REMOVE"))
    remove, add = (_distribution(sampling_rate, noise_multiplier, grid, way) for way in ("REMOVE", "ADD"))
    return PrivacyLossDistribution(remove, add)


class _Losses(GaussianPrivacyLoss):
    """Privacy loss of a Gaussian, by dp_accounting's formulas."""

    def __init__(self, multiplier: float, rate: float, way: str) -> None:
        AdditiveNoisePrivacyLoss.__init__(self, 1, False, rate, AdjacencyType[way])
        self._standard_deviation = multiplier
        self._pessimistic_estimate, self._log_mass_truncation_bound = True, -50
        # the digits of scipy.stats.norm(scale=multiplier), which takes a second to import
        self._gaussian_random_variable: Any = SimpleNamespace(
            cdf=lambda x: ndtr(x / multiplier),
            logcdf=lambda x: log_ndtr(x / multiplier),
            ppf=lambda q: ndtri(q) * multiplier,
        )


def _distribution(rate: float, multiplier: float, grid: float, way: str) -> pld_pmf.PLDPmf:
    losses = _Losses(multiplier, rate, way)
    bounds = losses.connect_dots_bounds()
    assert bounds.epsilon_lower is not None
    assert bounds.epsilon_upper is not None
    first, last = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
    deltas = _deltas(losses, rate, multiplier, np.arange(first, last + 1) * grid)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, first, last, deltas)


def _deltas(losses: GaussianPrivacyLoss, rate: float, multiplier: float, epsilons: np.ndarray) -> np.ndarray:
    """Return :meth:`GaussianPrivacyLoss.get_delta_for_epsilon` for many epsilons at once."""
    if rate == 1.0:
        x = -0.5 - epsilons * multiplier**2
        lower: Any = losses.mu_lower_log_cdf(x)
        return np.clip(losses.mu_upper_cdf(x) - np.exp(epsilons + lower), 0.0, 1.0)
    adding = losses.adjacency_type is AdjacencyType.ADD
    edge = -math.log1p(-rate)
    deltas = np.zeros_like(epsilons)
    asked = epsilons < edge if adding else epsilons > -edge
    if not adding:
        deltas[~asked] = -np.expm1(epsilons[~asked])
    x = _inverse(rate, multiplier, epsilons[asked], adding)
    lower = losses.mu_lower_log_cdf(x)
    deltas[asked] = losses.mu_upper_cdf(x) - np.exp(epsilons[asked] + lower)
    return np.clip(deltas, 0.0, 1.0)


def _inverse(rate: float, multiplier: float, losses: np.ndarray, adding: bool) -> np.ndarray:
    """Return, for each of ``losses``, the largest x at which the loss is at least that; sampling must allow each loss.

    When one unit is removed, the loss at x is ``l = -(x + 1/2)/z^2`` without sampling, and ``log(1 - q + q e^l)`` with
    sampling rate q.
    """
    signed = -losses if adding else losses
    at_edge = np.isclose(signed, math.log1p(-rate), rtol=1e-9, atol=0.0)
    first, second = signed + math.log(1.0 / rate), math.log(1.0 / rate - 1.0)
    with np.errstate(all="ignore"):
        plain = first + np.log1p(-np.exp(second - first))
    plain = np.where(at_edge, -math.inf, np.where(signed == 0.0, 0.0, plain))
    x = -0.5 - (-plain if adding else plain) * multiplier**2
    return x + 1.0 if adding else x
