"""Values of several steps around released propensities: importance sampling whose intervals count their noise.

Weights are products of importance ratios whose denominators were estimated within strata. Noise in a count moves all
these weights at once. So a unit's vector also holds its weight noise: by how much noise may have changed the unit's own
weight. Derivation: docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.ratios import step_ratios, unit_means
from dprl.engine.value_query import ExtendedQuery, FollowUpQuery
from dprl.evaluation.importance_sampling import ImportanceQuery
from dprl.evaluation.importance_vectors import unit_pairs
from dprl.evaluation.intervals import (
    VARIANCE_MARGIN,
    Difference,
    ValueEstimate,
    confounder_odds,
    interval_difference,
    quantile,
)
from dprl.evaluation.propensities import Propensities
from dprl.evaluation.strata import Strata
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.policies.loading import LoggedPolicy

WEIGHT_NOISE_LENGTH = 0.5
"""Length of the weight noise of all policies together, against the vector of importance sampling."""


@dataclass(frozen=True)
class StratifiedStepsQuery(FollowUpQuery, ExtendedQuery):
    """Query to the units around released propensities, which adds weight noise to the query of importance sampling.

    Propensities are released before it. Expected errors are computed as if the propensities were known.

    Attributes:
        inner: query of importance sampling.
        table: ``(K, S, A)`` action probabilities of the target policies in each stratum; zeros for the logged policy.
        declared: bounds of the log; the bounds of ``inner`` also cut products, because a weight may vanish.
        min_propensity: propensity below which an action is not supported; weights are zero there.
    """

    inner: ImportanceQuery
    table: Float[np.ndarray, "policies strata actions"]
    declared: Bounds
    min_propensity: float

    @property
    @override
    def bounds(self) -> Bounds:
        """Public bounds of the log, as declared."""
        return self.declared

    @property
    def words(self) -> str:
        """The estimator's name as a report says it."""
        return f"{self.inner.words}, with propensities estimated within strata"

    @property
    def dimension(self) -> int:
        """Length of a vector: that of importance sampling, plus two numbers of weight noise for each policy."""
        return self.inner.dimension + 2 * len(self.strategy)

    @property
    def clip_norm(self) -> float:
        """L2 norm that no vector exceeds."""
        return self.inner.clip_norm * math.hypot(1.0, WEIGHT_NOISE_LENGTH)

    def with_policies(self, policies: Sequence[Any]) -> StratifiedStepsQuery:
        """Return the same query for policies that are known by now; its dimension and clip norm stay."""
        return replace(self, table=Strata(self.bounds).table(policies))

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        del behavior
        place = self.released.strata.cells(log.observation), np.maximum(log.action, 0)
        done = replace(log, behavior_prob=(log.action >= 0).astype(np.float64))  # for the logged policy
        log = replace(log, behavior_prob=self.released.propensities(self.min_propensity)[place])
        moved = self._weight_noise.standard_errors(log) / self._weight_noise.largest_error
        weight = self._weight
        known = [isinstance(policy, LoggedPolicy) for policy in policies]
        ratios = [step_ratios(policy, done if one else log) for policy, one in zip(policies, known, strict=True)]
        columns = []
        for own, one in zip(ratios, known, strict=True):
            # one episode at a time, because each episode has its own noise
            alone = replace(log, unit_offsets=np.arange(log.episodes + 1))
            pair, move = unit_pairs(self.inner, alone, own), np.zeros_like(moved) if one else moved
            columns += [weight * unit_means(log, part * move) for part in (sum(pair), np.abs(pair[0] - pair[1]))]
        return np.column_stack([self.inner.vectors_of(log, ratios), *columns])

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        sampling, vector = self._with_errors(mechanism, noisy)
        estimates, (low, high, largest) = sampling.decode(mechanism, vector), sampling.scale
        out = []
        for e, (weight, distance) in zip(estimates, sampling.propensity_errors, strict=True):
            away = abs((e.value - low) / (high - low) - 0.5)
            moved = (high - low) * largest * (distance / 2.0 + away * weight)
            out.append(replace(e, privacy_standard_error=math.hypot(e.privacy_standard_error, moved)))
        return out

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return one policy's value less another's, with the difference of their intervals."""
        estimates = self.decode(mechanism, noisy)
        found = interval_difference(estimates[a], estimates[b])
        if not self._keeps_weights:
            return found
        spread = sum(estimates[k].sampling_standard_error_at_most or math.inf for k in (a, b))
        taken, needed = self.released.propensities(self.min_propensity), self.table[[a, b]].max(axis=0) > 0.0
        reach = math.sqrt(self.bounds.units) * spread * float((1.0 - taken)[needed].max())
        distance = max(found.interval[0], -found.interval[1], 0.0)
        return found._replace(confounding=confounder_odds(distance / max(reach, 1e-12)))

    @property
    def _weight(self) -> float:
        return WEIGHT_NOISE_LENGTH * self.inner.clip_norm / math.sqrt(len(self.strategy))

    @cached_property
    def _weight_noise(self) -> WeightNoise:
        return WeightNoise(self.released, self.min_propensity, quantile(self.config.confidence))

    def _with_errors(
        self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]
    ) -> tuple[ImportanceQuery, Float[np.ndarray, " dim"]]:
        """Return the query of importance sampling with the effect of the noise in propensities, and its noisy sum."""
        vector, moves = np.split(noisy, [self.inner.dimension])
        unit = self._weight_noise.largest_error / (self._weight * self.bounds.units)
        at_most = unit * (np.maximum(moves, 0.0) + VARIANCE_MARGIN * mechanism.noise_std)
        found = tuple((float(weight), float(distance)) for weight, distance in at_most.reshape(-1, 2))
        return replace(self.inner, propensity_errors=found, keeps_weights=self._keeps_weights), vector

    @property
    def _keeps_weights(self) -> bool:
        """Whether released propensities show that every action of every policy is supported, and no ratio is cut."""
        if self.bounds.cuts_products:
            return False
        states = self.released.propensities(self.min_propensity)
        needed = self.table.max(axis=0)
        ratios = np.divide(needed, states, out=np.full_like(needed, np.inf), where=states > 0.0)
        return bool((ratios[needed > 0.0] <= self.bounds.max_importance_ratio).all())


@dataclass(frozen=True)
class WeightNoise:
    """How much the noise in released counts may have changed a trajectory's weight, relative to that weight.

    Attributes:
        released: released counts.
        min_propensity: propensity below which an action is not supported.
        t: normal quantile of the interval that counts this noise.
    """

    released: Propensities
    min_propensity: float
    t: float

    @cached_property
    def _inverse(self) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " strata"]]:
        """Noise of a count over the counts of cells and of strata; zero for cells whose action is not supported."""
        counts, supported = self.released.counts, self.released.supported(self.min_propensity)
        cells = np.divide(1.0, counts, out=np.zeros_like(counts), where=supported)
        strata = 1.0 / np.maximum(self.released.people, np.where(supported, counts, 1.0).max(axis=1))
        return cells.ravel() * self.released.count_noise, strata * self.released.count_noise

    def standard_errors(self, log: Trajectories) -> Float[np.ndarray, " episodes"]:
        """Return for each episode the largest standard error of the logarithm of its weight, over its steps.

        The second-order part, divided by ``t``, is added.
        """
        (cells, strata), actions, kinds = self._inverse, self.released.shape[1], self.released.strata.bounds.kinds
        horizon, episode = self.released.strata.bounds.horizon, log.episode_of()
        time = np.minimum(log.time(), horizon - 1)  # a longer episode is not usable
        stratum = np.full((log.episodes, horizon), -1)
        stratum[episode, time] = self.released.strata.cells(log.observation)
        action = np.full((log.episodes, horizon), -1)
        action[episode, time] = log.action
        place = np.maximum(stratum, 0) * actions + np.maximum(action, 0)
        square, largest = np.zeros(log.episodes), np.zeros(log.episodes)
        for t in range(horizon):
            for before in range(t + 1):
                met = (stratum[:, t] == stratum[:, before]) & (stratum[:, t] >= 0)
                own = cells[place[:, t]] * cells[place[:, before]] * (action[:, t] == action[:, before])
                whole = strata[np.maximum(stratum[:, t], 0)]
                crossed = kinds * whole**2 - whole * (cells[place[:, t]] + cells[place[:, before]])
                square = square + np.where(met, (2.0 if before < t else 1.0) * (own + crossed), 0.0)
            largest = np.maximum(largest, square)
        return self._with_second_order(np.sqrt(np.maximum(largest, 0.0)))

    @cached_property
    def largest_error(self) -> float:
        """Largest standard error that a trajectory can have, with its second-order part."""
        (cells, strata), actions, kinds = self._inverse, self.released.shape[1], self.released.strata.bounds.kinds
        step = np.sqrt(cells**2 + kinds * np.repeat(strata, actions) ** 2)
        return max(float(self._with_second_order(self.released.strata.bounds.horizon * step.max())), 1e-12)

    def _with_second_order(self, error: Any) -> Any:
        return error + error**2 / (2.0 * self.t)
