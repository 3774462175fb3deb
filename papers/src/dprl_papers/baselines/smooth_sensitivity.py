"""DP-LSW and DP-LSL as published, and what their answers really are sensitive to; for experiments alone.

Paper: Balle, Gomrokchi and Precup (2016), "Differentially private policy evaluation". docs/papers/balle-2016.md has
the derivations, and where the published bounds fail. The verified form is first_visit.py.
Privacy unit: a trajectory. Relation: replace one, unless said otherwise. Released: nothing.

Symbols: S states (or public cells), each with features phi_s in R^n, the rows of ``table``; n_s trajectories visit s,
the returns from their first visits on lie in [0, R] and add up to v_s; public weights w_s (LSW), rho_s (LSL).
Weights, table, ridge and R must not depend on the log. So may neither psi nor any bound made of counts be printed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dprl.data.trajectories import Trajectories
from dprl.engine.columns import COLUMNS, RowInputs, scale_of
from dprl.errors import DprlError
from dprl.protocols import Interval
from dprl.value_functions.features import Tabular
from dprl_papers.baselines.smooth_gaussian import OutputGaussian, SmoothGaussian

Array = np.ndarray


class FirstVisits(NamedTuple):
    """What LSW and LSL use of a log. NOT private."""

    counts: Array  # (S,) trajectories that visit each state
    totals: Array  # (S,) sums over them of the return from the first visit on

    def relative_to(self, origin: float) -> FirstVisits:
        """Return the same with ``origin`` taken off every return."""
        return FirstVisits(self.counts, self.totals - origin * self.counts)


def first_visits(
    log: Trajectories, discount: float, value: Interval, cells: tuple[int, ...] | None = None
) -> FirstVisits:
    """Count first visits and add up their returns, clamped to the public ``value`` range; on-policy.

    Args:
        log: trajectories, one a unit.
        cells: into how many equal parts to cut each observation component; without it states are whole numbers.

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
    scaled = returns[seen] * log.bounds.cumulative_ratio  # the rows hold it over the largest ratio
    returns = centre + half * np.clip(scaled, -1.0, 1.0)
    return FirstVisits(
        np.bincount(index, minlength=states.size).astype(np.float64),
        np.bincount(index, returns, minlength=states.size),
    )


def cell_centres(bounds: tuple[Interval, ...], cells: tuple[int, ...]) -> Array:
    """Return ``(S, d)`` middles of the cells of :func:`first_visits`."""
    axes = [low + (high - low) * (np.arange(c) + 0.5) / c for (low, high), c in zip(bounds, cells, strict=True)]
    return np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)


# --- the estimators -----------------------------------------------------------------------------------------------


def lsw(table: Array, weights: Array, visits: FirstVisits) -> Array:
    """Return ``(n,)`` weighted least squares on first-visit averages (zero where nobody was): minimises ``sum_s w_s
    (F_s - phi_s' theta)^2``.
    """
    averages = visits.totals / np.maximum(visits.counts, 1.0)
    root = np.sqrt(weights)
    return np.linalg.pinv(root[:, None] * table) @ (root * averages)


def lsl(table: Array, weights: Array, ridge: float, visits: FirstVisits) -> Array:
    """Return ``(n,)`` ridge regression on every first-visit return, a state weighing rho_s a visit: minimises ``sum_x
    sum_{s in x} rho_s (F_{x,s} - phi_s' theta)^2 + (ridge / 2) |theta|^2``.
    """
    gram = table.T @ ((weights * visits.counts)[:, None] * table)
    return np.linalg.solve(gram + ridge / 2.0 * np.eye(table.shape[1]), table.T @ (weights * visits.totals))


# --- local and smooth sensitivity -----------------------------------------------------------------------------------


def lsw_local(table: Array, weights: Array, counts: Array, width: float) -> float:
    """Return the largest change of :func:`lsw` by one trajectory more, less or another; returns in [0, ``width``]."""
    return width * _inverse_norm(table, weights) * math.sqrt(_phi_w(weights, counts, np.zeros(1))[0])


def lsl_local(
    table: Array, weights: Array, ridge: float, counts: Array, width: float, *, published: bool = False
) -> float:
    """Return bound on the change of :func:`lsl` when a trajectory is replaced, added or removed.

    Args:
        published: with the paper's ``ridge - |Phi|^2 max rho`` where ``ridge`` is enough; it must be positive.
    """
    factor, c = _lsl_factors(table, weights, ridge, width, published)
    return factor * (c * math.sqrt(float(weights @ counts)) + float(np.linalg.norm(weights)))


