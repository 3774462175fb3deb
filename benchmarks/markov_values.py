"""Off-policy values for states that are declared Markov: LSTD by the ratios of single decisions, in one release.

LSTD off policy is by Bradtke and Barto (1996) and Yu (2010). That a state's law needs no product of ratios is due to
Xie, Ma and Wang (2019) and Uehara, Huang and Jiang (2020). The weight of a row is its own importance ratio, reduced by
the share of a unit's budget that earlier rows have used (:func:`within`). It never depends on what follows the row, so
that no cut makes the equation wrong at the true values.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: one noisy vector, which importance sampling shares; the solve is post-processing.

The value is right where the value function, or the ratio of the two policies' visits, is linear in the features. Its
error elsewhere is not counted. The interval is that of importance sampling and has the same coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.columns import scale_of
from dprl.engine.program import ValuesConfig
from dprl.engine.ratios import step_ratios, unit_means, usable
from dprl.evaluation.blended import BlendedQuery, blend
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.intervals import ValueEstimate
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.features import Columns

START = 0.1
"""Share of a policy's squared norm for the features at the start."""


@dataclass(frozen=True, kw_only=True)
class MarkovRatios(ValuesConfig):
    """Options of values by single ratios. All are public facts. Only rewards in a trajectory's last row count.

    Attributes:
        discount: gamma, in [0, 1].
        largest_ratio: larger importance ratios of a decision are cut to this number. For a deterministic target policy
            the cut only changes the weights of states; for another policy it changes the policy.
        slope_scale: weight of the statistics of slopes relative to those of the constant and of rewards.
        sampling_share: share of the squared norm for importance sampling, and so for the interval.
        confidence: nominal coverage of the intervals.
        noise_multiplier: overrides the calibration to the budget.
    """

    discount: float = 1.0
    largest_ratio: float = 12.0
    slope_scale: float = 0.5
    sampling_share: float = 0.1
    confidence: float = 0.95
    noise_multiplier: float | None = None

    algorithm: ClassVar[str] = "markov-ratios"
    ranges: ClassVar[Mapping[str, str]] = {
        "discount": "[0, 1]",
        "largest_ratio": "[1, inf)",
        "slope_scale": "(0, 10]",
        "sampling_share": "(0, 1)",
        "confidence": "(0.5, 1)",
        "noise_multiplier": "(0, inf)",
    }

    def value_query(self, bounds: Bounds, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]) -> MarkovQuery:
        """Return the query for the values of ``policies``."""
        sampling = ImportanceSampling(discount=self.discount, confidence=self.confidence)
        return MarkovQuery(sampling.value_query(bounds, policies, contrasts), options=self)


