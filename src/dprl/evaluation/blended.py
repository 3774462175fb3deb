"""Importance-sampling values that follow the released value function, where products of ratios are cut.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one (zero-out, where the
number of units is public). Released: one noisy vector, made after the value function; all else is post-processing.
Proof: docs/proofs/recommended.md. Symbols: V the value function, rho_t ratios, w_t their product up to t.

A unit's vector holds the pairs of importance sampling and two things more. The first is V at the unit's start, less
what V expects after the end of the log. The second is, for each target policy, the correction of V by the rewards:
``sum_t gamma^t w_t (r_t + gamma V(s_{t+1}) - V(s_t))``, with products cut early so that the noise is small. The value
is the mean of the importance-sampling value and the value around V, weighted by their errors. The interval is that of
importance sampling. It holds as that one does, whatever V is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from dprl.data.trajectories import Trajectories
from dprl.engine.columns import scale_of
from dprl.engine.ratios import cumulative_ratios, step_ratios, unit_means
from dprl.engine.value_query import ExtendedQuery, FollowUpQuery
from dprl.evaluation.importance_sampling import ImportanceQuery
from dprl.evaluation.intervals import Difference, ValueEstimate, interval_difference
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.value_function import in_public_units

# All numbers were chosen on the seeds for choosing of benchmarks/families.py.
RATIO_CUT = 5.0
"""Product of ratios at which a correction cuts its own."""
CORRECTION_CLIP = 3.0
"""Half-widths of the value range at which a unit's correction is clipped."""
NORM_SHARE = 1.0 / 3.0
"""Share of the squared clip norm that V at the start and its corrections take."""
CORRECTION_TO_ERROR = 2.0
"""Size of a correction over the error that it is taken to leave."""
CUT_DIFFERENCE = 0.25
"""Difference that is assumed between what was cut and what was kept, as a share of what was cut."""


@dataclass(frozen=True)
class BlendedQuery(FollowUpQuery, ExtendedQuery):
    """Query to the units, made from public facts only, which extends the query of importance sampling.

    The query of importance sampling (``inner``) gives the interval. The value function is released first.
    """

    inner: ImportanceQuery

    @property
    def words(self) -> str:
        """The estimator's name as a report says it."""
        return f"{self.inner.words}, weighed with the value function"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.inner.dimension + 1 + len(self.strategy)

    @property
    def clip_norm(self) -> float:
        """L2 norm that no vector exceeds."""
        return self.inner.clip_norm / math.sqrt(1.0 - NORM_SHARE)

    @cached_property
    def _weights(self) -> tuple[float, float]:
        """Weights of V at the start, in [-1, 1], and of a correction, up to the clip; their sum has least noise."""
        policies = len(self.strategy)
        whole, start = self.clip_norm * math.sqrt(NORM_SHARE), 1.0 / (1.0 + CORRECTION_CLIP * math.sqrt(policies))
        return whole * math.sqrt(start), whole * math.sqrt((1.0 - start) / policies) / CORRECTION_CLIP

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        discount, (centre, half), some = self.config.discount, self._scale, log.lengths() > 0
        first, last = log.episode_offsets[:-1][some], log.episode_offsets[1:][some] - 1
        now, after = (self._values(states) for states in (log.observation, log.next_observation))
        following = np.append(now[1:], 0.0)[: len(now)]
        # where a trajectory goes on after its last row, V stands for the rest, at the last state that is known
        following[last] = np.where(log.terminated[last], 0.0, np.where(log.has_next[last], after[last], now[last]))
        logged = np.zeros(log.episodes)  # what V expects of the steps in the log only
        logged[some] = now[first] - discount ** log.lengths()[some] * following[last]
        surprise = discount ** log.time() * (log.reward + discount * following - now) / half
        start, correction = self._weights
        columns = [start * unit_means(log, np.clip((logged - centre) / half, -1.0, 1.0))]
        for policy in policies:
            kept = np.minimum(cumulative_ratios(step_ratios(policy, log, behavior), log), RATIO_CUT)
            total = np.bincount(log.episode_of(), kept * surprise, minlength=log.episodes)
            columns.append(correction * unit_means(log, np.clip(total, -CORRECTION_CLIP, CORRECTION_CLIP)))
        return np.column_stack([self.inner.unit_vectors(log, policies, behavior), *columns])

    def _values(self, states: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, " rows"]:
        """Return V at ``states``, ``(N,)``, clipped to the value range."""
        centre, half = self._scale
        return centre + half * np.clip(in_public_units(self.released, states), -1.0, 1.0)

    @property
    def _scale(self) -> tuple[float, float]:
        """Middle and half-width of the value range, which turn V into public units."""
        return scale_of(self.bounds.value_interval(self.config.discount))

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        sampled, around = np.split(noisy, [self.inner.dimension])
        start, *corrections = around / self.inner.units
        (of_start, of_correction), (centre, half) = self._weights, self._scale
        noise = half * mechanism.noise_std / self.inner.units * math.hypot(1.0 / of_start, 1.0 / of_correction)
        out = []
        for estimate, correction in zip(self.inner.decode(mechanism, sampled), corrections, strict=True):
            moved = half * float(correction) / of_correction
            around_value = centre + half * float(start) / of_start + moved
            out.append(blend(estimate, around_value, noise, moved))
        return out

    def counting(self) -> BlendedQuery:
        """Return the same query with a vector that also tells how many units there are."""
        return replace(self, inner=self.inner.counting())

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return how many units there are, from the released vector of a :meth:`counting` query."""
        return self.inner.count(noisy[: self.inner.dimension])

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        return self.inner.count_noise(mechanism)

    def for_counted_people(self, people: float) -> BlendedQuery:
        """Return the same query for a number of people that was counted with the noise of :meth:`count_noise`."""
        return replace(self, inner=self.inner.for_counted_people(people))

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return the difference of the two policies' intervals, which allow for whatever was cut."""
        estimates = self.decode(mechanism, noisy)
        return interval_difference(estimates[a], estimates[b])


def blend(sampled: ValueEstimate, around_value: float, noise: float, correction: float) -> ValueEstimate:
    """Return the mean of two values, weighted by their inverse squared errors, within the interval of ``sampled``.

    Args:
        around_value, noise, correction: the value around V, the standard deviation of its noise, and its correction.
    """
    left = math.hypot(noise, correction / CORRECTION_TO_ERROR)
    own = math.hypot(
        sampled.privacy_standard_error, sampled.sampling_standard_error, CUT_DIFFERENCE * sampled.bias_bound
    )
    weight = own**2 / (own**2 + left**2)
    low, high = sampled.interval
    return replace(
        sampled,
        value=min(max(weight * around_value + (1.0 - weight) * sampled.value, low), high),
        privacy_standard_error=math.hypot(weight * noise, (1.0 - weight) * sampled.privacy_standard_error),
    )
