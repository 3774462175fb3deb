"""Values around released propensities and outcomes: one noisy vector of weighted residuals, and intervals.

A unit's residual of a policy is ``pi(a | c) / e(a | c) (y - m(c, a))``, for its stratum c, action a and outcome y in
[-1, 1], with released e and m. Its largest size is known for each c and a once e and m are released, so nothing is cut.
The base class of the query also serves values around a regression (:mod:`~dprl.evaluation.regression_values`).
Errors and intervals: docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import scale_of, to_public_units
from dprl.engine.ratios import unit_means, usable
from dprl.engine.value_query import BaseValueQuery, FollowUpQuery
from dprl.evaluation.intervals import (
    NO_OVERLAP,
    TRIMMED,
    VARIANCE_MARGIN,
    Difference,
    ValueEstimate,
    confounder_odds,
    quantile,
    skew_margin,
    within_range,
)
from dprl.evaluation.least_noise import least_noise_strategy
from dprl.evaluation.residual_design import ResidualDesign
from dprl.evaluation.strata import Strata
from dprl.mechanisms.gaussian_sum import GaussianSum


class Estimate(NamedTuple):
    """Estimate of a value or a difference, in units of half the declared range around its middle.

    Attributes:
        noise, sampling, sampling_at_most: standard errors of the noise and of sampling, and an upper bound of the
            latter.
        below, above: how far the interval reaches below and above the value.
        bias: part of the interval's width that is allowed for strata without overlap.
        confounding: how strong an unmeasured confounder must be to bring the value to zero: see
            :attr:`~dprl.evaluation.contrasts.Contrast.confounding`.
        notes: what a reader must know of the value.
    """

    value: float
    noise: float
    sampling: float
    sampling_at_most: float
    below: float
    above: float
    bias: float
    confounding: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class EstimateQuery(FollowUpQuery, BaseValueQuery):
    """Query for values of one decision, which can estimate any weighted sum of the policies' values.

    Attributes:
        policies: number of target policies.
        contrasts: pairs of policies whose difference is asked for.
    """

    bounds: Bounds
    policies: int
    contrasts: tuple[tuple[int, int], ...]

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        raise NotImplementedError

    def _columns(
        self,
        policies: Sequence[Any],
        states: Float[np.ndarray, "episodes d"],
        action: Int[np.ndarray, " episodes"],
        outcome: Float[np.ndarray, " episodes"],
    ) -> Iterable[Float[np.ndarray, " episodes"]]:
        """Return the columns of the decisions' vectors, from states, actions and outcomes in [-1, 1]. Private."""
        raise NotImplementedError

    def _estimate(
        self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], weights: Float[np.ndarray, " policies"]
    ) -> Estimate:
        """Return the estimate of the sum over policies of ``weights`` times values, with its errors."""
        raise NotImplementedError

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        del behavior
        out = np.zeros((log.units, self.dimension))
        if not len(log.reward):
            return out
        first = np.minimum(log.episode_offsets[:-1], len(log.reward) - 1)
        sound = usable(log) & (log.action[first] >= 0) & (True if log.stays is None else log.stays[first] > 0.0)
        outcome = to_public_units(log.reward[first], self.bounds.reward)
        columns = self._columns(policies, log.observation[first], np.maximum(log.action[first], 0), outcome)
        for column, values in enumerate(columns):
            out[:, column] = unit_means(log, np.where(sound, values, 0.0))
        return out

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        centre, half = scale_of(self.bounds.reward)
        out = []
        for weights in np.eye(self.policies):
            found = self._estimate(mechanism, noisy, weights)
            ends = centre + half * (found.value - found.below), centre + half * (found.value + found.above)
            value = centre + half * found.value
            interval, notes = within_range(value, ends, self.bounds.reward, found.notes)
            errors = half * found.noise, half * found.sampling, half * found.sampling_at_most
            out.append(ValueEstimate(value, interval, *errors, None, None, half * found.bias, notes))
        return out

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return one policy's value less another's, for a pair among :attr:`contrasts`."""
        half = scale_of(self.bounds.reward)[1]
        found = self._estimate(mechanism, noisy, np.eye(self.policies)[a] - np.eye(self.policies)[b])
        most = self.bounds.reward[1] - self.bounds.reward[0]
        low, high = half * (found.value - found.below), half * (found.value + found.above)
        interval = max(low, -most), min(high, most)
        if interval[0] > interval[1]:
            interval = -most, most
        return Difference(interval, half * found.noise, half * found.sampling, found.confounding)


@dataclass(frozen=True)
class ResidualQuery(EstimateQuery):
    """Query to the units around released propensities, made from public facts and released numbers.

    Attributes:
        config: options with ``confidence``, ``overlap`` and ``min_propensity``.
        table: ``(K, S, A)`` action probabilities of the target policies in each stratum; zeros for the logged policy,
            and ones for a policy that is not known yet.
    """

    table: Float[np.ndarray, "policies strata actions"]

    words: ClassVar[str] = "doubly robust, with propensities estimated within strata"
    clip_norm: ClassVar[float] = 1.0

    @property
    def dimension(self) -> int:
        """Length of a vector: the residual and its square for each policy, and a product for each contrast."""
        return 2 * self.policies + len(self.contrasts)

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """``(K, K)`` strategy that would be used if all actions were equally likely in every stratum."""
        patterns = self._expected.reshape(len(self.table), -1).T
        patterns = np.unique(np.round(patterns / patterns.max(axis=0), 6), axis=0)
        unknown = self.table.sum(axis=2).max(axis=1) > 1.5
        if unknown.any():  # an unknown policy may also never take the logged action
            patterns = np.concatenate([patterns, np.where(unknown, 0.0, patterns)])
        return least_noise_strategy(patterns[patterns.max(axis=1) > 0.0], self.contrasts)

    @property
    def _expected(self) -> Float[np.ndarray, "policies strata actions"]:
        """The table, with the logged policy's probabilities if all actions were equally likely in every stratum."""
        return np.where(self.table.any(axis=(1, 2), keepdims=True), self.table, 1.0 / self.table.shape[2])

    def with_policies(self, policies: Sequence[Any]) -> ResidualQuery:
        """Return the same query for policies that are known by now; its dimension and clip norm stay."""
        return replace(self, table=Strata(self.bounds).table(policies))

    @cached_property
    def design(self) -> ResidualDesign:
        """Design of the vectors by stratum and action, once propensities are released."""
        config = self.config
        return ResidualDesign(
            self.released, self.table, self.contrasts, config.overlap == "trim", config.min_propensity
        )

    @override
    def _columns(self, policies: Sequence[Any], states: Any, action: Any, outcome: Any) -> Iterable[np.ndarray]:
        del policies
        design = self.design
        place = self.released.strata.cells(states) * self.table.shape[2] + action
        residual = (outcome - design.outcomes.ravel()[place]) / design.largest_differences.ravel()[place]
        for column, asked in enumerate(design.vector_factors.T):
            yield asked[place] * (residual if column < self.policies else residual**2 - 1.0)

    def _estimate(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], weights: np.ndarray) -> Estimate:
        """Return the estimate of the sum over policies of ``weights`` times values, with its errors."""
        design, t = self.design, quantile(self.config.confidence)
        mean, squares, mean_noise, square_noise = design.decoded(noisy, mechanism.noise_std, weights)
        own = np.where(design.is_logged, 0.0, weights)  # without the logged policy, whose weights are known
        direct, table = design.model_values(own), np.tensordot(own, self.table, 1)
        middle, done = float(design.shares @ direct), float(weights[design.is_logged].sum())
        value = middle + mean
        # variance between strata: what the model says of it, and what the model leaves of it
        raw, apart = (table * design.raw).sum(axis=1), direct - middle
        between = float(design.shares @ (apart * (2.0 * raw - direct - middle)))
        if done:
            value, apart, between = design.with_logged_policy(value, apart, table, done)
        variance = max(squares, 0.0) + max(between, 0.0)
        upper, surely = (
            min(max(squares, 0.0) + m * square_noise, design.largest_mean_square(weights)) + max(between, 0.0)
            for m in (VARIANCE_MARGIN, t)
        )
        noise = math.hypot(mean_noise, design.noise_of_shares(apart), design.noise_of_weights(table))
        people = design.fewest_people(t)
        sampling = math.sqrt(upper / people)
        error = math.hypot(sampling, noise)
        skew = (sampling / error) ** 2 * skew_margin(t, design.largest_sum(weights), people) if error > 0.0 else 0.0
        low, high = design.unsupported_width(table, t)
        below, above = (t * error + skew + design.second_order_bias(table) + side for side in (low, high))
        end = max(value - below, -value - above, 0.0)
        _, squares, _, square_noise = design.decoded(noisy, mechanism.noise_std, own)
        strength = (
            end / max(math.sqrt(squares + square_noise) * design.confounder_factor(table), 1e-12)
            if squares > 0.0
            else 0.0
        )
        errors = noise, math.sqrt(variance / people), math.sqrt(surely / people)
        lost = design.unsupported if design.trims else design.unsupported & (table != 0.0)
        notes = (TRIMMED if design.trims else NO_OVERLAP,) if lost.any() else ()
        found = Estimate(value, *errors, below, above, low + high, confounder_odds(strength), notes)
        return found if design.has_enough_people(t) else Estimate(0.0, noise, 1.0, 1.0, 2.0, 2.0, 4.0, 1.0, notes)

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors to expect if every action is equally likely in each stratum, from public facts only.

        Returns:
            For each target policy the privacy standard error, the sampling standard error, and half of the declared
            range; a smaller bound of the interval's half-width is not known before the overlap is.
        """
        half, units = scale_of(self.bounds.reward)[1], self.bounds.units
        inverse, table, actions = np.linalg.inv(self.strategy), self._expected, self.table.shape[2]
        most = actions * table.max(axis=(1, 2))
        noise = most * np.linalg.norm(inverse, axis=1) * mechanism.noise_std / units
        sampling = np.sqrt(np.minimum((actions * table**2).sum(axis=2), actions).max(axis=1) / units)
        return [(half * float(n), half * float(s), half) for n, s in zip(noise, sampling, strict=True)]
