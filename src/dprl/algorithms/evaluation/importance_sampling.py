"""Importance-sampling values of target policies, with intervals, from one Gaussian release.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one (zero-out, where the
number of units is public). Released: one noised vector; values, variances and intervals are post-processing.
Proof and estimators: docs/proofs/importance-sampling.md. Per-decision weights: Precup, Sutton, Singh (2000).

Of each unit and target policy the vector holds a first part f (the weighted return, scaled to [-1, 1]) and a second
part q (its square, centred), clipped jointly over all policies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from dprl.algorithms.evaluation.ratios import cumulative_ratios, step_ratios
from dprl.algorithms.evaluation.strategy import least_noise_strategy
from dprl.algorithms.evaluation.unit_data import scale_of
from dprl.config import Config
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum, Mechanism
from dprl.protocols import NO_JOURNAL, Bounds, Journal, NoiseSource

Estimator = Literal["trajectory", "per-decision", "self-normalised"]
ESTIMATOR_NAMES = {
    "trajectory": "importance sampling",
    "per-decision": "per-decision importance sampling",
    "self-normalised": "self-normalised importance sampling",
}


@dataclass(frozen=True, kw_only=True)
class ImportanceSampling(Config):
    """Options of the importance-sampling release; public facts, all of them.

    Attributes:
        discount: gamma, in [0, 1].
        estimator: ``trajectory``, ``per-decision``, ``self-normalised``, or ``auto``: ``trajectory`` for logs of one
            decision or of the target policy itself, ``per-decision`` otherwise.
        square_scale: weight of the second part against the first: more of it makes the interval's width more exact
            and the value less. 0.6, the default, leaves 92% of mu^2 to the value (82% if self-normalised).
        confidence: nominal coverage of the intervals.
        caution: standard errors of its own noise by which the sampling variance is taken larger in the interval.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
    """

    discount: float = 0.99
    estimator: Literal["auto", "trajectory", "per-decision", "self-normalised"] = "auto"
    square_scale: float = 0.6
    confidence: float = 0.95
    caution: float = 0.5
    noise_multiplier: float | None = None

    algorithm: ClassVar[str] = "importance-sampling"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.discount <= 1.0:
            raise DprlError("importance-sampling: discount must be between 0 and 1.")
        if not 0.05 <= self.square_scale <= 1.0:
            raise DprlError("importance-sampling: square_scale must be between 0.05 and 1 (at most 20% of mu^2).")
        if self.estimator == "self-normalised" and self.square_scale > 0.6:
            raise DprlError("importance-sampling: square_scale is at most 0.6 if self-normalised (18% of mu^2).")
        if not 0.75 < 0.5 + self.confidence / 2.0 < 1.0:  # the quantile, as it is rounded
            raise DprlError("importance-sampling: confidence must be above 0.5 and below 1.")
        if not 0.0 <= self.caution <= 5.0:
            raise DprlError("importance-sampling: caution must be between 0 and 5.")
        if self.noise_multiplier is not None and not 0.0 < self.noise_multiplier < math.inf:
            raise DprlError("importance-sampling: noise_multiplier must be a positive finite number.")


@dataclass(frozen=True)
class Query:
    """What is asked of the units, made from public facts alone; it turns their noised sum back into values.

    Attributes:
        strategy: ``(K, K)`` matrix S over the target policies.
        clip_norm: L2 bound of a unit's vector, large enough for every pattern that the policies admit.
    """

    config: ImportanceSampling
    estimator: Estimator
    bounds: Bounds
    strategy: np.ndarray
    clip_norm: float

    @property
    def firsts(self) -> int:
        return 2 if self.estimator == "self-normalised" else 1

    @property
    def seconds(self) -> int:
        return 3 if self.estimator == "self-normalised" else 1

    @property
    def dimension(self) -> int:
        return len(self.strategy) * (self.firsts + self.seconds)


@dataclass(frozen=True)
class ValueEstimate:
    """A value and what is known of its error, all of it released."""

    value: float
    interval: tuple[float, float]
    privacy_standard_error: float
    sampling_standard_error: float


def make_query(config: ImportanceSampling, bounds: Bounds, patterns: np.ndarray) -> Query:
    """Choose estimator, strategy and clip norm from public facts."""
    if config.estimator == "auto":
        plain = bounds.horizon == 1 or bounds.cumulative_ratio == 1.0
        estimator: Estimator = "trajectory" if plain else "per-decision"
    else:
        estimator = config.estimator
    if estimator != "trajectory" and len(patterns) > 1:
        patterns = np.ones((1, patterns.shape[1]))  # centring moves every policy's coordinate: nothing is disjoint
    strategy = least_noise_strategy(patterns)
    clip = 0.0
    for scale in np.linspace(0.0, 1.0, 9):
        w = patterns * scale
        for g in (-1.0, 0.0, 1.0):
            if estimator == "per-decision":
                parts = [np.full_like(w, g), *_centred(estimator, [np.full_like(w, g)], config.square_scale)]
            elif estimator == "trajectory":
                parts = [w * g, *_centred(estimator, [w * g, w], config.square_scale)]
            else:
                parts = [w * g, w, *_centred(estimator, [w * g, w], config.square_scale)]
            vector = np.concatenate([p @ strategy.T for p in parts], axis=1)
            clip = max(clip, float(np.linalg.norm(vector, axis=1).max()))
    return Query(config, estimator, bounds, strategy, clip)


def _centred(estimator: Estimator, firsts: list[np.ndarray], scale: float) -> list[np.ndarray]:
    """The second parts. Centring uses that ratios have mean one, so that what is subtracted is known again later."""
    if estimator == "per-decision":
        (f,) = firsts
        return [scale * (f * f - 0.5)]
    u, w = firsts
    if estimator == "trajectory":
        return [scale * (u * u - 0.5 * w)]
    return [scale * (u * u - 0.5 * w), scale * u * w, scale * (w * w - w)]


def mechanism(query: Query, noise_multiplier: float) -> ClippedGaussianSum:
    """The one mechanism through which the trajectories are touched."""
    return ClippedGaussianSum(clip_norm=query.clip_norm, noise_multiplier=noise_multiplier, dimension=query.dimension)


def unit_vectors(query: Query, trajectories: Trajectories, policies: Sequence[Any], behavior: Any = None) -> np.ndarray:
    """``(U, dimension)`` vectors of the units, before they are clipped. Private."""
    firsts = [_firsts(query, trajectories, step_ratios(p, trajectories, behavior)) for p in policies]
    parts = [np.stack([f[i] for f in firsts], axis=1) for i in range(len(firsts[0]))]  # each (U, K)
    seconds = _centred(query.estimator, parts, query.config.square_scale)
    kept = parts if query.estimator != "trajectory" else parts[:1]
    vectors = np.concatenate([_transform(p, query.strategy) for p in (*kept, *seconds)], axis=1)
    # a centred second part of nothing is not zero
    usable = np.bincount(trajectories.unit_of_episode(), _sound(trajectories), minlength=trajectories.units) > 0.0
    return np.where(usable[:, None], vectors, 0.0)


def _transform(part: np.ndarray, strategy: np.ndarray) -> np.ndarray:
    """``part @ strategy.T`` one policy at a time: a matrix product may round a row differently beside other rows."""
    out = np.zeros_like(part)
    for k in range(part.shape[1]):
        out += part[:, k : k + 1] * strategy[:, k]
    return out


def _firsts(query: Query, trajectories: Trajectories, ratios: np.ndarray) -> list[np.ndarray]:
    """First parts ``(U,)`` of one policy: [f] (per-decision) or [w g, w]; a unit is the mean over its episodes."""
    bounds = query.bounds
    centre, half = scale_of(bounds.value_interval(query.config.discount))
    limit = bounds.cumulative_ratio
    discounted = query.config.discount ** trajectories.time() * trajectories.reward
    product = cumulative_ratios(ratios, trajectories)
    valid = _sound(trajectories)
    if query.estimator == "per-decision":
        low, high = _per_decision_range(query)
        middle, reach = scale_of((low, high))
        total = _per_episode(trajectories, product * discounted)
        return [_per_unit(trajectories, np.clip((total - middle) / reach, -1.0, 1.0) * valid)]
    w = np.zeros(trajectories.episodes)
    w[valid] = product[trajectories.episode_offsets[1:][valid] - 1] / limit
    g = np.clip((_per_episode(trajectories, discounted) - centre) / half, -1.0, 1.0)
    return [_per_unit(trajectories, w * g), _per_unit(trajectories, w)]


def _sound(trajectories: Trajectories) -> np.ndarray:
    """``(E,)`` episodes that contribute; one without transitions has no last ratio, and never that of another."""
    return trajectories.valid & (trajectories.lengths() > 0)


def _per_decision_range(query: Query) -> tuple[float, float]:
    low, high = query.bounds.value_interval(query.config.discount)
    limit = query.bounds.cumulative_ratio
    return (limit * min(low, 0.0) if limit > 1.0 else low), (limit * max(high, 0.0) if limit > 1.0 else high)


def _per_episode(trajectories: Trajectories, values: np.ndarray) -> np.ndarray:
    return np.bincount(trajectories.episode_of(), values, minlength=trajectories.episodes)


def _per_unit(trajectories: Trajectories, values: np.ndarray) -> np.ndarray:
    siblings = np.diff(trajectories.unit_offsets)
    return np.bincount(trajectories.unit_of_episode(), values, minlength=trajectories.units) / np.maximum(siblings, 1)


def release_vector(
    mechanism: Mechanism,
    noise: NoiseSource,
    vectors: np.ndarray,
    block: int = 1 << 16,
    journal: Journal = NO_JOURNAL,
) -> np.ndarray:
    """The noised sum ``(dimension,)`` of the units' vectors; one that ``journal`` holds is not computed."""

    def noised() -> Any:
        total = jnp.zeros(
            mechanism.dimension, dtype=jnp.int64 if isinstance(mechanism, ClippedGaussianSum) else jnp.float64
        )
        for start in range(0, len(vectors), block):
            part = vectors[start : start + block]
            total = total + mechanism.clipped_sum(jnp.asarray(part), jnp.ones(len(part), dtype=bool))
        return mechanism.noised(total, jnp.asarray(mechanism.draw(noise, 0)))

    return np.asarray(mechanism.scaled(jnp.asarray(journal.step(0, mechanism.dimension, noised))))


