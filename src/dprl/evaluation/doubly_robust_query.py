"""Doubly robust values of target policies around a released value function, with intervals, from one Gaussian release.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one (zero-out, where the
number of units is public). Released: one noisy vector, made after the value function; all else is post-processing.
Proof, bias and interval: docs/proofs/doubly-robust.md. Symbols: V baseline, rho_t ratios, w_t their product up to t.

For each target policy a unit has one estimate L = U where nothing can be cut. Otherwise it has a lower estimate L and
an upper estimate U, whose means enclose the policy's value whatever is cut. The vector also holds the squares of the
estimates and the mean weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dprl.bounds import Bounds, Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import ReturnRanges, remaining_return, scale_of
from dprl.engine.ratios import step_ratios, unit_means, usable
from dprl.engine.value_query import BaseValueQuery
from dprl.errors import DprlError
from dprl.evaluation.doubly_robust_estimates import Baseline, LeaveOneOutFunction, estimates, largest_distance
from dprl.evaluation.intervals import (
    PRODUCT_SCALE,
    WEIGHTS_BELOW_ONE,
    Difference,
    ValueEstimate,
    difference_of_means,
    end_with_missing_people,
    farthest_ratio,
    interval_difference,
    product_weight,
    quantile,
    skew_margin,
    variance_at_most,
    weight_notes,
    within_range,
)
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.features import Features, public_states
from dprl.value_functions.value_function import ValueFunction, in_public_units

WEIGHT_SCALE = 0.3
"""Weight of a unit's mean importance ratio against its estimates, and of what it leaves of one where nothing is cut."""
LONGEST, LONGEST_ON_POLICY = 1_000, 100_000
"""Steps up to which it is computed how large a unit's estimate can be."""


