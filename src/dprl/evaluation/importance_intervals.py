"""A policy's importance-sampling value and interval, from its released numbers and public facts: post-processing.

A unit's pair is its weight times ``G - low`` and its weight times ``high - G``, scaled. What is released of a pair, and
why the intervals below hold, is derived in docs/proofs/importance-sampling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dprl.bounds import Interval
from dprl.evaluation.intervals import (
    WEIGHTS_BELOW_ONE,
    ValueEstimate,
    end_with_missing_people,
    farthest_ratio,
    skew_margin,
    variance_at_most,
    weight_notes,
    within_range,
)

WEIGHT_SCALE = 0.3
"""Weight of the released mean weight against the value, where nothing can be cut: it takes 8% of mu^2.

It is also the weight of what a unit's mean weight leaves of one, from which the number of people is told for nothing.
"""


class PairScale(NamedTuple):
    """Public facts about a unit's pair: ``weight (G - low)`` and ``weight (high - G)``, over ``largest (high - low)``.

    Attributes:
        low, high: range of the returns G that are weighted.
        largest: weight that no unit exceeds; the mean weight is 1 where nothing is cut.
    """

    low: float
    high: float
    largest: float

    @property
    def width(self) -> float:
        """Width that a pair of (1, 0) stands for."""
        return self.largest * (self.high - self.low)


@dataclass(frozen=True)
class DecodingFacts:
    """Public facts from which released numbers become a value and an interval.

    Attributes:
        scale: scale of a unit's pair.
        declared: declared range of the value.
        baseline: point in the range of ``scale`` from which returns are measured: 0 for the low end, 1 for the high
            end.
        units: number of units, declared or counted with noise.
        policies: number of policies in the release; the chance of a false alarm about weights is divided by it.
        second_moment_weight: weight of the second moments.
        noise_std: standard deviation of the noise in the mean of each released number.
        share_noise: standard deviation of the noise in the released share of the declared people, where nothing can be
            cut; in the share of the counted people, where people were counted.
        t: normal quantile of the interval.
        variance_margin: number of standard errors of its noise that are added to a variance.
        propensity_errors: standard error that estimated behaviour probabilities add to the mean of a pair's sum, and
            the most that they add to the mean of a pair's difference, where pairs are released.
        weight_scale: factor of the released mean weight, relative to the value, where nothing can be cut.
        counted: whether ``units`` was counted with noise, and is as likely too large as too small.
        asked_share: share of the people who are asked, each by a coin. ``units`` is the mean number of those who are
            asked, and the true number varies. So the variance of one unit in a mean over ``units`` is
            ``E[x^2] - asked_share E[x]^2``.
    """

    scale: PairScale
    declared: Interval
    baseline: float
    units: float
    policies: int
    second_moment_weight: float
    noise_std: float
    share_noise: float
    t: float
    variance_margin: float
    propensity_errors: tuple[float, float] = (0.0, 0.0)
    weight_scale: float = WEIGHT_SCALE
    counted: bool = False
    asked_share: float = 1.0

    def std_error(self, variance: float, privacy: float) -> float:
        """Return the standard error of a mean, from one unit's variance and the noise in the mean."""
        return math.sqrt(max(variance, 0.0) / self.units + privacy**2)

    def ratio_error(self, ratio: float) -> float:
        """Return the standard error that estimated probabilities add to the mean of ``above - ratio weight``."""
        weight, distance = self.propensity_errors
        return distance / 2.0 + abs(ratio - 0.5) * weight

    @property
    def count_error(self) -> float:
        """Relative noise in the number of units; zero where it was declared."""
        return self.share_noise if self.counted else 0.0

    @property
    def most_variance(self) -> float:
        """Largest variance of one unit by public facts; larger for counted units, whose number is noisy."""
        return (1.0 + self.t * self.count_error) / self.scale.largest

    def upper_end(self, mean: float, error: float) -> float:
        """Return the upper end of the interval of a mean over units, without the margin for skewness."""
        return farthest_ratio(mean, error, 1.0, self.count_error, self.t) if self.counted else mean + self.t * error

    def weight(self, mean: float, noise: float) -> tuple[float, float, tuple[str, ...]]:
        """Return the mean weight, its standard error and its notes, from the mean in units of the largest weight."""
        largest = self.scale.largest
        found = largest * mean
        kept = min(max(found, 0.0), 1.0)
        # a weight of at most W with mean m has a variance of at most W m - m^2
        error, if_one = (
            math.hypot(
                math.sqrt((largest * m - self.asked_share * m * m) / self.units), largest * noise, m * self.count_error
            )
            for m in (kept, 1.0)
        )
        ratio_error = largest * self.propensity_errors[0]
        return (
            found,
            math.hypot(error, ratio_error),
            weight_notes(found, math.hypot(if_one, ratio_error), self.policies),
        )