def psi_w(weights: Array, counts: Array, beta: float) -> float:
    """Return ``max_k exp(-k beta) sum_s w_s / max(n_s - k, 1)^2`` over whole ``k >= 0``.

    Between two of the places ``k = n_s - 1`` the logarithm of the sum is convex: the maximum is at one of them or 0.
    """
    places = np.unique(np.r_[0.0, np.maximum(counts - 1.0, 0.0)])
    return float(np.max(np.exp(-beta * places) * _phi_w(weights, counts, places)))


def psi_l(weights: Array, counts: Array, units: int, beta: float, c: float) -> float:
    """Return ``max_k exp(-k beta) (c sqrt(sum_s rho_s min(n_s + k, units)) + |rho|)^2`` over whole ``0 <= k <= units``.

    The inner sum is concave in k, so the logarithm of what is maximised is too: bisection on where it stops to grow.
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
    """Return :func:`psi_l` where trajectories are added or removed: no ``units`` to stop at, and real k; in closed
    form.
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


def lsl_global(table: Array, weights: Array, ridge: float, units: int, width: float) -> float:
    """Return (T): bound on the change of :func:`lsl` over all logs of at most ``units`` trajectories, any features."""
    return lsl_local(table, weights, ridge, np.full(len(weights), float(units)), width)


def lsl_global_cells(weights: Array, ridge: float, width: float) -> float:
    """Return (G): the exact sensitivity of :func:`lsl` where features are indicators of states or of groups of states.

    Args:
        weights: ``(n,)`` summed weight of each group. For replacing, adding or removing one, logs of any size.
    """
    return width * float(np.linalg.norm(weights / (weights + ridge / 2.0)))


def lsl_global_centred(weights: Array, ridge: float, width: float, *, grouped: bool = False) -> float:
    """Return the same where the middle of the range is taken off the returns, for adding or removing one: half of (G).

    Args:
        grouped: features are indicators of groups of several states: the largest change is then not at an empty or
            once visited group, but where its weight u, ridge included, solves ``2 u^2 - 2 a u - a p = 0``.
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
    """Return ``(S,)`` values of DP-LSW; with the published calibration, the paper's algorithm for returns in ``value``.

    Returns are counted from the low end of the range: so they lie in [0, R], with the default of an unvisited state.
    """
    low, width = value[0], value[1] - value[0]
    theta = lsw(table, weights, visits.relative_to(low))
    bound = lsw_smooth(table, weights, visits.counts, width, mechanism.beta)
    return low + table @ mechanism.add_noise(theta, bound, noise, step)


def noisy_lsl(
    mechanism: SmoothGaussian, table: Array, weights: Array, ridge: float, visits: FirstVisits, units: int,
    value: Interval, noise: Any, step: int = 0,
) -> Array:  # fmt: skip
    """Return ``(S,)`` values of DP-LSL; as :func:`noisy_lsw`, for logs of exactly ``units`` trajectories."""
    low, width = value[0], value[1] - value[0]
    theta = lsl(table, weights, ridge, visits.relative_to(low))
    bound = lsl_smooth(table, weights, ridge, visits.counts, units, width, mechanism.beta)
    return low + table @ mechanism.add_noise(theta, bound, noise, step)


def noisy_tabular_lsl(
    noise_multiplier: float, weights: Array, ridge: float, visits: FirstVisits, value: Interval, noise: Any,
    step: int = 0, *, centred: bool = False,
) -> Array:  # fmt: skip
    """Return ``(S,)`` values of tabular LSL with the noise of one Gaussian release for adding or removing one.

    Args:
        noise_multiplier: standard deviation over sensitivity that the budget allows.
        centred: fit returns less the middle of the range; the paper's estimator counts them from its low end.
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
    """Return ``(K,)`` values of ``sum_s w_s / max(n_s - k, 1)^2``."""
    return (weights / np.maximum(counts - places[:, None], 1.0) ** 2).sum(axis=1)


def _lsl_factors(table: Array, weights: Array, ridge: float, width: float, published: bool) -> tuple[float, float]:
    """Return ``2 R |Phi| / lambda`` and c; with the paper's lambda less ``|Phi|^2 max rho``."""
    norm, largest = float(np.linalg.norm(table, 2)), float(np.max(weights))
    divisor = ridge - norm**2 * largest if published else ridge
    if divisor <= 0.0:
        raise DprlError("The ridge of LSL must be above 0, and as published above |Phi|^2 times the largest weight.")
    return 2.0 * width * norm / divisor, norm * largest / math.sqrt(2.0 * ridge)
