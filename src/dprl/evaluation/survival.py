"""The probability under target policies that a person has had no event by a given time, where people leave early.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one (zero-out, where the
number of units is public). Released: one noisy vector of weighted counts; curves and intervals are post-processing.
Proof and estimators: docs/proofs/survival.md. Kaplan and Meier (1958), of noisy counts in public bins of time.

A trajectory's time is the sum of its rewards. In a log with one row per person, the reward is the time until which the
person was seen; with one row per period, rewards are the lengths of the periods. The last row is ``terminated`` if the
event happened then, and otherwise the person was censored. So a trajectory has one entry, its importance weight, in one
cell: bin of time, and event or censored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from dprl.bounds import Bounds
from dprl.config import DERIVED, filled
from dprl.data.trajectories import Trajectories
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import ValuesConfig
from dprl.engine.ratios import cumulative_ratios, step_ratios, usable
from dprl.engine.value_query import BaseValueQuery
from dprl.evaluation.importance_vectors import mixed
from dprl.evaluation.intervals import Difference, interval_difference, quantile
from dprl.evaluation.least_noise import least_noise_strategy, optimal_strategy, public_patterns
from dprl.evaluation.survival_intervals import (
    EXPECTED_SCENARIOS,
    EXPOSURE,
    ReleasedShares,
    SurvivalEstimate,
    cell_workload,
    nominal_shares,
)
from dprl.mechanisms.gaussian_sum import GaussianSum


@dataclass(frozen=True, kw_only=True)
class Survival(ValuesConfig):
    """Options of event-free probabilities; all are public facts.

    Attributes:
        until: time at which the event-free probability is asked for, in the unit of the rewards; by default the longest
            time that the bounds allow.
        bins: number of bins of equal length up to that time.
        censoring: when people are censored in their bin: ``within`` the bin at an unknown time, which the interval
            counts; or at the ``end`` of the bin, after all events, as in the Kaplan-Meier estimate on the bins.
        confidence: nominal coverage of the intervals.
        variance_margin: how many standard errors of its own noise are added to the sampling variance in the interval.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
    """

    until: float | None = None
    bins: int = 20
    censoring: Literal["within", "end"] = "within"
    confidence: float = 0.95
    variance_margin: float = 1.0
    noise_multiplier: float | None = None

    algorithm: ClassVar[str] = "survival"
    needs_events: ClassVar[bool] = True
    discount: ClassVar[float] = 1.0
    ranges: ClassVar[Mapping[str, str]] = {
        "until": "(0, inf)",
        "bins": "1..100",
        "confidence": "(0.5, 1)",
        "variance_margin": "[0, 5]",
        "noise_multiplier": "(0, inf)",
    }

    @property
    def quantity(self) -> str:
        """Name of the quantity whose value is asked for."""
        return "probability of no event" + ("" if self.until is None else f" up to time {self.until:g}")

    def for_bounds(self, bounds: Bounds) -> Survival:
        """Return the same options with ``until`` filled in; it is at most the longest time that the bounds allow."""
        longest = bounds.reward[1] * bounds.horizon
        self._check("rewards are times, so that their upper bound must be above 0", longest > 0.0)
        if self.until is None:
            return self.replace(DERIVED, until=float(longest))
        self._check(f"until must be at most {longest:g}, the longest time by the bounds", self.until <= longest)
        return self

    def value_query(
        self, bounds: Bounds, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> SurvivalQuery:
        """Return the query for the event-free probabilities of ``policies``."""
        self._check(
            "products of importance ratios would be cut: give one row a person, with horizon = 1, or declare no "
            "max_cumulative_ratio below the largest product",
            not bounds.cuts_products,
        )
        patterns = public_patterns(policies, bounds)
        exclusive = tuple(not (patterns[:, a] * patterns[:, b]).any() for a, b in contrasts)
        strategy, asked = least_noise_strategy(patterns, contrasts), replace(bounds, return_range=(0.0, 1.0))
        cells = optimal_strategy(np.eye(2 * self.bins + 1), cell_workload(self.bins), tolerance=1e-3)
        return SurvivalQuery(self, asked, strategy, cells, tuple(contrasts), exclusive)


@dataclass(frozen=True)
class SurvivalQuery(BaseValueQuery):
    """Query to the units, made from public facts only; it turns their noisy sum back into probabilities.

    Attributes:
        bounds: bounds of the log, with the range of a probability as the range of a value.
        strategy: ``(P, P)`` matrix over the P target policies, which makes no pattern of weights longer than one.
        cells: ``(m, m)`` matrix over the m cells, whose columns are no longer than one.
        contrasts: pairs of policies whose difference is asked for.
        exclusive: for each of these pairs, whether nobody has weights under both policies.
    """

    config: Survival
    bounds: Bounds
    strategy: np.ndarray
    cells: np.ndarray
    contrasts: tuple[tuple[int, int], ...] = ()
    exclusive: tuple[bool, ...] = ()

    words: ClassVar[str] = "event-free probabilities from weighted counts"
    clip_norm: ClassVar[float] = 1.0

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return len(self.strategy) * len(self.cells)

    @property
    def edges(self) -> Float[np.ndarray, " bins"]:
        """Ends of the bins; a time at the end of a bin belongs to that bin."""
        return np.linspace(0.0, filled(self.config.until), self.config.bins + 1)[1:]

    def cell_of(self, log: Trajectories) -> Int[np.ndarray, " episodes"]:
        """Return the cell of each trajectory. Private."""
        bins, some = self.config.bins, log.lengths() > 0
        time = np.bincount(log.episode_of(), log.reward, minlength=log.episodes)
        found = np.searchsorted(self.edges * (1.0 + 1e-12), time, side="left")
        if self.bounds.horizon == 1:  # longer times were moved to the bound
            found[time >= self.bounds.reward[1]] = bins
        event = np.zeros(log.episodes, dtype=bool)
        event[some] = log.terminated[log.episode_offsets[1:][some] - 1]
        return np.where(found == bins, 2 * bins, np.where(event, found, bins + found))

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        size, sound, siblings = len(self.cells), usable(log), np.diff(log.unit_offsets)
        place = log.unit_of_episode() * size + self.cell_of(log)
        held = []
        for policy in policies:
            weight, products = np.zeros(log.episodes), cumulative_ratios(step_ratios(policy, log, behavior), log)
            weight[sound] = products[log.episode_offsets[1:][sound] - 1] / self.bounds.cumulative_ratio
            weight /= np.repeat(siblings, siblings)  # a unit is the mean over its trajectories
            held.append(np.bincount(place, weight, minlength=log.units * size))
        # over the policies, then over the cells
        counts = np.stack(held, axis=1).astype(np.float64)  # without units, bincount returns integers
        over_policies = mixed(counts, self.strategy).reshape(log.units, size, len(policies))
        return mixed(over_policies.swapaxes(1, 2).reshape(-1, size), self.cells).reshape(log.units, self.dimension)

    def _released_shares(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ReleasedShares]:
        """Return for each policy the released weighted shares of the declared people."""
        largest, units, config = self.bounds.cumulative_ratio, self.bounds.units, self.config
        over_policies, over_cells = np.linalg.inv(self.strategy), np.linalg.inv(self.cells)
        shares = largest / units * over_policies @ noisy.reshape(len(over_policies), -1) @ over_cells.T
        root = largest / units * mechanism.noise_std * over_cells
        facts = (largest, units, len(shares), EXPOSURE[config.censoring])
        lengths = np.linalg.norm(over_policies, axis=1)
        return [
            ReleasedShares(row, length * root, *facts, quantile(config.confidence), config.variance_margin)
            for row, length in zip(shares, lengths, strict=True)
        ]

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[SurvivalEstimate]:
        """Return probabilities and intervals of all target policies from the released vector: post-processing."""
        return [released.estimate(self.edges.tolist()) for released in self._released_shares(mechanism, noisy)]

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return one policy's probability less another's, for a pair among :attr:`contrasts`."""
        both = [self._released_shares(mechanism, noisy)[policy] for policy in (a, b)]
        estimates = [released.estimate(self.edges.tolist()) for released in both]
        widest = interval_difference(*estimates)
        if any(e.notes for e in estimates) or any(released.known_bins < released.bins for released in both):
            return widest
        one, other = (released.at_end for released in both)
        # both probabilities share the noise: one draw for each pair of a policy and a cell, mixed over the policies
        rows = np.linalg.inv(self.strategy)[[a, b]]
        parts = [
            np.outer(row / np.linalg.norm(row), point.slope @ released.noise_root)
            for row, point, released in zip(rows, (one, other), both, strict=True)
        ]
        noise = float(np.linalg.norm(parts[0] - parts[1]))
        together = math.hypot if self.exclusive[self.contrasts.index((a, b))] else (lambda x, y: x + y)
        sampling, most = (together(getattr(one, x), getattr(other, x)) for x in ("sampling", "sampling_at_most"))
        half = both[0].t * math.hypot(most, noise)
        low = max(one.least - other.most - half, widest.interval[0])
        high = min(one.most - other.least + half, widest.interval[1])
        return Difference((low, high) if low <= high else widest.interval, noise, sampling)

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors to expect: for each, the largest over the public scenarios."""
        bins, out = self.config.bins, []
        for released in self._released_shares(mechanism, np.zeros(self.dimension)):
            points = [
                replace(released, shares=nominal_shares(*scenario, bins)).at_end for scenario in EXPECTED_SCENARIOS
            ]
            noise, sampling, width = (
                max(numbers) for numbers in zip(*((p.noise, p.sampling, p.high - p.low) for p in points), strict=True)
            )
            out.append((noise, sampling, min(width, 1.0) / 2.0))
        return out


_TIMES = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    Survival,
    settings={
        "one row a person": Setting(Survival(bins=3, until=0.8), facts=_TIMES),
        "one row a period": Setting(Survival(bins=3), facts={"max_importance_ratio": 1.0, "max_cumulative_ratio": 1.0}),
        "differences": Setting(Survival(bins=2, censoring="end"), facts=_TIMES, compare=("all",)),
    },
    canary="dprl.audits.attacks.programs:importance_canary",
)
