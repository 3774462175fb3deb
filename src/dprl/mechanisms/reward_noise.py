"""Noise on every reward that is observed; whatever is learned from the noised ones, how often, costs nothing more.

Privacy unit: the reward function; neighbours: two whose rewards never differ by more than the radius. Released: every
noised reward. Proof: docs/proofs/observed-reward.md. Input perturbation: Venkitasubramaniam (2013), "Privacy in
stochastic control: a Markov decision process perspective".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.rows import REWARDS, RewardRow, written
from dprl.errors import DprlError
from dprl.mechanisms.answers import check_bounds, check_multiplier, check_rounds
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.protocols import Interval

_LARGEST_POINT = 2.0**61  # of a reward: it and any noise still add up in int64


@dataclass(frozen=True, kw_only=True)
class RewardNoise:
    """``steps`` rewards, each with Gaussian noise of its own.

    Attributes:
        radius: R, largest difference between the rewards of two neighbours.
        steps: rewards that are noised (and kept, where answers are memoised) in all.
        batch: rewards of one round.
        reward_bounds: public bounds; rewards outside are moved to them.
        noise_multiplier: standard deviation of the noise over :attr:`sensitivity`.
    """

    radius: float
    steps: int
    batch: int
    reward_bounds: Interval
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_multiplier(self.noise_multiplier)
        check_bounds(self.reward_bounds)
        check_rounds(self.steps, self.batch)
        if max(abs(x) for x in self.reward_bounds) > _LARGEST_POINT * grid_step(self.radius):
            raise DprlError("The bounds of the reward are too wide for so small a radius.")

    @property
    def sensitivity(self) -> float:
        """R, rounded up to a whole number of grid points."""
        step = grid_step(self.radius)
        return math.ceil(self.radius / step) * step

    @property
    def std(self) -> float:
        """Standard deviation of the noise in a reward."""
        return self.noise_multiplier * self.sensitivity

    def event(self) -> events.DpEvent:
        return events.poisson_gaussian(1.0, self.noise_multiplier, self.steps)

    def delta(self, epsilon: float) -> float:
        """What the sampler's error adds to delta."""
        return events.sampler_delta(epsilon, self.steps)

    def describe(self, purpose: str) -> dict[str, Any]:
        """This mechanism as a row of a certificate."""
        return written(RewardRow, self, name=REWARDS, purpose=purpose, grid_step=grid_step(self.radius), dimension=1)

    def bind(self, noise: SecureNoise | SeededNoise, rounds: int | None = None) -> DrawnAnswers:
        """What answers with this noise, a stream of its own: all of it is drawn here.

        Args:
            rounds: how many; as many as ``steps`` fill, unless memoised answers need more rounds than that.
        """
        rounds = -(-self.steps // self.batch) if rounds is None else rounds
        step = grid_step(self.radius)
        low, high = self.reward_bounds
        return DrawnAnswers(
            draws=draw_all(noise, rounds, self.batch, self.std / step),
            step=jnp.float64(step),
            low=jnp.float64(low),
            high=jnp.float64(high),
        )


def draw_all(noise: SecureNoise | SeededNoise, steps: int, dimension: int, std: float) -> jax.Array:
    """``(steps, dimension)`` int64 grid points of noise: row i is the draw of step i."""
    if isinstance(noise, SecureNoise):
        return jnp.asarray(noise.block(0, steps, dimension, std))
    return jax.vmap(lambda i: noise.gaussian(i, dimension, std))(jnp.arange(steps, dtype=jnp.uint32))


@dataclass(frozen=True)
class DrawnAnswers:
    """Noised rewards, each with a draw of its own. A round asked twice gets the same draws: never ask one twice.

    Attributes:
        draws: ``(rounds, B)`` int64 grid points.
        step: the grid.
        low, high: rewards are moved into these bounds first.
    """

    draws: Any = field(repr=False)
    step: Any
    low: Any
    high: Any

    # compiled where it is called by itself
    @partial(jax.jit, inline=True)
    def noised(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> jax.Array:
        """What may be learned from; positions and actions are not used.

        A reward that is not a number counts as the lower bound.

        Args:
            rewards: ``(B,)`` float64.
            round_: number of the round; may be traced.

        Returns:
            ``(B,)`` float64.
        """
        rewards = jnp.asarray(rewards, dtype=jnp.float64)
        bounded = jnp.clip(jnp.where(jnp.isnan(rewards), self.low, rewards), self.low, self.high)
        points = jnp.floor(bounded / self.step).astype(jnp.int64)
        return (points + jnp.asarray(self.draws)[round_]).astype(jnp.float64) * self.step


jax.tree_util.register_dataclass(DrawnAnswers, data_fields=["draws", "step", "low", "high"], meta_fields=[])
