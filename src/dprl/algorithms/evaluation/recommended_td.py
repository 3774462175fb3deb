"""The program of :mod:`recommended` off-policy over several steps: TD from the mean reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.algorithms.evaluation.program import Facts, Stage
from dprl.algorithms.evaluation.recommended_modes import Modes, make_modes
from dprl.algorithms.evaluation.unit_blocks import apply, project
from dprl.value_functions.features import Features

REWARD_SHARE = 0.1
STEPS = 200
_LARGEST_REWARD_NOISE = 0.1  # of the value that the mean reward stands for, in half-widths of the value range
_STEP_SIZE = 15.0
_LARGEST_WALK = 0.3  # what the noise of all steps may do to V, in half-widths of the value range, root mean square
_SMOOTHNESS = 0.5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the public facts chose.

    Attributes:
        features: what the answer's weights are over.
        units: declared number of units.
        ratio: bound on the importance ratio of one step.
        level: value, in public units, of the smallest and the largest reward received for ever.
        measures_reward: whether the mean reward is asked for: not where it is public, being always the same, and not
            where noise would drown it.
        steps, clip, step_size: of TD, with modes that are scaled to a mean square norm of one.
    """

    features: Features
    units: int
    ratio: float
    level: tuple[float, float]
    measures_reward: bool
    clip: float
    step_size: float
    steps: int = STEPS

    @property
    def modes(self) -> Modes:
        return make_modes(self.features)

    @property
    def scale(self) -> np.ndarray:
        """``(K,)`` public scale of the modes: smoother ones move faster."""
        scale = (1.0 + self.modes.frequency) ** -_SMOOTHNESS
        return scale / math.sqrt(np.sum(scale**2))


class State(NamedTuple):
    """Made of released sums alone."""

    theta: jax.Array  # (K,) weights of the scaled modes
    total: jax.Array  # (K,) sum of the iterates of the last half


@dataclass(frozen=True)
class TemporalDifferences:
    """The program: where rewards vary one sum of mean rewards, then TD(0) with importance-weighted clipped steps."""

    settings: Settings
    stages: tuple[Stage, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return ("rewards",) if self.settings.measures_reward else ()

    def _is_reward(self, stage: int) -> bool:
        return self.settings.measures_reward and stage == 0

    def _from(self, level: Any) -> State:
        zeros = jnp.zeros(self.settings.modes.size)
        return State(zeros.at[0].set(jnp.clip(level, -1.0, 1.0) / self.settings.scale[0]), zeros)

    def init(self) -> State:
        low, high = self.settings.level
        return self._from(low if low == high else 0.0)

    def contribution(self, stage: int, state: State, block: Any) -> jax.Array:
        """The unit's mean weighted reward ``(B, 1)``, or its mean weighted TD error times scaled modes ``(B, K)``."""
        if self._is_reward(stage):
            return jnp.sum(block.weight_raw_reward, axis=1, keepdims=True)
        s = self.settings
        X = jnp.asarray(s.modes.to_features * s.scale, dtype=block.phi.dtype)
        ahead = apply(block.delta_phi, X @ state.theta.astype(block.phi.dtype))
        return project(block.weight_rho_reward - block.weight_rho * ahead, block.phi) @ X

    def update(self, stage: int, state: State, noised: jax.Array, step: Any) -> State:
        s = self.settings
        if self._is_reward(stage):
            low, high = s.level
            mean = jnp.clip(noised[0] / s.units, -1.0, 1.0)
            return self._from((low + high) / 2.0 + (high - low) / 2.0 * mean)
        theta = state.theta + s.step_size * noised / s.units
        theta = theta.at[0].set(jnp.clip(theta[0], -1.0 / s.scale[0], 1.0 / s.scale[0]))
        keep = jnp.asarray(step) >= s.steps // 2
        return State(theta, state.total + jnp.where(keep, theta, 0.0))

    def finish(self, stage: int, state: State) -> State:
        del stage
        return state

    def answer(self, state: State) -> jax.Array:
        s = self.settings
        weights = jnp.asarray(s.modes.to_features * s.scale) @ (state.total / (s.steps - s.steps // 2))
        if s.modes.table is None:
            return weights
        end = 1.0 / math.sqrt(s.features.size)  # the value range, for indicators
        return jnp.clip(weights, -end, end)


def settings(facts: Facts, step_scale: float = 1.0) -> Settings:
    """What public facts choose; without discounting rewards are received over the horizon."""
    length = float(facts.horizon) if facts.discount == 1.0 else 1.0 / (1.0 - facts.discount)
    low, high = ((reward * length - facts.centre) / facts.half for reward in facts.bounds.reward)
    clip = 0.5 / length
    noise = float(facts.bounds.max_importance_ratio) / (facts.units * facts.mu * math.sqrt(REWARD_SHARE))
    # the tail average moves by about 0.6 steps x STEPS x (noise of a step) / units, at a noise of clip sqrt(STEPS) / mu
    limit = _LARGEST_WALK * facts.units * facts.mu / (0.6 * clip * STEPS)
    return Settings(
        features=facts.features,
        units=facts.units,
        ratio=float(facts.bounds.max_importance_ratio),
        level=(low, high),
        measures_reward=low < high and noise * (high - low) / 2.0 < _LARGEST_REWARD_NOISE,
        clip=clip,
        step_size=min(min(_STEP_SIZE, limit) * step_scale, limit),
    )
