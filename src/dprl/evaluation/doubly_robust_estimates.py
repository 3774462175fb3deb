"""A unit's doubly robust estimates: the baseline without the unit's own part, the estimates, and their largest size.

The baseline is AdaSSP's value function. Each unit's own part of the noisy sums is taken out of it, so that a unit's
baseline does not contain the unit's rewards. The largest size follows from public facts only, by going back from the
horizon. It is exact for one estimate; for a pair of estimates, or with a declared range of returns, it is an upper
bound.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: AdaSSP's noisy sums, and nothing more; taking out a unit's own part costs nothing.
Proof: docs/proofs/doubly-robust.md. Symbols: V baseline, rho_t ratios, w_t their product up to t, R the largest
importance ratio of one step, W the largest product of ratios.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.bounds import Bounds, Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import ReturnRanges
from dprl.engine.layouts import gather, unit_rows
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.evaluation.adassp import AdaSSPProgram, State, modes_bound
from dprl.value_functions.features import public_states
from dprl.value_functions.value_function import ValueFunction, in_public_units

if TYPE_CHECKING:
    from dprl.evaluation.doubly_robust_query import DoublyRobustQuery

DIRECTIONS = 16
_SMALLEST = 1e-9  # smaller weights do not matter
ROUNDING = 1.0 + 1e-9
_NUMBERS = 1 << 22  # numbers in units' sums that are held at a time
_ROWS = 1 << 14  # rows at a time


class StateWithSums(NamedTuple):
    """AdaSSP's state, and the noisy sums that it was made of: first that of returns, then the statistics."""

    level: Float[Array, ""]
    theta: Float[Array, " n"]
    sums: Float[Array, " dim"]


@dataclass(frozen=True)
class AdaSSPWithSums(AdaSSPProgram):
    """AdaSSP whose answer is the weights, followed by the noisy sums."""

    @override
    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        if stage == 0:
            return noisy[0]
        level, theta = super().update(stage, state, noisy, step)
        return StateWithSums(level, theta, jnp.append(state.sums[:1], noisy))

    @override
    def finish(self, stage: int, state: Any) -> Any:
        if stage:
            return state
        level, theta = self.start_at(self._level(state[None]))
        return StateWithSums(level, theta, jnp.append(state, jnp.zeros(self.stages[1].mechanism.dimension)))

    @override
    def answer(self, state: Any) -> Float[Array, " n_and_dim"]:
        return jnp.append(super().answer(state), state.sums)

    def _level(self, sums: Any) -> Any:
        assert self.start is not None
        return self.start.level(sums, self.stages[0].mechanism)

    def matrix(self, sums: Float[np.ndarray, " dim"]) -> Float[np.ndarray, "k k"]:
        """Return the matrix that the release solves, from which any unit's part can be subtracted.

        Its least eigenvalue is at least twice the largest eigenvalue that a unit's part can have.
        """
        values, vectors = np.linalg.eigh(self._matrices(sums[None])[0])
        least = 2.0 * modes_bound(self.facts.features, self.config.modes) ** 2
        return (vectors * np.maximum(np.maximum(values, 0.0) + self.ridge, least)) @ vectors.T

    def weights_without(
        self, sums: Float[np.ndarray, " dim"], matrix: Float[np.ndarray, "k k"], own: Float[np.ndarray, "units dim"]
    ) -> Float[np.ndarray, "units k"]:
        """Return weights over the modes of the value function, without each unit's ``own`` part of the sums.

        The products of the other units were taken around a level that includes the unit's return. They are moved to the
        level without that return.
        """
        level, levels = (np.asarray(self._level(x.T)) for x in (sums, sums - own))
        whole, parts = self._matrices(sums[None]), self._matrices(own)
        cross = (sums - own)[:, -len(matrix) :] / self._kappa * (self.facts.ratio + np.abs(level))
        cross += (level - levels)[:, None] * (whole[:, :, 0] - parts[:, :, 0])
        weights = np.linalg.solve(matrix - parts, cross[:, :, None])[:, :, 0]
        weights[:, 0] += levels  # the first mode is the constant 1
        return weights

    def _matrices(self, sums: Float[np.ndarray, "units dim"]) -> Float[np.ndarray, "units k k"]:
        k = self.config.modes
        i, j = np.triu_indices(k)
        matrices = np.empty((len(sums), k, k))
        matrices[:, i, j] = matrices[:, j, i] = sums[:, 1 : 1 + len(i)] / np.where(i == j, 1.0, math.sqrt(2.0))
        return matrices

    def own_parts(
        self, sums: Float[np.ndarray, " dim"], log: Trajectories, ratios: Float[np.ndarray, " rows"]
    ) -> Float[np.ndarray, "units dim"]:
        """Return each unit's part of the sums, as the mechanisms clipped and counted it. Private."""
        facts = self.facts
        rows = rows_of(log, ratios, facts.features, facts.discount, facts.value, columns=self.columns)
        units, state = unit_rows(rows, facts.units), State(jnp.asarray(self._level(sums)), jnp.zeros(()))
        own = np.empty((log.units, len(sums)))
        order, start = np.concatenate([np.zeros(0, np.int64), *(members for members, _ in units.buckets)]), 0
        for index, live in units.chunks(np.ones(log.units, dtype=bool)):
            members = order[start : start + np.count_nonzero(live)]
            for stage, part in enumerate((slice(1), slice(1, None))):
                mechanism = self.stages[stage].mechanism
                found = np.asarray(_contribution(self, stage, state, units.columns, index))
                own[members, part] = mechanism.scaled(mechanism.clipped(found[live]))
            start += len(members)
        return own


