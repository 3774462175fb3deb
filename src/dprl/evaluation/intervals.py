"""Released values, and what the intervals of all estimators have in common.

An interval counts the sampling error, the privacy noise, and a measured bias. With true behaviour probabilities,
importance weights have mean one. So what their released mean lacks of one bounds what was taken away by cut weights,
lack of overlap and missing people. Where nothing can be cut, the released number of people tells more precisely than
weights how many are missing. Everything here is post-processing of released numbers and public facts.
Derivations: docs/proofs/importance-sampling.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist
from typing import Any, NamedTuple

from dprl.bounds import Interval

WEIGHTS_BELOW_ONE = "weights-below-one"
WEIGHTS_ABOVE_ONE = "weights-above-one"
OUTSIDE_RANGE = "outside-range"
SAYS_NOTHING = "says-nothing"
TRIMMED = "trimmed"
NO_OVERLAP = "no-overlap"
CUT_WEIGHTS = "cut-weights"

VARIANCE_MARGIN = 1.0
"""Standard errors of its own noise by which a noisy variance is taken larger before an interval uses it."""
PRODUCT_SCALE = 0.5
"""Weight of all products of two policies' distances together, against the distances."""
FALSE_ALARM_CHANCE = 0.00135
"""Chance, over all policies of a release, that a mean weight of one is called too low by accident, or too high."""


@dataclass(frozen=True)
class ValueEstimate:
    """A value and what is known of its error, all of it released.

    Attributes:
        value: the released value; noise can carry it out of the declared range, and then ``notes`` says so.
        interval: at the nominal confidence; it never leaves the declared range.
        privacy_standard_error: of the value, exactly known.
        sampling_standard_error: of the value, estimated from noisy second moments.
        sampling_standard_error_at_most: upper confidence bound of the sampling standard error; None where it was not
            released.
        mean_weight: mean importance weight, which is one where nothing was cut and every declared fact is true.
        mean_weight_error: standard error of ``mean_weight``, noise included.
        bias_bound: how much of the interval's width stands for what weights lack, and for people who may be missing.
        notes: what a reader must be told: ``weights-below-one``, ``weights-above-one``, ``outside-range`` (the value
            was outside of what the declared bounds allow), ``says-nothing`` (the interval is the declared range); where
            propensities were estimated, ``no-overlap`` (the interval is wider for people whom the log does not show),
            ``trimmed`` (the value leaves them out) or ``cut-weights`` (the interval is wider for weights that are cut).
    """

    value: float
    interval: Interval
    privacy_standard_error: float
    sampling_standard_error: float
    sampling_standard_error_at_most: float | None = None
    mean_weight: float | None = None
    mean_weight_error: float | None = None
    bias_bound: float = 0.0
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"interval": list(self.interval), "notes": list(self.notes)}

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> ValueEstimate:
        """Read plain data, in which fields that an earlier version did not release may be missing."""
        known: dict[str, Any] = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        known |= {"interval": tuple(known["interval"]), "notes": tuple(known.get("notes", ()))}
        return cls(**known)


def quantile(confidence: float) -> float:
    """Return the normal quantile t of a two-sided interval: value +- t standard errors."""
    return NormalDist().inv_cdf(0.5 + confidence / 2.0)


def variance_at_most(variance: float, error: float, most: float, margin: float = VARIANCE_MARGIN) -> float:
    """Return an upper bound of a variance that was released with noise.

    Args:
        variance: as decoded; it may be negative.
        error: standard deviation of the noise in ``variance``.
        most: largest possible variance by public facts.
        margin: how many times ``error`` is added.
    """
    return min(max(variance, 0.0) + margin * error, most)


def skew_margin(t: float, largest: float, units: float) -> float:
    """Return the margin for skewness of a studentised mean of few large contributions (Johnson 1978).

    The half-width of an interval needs this margin beside t standard errors.

    Args:
        t: normal quantile.
        largest: largest contribution of one unit.
        units: number of units that the mean is over.
    """
    return (1.0 + 2.0 * t * t) * largest / (6.0 * units)


def end_with_missing_people(end: float, mean: float, error: float, share: float, share_error: float, t: float) -> float:
    """Return the upper end of a mean's interval, moved up to what fits if people like the others are missing.

    A mean with missing people is too near zero, by the factor of the share who are in the log. An end above zero
    becomes the larger of ``end`` and the largest ratio that fits the mean over the share (Fieller 1954). An end below
    zero holds without change.

    Args:
        mean, error: the released mean, and its standard error, noise included.
        share, share_error: the released share of the declared people who are in the log, and the noise in it.
    """
    return end if end <= 0.0 else max(end, farthest_ratio(mean, error, share, share_error, t))


def farthest_ratio(mean: float, error: float, share: float, share_error: float, t: float) -> float:
    """Return the largest ratio that fits a mean over a share, both with errors (Fieller 1954); infinite if all fit.

    Args:
        mean, error, share, share_error, t: see :func:`end_with_missing_people`; the two errors are uncorrelated.
    """
    known = share**2 - (t * share_error) ** 2
    if share <= 0.0 or known <= 0.0:
        return math.inf
    return (mean * share + t * math.sqrt((mean * share_error) ** 2 + known * error**2)) / known


