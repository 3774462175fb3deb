"""Importance-sampling values of target policies, with intervals, from one Gaussian release.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one (zero-out, where the
number of units is public). Released: one noisy vector; values, variances and intervals are post-processing.
Proof and estimators: docs/proofs/importance-sampling.md. Per-decision weights: Precup, Sutton, Singh (2000).

For each target policy a unit has a pair: its importance weight times how far its return lies above the lowest possible
one, and the weight times how far the return lies below the highest possible one. The two add up to the weight, in
proportion. A unit's vector is made of its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import ValuesConfig
from dprl.engine.ratios import step_ratios, unit_means
from dprl.engine.value_query import BaseValueQuery
from dprl.errors import DprlError
from dprl.evaluation.importance_intervals import (
    WEIGHT_SCALE,
    DecodingFacts,
    PairScale,
    bounded_estimate,
    centred_estimate,
    half_width,
    largest_variance,
    normalised_estimate,
)
from dprl.evaluation.importance_vectors import (
    further_columns,
    mixed,
    per_decision_scale,
    scale_of_values,
    unit_pairs,
    unit_parts,
    with_least_norm,
)
from dprl.evaluation.intervals import (
    Difference,
    ValueEstimate,
    difference_of_means,
    interval_difference,
    product_weight,
    quantile,
)
from dprl.evaluation.least_noise import least_noise_strategy, public_patterns
from dprl.mechanisms.gaussian_sum import GaussianSum

Estimator = Literal["trajectory", "per-decision", "self-normalised"]
_WORDS = {
    "trajectory": "importance sampling",
    "per-decision": "per-decision importance sampling",
    "self-normalised": "self-normalised importance sampling",
}


@dataclass(frozen=True, kw_only=True)
class ImportanceSampling(ValuesConfig):
    """Options of the importance-sampling release; all of them are public facts.

    Attributes:
        discount: gamma, in [0, 1].
        estimator: ``trajectory``, ``per-decision``, ``self-normalised``, or ``auto``: ``trajectory`` for logs of one
            decision, for logs of the target policy itself, and where its weighted sum has less than half the range of
            the ``per-decision`` one; else ``per-decision``.
        value_baseline: public guess of the value. Returns are measured from this guess in place of the middle of the
            declared range, for values near one end of the range, such as the rate of a rare event. Only where weights
            are neither cut nor normalised.
        second_moment_weight: weight of the second moments, which give the interval's width, relative to the value; up
            to a weight of 1 they cost the value nothing.
        confidence: nominal coverage of the intervals.
        variance_margin: number of standard errors of its own noise that are added to the sampling variance in the
            interval.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
    """

    discount: float = 0.99
    estimator: Literal["auto", "trajectory", "per-decision", "self-normalised"] = "auto"
    value_baseline: float | None = None
    second_moment_weight: float = 1.0
    confidence: float = 0.95
    variance_margin: float = 1.0
    noise_multiplier: float | None = None

    algorithm: ClassVar[str] = "importance-sampling"
    units_served: ClassVar[tuple[str, ...]] = ("trajectory", "person", "transition")
    ranges: ClassVar[Mapping[str, str]] = {
        "discount": "[0, 1]",
        "second_moment_weight": "[0.05, 1]",
        "confidence": "(0.5, 1)",
        "variance_margin": "[0, 5]",
        "noise_multiplier": "(0, inf)",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.value_baseline
        self._check("value_baseline must be a finite number", given is None or math.isfinite(given))

    def value_query(
        self, bounds: Bounds, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> ImportanceQuery:
        """Return the query for the values of ``policies``."""
        return make_query(self, bounds, public_patterns(policies, bounds), contrasts)


@dataclass(frozen=True)
class ImportanceQuery(BaseValueQuery):
    """Query to the units, made from public facts only; it turns their noisy sum back into values.

    Attributes:
        strategy: ``(K, K)`` matrix S over the target policies.
        clip_norm: L2 bound of a unit's vector, large enough for every pattern that the policies admit.
        scale: of a unit's pair.
        most_weight: largest sum of a unit's weights over all policies, in units of the largest weight.
        contrasts: pairs of policies whose difference is asked for; where nothing is cut, the mean product of each
            pair's distances to the baseline is released, too.
        largest_differences: for each of those pairs, the largest difference of its two distances in one unit.
        propensity_errors: where behaviour probabilities were estimated, for each policy the standard error that they
            add to its mean weight, and the most that they add to its mean distance to the middle of the range.
        keeps_weights: whether estimated probabilities show that no product of ratios is cut, and none is lost.
        patterns: ``(J, K)`` patterns of weights that a unit can have over the policies.
        weight_scale: factor of the mean weight, relative to the value, where nothing can be cut.
        remainder_scale: factor of what a unit's weights leave of one. This remainder and the weights together give the
            unit's presence. None where the remainder is not released.
        people: number of units, where it is not declared but was counted with noise.
        asked_share: share of the people who are asked, each by a coin; see :class:`DecodingFacts`.
    """

    config: ImportanceSampling
    estimator: Estimator
    bounds: Bounds
    strategy: np.ndarray
    clip_norm: float
    scale: PairScale
    most_weight: float = 1.0
    contrasts: tuple[tuple[int, int], ...] = ()
    largest_differences: tuple[float, ...] = ()
    propensity_errors: tuple[tuple[float, float], ...] = ()
    keeps_weights: bool = False
    patterns: np.ndarray = field(default_factory=lambda: np.ones((1, 1)))
    weight_scale: float = WEIGHT_SCALE
    remainder_scale: float | None = None
    people: float | None = None
    asked_share: float = 1.0

    @property
    def releases_pairs(self) -> bool:
        """Whether both numbers of a pair are released, or only their difference and, more faintly, their sum."""
        return _releases_pairs(self.estimator, self.bounds)

    @property
    def parts(self) -> int:
        """Released numbers per policy; where nothing can be cut, all policies together have one more."""
        return 5 if self.releases_pairs else 3

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        products = 0 if self.releases_pairs else len(self.contrasts)
        return len(self.strategy) * self.parts + (self.remainder_scale is not None) + products

    @property
    def units(self) -> float:
        """Number of units that sums are divided by, declared or counted."""
        return self.bounds.units if self.people is None else self.people

    @property
    def baseline(self) -> float:
        """Point in the range from which returns are measured: 0 for the low end, 1 for the high end."""
        low, high, _ = self.scale
        given = self.config.value_baseline
        return 0.5 if given is None else min(max((given - low) / (high - low), 0.0), 1.0)

    @property
    def words(self) -> str:
        """The estimator's name as a report says it."""
        return _WORDS[self.estimator]

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        return self.vectors_of(log, [step_ratios(policy, log, behavior) for policy in policies])

    def vectors_of(
        self, log: Trajectories, ratios: Sequence[Float[np.ndarray, " rows"]]
    ) -> Float[np.ndarray, "units dim"]:
        """Return the units' vectors from each policy's importance ratios. Private."""
        pairs = [unit_pairs(self, log, own) for own in ratios]
        above, below = (np.stack(found, axis=1) for found in zip(*pairs, strict=True))
        rest = further_columns(self, above, below, unit_means(log, np.ones(log.episodes)))
        return np.concatenate([*(mixed(part, self.strategy) for part in unit_parts(self, above, below)), rest], axis=1)

    def _facts(self, mechanism: GaussianSum) -> list[DecodingFacts]:
        """Return the public facts that turn each policy's released numbers into a value."""
        config, units = self.config, self.units
        noise = mechanism.noise_std / units
        inverse, count = np.linalg.inv(self.strategy), self.count_noise(mechanism)
        return [
            DecodingFacts(
                scale=self.scale,
                declared=self.bounds.value_interval(config.discount),
                baseline=self.baseline,
                units=units,
                policies=len(self.strategy),
                second_moment_weight=config.second_moment_weight,
                noise_std=noise * float(length),
                share_noise=count / units,
                t=quantile(config.confidence),
                variance_margin=config.variance_margin,
                propensity_errors=propensity_errors,
                weight_scale=self.weight_scale,
                counted=self.people is not None,
                asked_share=self.asked_share,
            )
            for length, propensity_errors in zip(
                np.sqrt(np.sum(inverse**2, axis=1)), self.propensity_errors or [(0.0, 0.0)] * len(inverse), strict=True
            )
        ]

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        parts = self._decoded(noisy)
        if not self.releases_pairs:
            parts.append(np.full(len(self.strategy), self.count(noisy) / self.units))
        estimate = centred_estimate
        if self.releases_pairs:
            estimate = bounded_estimate if self.bounds.cuts_products and not self.keeps_weights else normalised_estimate
        facts = self._facts(mechanism)
        return [estimate(of, [float(part[p]) for part in parts]) for p, of in enumerate(facts)]

    def _decoded(self, noisy: Float[np.ndarray, " dim"]) -> list[Float[np.ndarray, " policies"]]:
        """Return the means of the released numbers of all policies."""
        inverse, each = np.linalg.inv(self.strategy), len(self.strategy) * self.parts
        return [inverse @ part for part in (noisy[:each] / self.units).reshape(self.parts, len(self.strategy))]

    # --- how many units there are -------------------------------------------------------------------------------------

    def counting(self) -> ImportanceQuery:
        """Return the same query with a vector that tells precisely how many units there are.

        What weights leave of one costs no norm at any factor up to 1. The factor of the mean weight is chosen so that
        two noises in the values are least together: their own, and that in the number of units times a value half way
        from the baseline.
        """
        away = 0.5 / self.scale.largest
        scale = (
            self.weight_scale
            if self.releases_pairs
            else max(self.weight_scale, math.sqrt(away / math.hypot(1.0, away)))
        )
        return with_least_norm(replace(self, weight_scale=scale, remainder_scale=1.0))

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return how many units there are, from the released vector of a :meth:`counting` query."""
        parts, place = self._decoded(noisy), len(self.strategy) * self.parts
        assert self.remainder_scale is not None
        weights = parts[0] + parts[1] if self.releases_pairs else parts[1] / self.weight_scale
        return float(noisy[place]) / self.remainder_scale + self.units * float(weights.sum()) / self.most_weight

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`; zero where the number is not released."""
        if self.remainder_scale is None:
            return 0.0
        in_weights = float(np.linalg.norm(np.linalg.inv(self.strategy).sum(axis=0))) / self.most_weight
        of_weight = math.sqrt(2.0) if self.releases_pairs else 1.0 / self.weight_scale
        return mechanism.noise_std * math.hypot(1.0 / self.remainder_scale, of_weight * in_weights)

    def for_counted_people(self, people: float) -> ImportanceQuery:
        """Return the same query for a number of people that was counted with the noise of :meth:`count_noise`."""
        return replace(self, people=people)

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return the value of policy ``a`` less that of ``b``, for a pair among :attr:`contrasts`."""
        estimates = self.decode(mechanism, noisy)
        if self.releases_pairs:
            return interval_difference(estimates[a], estimates[b])
        inverse, first, each = np.linalg.inv(self.strategy), self._decoded(noisy)[0], len(self.strategy) * self.parts
        noise, facts = mechanism.noise_std / self.units, self._facts(mechanism)[a]
        place = self.contrasts.index((a, b))
        return difference_of_means(
            (estimates[a], estimates[b]),
            (float(first[a]), float(first[b])),
            float(noisy[each + 1 + place]) / self.units / product_weight(self.contrasts),
            unit=self.scale.width * max(self.baseline, 1.0 - self.baseline),
            units=self.units,
            t=facts.t,
            noise=noise * float(np.linalg.norm(inverse[a] - inverse[b])),
            product_noise=noise / product_weight(self.contrasts),
            share=self.count(noisy) / self.units,
            share_noise=facts.share_noise,
            largest=self.largest_differences[place],
            counted=facts.counted,
            asked_share=self.asked_share,
        )

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the largest errors to expect, from public facts only.

        Returns:
            For each target policy: the largest privacy standard error of the value, the largest sampling standard error
            that the bounds allow, and the largest half-width of the interval. Where products are cut, this half-width
            is half of the declared range, because what is cut is not known before.
        """
        out = []
        for facts in self._facts(mechanism):
            unit = self.scale.width * (1.0 if self.releases_pairs else max(self.baseline, 1.0 - self.baseline))
            variance = 1.0 / self.scale.largest  # a weight is at most `largest`, and one in the mean
            widest = (facts.declared[1] - facts.declared[0]) / 2.0
            if not self.bounds.cuts_products:
                upper = largest_variance(facts, variance, 0.0)
                half = half_width(facts, upper, 0.0)
                if not self.releases_pairs:  # towards an end of the range it is wider, because people may be missing
                    error, end = facts.std_error(upper, facts.noise_std), 1.0 / self.scale.largest
                    wider = facts.t * (math.hypot(error, facts.share_noise * end) - error)
                    # a part may have fewer people by chance, but hardly ever by three standard deviations
                    wider += 3.0 * math.sqrt((1.0 - facts.asked_share) / facts.units) * end
                    half += wider if facts.counted else wider / 2.0
                widest = min(widest, unit * half)
            # the noise in the number of counted units, at a value half way from the baseline
            privacy = math.hypot(facts.noise_std, facts.count_error / 2.0 / self.scale.largest)
            out.append((unit * privacy, unit * facts.std_error(variance, 0.0), widest))
        return out


