"""Paper 004's privacy parameters, computed: Table 1, and the epsilon that published noise really has.

Paper: Xie, Thomas, Miklau, "Privacy Preserving Off-Policy Evaluation" (2019), Theorem 1 and appendix A. Errata E1 to
E6: docs/papers/004.md. Of DP-LSW and DP-LSL (Balle, Gomrokchi and Precup 2016): docs/papers/balle-2016.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.events import poisson_gaussian
from dprl.errors import DprlError
from dprl_papers.baselines.smooth_gaussian import SmoothGaussian
from dprl_papers.paper_004_gpope.published import noise_multiplier, precondition_holds

NAMES = ("epsilon", "delta", "N", "sigma", "m")
"""Rows and columns of Table 1."""


@dataclass(frozen=True)
class Relations:
    """One version of Table 1, around one setting.

    Attributes:
        source: how epsilon follows from the others.
        setting: value of each of ``NAMES``.
        of_epsilon: elasticity of epsilon in each of the others: by how many per cent it changes for one per cent,
            measured at a change of ``change``.
        elasticities: 5 rows of 5: by how many per cent the column's parameter must change for one per cent of the
            row's, the other three kept; None on the diagonal, and where no change of the column's makes up for it.
        signs: 5 rows of 5: "+" where both move in the same direction (green in the paper), "-" (red), "0" where the
            column's need not move, "" for None.
    """

    source: str
    setting: dict[str, float]
    of_epsilon: dict[str, float]
    elasticities: list[list[float | None]]
    signs: list[list[str]]


def table_1(
    units: int = 1000, epsilon: float = 0.1, delta: float = 1e-5, steps: int | None = None, change: float = 0.1
) -> list[Relations]:
    """Return Table 1 by Theorem 1, by the accountant with one expected trajectory a step, and by it with full batches.

    The elasticities of epsilon are those of a change by the factor ``1 + change``. The other cells follow from them:
    at constant epsilon, column c changes by -e_row / e_c per cent; epsilon's own row has 1 / e_c.

    Args:
        units: m.
        epsilon, delta: the budget at which sigma is calibrated, for each version on its own.
        steps: N; m by default.
        change: relative.
    """
    steps = units if steps is None else steps
    budget = Budget(epsilon, delta)
    full = noise_multiplier_for(lambda z: poisson_gaussian(1.0, z, steps), budget)
    sampled = noise_multiplier_for(lambda z: poisson_gaussian(1.0 / units, z, steps), budget)
    printed = noise_multiplier(steps, units, epsilon, delta)
    return [
        _relations("Theorem 1", _theorem_1, {"delta": delta, "N": steps, "sigma": printed, "m": units}, change),
        _relations(
            "verified, batches of one expected trajectory (q = 1/m)",
            _sampled,
            {"delta": delta, "N": steps, "sigma": sampled, "m": units},
            change,
        ),
        _relations(
            "verified, full batches (q = 1)", _full, {"delta": delta, "N": steps, "sigma": full, "m": units}, change
        ),
    ]


def _theorem_1(setting: Mapping[str, float]) -> float:
    """Return epsilon of Theorem 1 with equality: it has the same form as sigma."""
    return noise_multiplier(round(setting["N"]), 1, 1.0, setting["delta"]) / (setting["m"] * setting["sigma"])


def _sampled(setting: Mapping[str, float]) -> float:
    event = poisson_gaussian(1.0 / setting["m"], setting["sigma"], round(setting["N"]))
    return epsilon_of(event, setting["delta"])


def _full(setting: Mapping[str, float]) -> float:
    return epsilon_of(poisson_gaussian(1.0, setting["sigma"], round(setting["N"])), setting["delta"])


def elasticity(
    epsilon: Callable[[Mapping[str, float]], float], setting: Mapping[str, float], name: str, change: float
) -> float:
    """Return d ln epsilon / d ln ``name``, from a change by the factor ``1 + change``; N is made a whole number."""
    moved = dict(setting)
    moved[name] = setting[name] * (1.0 + change)
    if name == "N":
        moved[name] = round(moved[name])
    if moved[name] == setting[name]:
        raise DprlError("Table 1: the change is too small to move a number of steps.")
    return math.log(epsilon(moved) / epsilon(setting)) / math.log(moved[name] / setting[name])


def _relations(
    source: str, epsilon: Callable[[Mapping[str, float]], float], setting: dict[str, float], change: float
) -> Relations:
    of_epsilon = {name: elasticity(epsilon, setting, name, change) for name in NAMES[1:]}
    # the relation ln epsilon - f(ln delta, ln N, ln sigma, ln m) = 0, as its gradient
    gradient = {"epsilon": 1.0} | {name: -x for name, x in of_epsilon.items()}
    cells: list[list[float | None]] = [
        [
            None if row == column or gradient[column] == 0.0 else 0.0 - gradient[row] / gradient[column]
            for column in NAMES
        ]
        for row in NAMES
    ]
    signs = [["" if x is None else "+" if x > 0.0 else "-" if x < 0.0 else "0" for x in line] for line in cells]
    return Relations(source, {"epsilon": epsilon(setting)} | setting, of_epsilon, cells, signs)


@dataclass(frozen=True)
class PublishedEpsilon:
    """Epsilon that GPOPE's published noise has at ``delta`` where it claims ``claimed``.

    Attributes:
        units, steps: m and N.
        claimed: the epsilon that Theorem 1 is given.
        sigma: its noise multiplier.
        precondition: whether sigma is as large as the theorem's own proof asks.
        at_least: epsilon of the mechanism is at least this.
        pair_at_most: epsilon of the pair of logs from which ``at_least`` comes is at most this.
    """

    units: int
    steps: int
    claimed: float
    delta: float
    sigma: float
    precondition: bool
    at_least: float
    pair_at_most: float


def published_epsilon(units: int, steps: int, epsilon: float, delta: float = 1e-5, c2: float = 2.0) -> PublishedEpsilon:
    """Return a lower bound on the epsilon of Algorithm 1 with Theorem 1's sigma, where every iterate is released.

    Two logs of m trajectories that differ in one (docs/proofs/gpope.md): a step's noisy gradient, over h, is
    (1 - 1/m) N(-1, sigma^2) + (1/m) N(1, sigma^2) against N(-1, sigma^2), the pair of Poisson sampling at rate 1/m with
    noise multiplier sigma/2. Its privacy loss distribution, composed N times on a grid, gives the pair's epsilon from
    both sides. For the mechanism that is a lower bound: with one step it is exact at any epsilon >= 0 (no pair of logs
    has a larger divergence, by the joint convexity of the hockey-stick divergence in the drawn trajectory); with
    several steps no single pair is known to be the worst. Where ``at_least`` is below ``claimed`` nothing follows.
    The theorem is about all noisy gradients; of the last iterate alone the lower bound says nothing.
    For large sigma the two bounds need a fine grid: seconds.
    """
    sigma = noise_multiplier(steps, units, epsilon, delta, c2)
    low, high = _pair(1.0 / units, sigma / 2.0, steps, delta)
    return PublishedEpsilon(units, steps, epsilon, delta, sigma, precondition_holds(sigma), low, high)


@functools.lru_cache(maxsize=256)
def _pair(rate: float, multiplier: float, steps: int, delta: float) -> tuple[float, float]:
    """Return epsilon of the composed pair: a lower and an upper bound, mostly 2% apart and never more than a few."""
    import numpy as np
    from dp_accounting.pld import privacy_loss_distribution

    def bound(grid: float, pessimistic: bool) -> float:
        with np.errstate(all="ignore"):  # exp of a very large loss underflows to the mass it has
            one = privacy_loss_distribution.from_gaussian_mechanism(
                standard_deviation=multiplier,
                value_discretization_interval=grid,
                pessimistic_estimate=pessimistic,
                sampling_prob=rate,
                use_connect_dots=pessimistic,  # it knows upper bounds only
                log_mass_truncation_bound=-50.0 if pessimistic else -25.0,
            )
            return max(0.0, float(one.self_compose(steps).get_epsilon_for_delta(delta)))

    reach = (0.5 / multiplier + 10.0) / multiplier  # of a step's losses
    high = bound(reach / 6e4, pessimistic=True)
    # the lower bound rounds every loss down, by half a cell in the mean
    return min(high, bound(max(0.04 * high / steps, reach / 1.5e6), pessimistic=False)), high


@dataclass(frozen=True)
class SmoothEpsilon:
    """Epsilon that the published noise of DP-LSW and DP-LSL has, on logs where their smooth sensitivity holds.

    Attributes:
        dimension: number of features.
        claimed: the epsilon it is made for, at ``delta``.
        epsilon: the one it has, ``SmoothGaussian.true_epsilon``: the largest on
            a grid of ratios of the two noise scales, not proved to be the worst.
        noise: published standard deviation over the smooth bound.
        noise_needed: the same at the noise that has ``claimed``.
    """

    dimension: int
    claimed: float
    delta: float
    epsilon: float
    noise: float
    noise_needed: float


def smooth_epsilons(
    dimension: int = 39, epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0), delta: float = 1e-5
) -> list[SmoothEpsilon]:
    """Return the noise of DP-LSW and DP-LSL over a grid of claims."""
    out = []
    for claimed in epsilons:
        published = SmoothGaussian(epsilon=claimed, delta=delta, dimension=dimension)
        exact = SmoothGaussian(epsilon=claimed, delta=delta, dimension=dimension, calibration="exact")
        out.append(
            SmoothEpsilon(
                dimension, claimed, delta, published.true_epsilon, published.noise_over_bound, exact.noise_over_bound
            )
        )
    return out