def chord_of_square(baseline: float) -> tuple[float, float]:
    """Return slope and intercept of the line that meets x^2 at both ends of the range of ``(y - baseline) / reach``.

    Here y is in [0, 1], and ``reach`` is the larger distance of ``baseline`` from 0 and 1, so that one end of the range
    is 1 or -1.
    """
    near, far = min(baseline, 1.0 - baseline), max(baseline, 1.0 - baseline)
    return math.copysign(1.0 - near / far, 0.5 - baseline), near / far


def centred_estimate(facts: DecodingFacts, parts: list[float]) -> ValueEstimate:
    """Return the estimate where nothing can be cut, from the mean distance to the baseline.

    The estimate is unbiased if the declared facts are true. The interval holds even if people like the others are
    missing: away from the baseline it is wider by what the released number of people leaves open. Where the mean weight
    shows that some declared fact is false, the interval is wider by the largest bias that the mean weight allows.
    """
    scale, u, noise_std, a = facts.scale, facts.baseline, facts.noise_std, facts.second_moment_weight
    first, weight, second, share = parts[0], parts[1] / facts.weight_scale, parts[2] / a, parts[3]
    mean_weight, weight_error, notes = facts.weight(weight, noise_std / facts.weight_scale)
    unit = scale.width * max(u, 1.0 - u)
    centre = scale.low + u * (scale.high - scale.low)
    value = centre + unit * first
    # the mean weight of this log: its released value and its expectation, weighted by the error of each
    noisy = (noise_std / facts.weight_scale) ** 2
    unknown = (1.0 - facts.asked_share / scale.largest) / scale.largest / facts.units
    unknown += (facts.count_error / scale.largest) ** 2
    trust = unknown / (unknown + noisy) if unknown + noisy > 0.0 else 0.5
    slope, intercept = chord_of_square(u)
    square = second + slope * first + intercept * (trust * weight + (1.0 - trust) / scale.largest)
    # the noise in the mean biases its square, and enters the variance twice
    variance = square - facts.asked_share * first**2 + facts.asked_share * noise_std**2
    noise = math.hypot(
        noise_std / a,
        (slope - 2.0 * facts.asked_share * min(max(first, -1.0), 1.0)) * noise_std,
        intercept * math.sqrt(trust * noisy),
        min(first**2, 1.0) * facts.count_error,
    )
    upper = largest_variance(facts, variance, noise)
    away = min(abs(first), 1.0 / scale.largest)
    half, error, margin = half_width(facts, upper, away), facts.std_error(upper, noise_std), _skewed(facts, upper, away)
    reach = [unit * (_far(facts, m, error, share) + margin - m) for m in (-first, first)]
    reach = reach if facts.counted else [max(unit * half, far) for far in reach]
    missing = max(1.0 - mean_weight + facts.t * weight_error, 0.0) if WEIGHTS_BELOW_ONE in notes else 0.0
    least, most = (unit * half + missing * (scale.high - scale.low) * x for x in (u, 1.0 - u))
    plain, _ = within_range(value, (value - unit * half, value + unit * half), facts.declared, notes)
    ends = value - max(reach[0], least), value + max(reach[1], most)
    interval, notes = within_range(value, ends, facts.declared, notes)
    most = variance_at_most(variance, noise, facts.most_variance, facts.t)
    return ValueEstimate(
        value,
        interval,
        unit * math.hypot(noise_std, first * facts.count_error),
        unit * facts.std_error(min(variance, facts.most_variance), 0.0),
        unit * facts.std_error(most, 0.0),
        mean_weight,
        weight_error,
        max(interval[1] - interval[0] - (plain[1] - plain[0]), 0.0),
        notes,
    )