class _Moments(NamedTuple):
    """One policy's estimate and its errors, in units of ``reach`` but for the value."""

    value: float
    reach: float
    variance: float  # of one unit's contribution, as estimated
    most: float  # what that variance can be at most
    error: float  # standard deviation of the noise in `variance`
    privacy: float  # standard deviation of the noise in the value, in units of the reward


def _spread(query: Query, mechanism: Mechanism) -> np.ndarray:
    """``(K,)`` standard deviation of the noise in each policy's mean of first parts."""
    noise = mechanism.noise_std if isinstance(mechanism, ClippedGaussianSum) else 0.0
    return noise / query.bounds.units * np.sqrt(np.sum(np.linalg.inv(query.strategy) ** 2, axis=1))


def decode(query: Query, mechanism: Mechanism, noised: np.ndarray) -> list[ValueEstimate]:
    """Values and intervals of all target policies from the released vector: post-processing."""
    config, units, k = query.config, query.bounds.units, len(query.strategy)
    inverse = np.linalg.inv(query.strategy)
    parts = [inverse @ part / units for part in noised.reshape(query.firsts + query.seconds, k)]
    spread = _spread(query, mechanism)
    normalised = query.estimator == "self-normalised"
    z = NormalDist().inv_cdf(0.5 + config.confidence / 2.0)
    out = []
    for p in range(k):
        found = (_ratio_of_means if normalised else _mean)(query, [float(part[p]) for part in parts], float(spread[p]))
        variance = max(found.variance, 0.0)
        sampling = found.reach * math.sqrt(min(variance, found.most) / units)
        cautious = found.reach**2 * min(variance + config.caution * found.error, found.most) / units
        width = z * math.sqrt(cautious + found.privacy**2)
        out.append(ValueEstimate(found.value, (found.value - width, found.value + width), found.privacy, sampling))
    return out


