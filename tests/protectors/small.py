"""A small family of public tasks with closed forms: a quadratic bowl, its gradient as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dprl.protectors.projector import Architecture, HandSchedule, init_weights
from dprl.protectors.protector import Protector

CURVATURE = (1.0, 0.25)
HAND = HandSchedule(steps=6, sampling_rate=1.0, clip_norm=1.0, step_sizes=(0.5, 0.8), tail=0.0)


@dataclass(frozen=True, kw_only=True)
class Bowl:
    """``f(x) = sum h_i (x_i - c_i)^2 / 2``; the batch is everybody, nothing is clipped."""

    hand: HandSchedule = HAND
    units: int = 20
    still: bool = False
    """Whether every centre is the origin."""

    name = "bowl"
    algorithm = "gpope"
    dimension = 2
    blocks = (0, 1)

    def sample(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(2, jnp.float32) if self.still else jax.random.normal(key, (2,), jnp.float32)

    def initial(self, task: jax.Array) -> jax.Array:
        return jnp.ones_like(task)

    def natural_clip(self, clip_norm: Any) -> Any:
        return clip_norm

    def mean_gradient(self, task: jax.Array, parameters: jax.Array, key: jax.Array, clip: Any) -> jax.Array:
        del key
        return jnp.asarray(CURVATURE, jnp.float32) * (parameters - task) / clip

    def project(self, parameters: jax.Array) -> jax.Array:
        return parameters

    def loss(self, task: jax.Array, parameters: jax.Array) -> jax.Array:
        away = parameters - task
        return 0.5 * jnp.sum(jnp.asarray(CURVATURE, jnp.float32) * away * away) + 1e-3

    def reference(self, task: jax.Array) -> jax.Array:
        del task
        return jnp.ones((), jnp.float32)

    def ranges(self) -> dict[str, tuple[float, float]]:
        return {"horizon": (1.0, 50.0)}

    def describe(self) -> dict[str, Any]:
        return {"curvature": list(CURVATURE)}


def new_protector(architecture: Architecture, hand: HandSchedule, seed: int = 0, **facts: Any) -> Protector:
    """Before training: exactly the hand schedule."""
    return Protector(
        architecture=architecture, hand=hand, weights=init_weights(architecture, jax.random.key(seed)), **facts
    )