@dataclass(frozen=True)
class MarkovQuery(BlendedQuery):
    """Query to the units: the query of importance sampling, and the statistics of LSTD for each policy.

    Attributes:
        options: options of the algorithm.
    """

    options: MarkovRatios = MarkovRatios()  # frozen

    around_function: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """Name of the estimator in reports."""
        return "LSTD by the ratios of single decisions"

    @property
    def size(self) -> int:
        """Number of features: a constant, and each component of a state."""
        return len(self.bounds.state) + 1

    @property
    def dimension(self) -> int:
        """Length of a vector: that of importance sampling, and of a matrix and two vectors for each policy."""
        return self.inner.dimension + len(self.strategy) * self.size * (self.size + 2)

    @property
    def clip_norm(self) -> float:
        """Largest L2 norm of a vector."""
        return self.inner.clip_norm / math.sqrt(self.options.sampling_share)

    @property
    def _weights(self) -> tuple[float, float]:
        """Weights of a row's vector, whose norm is its ratio, and of the features at the start."""
        whole = self.clip_norm * math.sqrt((1.0 - self.options.sampling_share) / len(self.strategy))
        return whole * math.sqrt(1.0 - START) / self.options.largest_ratio, whole * math.sqrt(START) / 2.0

    @property
    def _largest_reward(self) -> float:
        """Largest distance of the last reward from the middle of the value range, in half-widths of that range."""
        centre, half = scale_of(self.bounds.value_interval(self.options.discount))
        return max(abs(reward - centre) for reward in self.bounds.reward) / half

    def _features(self, states: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows n"]:
        """Return a constant of one, and the components, whose norm is at most ``sqrt 3``."""
        found = Columns(self.bounds.state)(states)
        return np.column_stack([np.ones(len(found)), found[:, 1:] / math.sqrt(max(self.size - 1, 1))])

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        discount, (centre, half) = self.options.discount, scale_of(self.bounds.value_interval(self.options.discount))
        now, following = self._features(log.observation), self._features(log.next_observation)
        following = np.where((log.has_next & ~log.terminated)[:, None], following, 0.0)
        known = usable(log)[log.episode_of()] & (log.terminated | log.has_next)
        going = now - discount * following
        surprise = (np.where(log.terminated, log.reward, 0.0) - centre * going[:, 0]) / half
        going[:, 1:] *= self.options.slope_scale
        # largest norm that the vector of a row can have, whatever follows its state
        own, far = np.linalg.norm(now[:, 1:], axis=1), discount * math.sqrt(3.0)
        ends = self.options.slope_scale**2 * own**2 + 1.0 + self._largest_reward**2
        goes_on = self.options.slope_scale**2 * (own + far) ** 2 + (1.0 - discount) ** 2 * (1.0 + (centre / half) ** 2)
        most = np.linalg.norm(now, axis=1) * np.sqrt(np.maximum(ends, goes_on))
        of_row, of_start = self._weights
        first = np.minimum(log.episode_offsets[:-1], len(now) - 1)
        unit = log.unit_of_episode()[log.episode_of()]
        columns = [self.inner.unit_vectors(log, policies, behavior)]
        for policy in policies:
            ratios = np.where(known, np.minimum(step_ratios(policy, log, behavior), self.options.largest_ratio), 0.0)
            weight = of_row * within(ratios, self.options.largest_ratio, log)
            right = np.column_stack([going, surprise]) * (weight / most)[:, None]
            for k in range(self.size):
                columns += [np.bincount(unit, now[:, k] * column, minlength=log.units) for column in right.T]
            columns += [of_start * unit_means(log, column) for column in now[first].T]
        return np.column_stack(columns)

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        sampled, statistics = np.split(noisy, [self.inner.dimension])
        estimates = self.inner.decode(mechanism, sampled)
        return [
            self._estimate(estimate, mechanism.noise_std, part)
            for estimate, part in zip(estimates, np.split(statistics, len(estimates)), strict=True)
        ]

    def _estimate(self, sampled: ValueEstimate, noise: float, part: Float[np.ndarray, " n"]) -> ValueEstimate:
        n, units, (of_row, of_start) = self.size, self.inner.units, self._weights
        centre, half = scale_of(self.bounds.value_interval(self.options.discount))
        both = part[: n * (n + 1)].reshape(n, n + 1) / (of_row * units)
        both[:, 1:n] /= self.options.slope_scale
        start = part[n * (n + 1) :] / max(float(part[n * (n + 1)]), of_start)  # a mean over the people in the log
        row, first = noise / (of_row * units), noise / (of_start * units)
        # about half of the largest eigenvalue of the noise in the matrix; the constant is not shrunk
        ridge = np.diag(np.append(0.0, np.full(n - 1, row / self.options.slope_scale * math.sqrt(n / 2.0))))
        theta = np.linalg.solve(both[:, :n] + ridge, both[:, n])
        moved = np.linalg.solve((both[:, :n] + ridge).T, start)
        slopes = float(np.linalg.norm(theta[1:]))
        of_rows = math.hypot(1.0, float(theta[0]), slopes / self.options.slope_scale)
        error = half * math.hypot(row * float(np.linalg.norm(moved)) * of_rows, first * slopes)
        return blend(sampled, centre + half * float(start @ theta), error, 0.0)


def within(ratios: Float[np.ndarray, " rows"], budget: float, log: Trajectories) -> Float[np.ndarray, " rows"]:
    """Return ratios, each at most ``budget``, made smaller so that those of a unit add up to at most ``budget``.

    Each ratio is made smaller by the share of the budget that the unit's earlier rows took. The loop does one step of
    all units at a time. A unit's ratios depend only on its own rows, to the last bit.
    """
    ends = log.episode_offsets[log.unit_offsets]
    lengths = np.diff(ends)
    out, left = np.zeros(len(ratios)), np.full(len(lengths), budget)
    for t in range(int(lengths.max(initial=0))):
        who = np.flatnonzero(lengths > t)
        rows = ends[:-1][who] + t
        out[rows] = ratios[rows] * (left[who] / budget)
        left[who] -= out[rows]
    return out


ALGORITHM = Algorithm(
    MarkovRatios,
    settings={
        "discounted": Setting(MarkovRatios(discount=0.9, largest_ratio=2.0, sampling_share=0.5)),
        "differences": Setting(MarkovRatios(discount=0.9, sampling_share=0.9), compare=("all",)),
    },
)