def _far(facts: DecodingFacts, mean: float, error: float, share: float) -> float:
    """Return the upper end of a mean distance to the baseline, where units may be missing or were counted."""
    if facts.counted:
        return facts.upper_end(mean, error)
    return end_with_missing_people(mean + facts.t * error, mean, error, share, facts.share_noise, facts.t)


def largest_variance(facts: DecodingFacts, variance: float, noise: float) -> float:
    """Return an upper bound of one unit's variance for a half-width, at most what a mean weight of one allows."""
    return variance_at_most(variance, noise, facts.most_variance, facts.variance_margin)


def half_width(facts: DecodingFacts, variance: float, away: float) -> float:
    """Return the half-width of the interval of a mean of numbers in [-1, 1] with one unit's ``variance``, and noise.

    The margin for skewness covers only the sampling part of the error, because the noise is normal. One unit lies at
    most ``1 + away`` from a mean that is ``away`` from zero.
    """
    return facts.t * facts.std_error(variance, facts.noise_std) + _skewed(facts, variance, away)


def _skewed(facts: DecodingFacts, variance: float, away: float) -> float:
    error = facts.std_error(variance, facts.noise_std)
    sampled = 0.0 if error == 0.0 else variance / facts.units / error**2
    return sampled * skew_margin(facts.t, 1.0 + away, facts.units)


def bounded_estimate(facts: DecodingFacts, parts: list[float]) -> ValueEstimate:
    """Return the estimate where products are cut; its interval reaches from a lower to an upper bound of the value.

    Both bounds hold in the mean, whatever was cut. The value takes what was cut to be like what was kept.
    """
    scale, noise_std, a = facts.scale, facts.noise_std, facts.second_moment_weight
    pair = _Pair.from_parts(parts, a)
    mean_weight, weight_error, notes = facts.weight(pair.above + pair.below, math.sqrt(2.0) * noise_std)
    ends = []
    for mean, square in ((pair.above, pair.above_squared), (pair.below, pair.below_squared)):
        noise = math.hypot(_noise_of_second(noise_std, a), min(mean**2, 1.0) * facts.count_error)
        one = square - facts.asked_share * mean**2 + facts.asked_share * noise_std**2
        error = math.hypot(facts.std_error(largest_variance(facts, one, noise), noise_std), facts.ratio_error(0.0))
        ends.append(-scale.width * facts.upper_end(-mean, error))
    floor, ceiling = scale.low + scale.width * pair.above, scale.high - scale.width * pair.below
    ratio = pair.ratio(noise_std)
    value = floor + (ceiling - floor) * ratio
    interval, notes = within_range(value, (scale.low + ends[0], scale.high - ends[1]), facts.declared, notes)
    privacy, sampling, most = pair.ratio_errors(facts, ratio)
    bias = max(ceiling - floor, 0.0)
    return ValueEstimate(value, interval, privacy, sampling, most, mean_weight, weight_error, bias, notes)