def weight_notes(mean: float, error: float, policies: int) -> tuple[str, ...]:
    """Return a note if a mean weight differs from one by more than chance.

    Args:
        mean: the released mean weight.
        error: standard error that a mean weight of one would have.
        policies: number of policies in the release.
    """
    limit = NormalDist().inv_cdf(1.0 - FALSE_ALARM_CHANCE / policies) * error
    if mean < 1.0 - limit:
        return (WEIGHTS_BELOW_ONE,)
    return (WEIGHTS_ABOVE_ONE,) if mean > 1.0 + limit else ()


def within_range(
    value: float, interval: Interval, declared: Interval, notes: tuple[str, ...] = ()
) -> tuple[Interval, tuple[str, ...]]:
    """Cut an interval to the declared range, and note what a reader must be told of the interval and of the value.

    An interval wholly outside of the declared range says nothing, and neither does an interval whose weights add up to
    more than one. Both become the declared range.
    """
    low, high = declared
    start, end = max(min(interval), low), min(max(interval), high)
    if not low <= value <= high:
        notes = (*notes, OUTSIDE_RANGE)
    if start > end or WEIGHTS_ABOVE_ONE in notes:
        start, end = low, high
    if start <= low < high <= end:
        notes = (*notes, SAYS_NOTHING)
    return (start, end), notes


class Difference(NamedTuple):
    """Difference of two policies' values, with what is known of its error.

    Attributes:
        interval: at the confidence of the estimates.
        noise, sampling: standard errors; upper bounds where the joint error of the two policies is unknown.
        confounding: how strong an unmeasured confounder must be to carry the interval to zero; None where behaviour
            probabilities are known.
    """

    interval: Interval
    noise: float
    sampling: float
    confounding: float | None = None


def confounder_odds(strength: float) -> float:
    """Return the factor G of odds at which ``sqrt(G) - 1/sqrt(G)`` is ``strength``; see docs/proofs/stratified.md."""
    return ((strength + math.sqrt(strength**2 + 4.0)) / 2.0) ** 2


def interval_difference(first: ValueEstimate, second: ValueEstimate) -> Difference:
    """Return the difference of two intervals, which holds if both hold, however their errors are correlated."""
    (low, high), (least, most) = first.interval, second.interval
    noise = first.privacy_standard_error + second.privacy_standard_error
    sampling = first.sampling_standard_error + second.sampling_standard_error
    return Difference((low - most, high - least), noise, sampling)


def product_weight(contrasts: Sequence[tuple[int, int]]) -> float:
    """Return the weight of a product of two policies' distances; the product serves only an interval's width."""
    return PRODUCT_SCALE / math.sqrt(max(len(contrasts), 1))


def difference_of_means(
    estimates: tuple[ValueEstimate, ValueEstimate],
    means: tuple[float, float],
    product: float,
    *,
    unit: float,
    units: float,
    t: float,
    noise: float,
    product_noise: float,
    share: float,
    share_noise: float,
    largest: float,
    counted: bool = False,
    asked_share: float = 1.0,
) -> Difference:
    """Return a difference where nothing can be cut, from the means of units' distances and of the distances' product.

    The variance is that of the units' differences, and the interval allows for missing people who are like the others.
    Where a mean weight shows that some declared fact is false, the interval is the difference of the two intervals.

    Args:
        means, product: means of the units' distances to the baseline, in [-1, 1], and of the product of the distances.
        unit: value of a distance of one.
        units: number of units.
        t: normal quantile of the interval.
        noise, product_noise: standard deviations of the noise in the difference of ``means``, and in ``product``.
        share, share_noise: released share of the declared people who are there, and the noise in it.
        largest: largest difference of one unit's two distances.
        counted: whether ``units`` was counted with noise, and is as likely too large as too small.
        asked_share: share of the people who are asked, each by a coin; a unit's variance is
            ``E[x^2] - asked_share E[x]^2``.
    """
    widest = interval_difference(*estimates)
    own = [units * (e.sampling_standard_error / unit) ** 2 for e in estimates]
    most = [units * ((e.sampling_standard_error_at_most or math.inf) / unit) ** 2 for e in estimates]
    variance = max(sum(own) - 2.0 * (product - asked_share * means[0] * means[1]), 0.0)
    errors = [(b - a) / t for a, b in zip(own, most, strict=True)]  # noise in each variance
    upper = variance + VARIANCE_MARGIN * math.hypot(*errors, 2.0 * product_noise)
    upper = min(upper, sum(math.sqrt(v) for v in most) ** 2)
    error = math.sqrt(upper / units + noise**2)
    mean = means[0] - means[1]
    away = min(abs(mean), largest)
    skew = (upper / units / error**2 if error > 0.0 else 0.0) * skew_margin(t, largest + away, units)
    ends = [
        farthest_ratio(m, error, share, share_noise, t)
        if counted
        else end_with_missing_people(m + t * error, m, error, share, share_noise, t)
        for m in (-mean, mean)
    ]
    below, above = (unit * (end + skew) for end in ends)
    low, high = max(-below, widest.interval[0]), min(above, widest.interval[1])
    false = any(note in e.notes for e in estimates for note in (WEIGHTS_BELOW_ONE, WEIGHTS_ABOVE_ONE))
    sampling = unit * math.sqrt(min(variance, upper) / units)
    if counted:
        noise = math.hypot(noise, mean * share_noise)
    return Difference(widest.interval if false or low > high else (low, high), unit * noise, sampling)
