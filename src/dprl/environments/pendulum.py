"""Pendulum, the same numbers as Gymnasium's ``Pendulum-v1``: swing up and hold, by a continuous torque.

Observation: cosine and sine of the angle (0 is upright) and the angular velocity, float32. Action: a torque in [-2, 2].
The reward is -(angle^2 + 0.1 speed^2 + 0.001 torque^2) of the state in which the action is taken, with the angle in
[-pi, pi]. No trajectory terminates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

import dprl.x64  # noqa: F401  (the state is float64, as in Gymnasium)
from dprl.bounds import Interval
from dprl.environments.simulators import ClassicControl

GRAVITY, MASS, LENGTH, SECONDS = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE = 8.0, 2.0


@dataclass(frozen=True, kw_only=True)
class Pendulum(ClassicControl):
    """The pendulum as pure functions; the state is ``(2,)`` float64: the angle, not wrapped, and the angular velocity.

    Attributes:
        horizon: transitions after which a trajectory is truncated (200 in Gymnasium).
        discount: discount factor of a step.
    """

    name = "pendulum"
    action_bounds: ClassVar[tuple[Interval, ...]] = ((-MAX_TORQUE, MAX_TORQUE),)
    """Bounds of the torque."""
    observation_bounds = ((-1.0, 1.0), (-1.0, 1.0), (-MAX_SPEED, MAX_SPEED))
    """Bounds of cosine, sine and angular velocity."""
    reward_bounds = (-(math.pi**2 + 0.1 * MAX_SPEED**2 + 0.001 * MAX_TORQUE**2), 0.0)
    """Rewards of hanging down at full speed and torque, and of being upright at rest."""

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a state with any angle and a speed in [-1, 1]."""
        return jax.random.uniform(key, (2,), jnp.float64, -1.0, 1.0) * jnp.array([math.pi, 1.0])

    def observe(self, state: Any) -> jax.Array:
        """Return ``(3,)`` float32: cosine and sine of the angle, angular velocity."""
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]]).astype(jnp.float32)

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step of Euler's method; ``action`` is a torque ``(1,)``. Deterministic, ``key`` is not used."""
        angle, speed = state[0], state[1]
        torque = jnp.clip(jnp.asarray(action)[0], -MAX_TORQUE, MAX_TORQUE)
        wrapped = (angle + math.pi) % (2.0 * math.pi) - math.pi
        reward = -(wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2)
        pull = 1.5 * GRAVITY / LENGTH * jnp.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        speed = jnp.clip(speed + SECONDS * pull, -MAX_SPEED, MAX_SPEED)
        following = jnp.stack([angle + SECONDS * speed, speed])
        return following, reward.astype(jnp.float32), jnp.zeros((), bool)