def make_query(
    config: ImportanceSampling,
    bounds: Bounds,
    patterns: Float[np.ndarray, "patterns policies"],
    contrasts: Sequence[tuple[int, int]] = (),
) -> ImportanceQuery:
    """Choose estimator, strategy and clip norm from public facts; ``contrasts`` are pairs of policies to compare."""
    whole = scale_of_values(bounds.value_interval(config.discount), bounds.cumulative_ratio)
    steps = per_decision_scale(bounds, config.discount)
    estimator: Estimator
    if config.estimator == "auto":
        plain = bounds.horizon == 1 or bounds.max_importance_ratio == 1.0 or 2.0 * whole.width < steps.width
        estimator = "trajectory" if plain else "per-decision"
    else:
        same = config.estimator == "per-decision" and bounds.max_importance_ratio == 1.0
        estimator = "trajectory" if same else config.estimator  # the range of ``trajectory`` may be declared tighter
    pairs = _releases_pairs(estimator, bounds)
    if config.value_baseline is not None:
        if pairs:
            raise DprlError(
                "importance-sampling: value_baseline is for weights that are neither cut nor normalised: leave it out."
            )
        if not whole.low <= config.value_baseline <= whole.high:
            raise DprlError("importance-sampling: value_baseline must lie in the declared range of the value.")
    if bounds.cuts_products and len(patterns) > 1:
        patterns = np.ones((1, patterns.shape[1]))  # a cut weight is no longer proportional to the probabilities
    strategy = least_noise_strategy(patterns, contrasts)
    most = float(patterns.sum(axis=1).max())
    scale = steps if estimator == "per-decision" else whole
    # for one decision both distances have the sign of the same return; patterns bound the difference further
    apart_at_most = 2.0 if bounds.horizon > 1 else 1.0
    differences = [
        apart_at_most if len(patterns) == 1 else float(np.abs(patterns[:, a] - patterns[:, b]).max())
        for a, b in contrasts
    ]
    query = ImportanceQuery(config, estimator, bounds, strategy, 1.0, scale, most, tuple(contrasts), tuple(differences))
    return with_least_norm(replace(query, patterns=patterns, remainder_scale=None if pairs else WEIGHT_SCALE))


