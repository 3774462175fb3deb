"""DP-LSW and DP-LSL as published, and the true sensitivity of their answers; for experiments only.

Paper: Balle, Gomrokchi and Precup (2016), "Differentially private policy evaluation". docs/papers/balle-2016.md has the
derivations, and shows where the published bounds fail. The verified form is first_visit.py.
Privacy unit: a trajectory. Relation: replace one, unless said otherwise. Released: nothing.

Symbols: there are S states (or public cells), each with features phi_s in R^n, which are the rows of ``table``. n_s
trajectories visit s. The returns from their first visits on lie in [0, R] and add up to v_s. The public weights are w_s
(LSW) and rho_s (LSL). Weights, table, ridge and R must not depend on the log. psi and every bound made from counts
depend on the log, so they must not be printed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dprl.bounds import Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import COLUMNS, RowInputs, scale_of
from dprl.errors import DprlError
from dprl.value_functions.features import Tabular
from dprl_papers.baselines.smooth_gaussian import OutputGaussian, SmoothGaussian

Array = np.ndarray


class FirstVisits(NamedTuple):
    """Statistics of a log that LSW and LSL use. NOT private."""

    counts: Array  # (S,) trajectories that visit each state
    totals: Array  # (S,) sums over these trajectories of the return from the first visit on

    def relative_to(self, origin: float) -> FirstVisits:
        """Return the statistics with ``origin`` subtracted from every return."""
        return FirstVisits(self.counts, self.totals - origin * self.counts)


def first_visits(
    log: Trajectories, discount: float, value: Interval, cells: tuple[int, ...] | None = None
) -> FirstVisits:
    """Return counts of first visits and sums of their returns, clamped to the public ``value`` range; on-policy.

    Args:
        log: trajectories, one per unit.
        cells: number of equal parts into which each observation component is cut; without it, states are whole numbers.

    Returns:
        arrays over the states, in the order of :class:`~dprl.value_functions.features.Tabular`, or of
        :func:`cell_centres`.
    """
    bounds = log.bounds.observation
    if cells is not None:
        low, high = np.array(bounds).T
        width = np.where(high > low, high - low, 1.0)
        grid = np.clip(np.floor((log.observation - low) / width * cells), 0, np.array(cells) - 1)
        log, bounds = replace(log, observation=grid), tuple((0.0, float(c - 1)) for c in cells)
    states = Tabular(bounds)
    centre, half = scale_of(value)
    inputs = RowInputs(log, np.ones(len(log.reward)), states, discount, value)
    returns, first = (COLUMNS[name].compute(inputs) for name in ("returns", "first"))
    seen = first > 0.0
    index = states.index(log.observation[seen])
    scaled = returns[seen] * log.bounds.cumulative_ratio  # the rows hold the return divided by the largest ratio
    returns = centre + half * np.clip(scaled, -1.0, 1.0)
    return FirstVisits(
        np.bincount(index, minlength=states.size).astype(np.float64),
        np.bincount(index, returns, minlength=states.size),
    )


def cell_centres(bounds: tuple[Interval, ...], cells: tuple[int, ...]) -> Array:
    """Return the ``(S, d)`` middles of the cells of :func:`first_visits`."""
    axes = [low + (high - low) * (np.arange(c) + 0.5) / c for (low, high), c in zip(bounds, cells, strict=True)]
    return np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)


# --- the estimators -----------------------------------------------------------------------------------------------


def lsw(table: Array, weights: Array, visits: FirstVisits) -> Array:
    """Return the ``(n,)`` weighted least squares solution on first-visit averages F_s (zero for an unvisited state).

    It minimises ``sum_s w_s (F_s - phi_s' theta)^2``.
    """
    averages = visits.totals / np.maximum(visits.counts, 1.0)
    root = np.sqrt(weights)
    return np.linalg.pinv(root[:, None] * table) @ (root * averages)


def lsl(table: Array, weights: Array, ridge: float, visits: FirstVisits) -> Array:
    """Return the ``(n,)`` ridge regression on all first-visit returns, where each visit of state s has weight rho_s.

    It minimises ``sum_x sum_{s in x} rho_s (F_{x,s} - phi_s' theta)^2 + (ridge / 2) |theta|^2``.
    """
    gram = table.T @ ((weights * visits.counts)[:, None] * table)
    return np.linalg.solve(gram + ridge / 2.0 * np.eye(table.shape[1]), table.T @ (weights * visits.totals))


# --- local and smooth sensitivity -----------------------------------------------------------------------------------


def psi_w(weights: Array, counts: Array, beta: float) -> float:
    """Return ``max_k exp(-k beta) sum_s w_s / max(n_s - k, 1)^2`` over whole ``k >= 0``.

    Between two of the places ``k = n_s - 1``, the logarithm of the sum is convex. So the maximum is at one of these
    places or at 0.
    """
    places = np.unique(np.r_[0.0, np.maximum(counts - 1.0, 0.0)])
    return float(np.max(np.exp(-beta * places) * _phi_w(weights, counts, places)))


def psi_l(weights: Array, counts: Array, units: int, beta: float, c: float) -> float:
    """Return ``max_k exp(-k beta) (c sqrt(sum_s rho_s min(n_s + k, units)) + |rho|)^2`` over whole ``0 <= k <= units``.

    The inner sum is concave in k, and so is the logarithm of the maximised expression. Bisection finds where the
    expression stops growing.
    """
    norm = float(np.linalg.norm(weights))

    def value(k: int) -> float:
        return math.exp(-k * beta) * (c * math.sqrt(float(weights @ np.minimum(counts + k, units))) + norm) ** 2

    low, high = 0, units
    while low < high:
        middle = (low + high) // 2
        if value(middle) < value(middle + 1):
            low = middle + 1
        else:
            high = middle
    return value(low)


def psi_l_any_size(weights: Array, counts: Array, beta: float, c: float) -> float:
    """Return :func:`psi_l` for adding or removing trajectories, in closed form.

    There are no ``units`` at which k stops, and k is real.
    """
    mass, total, norm = float(weights @ counts), float(np.sum(weights)), float(np.linalg.norm(weights))
    root = (-norm + math.sqrt(norm**2 + 4.0 * c**2 * total / beta)) / (2.0 * c)
    k = max(0.0, (root**2 - mass) / total)
    return math.exp(-k * beta) * (c * math.sqrt(mass + k * total) + norm) ** 2


def lsw_smooth(table: Array, weights: Array, counts: Array, width: float, beta: float) -> float:
    """Return the published smooth bound S of LSW: its square changes by at most ``exp(beta)`` between neighbours."""
    return width * _inverse_norm(table, weights) * math.sqrt(psi_w(weights, counts, beta))


def lsl_smooth(
    table: Array, weights: Array, ridge: float, counts: Array, units: int, width: float, beta: float
) -> float:
    """Return the published smooth bound S of LSL; the ridge must exceed ``|Phi|^2 max rho``."""
    factor, c = _lsl_factors(table, weights, ridge, width, published=True)
    return factor * math.sqrt(psi_l(weights, counts, units, beta, c))


# --- bounds that no log exceeds ---------------------------------------------------------------------------------------


def lsl_global_cells(weights: Array, ridge: float, width: float) -> float:
    """Return (G), the exact sensitivity of :func:`lsl` where features are indicators of states or groups of states.

    It holds for replacing, adding or removing one trajectory, in logs of any size.

    Args:
        weights: ``(n,)`` summed weight of each group.
    """
    return width * float(np.linalg.norm(weights / (weights + ridge / 2.0)))


def lsl_global_centred(weights: Array, ridge: float, width: float, *, grouped: bool = False) -> float:
    """Return the sensitivity where the middle of the range is subtracted from the returns, for adding or removing one.

    Without ``grouped``, it is half of (G).

    Args:
        grouped: whether features are indicators of groups of several states. The largest change is then not at a group
            that is empty or visited once, but where the group's weight u, ridge included, solves
            ``2 u^2 - 2 a u - a p = 0``.
    """
    a = ridge / 2.0
    each = weights / (weights + a)
    if grouped:
        u = (a + np.sqrt(a * a + 2.0 * a * weights)) / 2.0
        each = weights * (2.0 * u - a) / ((weights + u) * u)
    return width / 2.0 * float(np.linalg.norm(each))


# --- with noise -------------------------------------------------------------------------------------------------------


def noisy_lsw(
    mechanism: SmoothGaussian, table: Array, weights: Array, visits: FirstVisits, value: Interval, noise: Any,
    step: int = 0,
) -> Array:  # fmt: skip
    """Return the ``(S,)`` values of DP-LSW.

    With the published calibration, this is the paper's algorithm for returns in the range ``value``.

    Returns are counted from the low end of the range. So they lie in [0, R], and so does the default value 0 of an
    unvisited state.
    """
    low, width = value[0], value[1] - value[0]
    theta = lsw(table, weights, visits.relative_to(low))
    bound = lsw_smooth(table, weights, visits.counts, width, mechanism.beta)
    return low + table @ mechanism.add_noise(theta, bound, noise, step)


def noisy_lsl(
    mechanism: SmoothGaussian, table: Array, weights: Array, ridge: float, visits: FirstVisits, units: int,
    value: Interval, noise: Any, step: int = 0,
) -> Array:  # fmt: skip
    """Return the ``(S,)`` values of DP-LSL, for logs of exactly ``units`` trajectories; see :func:`noisy_lsw`."""
    low, width = value[0], value[1] - value[0]
    theta = lsl(table, weights, ridge, visits.relative_to(low))
    bound = lsl_smooth(table, weights, ridge, visits.counts, units, width, mechanism.beta)
    return low + table @ mechanism.add_noise(theta, bound, noise, step)


def noisy_tabular_lsl(
    noise_multiplier: float, weights: Array, ridge: float, visits: FirstVisits, value: Interval, noise: Any,
    step: int = 0, *, centred: bool = False,
) -> Array:  # fmt: skip
    """Return the ``(S,)`` values of tabular LSL with the noise of one Gaussian release, for adding or removing one.

    Args:
        noise_multiplier: standard deviation over sensitivity that the budget requires.
        centred: whether returns are counted from the middle of the range; the paper's estimator counts them from its
            low end.
    """
    width = value[1] - value[0]
    origin = (value[0] + value[1]) / 2.0 if centred else value[0]
    bound = (lsl_global_centred if centred else lsl_global_cells)(weights, ridge, width)
    mechanism = OutputGaussian(sensitivity=bound, noise_multiplier=noise_multiplier, dimension=len(weights))
    totals = visits.relative_to(origin).totals
    theta = weights * totals / (weights * visits.counts + ridge / 2.0)
    return origin + mechanism.add_noise(theta, noise, step)


# --- parts --------------------------------------------------------------------------------------------------------


def _inverse_norm(table: Array, weights: Array) -> float:
    return float(np.linalg.norm(np.linalg.pinv(np.sqrt(weights)[:, None] * table), 2))


def _phi_w(weights: Array, counts: Array, places: Array) -> Array:
    """Return the ``(K,)`` values of ``sum_s w_s / max(n_s - k, 1)^2``."""
    return (weights / np.maximum(counts - places[:, None], 1.0) ** 2).sum(axis=1)


def _lsl_factors(table: Array, weights: Array, ridge: float, width: float, published: bool) -> tuple[float, float]:
    """Return ``2 R |Phi| / lambda`` and c; ``published`` takes the paper's lambda minus ``|Phi|^2 max rho``."""
    norm, largest = float(np.linalg.norm(table, 2)), float(np.max(weights))
    divisor = ridge - norm**2 * largest if published else ridge
    if divisor <= 0.0:
        raise DprlError("The ridge of LSL must be above 0, and as published above |Phi|^2 times the largest weight.")
    return 2.0 * width * norm / divisor, norm * largest / math.sqrt(2.0 * ridge)