def _mean(query: Query, part: list[float], spread: float) -> _Moments:
    """A plain mean of first parts."""
    scale, limit = query.config.square_scale, query.bounds.cumulative_ratio
    if query.estimator == "trajectory":
        offset, half = scale_of(query.bounds.value_interval(query.config.discount))
        reach, back = limit * half, 0.5 / limit
    else:
        (offset, reach), back = scale_of(_per_decision_range(query)), 0.5
    mean, second = part[0], part[1] / scale + back
    # the noise in the mean biases its square; both noises enter the variance, the mean's through 2 |mean|
    variance = second - mean**2 + spread**2
    error = math.hypot(spread / scale, 2.0 * min(abs(mean), 1.0) * spread)
    return _Moments(offset + reach * mean, reach, variance, 1.0, error, reach * spread)


def _ratio_of_means(query: Query, part: list[float], spread: float) -> _Moments:
    """Self-normalised: sum(w g) / sum(w), and its variance by linearisation."""
    scale, limit = query.config.square_scale, query.bounds.cumulative_ratio
    centre, half = scale_of(query.bounds.value_interval(query.config.discount))
    # the mean weight is known to be 1 / limit; far below that the ratio would be noise over noise
    u, w = part[0], max(part[1], 0.25 / limit)
    ratio = min(max(u / w, -1.0), 1.0)
    uu, uw, ww = part[2] / scale + 0.5 / limit, part[3] / scale, part[4] / scale + 1.0 / limit
    variance = (uu - 2.0 * ratio * uw + ratio**2 * ww) / w**2
    error = math.sqrt(1.0 + 4.0 * ratio**2 + ratio**4) * spread / scale / w**2
    # E w^2 (g - ratio)^2 is at most 4 E w
    return _Moments(centre + half * ratio, half, variance, 4.0 / w, error, half / w * spread * math.hypot(1.0, ratio))


