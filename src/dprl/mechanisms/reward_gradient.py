"""Noise on the only part of a semi-gradient in which rewards occur: the mean of reward times clipped features.

Privacy unit: the reward function; neighbours: two whose rewards never differ by more than the radius R. All rewards of
a batch may differ, so the sensitivity of the mean is R C, not R C / B. Proof: docs/proofs/reward-gradient.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.rows import GRADIENTS, GradientRow, written
from dprl.errors import DprlError
from dprl.mechanisms.answers import check_bounds, check_multiplier, check_rounds
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.reward_noise import draw_all
from dprl.protocols import Interval

MAX_FEATURES = 2**16
_ROUNDING = 2.0**-20  # relative: of the sum in float64, and of the mean to the grid
_LARGEST_RATIO = 2.0**30  # of (B + 4) times half the range of a reward to its radius
_SLACK = 1.0 - 2.0**-30


@dataclass(frozen=True, kw_only=True)
class RewardGradient:
    """``steps`` noised means of reward times clipped features.

    Attributes:
        radius: R, largest difference between the rewards of two neighbours.
        clip_norm: C, largest L2 norm of the features of a transition.
        dimension: number of features.
        steps: noised means; each needs rewards of its own, see the proof.
        batch: rewards of one of them, B.
        reward_bounds: public bounds; rewards outside are moved to them.
        noise_multiplier: standard deviation of the noise in each coordinate over :attr:`sensitivity`.
    """

    radius: float
    clip_norm: float
    dimension: int
    steps: int
    batch: int
    reward_bounds: Interval
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_multiplier(self.noise_multiplier)
        check_bounds(self.reward_bounds)
        for bound in (self.radius, self.clip_norm, self.sensitivity):
            grid_step(bound)  # refuses what is out of range
        if not 1 <= self.dimension <= MAX_FEATURES:
            raise DprlError(f"A noised gradient has between 1 and {MAX_FEATURES} coordinates.")
        check_rounds(self.steps, self.batch)
        low, high = self.reward_bounds
        if (self.batch + 4) * 0.5 * (high - low) > _LARGEST_RATIO * self.radius:
            raise DprlError("The bounds of the reward are too wide for so small a radius.")

    @property
    def sensitivity(self) -> float:
        """``R C``, and a millionth for what floating-point sums and the grid can add."""
        return self.radius * self.clip_norm * (1.0 + _ROUNDING)

    @property
    def std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean."""
        return self.noise_multiplier * self.sensitivity

    @property
    def grid_step(self) -> float:
        return grid_step(self.sensitivity)

    def event(self) -> events.DpEvent:
        return events.poisson_gaussian(1.0, self.noise_multiplier, self.steps)

    def delta(self, epsilon: float) -> float:
        """What the sampler's error adds to delta."""
        return events.sampler_delta(epsilon, self.steps * self.dimension)

    def describe(self, purpose: str) -> dict[str, Any]:
        """This mechanism as a row of a certificate."""
        return written(GradientRow, self, name=GRADIENTS, purpose=purpose)

    def clip(self, features: Any) -> jax.Array:
        """``(B, d)`` float64 features of norm at most C; a row that is not finite becomes zero."""
        return _clipped(features, self.clip_norm)

    def bind(self, noise: SecureNoise | SeededNoise) -> GradientAnswers:
        """What answers with this noise, a stream of its own: all of it is drawn here."""
        low, high = self.reward_bounds
        return GradientAnswers(
            draws=draw_all(noise, self.steps, self.dimension, self.std / self.grid_step),
            step=jnp.float64(self.grid_step),
            low=jnp.float64(low),
            high=jnp.float64(high),
            clip_norm=jnp.float64(self.clip_norm),
        )


def _clipped(features: Any, clip_norm: Any) -> jax.Array:
    x = jnp.asarray(features, dtype=jnp.float64)
    norm = jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True))
    finite = jnp.isfinite(norm)
    factor = jnp.minimum(1.0, clip_norm * _SLACK / norm)
    return jnp.where(finite, x, 0.0) * jnp.where(finite, factor, 0.0)


@dataclass(frozen=True)
class GradientAnswers:
    """Noised means, each with a draw of its own. A step asked twice gets the same draw: never ask one twice.

    Attributes:
        draws: ``(steps, d)`` int64 grid points.
        step: the grid.
        low, high: rewards are moved into these bounds first.
        clip_norm: C.
    """

    draws: Any = field(repr=False)
    step: Any
    low: Any
    high: Any
    clip_norm: Any

    @property
    def centre(self) -> Any:
        """What is taken off a reward: the middle of its bounds."""
        return 0.5 * (self.low + self.high)

    def clip(self, features: Any) -> jax.Array:
        """As :meth:`RewardGradient.clip`."""
        return _clipped(features, self.clip_norm)

    # compiled where it is called by itself
    @partial(jax.jit, inline=True)
    def noised_mean(self, rewards: Any, features: Any, step: Any) -> jax.Array:
        """The noised mean of ``(reward - centre) * features``.

        Args:
            rewards: ``(B,)`` fresh ones, float64; not a number counts as the lower bound.
            features: ``(B, d)``; what is longer than C is clipped.
            step: number of the mean; may be traced.

        Returns:
            ``(d,)`` float64.
        """
        rewards, clipped = jnp.asarray(rewards, dtype=jnp.float64), self.clip(features)
        bounded = jnp.clip(jnp.where(jnp.isnan(rewards), self.low, rewards), self.low, self.high)
        mean = jnp.sum((bounded - self.centre)[:, None] * clipped, axis=0) / clipped.shape[0]
        points = jnp.round(mean / self.step).astype(jnp.int64)
        return (points + jnp.asarray(self.draws)[step]).astype(jnp.float64) * self.step


jax.tree_util.register_dataclass(
    GradientAnswers, data_fields=["draws", "step", "low", "high", "clip_norm"], meta_fields=[]
)