@partial(jax.jit, static_argnames=("program", "stage"))
def _contribution(program: AdaSSPWithSums, stage: int, state: State, columns: Any, index: Any) -> jax.Array:
    with jax.default_matmul_precision("highest"):
        return program.contribution(stage, state, gather(columns, index))


@dataclass(frozen=True)
class LeaveOneOutFunction(ValueFunction):
    """A released value function that is made again for each unit, from the noisy sums less the unit's own part.

    Attributes:
        program: program that released the function.
        sums: ``(1 + dim,)`` noisy sums of the program.
    """

    program: AdaSSPWithSums
    sums: np.ndarray

    @cached_property
    def _matrix(self) -> Float[np.ndarray, "k k"]:
        return self.program.matrix(self.sums)

    def on_public_states(self) -> tuple[Float[np.ndarray, " points"], float]:
        """Return the values at public states with nobody left out, and the most by which a unit's own part moves them.

        The latter is ``h (W + 1) / (1 - h)`` with the largest leverage ``h`` of a public state, at most 1/2.
        """
        modes = self._modes(public_states(self.features))
        weights = self.program.weights_without(self.sums, self._matrix, np.zeros((1, len(self.sums))))[0]
        leverage = float((modes * np.linalg.solve(self._matrix, modes.T).T).sum(axis=1).max())
        return modes @ weights, leverage / (1.0 - leverage) * (self.program.facts.ratio + 1.0)

    def at_rows(self, log: Trajectories, policy: Any, behavior: Any) -> Float[np.ndarray, " rows"]:
        """Return ``(N,)`` values in public units at the states of the log, each without the row's own unit. Private.

        Args:
            policy, behavior: the target policy of the value function, and the public behaviour policy, if any.
        """
        found, block = [np.zeros(0)], max(1, _NUMBERS // len(self.sums))
        for start in range(0, log.units, block):
            some = (np.arange(log.units) // block) == start // block
            part = log if some.all() else log.of_units(some, log.bounds)
            own = self.program.own_parts(self.sums, part, step_ratios(policy, part, behavior))
            weights = self.program.weights_without(self.sums, self._matrix, own)
            unit = part.unit_of_episode()[part.episode_of()]
            for first in range(0, len(unit), _ROWS):
                rows = slice(first, first + _ROWS)
                found.append((self._modes(part.observation[rows]) * weights[unit[rows]]).sum(axis=1))
        return np.concatenate(found)

    def _modes(self, states: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows k"]:
        """Return ``(N, k)`` modes at ``states``, computed one mode at a time.

        A product of matrices may round a row differently beside other rows.
        """
        phi = self.features(states)
        return np.stack([(phi * weights).sum(axis=1) for weights in self.program.basis.T], axis=1)


@dataclass(frozen=True)
class Baseline:
    """A released value function as a baseline: a fraction of what can still come, which shrinks from step to step.

    The fraction is kept in the range that it has on public states, which makes the estimates' range smaller. A function
    that was learned from the units differs from unit to unit: each unit's own part is left out.

    Attributes:
        function: the released value function, which does not depend on time.
        width: half-widths of the value range from fraction 0 to fraction 1; a mean over steps, because the function was
            learned from rows of all steps.
        least, most: range of the fraction.
        radius: largest distance of a unit's estimate from the middle of the value range.
    """

    function: ValueFunction
    width: float
    least: float
    most: float
    radius: float

    def fractions(self, log: Trajectories, policy: Any = None, behavior: Any = None) -> Float[np.ndarray, " rows"]:
        """Return ``(N,)`` fractions at the states of the log. Each depends on its own unit only, to the last bit."""
        if isinstance(self.function, LeaveOneOutFunction):
            values = self.function.at_rows(log, policy, behavior)
        else:
            values = in_public_units(self.function, log.observation)
        return np.clip((1.0 + values) / self.width, self.least, self.most)


def estimates(
    query: DoublyRobustQuery,
    trajectories: Trajectories,
    ratios: Float[np.ndarray, " rows"],
    fractions: Float[np.ndarray, " rows"],
) -> list[Float[np.ndarray, " episodes"]]:
    """Return ``(E,)`` estimates of one policy, the lower one first, and last the mean weights.

    ``L = sum_t gamma^t (w_t r_t + (w_{t-1} - w_t) V_t)`` with ``w_t = min(w_{t-1} rho_t, W)``. Where the next weight
    could be cut, V is replaced: in L by the least return that can still come, in U by the largest. The loop takes one
    step of all episodes at a time.
    """
    bounds, known, width = query.bounds, query.remaining_return, query.remaining_return.width
    limit, ratio = bounds.cumulative_ratio, bounds.max_importance_ratio
    weight, lost = np.ones(trajectories.episodes), np.zeros(trajectories.episodes)
    sides = [np.zeros(trajectories.episodes) for _ in range(query.sides)]
    power = 1.0
    for t, who in trajectories.episodes_by_step():
        rows, before = trajectories.episode_offsets[who] + t, weight[who]
        after = np.minimum(before * ratios[rows], limit)
        v = known.low[t] + fractions[rows] * width[t]
        safe = before * ratio <= limit * ROUNDING
        for side, least_or_most in zip(sides, (known.low[t], known.high[t]), strict=False):
            use = v if query.sides == 1 else np.where(safe, v, least_or_most)
            side[who] += power * (after * trajectories.reward[rows] + (before - after) * use)
        lost[who] += query.losses[t] * (before - after)
        weight[who] = after
        power *= query.config.discount
    return [*sides, 1.0 - lost / query.losses[0]]


# --- how large an estimate can be -------------------------------------------------------------------------------------


def largest_distance(
    bounds: Bounds, discount: float, known: ReturnRanges, baseline: ReturnRanges, centre: float, *, both: bool
) -> float:
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
        ends = (
            largest_combination(bounds, discount, known, baseline, sign, 0.0) - sign * centre for sign in (1.0, -1.0)
        )
        return max(*ends, 1e-300) * ROUNDING
    radius = 0.0
    for angle in 2.0 * math.pi * np.arange(DIRECTIONS) / DIRECTIONS:
        a, b = math.cos(angle), math.sin(angle)
        radius = max(radius, largest_combination(bounds, discount, known, baseline, a, b) - (a + b) * centre)
    # a point within the radius in all directions lies in the polygon around the circle
    return max(radius / math.cos(math.pi / DIRECTIONS), 1e-300) * ROUNDING


def largest_combination(
    bounds: Bounds, discount: float, known: ReturnRanges, baseline: ReturnRanges, a: float, b: float
) -> float:
    """Return the largest ``a L + b U`` that the rows of a trajectory can make, or an upper bound of it."""
    rewards = _back(bounds, discount, known, baseline, a, b, bounds.reward)
    low, high = bounds.reward
    if bounds.return_range is None or low < 0.0 < high:
        return rewards
    # where rewards have one sign, their weighted sum is at most the largest weight times the largest return
    most = bounds.cumulative_ratio * max((a + b) * known.low[0], (a + b) * known.high[0], 0.0)
    return min(rewards, most + _back(bounds, discount, known, baseline, a, b, (0.0, 0.0)))


def _back(
    bounds: Bounds,
    discount: float,
    known: ReturnRanges,
    baseline: ReturnRanges,
    a: float,
    b: float,
    rewards: Interval,
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
    """Return ``(P,)`` ascending weights.

    At these weights what is still to come may bend; among them is the largest weight after each number of steps.
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
