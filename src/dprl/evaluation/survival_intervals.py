"""Compute event-free probabilities and intervals from released shares of people by bin and fate: post-processing.

The cells of K bins are in this order: events by bin, people censored by bin, and people who were seen to the end.
Derivations: docs/proofs/survival.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dprl.evaluation.intervals import (
    WEIGHTS_BELOW_ONE,
    ValueEstimate,
    skew_margin,
    variance_at_most,
    weight_notes,
    within_range,
)

NOMINAL_SCENARIOS = ((0.8, 0.3), (0.4, 0.3))
"""Public scenarios for which the noise is made small: event-free probability at the end, and share of the censored."""
CURVE_WEIGHT = 0.3
"""Weight of all points of a curve before its last one together, against that one, where noise is made small."""
TOTAL_WEIGHT = 0.1
"""The same weight of the mean weight, which it costs the curve next to nothing to know better."""
EXPECTED_SCENARIOS = (*NOMINAL_SCENARIOS, (0.5, 0.3), (0.6, 0.5))
"""Public scenarios of which the one with the largest errors is what a plan expects."""
EXPOSURE = {"end": (1.0, 1.0, 1.0), "within": (0.0, 0.5, 1.0)}
"""Share of its last bin for which a censored person counts: for the lower end, the value, and the upper end."""


def event_free(
    shares: Float[np.ndarray, " cells"], exposure: float
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, "bins cells"]]:
    """Return the event-free probability up to the end of each bin, and its derivatives with respect to the shares.

    Args:
        shares: shares of people in each cell; a common factor does not matter.
        exposure: share of its last bin for which a censored person counts as at risk.
    """
    bins = len(shares) // 2
    at_risk = at_risk_matrix(bins, exposure)
    events, people = shares[:bins], at_risk @ shares
    hazard = events / np.where(people > 0.0, people, math.inf)
    step = (hazard[:, None] * at_risk - np.eye(bins, len(shares))) / np.where(people > 0.0, people, math.inf)[:, None]
    value, slope = np.ones(bins + 1), np.zeros((bins + 1, len(shares)))
    for k in range(bins):
        stays = max(1.0 - hazard[k], 0.0)
        value[k + 1] = value[k] * stays
        slope[k + 1] = slope[k] * stays + value[k] * step[k]
    return value[1:], slope[1:]


def at_risk_matrix(bins: int, exposure: float) -> Float[np.ndarray, "bins cells"]:
    """Return the matrix that turns shares by cell into the shares at risk in each bin."""
    later = np.triu(np.ones((bins, bins)))
    censored = later - (1.0 - exposure) * np.eye(bins)
    return np.hstack([later, censored, np.ones((bins, 1))])


def nominal_shares(end: float, censored: float, bins: int) -> Float[np.ndarray, " cells"]:
    """Return the shares if the event-free probability falls to ``end`` at a constant rate.

    At a constant rate, too, a share ``censored`` of the people without events leaves.
    """
    hazard, leaves = (1.0 - end ** (1.0 / bins)), 1.0 - (1.0 - censored) ** (1.0 / bins)
    stays = ((1.0 - hazard) * (1.0 - leaves)) ** np.arange(bins + 1)
    return np.r_[hazard * stays[:-1], (1.0 - hazard) * leaves * stays[:-1], stays[-1]]


def cell_workload(bins: int) -> Float[np.ndarray, "cells cells"]:
    """Return the matrix whose quadratic form is the error that is made small.

    This is the error of the probability at the end and, with less weight, of all earlier probabilities, in the public
    scenarios.
    """
    weights = np.r_[np.full(bins - 1, CURVE_WEIGHT / bins), 1.0][:, None]
    slopes = [np.sqrt(weights) * event_free(nominal_shares(*scenario, bins), 0.5)[1] for scenario in NOMINAL_SCENARIOS]
    workload = sum(slope.T @ slope for slope in slopes)
    # plus the sum of all cells, which is the mean weight, and a little of each cell, so that cells can be told apart
    cells = 2 * bins + 1
    return workload / np.trace(workload) + (TOTAL_WEIGHT * np.ones((cells, cells)) + 1e-3 * np.eye(cells)) / cells


@dataclass(frozen=True)
class SurvivalEstimate(ValueEstimate):
    """Event-free probability, with the whole curve.

    Attributes:
        curve: time, event-free probability up to then, and the ends of its interval, for each bin.
    """

    curve: tuple[tuple[float, float, float, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return super().as_dict() | {"curve": [list(point) for point in asdict(self)["curve"]]}


class CurvePoint(NamedTuple):
    """One event-free probability with its errors.

    Attributes:
        value: the estimate.
        low, high: ends of its interval.
        least, most: lowest and highest estimate, from which the ends are made: censored people leave their bin early,
            or late.
        noise, sampling, sampling_at_most: standard errors.
        slope: derivatives of the value with respect to the shares.
    """

    value: float
    low: float
    high: float
    least: float
    most: float
    noise: float
    sampling: float
    sampling_at_most: float
    slope: Float[np.ndarray, " cells"]


@dataclass(frozen=True)
class ReleasedShares:
    """Released shares of one policy, with the public facts that turn them into probabilities.

    Attributes:
        shares: shares of the declared people by cell, under the policy.
        noise_root: matrix that turns standard normal numbers into the noise in ``shares``.
        largest: weight that no unit exceeds.
        units: declared number of units.
        policies: number of policies in the release.
        exposure: exposures for the lower end, the value, and the upper end; see :data:`EXPOSURE`.
        t: normal quantile of the interval.
        variance_margin: how many standard errors of its own noise are added to a variance.
    """

    shares: Float[np.ndarray, " cells"]
    noise_root: Float[np.ndarray, "cells cells"]
    largest: float
    units: int
    policies: int
    exposure: tuple[float, float, float]
    t: float
    variance_margin: float

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.shares) // 2

    def noise(self, slope: Float[np.ndarray, " cells"]) -> float:
        """Return the standard deviation of the noise in a sum of shares times ``slope``."""
        return float(np.linalg.norm(slope @ self.noise_root))

    @property
    def at_end(self) -> CurvePoint:
        """The event-free probability at the end."""
        return next(self.points(first=self.bins - 1))

    @property
    def known_bins(self) -> int:
        """Number of bins until noise hides how many people are still at risk."""
        at_risk = at_risk_matrix(self.bins, self.exposure[0])
        seen = at_risk @ self.shares > self.t * np.linalg.norm(at_risk @ self.noise_root, axis=1)
        return int(np.argmin(np.append(seen, False)))

    def weight(self) -> tuple[float, float, tuple[str, ...]]:
        """Return the mean weight, its standard error, and notes on it; there are none where all weights are one."""
        mean, noise = float(self.shares.sum()), self.noise(np.ones(len(self.shares)))
        kept = min(max(mean, 0.0), 1.0)
        # a weight of at most W with mean m has a variance of at most W m - m^2
        error, if_one = (math.hypot(math.sqrt((self.largest * m - m * m) / self.units), noise) for m in (kept, 1.0))
        return mean, error, weight_notes(mean, if_one, self.policies) if self.largest > 1.0 else ()

    def points(self, missing: float = 0.0, first: int = 0) -> Iterator[CurvePoint]:
        """Yield the event-free probability up to the end of each bin.

        Args:
            missing: share that the weights may lack. For the lower end all of that share has its event in the point's
                own bin; for the upper end nobody in it has an event.
            first: number of the first bin that is wanted.
        """
        low, middle, high = (event_free(self.shares, exposure) for exposure in self.exposure)
        if missing:
            high = event_free(self._with_missing(2 * self.bins, missing), self.exposure[2])
        for k in range(first, self.bins):
            if missing:
                low = event_free(self._with_missing(k, missing), self.exposure[0])
            (first_end, down), (value, slope), (last_end, up) = (
                (float(values[k]), slopes[k]) for values, slopes in (low, middle, high)
            )
            least, most = min(first_end, value, last_end), max(first_end, value, last_end)
            variance, noise = self._variance(slope)
            at_most = variance_at_most(variance, noise, math.inf, self.t)
            ends = least - self._half_width(down), most + self._half_width(up), least, most
            sampling = math.sqrt(max(variance, 0.0) / self.units), math.sqrt(at_most / self.units)
            yield CurvePoint(value, *ends, self.noise(slope), *sampling, slope)

    def _with_missing(self, cell: int, missing: float) -> Float[np.ndarray, " cells"]:
        return self.shares + missing * np.eye(1, len(self.shares), cell)[0]

    def _variance(self, slope: Float[np.ndarray, " cells"]) -> tuple[float, float]:
        """Return the variance of a unit's part of a sum of shares times ``slope``, and the noise in that variance."""
        # a weight w of at most W: E[(w x)^2] <= W E[w x^2], and w x has the mean zero
        return self.largest * float(self.shares @ slope**2), self.largest * self.noise(slope**2)

    def _half_width(self, slope: Float[np.ndarray, " cells"]) -> float:
        """Return how far an end of the interval lies from its estimate, whose derivatives are ``slope``."""
        most, noise = (
            variance_at_most(*self._variance(slope), math.inf, self.variance_margin) / self.units,
            self.noise(slope),
        )
        error = math.sqrt(most + noise**2)
        skew = skew_margin(self.t, self.largest * float(np.abs(slope).max()), self.units)
        return self.t * error + (skew * most / error**2 if error > 0.0 else 0.0)

    def estimate(self, edges: Sequence[float]) -> SurvivalEstimate:
        """Return the event-free probability at the last of ``edges``, and the curve up to there."""
        weight, weight_error, notes = self.weight()
        missing = max(1.0 - weight + self.t * weight_error, 0.0) if WEIGHTS_BELOW_ONE in notes else 0.0
        points = list(islice(self.points(missing), self.known_bins))
        last = points[-1] if points else CurvePoint(1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, np.zeros(len(self.shares)))
        if len(points) < self.bins:  # from there on it is only known that the curve does not rise
            most = min(last.high, 1.0)
            last = last._replace(value=most / 2.0, low=0.0, high=most, noise=max(last.noise, most / 2.0))
            points += [last] * (self.bins - len(points))
        curve = self._curve(edges, points)
        interval, notes = within_range(last.value, (last.low, last.high), (0.0, 1.0), notes)
        errors = last.noise, last.sampling, last.sampling_at_most
        return SurvivalEstimate(
            last.value, interval, *errors, weight, weight_error, last.most - last.least, notes, curve
        )

    @staticmethod
    def _curve(edges: Sequence[float], points: Sequence[CurvePoint]) -> tuple[tuple[float, float, float, float], ...]:
        """Return the curve, whose values do not rise; an interval that would miss its value is widened to hold it."""
        values = np.minimum.accumulate([point.value for point in points]).clip(0.0, 1.0).tolist()
        lows = [min(max(point.low, 0.0), value) for point, value in zip(points, values, strict=True)]
        highs = [max(min(point.high, 1.0), value) for point, value in zip(points, values, strict=True)]
        return tuple(zip(edges, values, lows, highs, strict=True))
