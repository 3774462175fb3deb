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
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from dprl.algorithms.evaluation.gpope import check_discount
from dprl.algorithms.evaluation.ratios import cumulative_ratios, step_ratios
from dprl.algorithms.evaluation.strategy import least_noise_strategy
from dprl.algorithms.evaluation.unit_data import scale_of
from dprl.config import Config
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum, Mechanism
from dprl.protocols import Bounds, NoiseSource

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
            and the value less. 0.6 leaves 92% of mu^2 to the value.
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

    def __post_init__(self) -> None:
        check_discount(self.discount)
        if not 0.05 <= self.square_scale <= 1.0:
            raise DprlError("importance-sampling: square_scale must be between 0.05 and 1 (at most 20% of mu^2).")
        if not 0.5 < self.confidence < 1.0:
            raise DprlError("importance-sampling: confidence must be above 0.5 and below 1.")
        if not 0.0 <= self.caution <= 5.0:
            raise DprlError("importance-sampling: caution must be between 0 and 5.")


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
    return np.concatenate([_transform(p, query.strategy) for p in (*kept, *seconds)], axis=1)


def _transform(part: np.ndarray, strategy: np.ndarray) -> np.ndarray:
    """``part @ strategy.T`` one policy at a time: a matrix product may round a row differently beside other rows."""
    out = np.zeros_like(part)
    for k in range(part.shape[1]):
        out += part[:, k : k + 1] * strategy[:, k]
    return out


def _firsts(query: Query, trajectories: Trajectories, ratios: np.ndarray) -> list[np.ndarray]:
    """First parts ``(U,)`` of one policy: [f] (per-decision) or [w g, w]; a unit is the mean over its episodes."""
    bounds = trajectories.bounds
    centre, half = scale_of(bounds.value_interval(query.config.discount))
    limit = bounds.cumulative_ratio
    discounted = query.config.discount ** trajectories.time() * trajectories.reward
    product = cumulative_ratios(ratios, trajectories)
    valid = trajectories.valid
    if query.estimator == "per-decision":
        low, high = _per_decision_range(query)
        middle, reach = scale_of((low, high))
        total = _per_episode(trajectories, product * discounted)
        return [_per_unit(trajectories, np.clip((total - middle) / reach, -1.0, 1.0) * valid)]
    last = trajectories.episode_offsets[1:] - 1
    w = product[last] / limit * valid if len(last) else np.zeros(0)
    g = np.clip((_per_episode(trajectories, discounted) - centre) / half, -1.0, 1.0)
    return [_per_unit(trajectories, w * g), _per_unit(trajectories, w)]


def _per_decision_range(query: Query) -> tuple[float, float]:
    low, high = query.bounds.value_interval(query.config.discount)
    limit = query.bounds.cumulative_ratio
    return (limit * min(low, 0.0) if limit > 1.0 else low), (limit * max(high, 0.0) if limit > 1.0 else high)


def _per_episode(trajectories: Trajectories, values: np.ndarray) -> np.ndarray:
    return np.bincount(trajectories.episode_of(), values, minlength=trajectories.episodes)


def _per_unit(trajectories: Trajectories, values: np.ndarray) -> np.ndarray:
    siblings = np.diff(trajectories.unit_offsets)
    return np.bincount(trajectories.unit_of_episode(), values, minlength=trajectories.units) / np.maximum(siblings, 1)


def release_vector(mechanism: Mechanism, noise: NoiseSource, vectors: np.ndarray, block: int = 1 << 16) -> np.ndarray:
    """The noised sum ``(dimension,)`` of the units' vectors."""
    total = jnp.zeros(
        mechanism.dimension, dtype=jnp.int64 if isinstance(mechanism, ClippedGaussianSum) else jnp.float64
    )
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block]
        total = total + mechanism.clipped_sum(jnp.asarray(part), jnp.ones(len(part), dtype=bool))
    return np.asarray(mechanism.release(total, jnp.asarray(mechanism.draw(noise, 0))))


def decode(query: Query, mechanism: Mechanism, noised: np.ndarray) -> list[ValueEstimate]:
    """Values and intervals of all target policies from the released vector: post-processing."""
    config, units, k = query.config, query.bounds.units, len(query.strategy)
    inverse = np.linalg.inv(query.strategy)
    parts = [inverse @ part / units for part in noised.reshape(query.firsts + query.seconds, k)]
    noise = (mechanism.noise_std if isinstance(mechanism, ClippedGaussianSum) else 0.0) / units
    # standard deviation of the noise in each policy's mean, and of its (unscaled) second moments
    spread = noise * np.sqrt(np.sum(inverse**2, axis=1))
    limit = query.bounds.cumulative_ratio
    scale = config.square_scale
    centre, half = scale_of(query.bounds.value_interval(config.discount))
    z = NormalDist().inv_cdf(0.5 + config.confidence / 2.0)
    out = []
    for p in range(k):
        if query.estimator == "self-normalised":
            estimate = _self_normalised([part[p] for part in parts], spread[p], scale, limit, centre, half)
        else:
            if query.estimator == "trajectory":
                offset, reach, back = centre, limit * half, 0.5 / limit
            else:
                (offset, reach), back = scale_of(_per_decision_range(query)), 0.5
            mean, second = parts[0][p], parts[1][p] / scale + back
            variance = second - mean**2 + spread[p] ** 2
            # both noises enter the variance; the mean's through 2 |mean|
            error = math.hypot(spread[p] / scale, 2.0 * min(abs(mean), 1.0) * spread[p])
            estimate = (offset + reach * mean, reach, variance, error, reach * spread[p])
        value, reach, variance, error, privacy = estimate
        sampling = reach * math.sqrt(min(max(variance, 0.0), 1.0) / units)
        cautious = reach**2 * min(max(variance, 0.0) + config.caution * error, 1.0) / units
        width = z * math.sqrt(cautious + privacy**2)
        ends = (float(value - width), float(value + width))
        out.append(ValueEstimate(float(value), ends, float(privacy), sampling))
    return out


def _self_normalised(
    part: list[float], spread: float, scale: float, limit: float, centre: float, half: float
) -> tuple[float, float, float, float, float]:
    """Ratio estimate sum(w g) / sum(w), and its variance by linearisation."""
    u, w = part[0], part[1]
    # the mean weight is known to be 1 / limit; far below that the ratio would be noise over noise
    w = max(w, 0.25 / limit)
    ratio = min(max(u / w, -1.0), 1.0)
    uu, uw, ww = part[2] / scale + 0.5 / limit, part[3] / scale, part[4] / scale + 1.0 / limit
    variance = (uu - 2.0 * ratio * uw + ratio**2 * ww) / w**2
    weights = math.sqrt(1.0 + 4.0 * ratio**2 + ratio**4)
    privacy = half / w * spread * math.sqrt(1.0 + ratio**2)
    return centre + half * ratio, half, variance, spread * weights / scale / w**2, privacy
