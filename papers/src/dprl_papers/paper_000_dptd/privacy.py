"""Paper 000's privacy parameters, computed: Theorem 5.1, its conditions, and the epsilon that its noise really has.

Paper: Zhao, Ze, Dong, Wang, Li, "Differentially Private Temporal Difference Learning with Stochastic
Nonconvex-Strongly-Concave Optimization", Theorem 5.1 and appendix B. Errata E1 to E4: docs/papers/000.md.
Noise is in units of G, the bound on a gradient; ``units`` is the paper's n (its m under trajectory).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dprl_papers.first_sum import initial_release_epsilon
from dprl_papers.paper_000_dptd.published import noise_multiplier

JOINT, HALVES = 2.0, 2.0 * math.sqrt(2.0)
"""How far one replaced record moves a gradient, over G: the joint gradient at most G (Assumption 3.3), or each of its
halves at most G (Lemma C.5, Theorem A.1 and the authors' code)."""
Reading = Literal["as printed", "scale-free"]
_GROUPS = 1.1
"""Shifts are rounded to powers of it times the largest. With 1.02 the bounds of :data:`SETTINGS` are the same to three
digits, at more than twice the time: the initial release decides."""
SETTINGS = (
    (1_000, 1_000, 0.1), (1_000, 1_000, 1.0), (1_000, 1_000, 10.0), (5_000, 5_000, 1.0), (10_000, 1_000, 0.1),
    (10_000, 1_000, 1.0), (10_000, 10_000, 1.0), (1_000, 100_000, 1.0),
)  # fmt: skip
"""Units, steps and claimed epsilon of :func:`published_epsilons`; the last is the regime of the experiments."""


def best_beta(epsilon: float, delta: float) -> float:
    """Return the beta' in (0, 1) with which Theorem 5.1 asks for the least noise.

    With a = log(1/delta)/epsilon, sigma^2 is proportional to (a/(1 - beta') + 1)/beta', which is least at
    (1 + a) - sqrt(a (1 + a)); the least value is (sqrt(1 + a) + sqrt(a))^2.
    """
    a = -math.log(delta) / epsilon
    return (1.0 + a) / ((1.0 + a) + math.sqrt(a * (1.0 + a)))  # the difference loses digits for large a


def renyi_order(epsilon: float, delta: float, beta: float) -> float:
    """Return alpha' = log(1/delta)/((1 - beta') epsilon) + 1."""
    return -math.log(delta) / ((1.0 - beta) * epsilon) + 1.0


def multiplier(units: int, steps: int, epsilon: float, delta: float, beta: float | None = None) -> float:
    """Return sigma/G of Theorem 5.1, sigma^2 = 14 G^2 T alpha'/(n^2 beta' epsilon); at the best beta' by default."""
    if beta is None:
        return noise_multiplier(steps, units, epsilon, delta)
    return math.sqrt(14.0 * steps * renyi_order(epsilon, delta, beta) / (beta * epsilon)) / units


@dataclass(frozen=True)
class Conditions:
    """Theorem 5.1's conditions at one beta'.

    Attributes:
        beta, sigma: beta' and sigma/G.
        noise: (i) sigma'^2 = sigma^2/(4 G^2) >= 0.7.
        order_as_printed: (ii) alpha' - 1 <= (2/3) sigma^2 log(n/(alpha' (1 + sigma'^2))), in the unit in which G = 1.
        order_scale_free: the same with sigma' for sigma, which does not depend on the reward's unit (erratum E3).
    """

    beta: float
    sigma: float
    noise: bool
    order_as_printed: bool
    order_scale_free: bool


def conditions(units: int, steps: int, epsilon: float, delta: float, beta: float | None = None) -> Conditions:
    """Return whether Theorem 5.1's conditions hold; at the best beta' by default."""
    at = best_beta(epsilon, delta) if beta is None else beta
    sigma = multiplier(units, steps, epsilon, delta, beta)
    holds = _holding(units, steps, epsilon, delta, np.array([at]))
    return Conditions(at, sigma, *(bool(each[0]) for each in holds))


def _holding(units: int, steps: int, epsilon: float, delta: float, beta: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (i), and (ii) in both readings, at each of ``beta``."""
    order = -math.log(delta) / ((1.0 - beta) * epsilon) + 1.0
    square = 14.0 * steps * order / (units**2 * beta * epsilon)
    logarithm = np.log(units / (order * (1.0 + square / 4.0)))
    most = 2.0 / 3.0 * square * logarithm
    return square / 4.0 >= 0.7, order - 1.0 <= most, order - 1.0 <= most / 4.0


def feasible_beta(units: int, steps: int, epsilon: float, delta: float, reading: Reading) -> float | None:
    """Return the beta' with the least noise among those at which both conditions hold; None where there is none.

    From a grid of 16,000 values in (1e-7, 1 - 1e-7), the best of which is refined between its neighbours.
    """

    half = np.geomspace(1e-7, 0.5, 8_000)
    grid = np.unique(np.concatenate([half, 1.0 - half, [best_beta(epsilon, delta)]]))
    found = None
    for _ in range(4):
        holds = _holding(units, steps, epsilon, delta, grid)
        good = np.flatnonzero(holds[0] & holds[1 if reading == "as printed" else 2])
        if not len(good):
            return None
        noise = (1.0 - math.log(delta) / ((1.0 - grid[good]) * epsilon)) / grid[good]  # alpha'/beta'
        at = int(good[noise.argmin()])
        found = float(grid[at])
        low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
        grid = np.unique(np.append(np.linspace(low, high, 201), found))
    return found


def weights(steps: int, alpha: float = 3.0, offset: float = 3.0) -> np.ndarray:
    """Return the ``(steps + 1,)`` weights of a drawn record: 1 for p_0, then alpha nu_t, nu_t = 1/(4 sqrt(t + b))."""
    return np.concatenate([[1.0], alpha / (4.0 * np.sqrt(np.arange(steps) + offset))])


def pair_epsilon(
    units: int, steps: int, sigma: float, push: float, delta: float, initial: bool = True
) -> tuple[float, float]:
    """Return epsilon of the same pair of datasets for all releases together: a lower and an upper bound.

    Release t has the shift ``push`` w_t (:func:`weights`). Shifts are grouped by factors of 1.1, rounded down for the
    lower and up for the upper bound, and composed as privacy loss distributions whose losses are rounded the same way.
    The lower bound is at least :func:`initial_release_epsilon`, which more releases cannot undo. For Algorithm 1 the
    first number is a lower bound; the second says of this pair of datasets only.

    Args:
        steps: T; there are T + 1 releases.
        initial: whether the initial gradients are released.
    """
    shifts = tuple(push * weights(steps)[0 if initial else 1 :] / sigma)
    low, high = _composed(1.0 / units, shifts, delta)
    if initial:
        low = max(low, initial_release_epsilon(units, sigma, push, delta))
    return min(low, high), high


@functools.lru_cache(maxsize=64)
def _composed(rate: float, shifts: tuple[float, ...], delta: float) -> tuple[float, float]:
    from dp_accounting.pld import privacy_loss_distribution

    def grouped(up: bool) -> list[tuple[float, int]]:
        most = max(shifts)  # exactly: in Algorithm 1 it is the initial release's, which decides
        places = np.log(np.asarray(shifts) / most) / math.log(_GROUPS)
        places = np.ceil(places - 1e-9) if up else np.floor(places + 1e-9)
        found, counts = np.unique(places, return_counts=True)
        return [(most * _GROUPS**place, int(count)) for place, count in zip(found, counts, strict=True)]

    def bound(grid: float, up: bool) -> float:
        total: Any = None
        with np.errstate(all="ignore"):  # exp of a very large loss underflows to the mass it has
            for shift, count in grouped(up):
                one = privacy_loss_distribution.from_gaussian_mechanism(
                    standard_deviation=1.0 / shift,
                    value_discretization_interval=grid,
                    pessimistic_estimate=up,
                    sampling_prob=rate,
                    use_connect_dots=up,  # it knows upper bounds only
                    log_mass_truncation_bound=-50.0 if up else -25.0,
                ).self_compose(count)
                total = one if total is None else total.compose(one)
            try:
                return max(0.0, float(total.get_epsilon_for_delta(delta)))
            except OverflowError:  # losses of thousands are beyond its exp
                return math.inf if up else 0.0

    reach = (0.5 * max(shifts) + 10.0) * max(shifts)  # of a release's losses
    high = bound(reach / 3e4, up=True)
    if math.isinf(high):
        return 0.0, high
    # the lower bound rounds every loss down, by half a cell in the mean
    return min(high, bound(max(0.04 * high / len(shifts), reach / 3e5), up=False)), high


@dataclass(frozen=True)
class PublishedEpsilon:
    """Epsilon that Theorem 5.1's noise has at ``delta`` where it claims ``claimed``.

    Attributes:
        units, steps: n and T.
        sigma: over G, at the best beta'.
        at_best: conditions at the best beta'.
        feasible, feasible_scale_free: sigma/G at the best beta' at which both conditions hold, in either reading.
        initial: epsilon of (p_0, d_0) alone, joint gradient at most G; ``initial_halves`` with each half at most G.
        at_least: epsilon of all releases is at least this; joint gradient at most G.
        pair_at_most: epsilon of the pair of datasets from which ``at_least`` comes is at most this.
        at_least_halves, pair_at_most_halves: with each half at most G.
    """

    units: int
    steps: int
    claimed: float
    delta: float
    sigma: float
    at_best: Conditions
    feasible: float | None
    feasible_scale_free: float | None
    initial: float
    initial_halves: float
    at_least: float
    pair_at_most: float
    at_least_halves: float
    pair_at_most_halves: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def published_epsilon(units: int, steps: int, epsilon: float, delta: float = 1e-5) -> PublishedEpsilon:
    """Return the row of a table for one setting: seconds."""
    sigma = multiplier(units, steps, epsilon, delta)

    def at(reading: Reading) -> float | None:
        beta = feasible_beta(units, steps, epsilon, delta, reading)
        return None if beta is None else multiplier(units, steps, epsilon, delta, beta)

    joint, halves = (pair_epsilon(units, steps, sigma, push, delta) for push in (JOINT, HALVES))
    return PublishedEpsilon(
        units, steps, epsilon, delta, sigma,
        conditions(units, steps, epsilon, delta), at("as printed"), at("scale-free"),
        initial_release_epsilon(units, sigma, JOINT, delta), initial_release_epsilon(units, sigma, HALVES, delta),
        *joint, *halves,
    )  # fmt: skip


def published_epsilons(
    settings: Sequence[tuple[int, int, float]] = SETTINGS, delta: float = 1e-5,
    progress: Callable[[int], None] | None = None,
) -> list[PublishedEpsilon]:  # fmt: skip
    """Return :func:`published_epsilon` for each (units, steps, epsilon)."""
    out = []
    for i, (units, steps, epsilon) in enumerate(settings):
        out.append(published_epsilon(units, steps, epsilon, delta))
        if progress is not None:
            progress(i + 1)
    return out