def normalised_estimate(facts: DecodingFacts, parts: list[float]) -> ValueEstimate:
    """Return the self-normalised estimate where nothing can be cut: a ratio of two means, and the ratios that fit both.

    A ratio R fits if the mean of ``above - R weight`` differs from zero by no more than t standard errors (Fieller
    1954). This holds even where noise makes the mean weight uncertain.
    """
    scale, noise_std, t, n = facts.scale, facts.noise_std, facts.t, facts.units
    pair = _Pair.from_parts(parts, facts.second_moment_weight)
    mean_weight, weight_error, notes = facts.weight(pair.above + pair.below, math.sqrt(2.0) * noise_std)
    ratio, width, most = pair.ratio(noise_std), scale.high - scale.low, facts.most_variance
    upper, lower = (min(max(m, 0.0), most) for m in (pair.above_squared, pair.below_squared))
    total, margin = pair.above + pair.below, facts.variance_margin * pair.noise_of_square(facts, ratio)
    # (above - R total)^2 <= t^2 (second moment of above - R weight, over n, and noise), as a polynomial in R
    square = total**2 - t**2 * ((upper + lower + 2.0 * pair.product) / n + 2.0 * noise_std**2)
    linear = -2.0 * pair.above * total + 2.0 * t**2 * ((upper + pair.product) / n + noise_std**2)
    constant = pair.above**2 - t**2 * ((upper + margin) / n + noise_std**2)

    def fits(ratio_error: float) -> Interval:
        inside = linear**2 - 4.0 * square * (constant - (t * ratio_error) ** 2)
        if square <= 0.0 or total <= 0.0 or inside < 0.0:
            return 0.0, 1.0
        middle, half = -linear / (2.0 * square), math.sqrt(inside) / (2.0 * square)
        half += _skewed(facts, pair.square(facts, ratio), 0.0) / total
        return middle - half, middle + half

    # the error that estimated probabilities add depends on R: that of the end with the larger error is taken
    first = fits(facts.ratio_error(ratio))
    ends = (
        fits(max(facts.ratio_error(min(max(end, 0.0), 1.0)) for end in first))
        if facts.propensity_errors[0] > 0.0
        else first
    )
    ends = scale.low + width * ends[0], scale.low + width * ends[1]
    value = scale.low + width * ratio
    missing = max(1.0 - mean_weight + t * weight_error, 0.0) if WEIGHTS_BELOW_ONE in notes else 0.0
    ends = ends[0] + missing * (scale.low - value), ends[1] + missing * (scale.high - value)
    interval, notes = within_range(value, ends, facts.declared, notes)
    return ValueEstimate(
        value, interval, *pair.ratio_errors(facts, ratio), mean_weight, weight_error, missing * width, notes
    )


class _Pair(NamedTuple):
    """Means and second moments of a policy's pairs, as decoded."""

    above: float
    below: float
    above_squared: float
    below_squared: float
    product: float

    @classmethod
    def from_parts(cls, parts: list[float], second: float) -> _Pair:
        above, below = parts[0], parts[1]
        return cls(above, below, parts[2] / second + above, parts[3] / second + below, parts[4] / second)

    def ratio(self, noise_std: float) -> float:
        """Return the mean of ``above`` over the mean weight; a half where noise hides the weight."""
        total = max(self.above + self.below, 0.0)
        if total == 0.0:
            return 0.5
        kept = total / (total**2 + 2.0 * noise_std**2)
        return min(max(0.5 + kept * (self.above - self.below) / 2.0, 0.0), 1.0)

    def ratio_errors(self, facts: DecodingFacts, ratio: float) -> tuple[float, float, float]:
        """Return three numbers for a value at ``ratio``.

        They are the standard error of the noise, the standard error of sampling, and an upper bound of the latter.
        """
        scale, noise_std = facts.scale, facts.noise_std
        least = 0.01 / scale.largest  # a mean weight near zero tells nothing
        unit = (scale.high - scale.low) / max(math.hypot(self.above + self.below, math.sqrt(2.0) * noise_std), least)
        variance, noise, most = self.square(facts, ratio), self.noise_of_square(facts, ratio), facts.most_variance
        return (
            unit * noise_std * math.hypot(1.0 - ratio, ratio),
            unit * facts.std_error(variance, 0.0),
            unit * facts.std_error(variance_at_most(variance, noise, most, facts.t), 0.0),
        )

    def square(self, facts: DecodingFacts, ratio: float) -> float:
        """Return the second moment of ``above - ratio weight``.

        With a mean weight of one it is at most one over the largest weight.
        """
        there, here = (1.0 - ratio) ** 2 * self.above_squared, ratio**2 * self.below_squared
        return min(max(there + here - 2.0 * ratio * (1.0 - ratio) * self.product, 0.0), facts.most_variance)

    def noise_of_square(self, facts: DecodingFacts, ratio: float) -> float:
        """Return the standard deviation of the noise in :meth:`square`."""
        there, here = (1.0 - ratio) ** 2, ratio**2
        own = math.hypot(there, here) * _noise_of_second(facts.noise_std, facts.second_moment_weight)
        return math.hypot(own, 2.0 * math.sqrt(there * here) * facts.noise_std / facts.second_moment_weight)


def _noise_of_second(noise_std: float, second: float) -> float:
    """Return the standard deviation of the noise in a decoded second moment."""
    return math.hypot(noise_std / second, noise_std)
