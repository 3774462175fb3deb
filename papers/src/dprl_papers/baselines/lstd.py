"""LSTD and WIS-LSTD(lambda): non-private references, and the exact limit of GPOPE without noise.

LSTD: Bradtke and Barto (1996), off-policy with per-step importance ratios. WIS-LSTD: Mahmood, van Hasselt, Sutton,
"Weighted importance sampling for off-policy learning with linear function approximation" (2014), with discount and
lambda constant until the end of an episode.
Not private: they must never be released from real people's data.

WIS-LSTD: from transition k the return is a mixture over the transition i >= k after which it stops (discounting is
termination). It stops without bootstrapping with weight C (1 - gamma), and with bootstrapping with weight C gamma (1 -
lambda), where C = prod_{j=k+1..i} gamma lambda rho_j. Where the log ends, all remaining weight bootstraps. The squared
error of each of these returns is weighted, times rho_k. The published recursion carries a matrix V and a vector u for
each episode. Their coefficients are scalars: the weight that is left after transition k, in units of the trace z_k,

    W_k = 1 - gamma lambda + gamma lambda rho_{k+1} W_{k+1},        W_k = 1 at the last transition,

Thus the same A and b are sums over transitions (papers/tests/test_wis_lstd.py checks them against both forms):

    z_k = rho_k (gamma lambda z_{k-1} + phi_k)
    A = sum_k z_k (W_k (phi_k - phi_{k+1}) + (1 - gamma) phi_{k+1})',        b = sum_k W_k r_k z_k

At rho = 1 this is LSTD(lambda); at lambda = 0 it is LSTD with a ratio for each step, whatever the ratios.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dprl.bounds import Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import scale_of
from dprl.engine.rows import Rows
from dprl.errors import DprlError
from dprl.value_functions.features import Features


def moments(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, b, C of paper 004, Eq. (2.1)-(2.2): means over units of the weighted sums over transitions, in float64.

    Returns:
        A ``(n, n)``, b ``(n,)``, C ``(n, n)``.
    """
    units = max(len(rows.offsets) - 1, 1)
    phi, delta = rows.phi.astype(np.float64), rows.delta_phi.astype(np.float64)
    weight, rho, reward = (x.astype(np.float64) / 1.0 for x in (rows.weight, rows.rho, rows.reward))
    A = phi.T @ ((weight * rho)[:, None] * delta) / units
    b = phi.T @ (weight * rho * reward) / units
    C = phi.T @ (weight[:, None] * phi) / units
    return A, b, C


def lstd(rows: Rows, ridge: float = 0.0) -> np.ndarray:
    """Return the weights ``(n,)`` that solve A theta = b: the fixed point that GPOPE approaches without noise."""
    A, b, _ = moments(rows)
    return np.linalg.lstsq(A + ridge * np.eye(len(b)), b, rcond=None)[0]


# --- weighted importance sampling -------------------------------------------------------------------------------------

_CHUNK = 1 << 16  # transitions whose features are held in memory together


def wis_lstd(
    trajectories: Trajectories,
    ratios: np.ndarray,
    features: Features,
    discount: float,
    trace_decay: float = 0.0,
    value: Interval | None = None,
) -> np.ndarray:
    """Return the weights of the value function that solves ``A theta = b`` in the least-squares sense.

    Args:
        trajectories: the log. Every usable transition has the same weight, whatever the length of its trajectory.
        ratios: ``(N,)`` importance ratio of each step, already at most its public bound (``step_ratios``).
        features: public feature map.
        discount: gamma.
        trace_decay: lambda.
        value: public value range. Unless lambda is zero, the method does not commute with a shift of the rewards. So it
            runs on unchanged rewards, and only its answer is converted to public units.

    Returns:
        ``(n,)`` weights in the reward's unit, ``V = theta' phi``; with ``value``, weights in public units,
        ``V = centre + half * theta' phi``.

    Raises:
        DprlError: the discount or lambda is outside [0, 1], or products of ratios leave double precision.
    """
    A, b = wis_moments(trajectories, ratios, features, discount, trace_decay)
    theta = np.linalg.lstsq(A, b, rcond=None)[0]
    if value is None:
        return theta
    centre, half = scale_of(value)
    return (theta - centre * features.constant()) / half


def wis_moments(
    trajectories: Trajectories, ratios: np.ndarray, features: Features, discount: float, trace_decay: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``A`` ``(n, n)`` and ``b`` ``(n,)`` of :func:`wis_lstd`: sums over transitions, in the reward's unit.

    A transition whose next state is unknown is left out; the transitions before it end there, and bootstrap.
    """
    if not (0.0 <= discount <= 1.0 and 0.0 <= trace_decay <= 1.0):
        raise DprlError("WIS-LSTD: discount and trace_decay must be between 0 and 1.")
    alive = trajectories.has_next & ~trajectories.terminated
    usable = trajectories.valid[trajectories.episode_of()] & (alive | trajectories.terminated)
    A, b = np.zeros((features.size, features.size)), np.zeros(features.size)
    for first, last in _chunks(trajectories.episode_offsets):
        offsets = trajectories.episode_offsets[first : last + 1]
        rows = slice(offsets[0], offsets[-1])
        rho, use = ratios[rows], usable[rows]
        phi = features(trajectories.observation[rows])
        following = features(trajectories.next_observation[rows]) * alive[rows][:, None]
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported below
            z, weight = _traces(phi, rho, use, offsets - offsets[0], discount * trace_decay)
            A += z.T @ (weight[:, None] * (phi - following) + (1.0 - discount) * following)
            b += z.T @ (weight * trajectories.reward[rows])
    if not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise DprlError(
            "WIS-LSTD: products of importance ratios leave double precision: lower max_importance_ratio or trace_decay."
        )
    return A, b


def _traces(
    phi: np.ndarray, rho: np.ndarray, use: np.ndarray, offsets: np.ndarray, decay: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return z ``(N, n)``, zero where a transition is unused, and W ``(N,)``, for all episodes step by step."""
    rho = np.where(use, rho, 0.0)
    z, weight = rho[:, None] * phi, np.ones(len(rho))
    if decay == 0.0:
        return z, weight
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, longest_first = offsets[:-1][order], lengths[order]
    longest = int(longest_first.max(initial=0))
    alive = np.searchsorted(-longest_first, -np.arange(longest), side="left")  # episodes that are longer than t
    for t in range(1, longest):
        rows = starts[: alive[t]] + t
        z[rows] += decay * rho[rows, None] * z[rows - 1]
    for t in reversed(range(1, longest)):
        rows = starts[: alive[t]] + t
        weight[rows - 1] = np.where(use[rows], 1.0 - decay + decay * rho[rows] * weight[rows], 1.0)
    return z, weight


def _chunks(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Return ranges of episodes with about ``_CHUNK`` transitions each, or one episode that is longer."""
    first, episodes = 0, len(offsets) - 1
    while first < episodes:
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK, side="right")) - 1
        last = min(max(last, first + 1), episodes)
        yield first, last
        first = last
