"""Acrobot (Sutton 1996; Sutton and Barto 1998), the same numbers as Gymnasium's ``Acrobot-v1``.

Two links hang from a joint; the motor sits between the links. Observation: cosine and sine of the first link's angle (0
is straight down) and of the second link's angle relative to the first, and both angular velocities, float32. Actions:
torque -1, 0 or 1. The reward is -1 per step, and 0 for the step that brings the free end one link above the joint,
which terminates the trajectory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import dprl.x64  # noqa: F401  (the state is float64, as in Gymnasium)
from dprl.environments.simulators import ClassicControl

GRAVITY, SECONDS = 9.8, 0.2
MASS, LENGTH, CENTRE, INERTIA = 1.0, 1.0, 0.5, 1.0
"""Mass, length, distance of the centre of mass from the joint, and moment of inertia of either link."""
MAX_SPEEDS = (4 * math.pi, 9 * math.pi)


@dataclass(frozen=True, kw_only=True)
class Acrobot(ClassicControl):
    """Two links as pure functions; the state is ``(4,)`` float64: both angles in [-pi, pi], both angular velocities.

    Attributes:
        horizon: transitions after which a trajectory is truncated (500 in Gymnasium).
        discount: discount factor of a step.
    """

    name = "acrobot"
    actions = 3
    """Torque -1, 0, 1."""
    observation_bounds = ((-1.0, 1.0),) * 4 + tuple((-x, x) for x in MAX_SPEEDS)
    """Bounds of cosines, sines and angular velocities."""
    reward_bounds = (-1.0, 0.0)
    """-1 a step, 0 for the last."""
    horizon: int = 500

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a state in which the links hang down, with each component in [-0.1, 0.1]."""
        return jax.random.uniform(key, (4,), dtype=jnp.float64, minval=-0.1, maxval=0.1)

    def observe(self, state: Any) -> jax.Array:
        """Return ``(6,)`` float32: cosine and sine of each angle, angular velocities."""
        first, second = state[0], state[1]
        parts = [jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second), state[2], state[3]]
        return jnp.stack(parts).astype(jnp.float32)

    def states_of(self, observations: Any) -> jax.Array:
        """Return ``(N, 4)`` states of ``(N, 6)`` observations."""
        seen = jnp.asarray(observations, jnp.float64)
        angles = [jnp.arctan2(seen[:, 1], seen[:, 0]), jnp.arctan2(seen[:, 3], seen[:, 2])]
        return jnp.stack([*angles, seen[:, 4], seen[:, 5]], axis=1)

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step of the fourth-order Runge-Kutta method; deterministic, ``key`` is not used."""
        torque = jnp.asarray(action, jnp.float64) - 1.0
        half = SECONDS / 2.0
        k1 = _derivative(state, torque)
        k2 = _derivative(state + half * k1, torque)
        k3 = _derivative(state + half * k2, torque)
        k4 = _derivative(state + SECONDS * k3, torque)
        state = state + SECONDS / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        # move both angles back into [-pi, pi]
        angles = state[:2] - 2.0 * math.pi * jnp.ceil((state[:2] - math.pi) / (2.0 * math.pi))
        limit = jnp.asarray(MAX_SPEEDS, jnp.float64)
        state = jnp.concatenate([angles, jnp.clip(state[2:], -limit, limit)])
        terminated = -jnp.cos(state[0]) - jnp.cos(state[0] + state[1]) > 1.0
        return state, jnp.where(terminated, 0.0, -1.0).astype(jnp.float32), terminated


def _derivative(state: Any, torque: Any) -> jax.Array:
    """Return the time derivative of the state, by the equations of Sutton and Barto's book."""
    first, second, speed, turn = state[0], state[1], state[2], state[3]
    sine, cosine = jnp.sin(second), jnp.cos(second)
    lever = MASS * LENGTH * CENTRE
    d1 = MASS * CENTRE**2 + MASS * (LENGTH**2 + CENTRE**2 + 2.0 * LENGTH * CENTRE * cosine) + 2.0 * INERTIA
    d2 = MASS * (CENTRE**2 + LENGTH * CENTRE * cosine) + INERTIA
    # the book writes cos(x - pi/2) for this sine
    phi2 = MASS * CENTRE * GRAVITY * jnp.sin(first + second)
    phi1 = (
        -lever * turn**2 * sine
        - 2.0 * lever * turn * speed * sine
        + (MASS * CENTRE + MASS * LENGTH) * GRAVITY * jnp.sin(first)
        + phi2
    )
    second_turn = (torque + d2 / d1 * phi1 - lever * speed**2 * sine - phi2) / (MASS * CENTRE**2 + INERTIA - d2**2 / d1)
    first_turn = -(d2 * second_turn + phi1) / d1
    return jnp.stack([speed, turn, first_turn, second_turn])
