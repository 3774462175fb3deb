"""Mountain Car (Moore 1990; Sutton and Barto 1998), the same numbers as Gymnasium's ``MountainCar-v0``.

Observation: position in [-1.2, 0.6] and velocity in [-0.07, 0.07], float32. Actions: push left, none, push right. The
reward is -1 per step; a trajectory terminates where the position reaches 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import dprl.x64  # noqa: F401  (the state is float64, as in Gymnasium)
from dprl.environments.simulators import ClassicControl

FORCE, GRAVITY = 0.001, 0.0025
MIN_POSITION, MAX_POSITION, GOAL_POSITION, MAX_SPEED = -1.2, 0.6, 0.5, 0.07


@dataclass(frozen=True, kw_only=True)
class MountainCar(ClassicControl):
    """The car as pure functions; the state is ``(2,)`` float64: position and velocity.

    Attributes:
        horizon: transitions after which a trajectory is truncated (200 in Gymnasium).
        discount: discount factor of a step.
    """

    name = "mountain-car"
    actions = 3
    """Left, none, right."""
    observation_bounds = ((MIN_POSITION, MAX_POSITION), (-MAX_SPEED, MAX_SPEED))
    """Bounds of position and velocity."""
    reward_bounds = (-1.0, -1.0)
    """The reward is -1 in every step."""
    discount: float = 0.99

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a state at rest, somewhere in [-0.6, -0.4]."""
        position = jax.random.uniform(key, dtype=jnp.float64, minval=-0.6, maxval=-0.4)
        return jnp.stack([position, jnp.zeros((), jnp.float64)])

    def observe(self, state: Any) -> jax.Array:
        """Return ``(2,)`` float32: position and velocity."""
        return jnp.asarray(state).astype(jnp.float32)

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step; deterministic, ``key`` is not used."""
        position, velocity = state[0], state[1]
        push = (jnp.asarray(action, jnp.float64) - 1.0) * FORCE
        velocity = jnp.clip(velocity + push - jnp.cos(3.0 * position) * GRAVITY, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        # The left wall stops the car; the right end does not, for it lies behind the goal.
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL_POSITION) & (velocity >= 0.0)
        return jnp.stack([position, velocity]), jnp.full((), -1.0, jnp.float32), terminated
