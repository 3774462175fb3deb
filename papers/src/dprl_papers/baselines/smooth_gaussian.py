"""Gaussian noise on a finished answer, scaled by smooth or global sensitivity: for experiments; it certifies nothing.

Paper: Nissim, Raskhodnikova and Smith (2007), "Smooth sensitivity and sampling in private data analysis", Lemma 2.6;
used by Balle, Gomrokchi and Precup (2016), "Differentially private policy evaluation". docs/papers/balle-2016.md has
the derivation, the true privacy cost of the noise, and the reasons why :meth:`SmoothGaussian.event` refuses.

Privacy unit and relation: those of the sensitivity that the caller passes. Released: nothing, in this library.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from dprl.errors import DprlError

# A draw is an integer multiple of its standard deviation over this number.
_PARTS = 2.0**32
# The density of the first coordinate is integrated up to this many standard deviations; 1e-33 lies beyond.
_REACH, _PANELS, _NODES = 12.0, 100, 20
# Number of scales from one extreme to the other at which the divergence is evaluated.
_SCALES = 9


@dataclass(frozen=True, kw_only=True)
class SmoothGaussian:
    """Noise ``S / alpha`` in each coordinate, for an S that bounds the local sensitivity and changes slowly.

    The published algorithms take S = sqrt(psi), where psi changes by at most a factor ``exp(beta)`` from a dataset to
    its neighbour. So S changes by at most ``exp(beta / 2)``, and :attr:`true_epsilon` is computed for this bound.

    Attributes:
        epsilon, delta: the claimed budget.
        dimension: length of the answer, at least 2.
        calibration: ``published`` takes the lemma's alpha. ``exact`` takes the largest alpha for which the two-sided
            divergence of :func:`smooth_delta` stays at ``delta``; it serves comparisons at an equal true guarantee.
    """

    epsilon: float
    delta: float
    dimension: int
    calibration: Literal["published", "exact"] = "published"

    def __post_init__(self) -> None:
        _check(self.epsilon, self.delta, self.dimension)

    @property
    def beta(self) -> float:
        """``epsilon / (4 (d + ln(2/delta)))``: the smoothness that psi must have."""
        return self.epsilon / (4.0 * (self.dimension + math.log(2.0 / self.delta)))

    @property
    def alpha(self) -> float:
        """S over the standard deviation of the noise; as published, ``epsilon / (5 sqrt(2 ln(2/delta)))``."""
        if self.calibration == "published":
            return self.epsilon / (5.0 * math.sqrt(2.0 * math.log(2.0 / self.delta)))
        return _largest_alpha(self.epsilon, self.delta, self.dimension, self.beta / 2.0)

    @property
    def noise_over_bound(self) -> float:
        """Standard deviation of a coordinate's noise over S."""
        return 1.0 / self.alpha

    @property
    def true_epsilon(self) -> float:
        """Epsilon that this noise really has at :attr:`delta`; :func:`smooth_delta` says what is proved about it."""
        return smooth_epsilon(self.delta, self.dimension, self.alpha, self.beta / 2.0)

    def event(self) -> NoReturn:
        """Refuse: the scale of the noise depends on the data, and no accountant composes that."""
        raise DprlError(
            "Noise scaled by smooth sensitivity has no privacy event: its scale depends on the data, it is drawn in "
            "floating point, and its worst case is searched rather than proved; it cannot be released."
        )

    def add_noise(self, answer: Any, bound: float, noise: Any, step: int = 0) -> np.ndarray:
        """Return the answer with noise added.

        Args:
            answer: answer without noise, ``(dimension,)``.
            bound: S, in the unit of the answer. It depends on the data: never print it or the noise's scale.
            noise: a reproducible noise source.
            step: number of the draw.

        Returns:
            ``(dimension,)`` float64.
        """
        return _noisy(answer, bound / self.alpha, self.dimension, noise, step)


@dataclass(frozen=True, kw_only=True)
class OutputGaussian:
    """Noise ``noise_multiplier * sensitivity`` in each coordinate, for a sensitivity that holds for all data.

    Attributes:
        sensitivity: largest L2 change of the answer between neighbours, computed only from public facts.
        noise_multiplier: standard deviation over sensitivity, for one Gaussian release.
        dimension: length of the answer.
    """

    sensitivity: float
    noise_multiplier: float
    dimension: int

    def __post_init__(self) -> None:
        if not all(math.isfinite(x) and x > 0.0 for x in (self.sensitivity, self.noise_multiplier)):
            raise DprlError("The sensitivity and the noise multiplier must be positive finite numbers.")

    @property
    def noise_std(self) -> float:
        return self.noise_multiplier * self.sensitivity

    def event(self) -> NoReturn:
        """Refuse: in exact arithmetic this is a Gaussian release, but answer and noise are floating point here."""
        raise DprlError(
            "Noise added to a floating-point answer has no privacy event here: neither the error of the solve nor "
            "that of the sum is bounded; use the first-visit algorithm, whose sums lie on an integer grid."
        )

    def add_noise(self, answer: Any, noise: Any, step: int = 0) -> np.ndarray:
        """Return the answer with noise added, ``(dimension,)`` float64; see :meth:`SmoothGaussian.add_noise`."""
        return _noisy(answer, self.noise_std, self.dimension, noise, step)