@dataclass(frozen=True)
class DoublyRobustQuery(BaseValueQuery):
    """Query to the units, made from public facts only.

    Attributes:
        config: options with ``discount``, ``confidence`` and ``second_moment_weight``.
        policies: number of target policies.
        baseline: made of the released value function, once that is known; see :meth:`around`.
        contrasts: pairs of policies whose difference is asked for; where nothing is cut, the mean product of each
            pair's estimates is released, too.
        releases_count: whether the number of units is released even where products of ratios may be cut.
        people: number of units, where it is not declared but was counted with noise.
    """

    config: Any
    bounds: Bounds
    features: Features
    policies: int
    baseline: Baseline | None = None
    contrasts: tuple[tuple[int, int], ...] = ()
    releases_count: bool = False
    people: float | None = None

    around_function: ClassVar[bool] = True
    words: ClassVar[str] = "doubly robust"

    def __post_init__(self) -> None:
        longest = LONGEST if self.bounds.max_importance_ratio > 1.0 else LONGEST_ON_POLICY
        if self.bounds.horizon > longest:
            raise DprlError(f"doubly-robust: the horizon may be at most {longest} steps with these ratios.")

    @property
    def sides(self) -> int:
        """Number of estimates per unit and policy: two where products of ratios may be cut, else one."""
        return 2 if self.bounds.cuts_products else 1

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Scaled identity ``(K, K)``: V moves all policies' estimates at once, so no two policies are disjoint."""
        return np.eye(self.policies) / math.sqrt(self.policies)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        left = 1 if self.sides == 1 or self.releases_count else 0
        return self.policies * (2 * self.sides + 1) + left + (len(self.contrasts) if self.sides == 1 else 0)

    @property
    def units(self) -> float:
        """Number of units that sums are divided by, declared or counted."""
        return self.bounds.units if self.people is None else self.people

    @property
    def clip_norm(self) -> float:
        """Clip norm of estimates in the unit ball, their centred squares, and a weight of at most one."""
        squares = self.second_moment_weight**2 / 2.0 if self.sides == 2 else 0.0
        products = PRODUCT_SCALE**2 if self.sides == 1 and self.contrasts else 0.0
        return math.sqrt(1.0 + squares + WEIGHT_SCALE**2 + products)

    @property
    def second_moment_weight(self) -> float:
        """Weight of the squares; smaller where a unit has two per policy, because two cost norm."""
        return self.config.second_moment_weight * (0.6 if self.sides == 2 else 1.0)

    @property
    def square_centre(self) -> float:
        """Number that is subtracted from a square.

        One square per policy thus vanishes where it is largest, and costs no norm.
        """
        return 1.0 if self.sides == 1 else 0.5

    @cached_property
    def remaining_return(self) -> ReturnRanges:
        """Returns that can still come, by step."""
        return remaining_return(self.bounds, self.config.discount)

    @property
    def centre(self) -> float:
        """Middle of the value range."""
        return scale_of(self.bounds.value_interval(self.config.discount))[0]

    @cached_property
    def losses(self) -> Float[np.ndarray, " horizon"]:
        """``(H,)`` ``gamma^t D_t``: the most value that a weight lost at a step can hide; made not increasing."""
        power = self.config.discount ** np.arange(self.bounds.horizon, dtype=np.float64)
        hidden = power * (self.remaining_return.high - self.remaining_return.low)
        return np.maximum(np.maximum.accumulate(hidden[::-1])[::-1], 1e-300)

    def radius(self, baseline: ReturnRanges) -> float:
        """Return the largest distance of an estimate from the middle of the value range.

        Args:
            baseline: range of the baseline at each step.
        """
        discount, both = self.config.discount, self.sides == 2
        return largest_distance(self.bounds, discount, self.remaining_return, baseline, self.centre, both=both)

    def around(self, function: ValueFunction | None) -> DoublyRobustQuery:
        """Return the query with a released value function as its baseline: post-processing."""
        if function is None:
            return self
        widths = self.remaining_return.width
        width = 1.0 + float(np.mean(widths)) / max(float(widths[0]), 1e-300)
        if isinstance(function, LeaveOneOutFunction):
            there, margin = function.on_public_states()
        else:
            there, margin = in_public_units(function, public_states(function.features)), 0.0
        ends = there.min() - margin, there.max() + margin
        least, most = (float(np.clip((1.0 + end) / width, 0.0, 1.0)) for end in ends)
        baseline = Baseline(function, width, least, most, self.radius(self.remaining_return.part(least, most)))
        return replace(self, baseline=baseline)

    @property
    def _known_baseline(self) -> Baseline:
        if self.baseline is None:
            raise RuntimeError("Values around a value function are made after it.")
        return self.baseline

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        baseline = self._known_baseline
        fractions = baseline.fractions(log, policies[0], behavior)
        firsts, weights = [], []
        for policy in policies:
            ratios = step_ratios(policy, log, behavior)
            *ends, weight = estimates(self, log, ratios, fractions)
            firsts += [unit_means(log, (x - self.centre) / baseline.radius) for x in ends]
            weights.append(WEIGHT_SCALE * unit_means(log, weight / self.bounds.cumulative_ratio))
        vectors = np.stack(
            [*firsts, *(self.second_moment_weight * (f * f - self.square_centre) for f in firsts), *weights], axis=1
        )
        # a unit without usable rows counts as zero, though its centred squares are not zero
        present = np.bincount(log.unit_of_episode(), usable(log), minlength=log.units) > 0.0
        vectors = np.where(present[:, None], vectors / math.sqrt(self.policies), 0.0)
        if self.sides == 2 and not self.releases_count:
            return vectors
        # with the mean weights this gives a unit's presence; it vanishes where they are largest, and costs no norm
        left = WEIGHT_SCALE * unit_means(log, np.ones(log.episodes))
        for weight in weights:
            left -= weight / self.policies
        pairs = self.contrasts if self.sides == 1 else ()
        products = [product_weight(pairs) * firsts[a] * firsts[b] for a, b in pairs]
        return np.column_stack([vectors, left, *products])

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        baseline = self._known_baseline
        policies, sides, units = self.policies, self.sides, self.units
        parts = noisy * math.sqrt(policies) / units
        means, squares, weights, _ = np.split(parts, np.cumsum([policies * sides, policies * sides, policies]))
        noise, share = self._noise(mechanism), self._share(noisy)
        return [
            self._estimate(
                baseline, noise, means[own], squares[own], float(weights[k]), share
            )
            for k, own in ((k, slice(k * sides, (k + 1) * sides)) for k in range(policies))
        ]  # fmt: skip

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return the value of policy ``a`` less that of ``b``, for a pair among :attr:`contrasts`.

        Where products may be cut, nothing is known of the joint sampling error, and the intervals are subtracted.
        """
        estimates = self.decode(mechanism, noisy)
        if self.sides == 2:
            return interval_difference(estimates[a], estimates[b])
        means, noise = noisy / self.units, self._noise(mechanism)
        product_noise = mechanism.noise_std / self.units / product_weight(self.contrasts)
        place = 3 * self.policies + 1 + self.contrasts.index((a, b))
        first = means[: self.policies] * math.sqrt(self.policies)
        return difference_of_means(
            (estimates[a], estimates[b]),
            (float(first[a]), float(first[b])),
            float(means[place]) / product_weight(self.contrasts),
            unit=self._known_baseline.radius,
            units=self.units,
            t=quantile(self.config.confidence),
            noise=math.sqrt(2.0) * noise,
            product_noise=product_noise,
            share=self._share(noisy),
            share_noise=self._share_noise(noise),
            largest=2.0,
            counted=self.people is not None,
        )

    def counting(self) -> DoublyRobustQuery:
        """Return the same query with a vector that tells how many units there are, even if products may be cut."""
        return replace(self, releases_count=True)

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return how many units there are, from the released vector of a :meth:`counting` query."""
        before = 2 * self.policies * self.sides
        weights, left = noisy[before : before + self.policies], float(noisy[before + self.policies])
        return (left + math.sqrt(self.policies) * float(weights.mean())) / WEIGHT_SCALE

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        return self.units * self._share_noise(self._noise(mechanism))

    def for_counted_people(self, people: float) -> DoublyRobustQuery:
        """Return the same query for a number of people that was counted with the noise of :meth:`count_noise`."""
        return replace(self, people=people)

    def _share(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return the share of the declared people who are in the log, where nothing is cut; zero otherwise."""
        return self.count(noisy) / self.units if self.sides == 1 else 0.0

    def _noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in the mean of a coordinate."""
        return mechanism.noise_std * math.sqrt(self.policies) / self.units

    def _estimate(
        self,
        baseline: Baseline,
        noise: float,
        means: np.ndarray,
        squares: np.ndarray,
        weight: float,
        share: float,
    ) -> ValueEstimate:
        config, bounds, units, scale = self.config, self.bounds, self.units, self.second_moment_weight
        radius = baseline.radius
        declared, t = bounds.value_interval(config.discount), quantile(config.confidence)
        # the noise in the mean biases its square; both noises enter the variance, the mean's through 2 |mean|
        found = squares / scale + self.square_centre - means**2 + noise**2
        small, count_error = np.minimum(np.abs(means), 1.0), 0.0 if self.people is None else self._share_noise(noise)
        errors = np.hypot(np.hypot(noise / scale, 2.0 * small * noise), small**2 * count_error)
        largest = 1.0 + t * count_error
        most = [variance_at_most(float(v), float(e), largest) for v, e in zip(found, errors, strict=True)]
        ends = self.centre + radius * means
        surely = [variance_at_most(float(v), float(e), largest, t) for v, e in zip(found, errors, strict=True)]
        widths = [radius * _half_width(t, v / units, noise, units, float(x)) for v, x in zip(most, small, strict=True)]
        low, high = float(ends[0]), float(ends[-1])

        hidden, limit = float(self.losses[0]), bounds.cumulative_ratio
        kept = limit * weight / WEIGHT_SCALE
        # a weight of at most W with mean m has a variance of at most W m - m^2
        sampled, if_one = (math.sqrt(max(limit * m - m * m, 0.0) / units) for m in (min(max(kept, 0.0), 1.0), 1.0))
        kept_error, error = (math.hypot(x, limit * noise / WEIGHT_SCALE, count_error) for x in (sampled, if_one))
        # the mean weight and what is known to be cut add up to one
        whole = kept + (high - low) / hidden
        if self.sides == 2:
            error += radius / hidden * (math.sqrt(2.0) * noise + sum(math.sqrt(v / units) for v in most))
        notes = weight_notes(whole, error, self.policies)
        lack = hidden * max(1.0 - whole + t * error, 0.0) if WEIGHTS_BELOW_ONE in notes else 0.0
        if self.sides == 2 and not notes and WEIGHTS_BELOW_ONE in weight_notes(kept, kept_error, self.policies):
            notes = (WEIGHTS_BELOW_ONE,)
        value, parts = (low, [1.0]) if self.sides == 1 else _between(low, high, declared, radius * noise)
        # the lacking part may lie anywhere in the range; the estimate counts it at the baseline, or in the middle
        below, above = lack * max(baseline.most, 0.5), lack * (1.0 - min(baseline.least, 0.5))
        reach = [widths[0] + below, widths[-1] + above]
        if self.sides == 1 or count_error > 0.0:
            for side, (m, v) in enumerate(((-float(means[0]), most[0]), (float(means[-1]), most[-1]))):
                error = math.hypot(math.sqrt(v / units), noise)
                margin = widths[-side] / radius - t * error
                if count_error > 0.0:
                    far = farthest_ratio(m, error, 1.0, count_error, t)
                else:
                    far = end_with_missing_people(m + t * error, m, error, share, self._share_noise(noise), t)
                reach[side] = max(reach[side], radius * (far + margin - m))
        plain, _ = within_range(value, (low - widths[0], high + widths[-1]), declared, notes)
        interval, notes = within_range(value, (low - reach[0], high + reach[1]), declared, notes)
        wider = max(interval[1] - interval[0] - (plain[1] - plain[0]), 0.0)
        sampling, at_most = (
            radius
            * sum(p * math.sqrt(min(max(float(v), 0.0), 1.0) / units) for p, v in zip(parts, variances, strict=True))
            for variances in (found, surely)
        )
        return ValueEstimate(
            value=value,
            interval=interval,
            privacy_standard_error=radius * math.hypot(noise * math.hypot(*parts), float(means.mean()) * count_error),
            sampling_standard_error=sampling,
            sampling_standard_error_at_most=at_most,
            mean_weight=kept,
            mean_weight_error=kept_error,
            bias_bound=max(high - low, 0.0) + wider,
            notes=notes,
        )

    def _share_noise(self, noise: float) -> float:
        """Return the standard deviation of the noise in the share of the declared people who are in the log."""
        return math.sqrt(2.0 / self.policies) * noise / WEIGHT_SCALE

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors to expect, from public facts only; they are the same for each target policy.

        Returns:
            The privacy standard error around a constant in the middle of the value range, the largest sampling standard
            error that the bounds allow, and the half-width of the interval at that error around the worst baseline.
        """
        bounds, known, discount = self.bounds, self.remaining_return, self.config.discount
        t, noise = quantile(self.config.confidence), self._noise(mechanism)
        least, most = (self.radius(x) for x in (known.part(0.5, 0.5), known))
        steps = np.arange(bounds.horizon, dtype=np.float64)
        with np.errstate(over="ignore"):
            squares = np.sqrt(np.minimum(bounds.max_importance_ratio ** (steps + 1.0), bounds.cumulative_ratio))
        errors = bounds.reward[1] - bounds.reward[0] + self.losses / np.maximum(discount**steps, 1e-300)
        sampling = min(most, float(self.losses[0]) / 2.0 + float(np.sum(discount**steps * squares * errors)))
        sampling /= math.sqrt(self.units)
        widest = most * _half_width(t, (sampling / most) ** 2, noise, self.units)
        if self.sides == 1:  # towards an end of the range the interval is wider, because people may be missing
            error, (low, high) = math.hypot(sampling, most * noise), bounds.value_interval(discount)
            end = self._share_noise(noise) * (high - low) / 2.0
            widest += t * (math.hypot(error, end) - error) / 2.0
        privacy = least * noise / math.sqrt(self.sides)
        if self.people is not None:  # the noise in the number of people, at a value half way from middle to end
            low, high = bounds.value_interval(discount)
            privacy = math.hypot(privacy, self._share_noise(noise) * (high - low) / 4.0)
        return [(privacy, sampling, widest)] * self.policies


def _between(low: float, high: float, declared: Interval, error: float) -> tuple[float, list[float]]:
    """Return the value between a lower and an upper estimate, and how much the value moves with each of the two.

    The value takes what was cut to be like what was kept. Where noise with this standard ``error`` hides what was kept,
    the value is in the middle.
    """
    above, below = low - declared[0], declared[1] - high
    kept = max(above + below, 0.0)
    precise = kept / (kept**2 + 2.0 * error**2) if kept > 1e-150 else 0.0
    share = min(max(0.5 + precise * (above - below) / 2.0, 0.0), 1.0)
    unit = (declared[1] - declared[0]) * precise
    return low + (high - low) * share, [max(unit, 1.0) * (1.0 - share), max(unit, 1.0) * share]


def _half_width(t: float, sampling: float, noise: float, units: float, away: float = 0.0) -> float:
    """Return the half-width of the interval of a mean of numbers in [-1, 1] with a sampling variance and noise.

    The margin for skewness is for sampling only, because the noise is not skewed. One unit lies at most ``1 + away``
    from a mean that is ``away`` from zero.
    """
    variance = sampling + noise**2
    share = sampling / variance if variance > 0.0 else 0.0
    return t * math.sqrt(variance) + share * skew_margin(t, 1.0 + away, units)