def _releases_pairs(estimator: Estimator, bounds: Bounds) -> bool:
    return bounds.cuts_products or estimator == "self-normalised"


_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    ImportanceSampling,
    settings={
        "trajectory": Setting(ImportanceSampling(discount=0.9, estimator="trajectory")),
        "per decision": Setting(ImportanceSampling(discount=0.9, estimator="per-decision")),
        "self-normalised": Setting(ImportanceSampling(discount=0.9, estimator="self-normalised")),
        "one decision": Setting(ImportanceSampling(discount=0.9), facts=_ONE_STEP),
        "differences": Setting(ImportanceSampling(discount=0.9), facts=_ONE_STEP, compare=("all",)),
        "censored": Setting(ImportanceSampling(discount=0.9), facts={"censoring_hazard": 0.2}),
        "missing states": Setting(ImportanceSampling(discount=0.9), facts={"fill": (1.0,), "flag_missing": (0,)}),
        "subgroups": Setting(
            ImportanceSampling(discount=0.9),
            facts=_ONE_STEP,
            compare=("all",),
            subgroups=("observation_0:0.7,1.3",),
        ),
        "subgroups, cut": Setting(ImportanceSampling(discount=0.9), subgroups=("observation_0",)),
    },
    canary="dprl.audits.attacks.programs:importance_canary",
)