def _noisy(answer: Any, std: float, dimension: int, noise: Any, step: int) -> np.ndarray:
    if noise.secure:
        raise DprlError("Noise on a floating-point answer protects no release; it takes reproducible noise only.")
    answer = np.asarray(answer, dtype=np.float64)
    if answer.shape != (dimension,):
        raise DprlError(f"The answer must have shape ({dimension},).")
    draw = np.asarray(noise.gaussian(step, dimension, _PARTS), dtype=np.float64)
    return answer + draw * (std / _PARTS)


def smooth_delta(epsilon: float, dimension: int, alpha: float, smoothness: float) -> float:
    """Return the delta at ``epsilon`` of noise S / alpha, if ln S moves by at most ``smoothness`` between neighbours.

    Take the noise of one dataset as the unit. Then the noise of its neighbour is ``s = S'/S`` times as wide, and the
    answers are at most ``alpha min(1, s)`` apart, since either S bounds the change. For each s the divergence grows
    with the distance: it is one minus an integral of volumes common to two balls, which shrink as the centres part. So
    the distance is set to its largest value, and s is searched on a grid from ``exp(-smoothness)`` to
    ``exp(smoothness)``. This covers both directions of the divergence, because exchanging the datasets turns s into
    1/s.
    """
    scales = np.exp(smoothness * np.linspace(-1.0, 1.0, _SCALES)) if smoothness > 0.0 else np.ones(1)
    return max(_hockey_stick(dimension, alpha * min(1.0, float(s)), float(s), epsilon) for s in scales)


@functools.lru_cache(maxsize=256)
def smooth_epsilon(delta: float, dimension: int, alpha: float, smoothness: float) -> float:
    """Return the smallest epsilon at which :func:`smooth_delta` is at most ``delta``, to 1e-9.

    >>> round(smooth_epsilon(1e-5, 1, 1.0, 0.0), 3)
    4.377
    """
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return smooth_delta(epsilon, dimension, alpha, smoothness) - delta

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
        if high > 700.0:
            return math.inf
    return float(brentq(excess, 0.0, high, xtol=1e-9))  # pyright: ignore[reportArgumentType]


@functools.lru_cache(maxsize=256)
def _largest_alpha(epsilon: float, delta: float, dimension: int, smoothness: float) -> float:
    from scipy.optimize import brentq

    def excess(alpha: float) -> float:
        return smooth_delta(epsilon, dimension, alpha, smoothness) - delta

    low, high = 1e-6 * epsilon, 1e-6 * epsilon
    if excess(low) > 0.0:
        raise DprlError("No amount of noise of this smoothness has the guarantee asked for.")
    while excess(high) <= 0.0:
        low, high = high, 4.0 * high
    return float(brentq(excess, low, high, rtol=1e-9))  # pyright: ignore[reportArgumentType]


def _hockey_stick(dimension: int, shift: float, scale: float, epsilon: float) -> float:
    """Return ``P(loss > epsilon) - e^epsilon Q(loss > epsilon)`` for P = N(0, I) and Q = N(shift e_1, scale^2 I).

    The loss is a function of the first coordinate and of the squared length of the others, which is chi-square.
    """
    from scipy.special import gammainc, gammaincc, ndtr

    if abs(scale - 1.0) < 1e-12:
        if shift == 0.0:
            return 0.0
        return float(ndtr(shift / 2.0 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2.0 - epsilon / shift))
    nodes, weights = _legendre()
    first = (_REACH + shift / 2.0) * nodes + shift / 2.0
    weights = (_REACH + shift / 2.0) * weights
    curvature = (1.0 / scale**2 - 1.0) / 2.0
    off_axis = -(first**2) / 2.0 + (first - shift) ** 2 / (2.0 * scale**2) + dimension * math.log(scale)
    bound = (epsilon - off_axis) / curvature  # the loss exceeds epsilon where curvature * rest > curvature * bound
    p = np.exp(-(first**2) / 2.0) / math.sqrt(2.0 * math.pi)
    q = np.exp(-(((first - shift) / scale) ** 2) / 2.0) / (scale * math.sqrt(2.0 * math.pi))
    rest, half = np.maximum(bound, 0.0), (dimension - 1) / 2.0
    if curvature > 0.0:
        p_rest, q_rest = gammaincc(half, rest / 2.0), gammaincc(half, rest / 2.0 / scale**2)
    else:
        p_rest, q_rest = gammainc(half, rest / 2.0), gammainc(half, rest / 2.0 / scale**2)
    return max(0.0, float(np.sum(weights * (p * p_rest - math.exp(epsilon) * q * q_rest))))


@functools.lru_cache(maxsize=1)
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on [-1, 1] in equal panels; a single rule of the same total order is slow to make."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    middles = (2.0 * np.arange(_PANELS) + 1.0) / _PANELS - 1.0
    return (middles[:, None] + nodes / _PANELS).ravel(), np.tile(weights / _PANELS, _PANELS)


def _check(epsilon: float, delta: float, dimension: int) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0.0 and 0.0 < delta < 1.0 and dimension >= 2):
        raise DprlError(
            "Smooth sensitivity needs an epsilon above 0, a delta between 0 and 1, and at least two coordinates."
        )