def expect(query: Query, mechanism: Mechanism) -> list[tuple[float, float, float]]:
    """What the errors will be, from public facts alone.

    Returns:
        Of each target policy: the privacy standard error (for a self-normalised value, the largest), the largest
        sampling standard error that the bounds allow, and the half-width of the interval at that error.
    """
    config, bounds, limit = query.config, query.bounds, query.bounds.cumulative_ratio
    low, high = bounds.value_interval(config.discount)
    z = NormalDist().inv_cdf(0.5 + config.confidence / 2.0)
    out = []
    for spread in map(float, _spread(query, mechanism)):
        if query.estimator == "self-normalised":
            found = _ratio_of_means(query, [1.0 / limit, 1.0 / limit, 0.0, 0.0, 0.0], spread)
            variance = found.most
        else:
            found = _mean(query, [1.0, 0.0], spread)
            if query.estimator == "trajectory":
                variance = 1.0 / limit  # E (w g)^2 <= E w
            else:
                least, most = _per_decision_range(query)
                means = np.clip([(least + most) / 2.0, low, high], low, high)
                variance = float(np.max((most - means) * (means - least))) / found.reach**2
        sampling = found.reach * math.sqrt(variance / bounds.units)
        cautious = found.reach * math.sqrt(min(variance + config.caution * found.error, found.most) / bounds.units)
        out.append((found.privacy, sampling, z * math.hypot(cautious, found.privacy)))
    return out
