"""A value function that is a small neural network: one hidden layer of exponential linear units.

Code that saves, loads, plots or calls a value function can treat the network as any other feature map: it has public
facts, and is a function of states and weights. Paper 000, appendix G, has 50 such units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dprl.errors import DprlError
from dprl.value_functions.feature_map import Features

MAX_WEIGHTS = 2**20
_POINTS, _CHUNK = 4096, 128


class Weights(NamedTuple):
    """Weights by layer: those of the hidden units, and those of the output."""

    W: Any  # (H, k)
    b: Any  # (H,)
    w: Any  # (H,)
    c: Any  # ()


@dataclass(frozen=True)
class MLP(Features):
    """Network ``c + elu(g x W' + b) w / sqrt(H)``, with the components x mapped to [-1, 1] by their bounds.

    The gain is g = min(4, 8 / sqrt(k)). With it, the hidden units at the start bend within the bounds for any number k
    of components. With the square root of H, the norm of the gradient does not grow with the width.

    Attributes:
        hidden: H, the number of hidden units.
    """

    hidden: int = 50

    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise DprlError("mlp:HIDDEN needs at least one hidden unit.")
        if self.size > MAX_WEIGHTS:
            raise DprlError(f"mlp:{self.hidden} has more than {MAX_WEIGHTS} weights here: choose fewer hidden units.")

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the network on the command line."""
        return f"mlp:{self.hidden}"

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.hidden * (len(self.bounds) + 2) + 1

    @property
    def row_size(self) -> int:
        """Number of features in a row: 0."""
        return 0

    @property
    def gain(self) -> float:
        """Gain of the inputs."""
        return min(4.0, 8.0 / math.sqrt(len(self.bounds)))

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return an empty array ``(N, 0)``, because values are not products with features of a state."""
        return xp.zeros((states.shape[0], 0), dtype=states.dtype)

    def split(self, theta: Any) -> Weights:
        """Return weights ``(size,)`` by layer.

        In order they are the hidden units' rows, their biases, the output's weights and its bias.
        """
        H, k = self.hidden, len(self.bounds)
        end = H * k
        return Weights(theta[:end].reshape(H, k), theta[end : end + H], theta[end + H : end + 2 * H], theta[-1])

    def join(self, weights: Weights) -> np.ndarray:
        """Return the weights ``(size,)`` from weights by layer, the inverse of :meth:`split`."""
        return np.concatenate([np.ravel(layer) for layer in weights])

    def values_of(self, weights: Weights, states: Any, xp: Any = np) -> Any:
        """Return the values ``(N,)`` at ``states`` ``(N, d)``."""
        W, b, w, c = weights
        x = 2.0 * self.unit_scale(states, xp) - 1.0
        return c + _elu(self.gain * (x @ W.T) + b, xp) @ w / math.sqrt(self.hidden)

    def constant(self) -> np.ndarray:
        """Return ``(size,)`` weights of the function 1: all are zero except the output's bias."""
        return np.append(np.zeros(self.size - 1), 1.0)

    def start(self, level: float = 0.0) -> np.ndarray:
        """Return ``(size,)`` float32 weights of a function that is exactly ``level``, but has different gradients.

        The gradients differ between states. Hidden units come in pairs that differ only in the sign of their output
        weight, plus or minus 1/2; a unit that is left over has output weight 0. A fixed formula spreads the other
        weights over [-1, 1].
        """
        H, k = self.hidden, len(self.bounds)
        spread = np.repeat(2.0 * _uniform((-(-H // 2), k + 1), 0) - 1.0, 2, axis=0)[:H]
        w = np.where(np.arange(H) % 2 == 0, 0.5, -0.5)
        if H % 2:
            w[-1] = 0.0
        weights = Weights(spread[:, :k], spread[:, k], w, np.float64(level))
        return self.join(weights).astype(np.float32)

    def random_start(self, seed: int) -> np.ndarray:
        """Return ``(size,)`` float32 weights drawn as by Glorot and Bengio (2010): uniform, with zero biases."""
        H, k = self.hidden, len(self.bounds)
        draws = 2.0 * _uniform((H * (k + 1),), seed + 1) - 1.0
        W = math.sqrt(6.0 / (H + k)) * draws[: H * k].reshape(H, k)
        w = math.sqrt(6.0 / (H + 1)) * draws[H * k :]
        return self.join(Weights(W, np.zeros(H), w, np.float64(0.0))).astype(np.float32)

    def mean_gradient_square(self) -> float:
        """Return the mean square norm of the gradient by weights at the start, over uniformly distributed states."""
        W, b, w, _ = self.split(self.start().astype(np.float64))
        points = 2.0 * _uniform((_POINTS, len(self.bounds)), 1) - 1.0
        total = 0.0
        for start in range(0, _POINTS, _CHUNK):
            x = points[start : start + _CHUNK]
            a = self.gain * (x @ W.T) + b
            inputs = 1.0 + self.gain**2 * np.sum(x * x, axis=1)  # squared inputs of a hidden unit's bias and weights
            slopes = np.where(a > 0.0, 1.0, np.exp(np.minimum(a, 0.0))) * w
            total += np.sum(np.sum(_elu(a, np) ** 2, axis=1) + inputs * np.sum(slopes**2, axis=1))
        return float(1.0 + total / (_POINTS * self.hidden))


def _elu(a: Any, xp: Any) -> Any:
    return xp.where(a > 0.0, a, xp.expm1(xp.minimum(a, 0.0)))


def _uniform(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return numbers in [0, 1) from a counter, the same on every machine (SplitMix64: Steele, Lea and Flood 2014)."""
    count = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
    z = (count + np.array([seed], dtype=np.uint64) * np.uint64(2**40)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)
