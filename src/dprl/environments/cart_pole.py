"""Cart Pole (Barto, Sutton and Anderson 1983), the same numbers as Gymnasium's ``CartPole-v1``, with a shorter horizon.

Observation: position and velocity of the cart, angle of the pole in radians and its angular velocity, float32. Actions:
push left, push right. The reward is 1 per step, the last step included. A trajectory terminates where the cart is more
than 2.4 from the middle or the pole leans by more than 12 degrees. Gymnasium declares no bounds for the velocities;
here observations, but not states, are clamped to public bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import dprl.x64  # noqa: F401  (the state is float64, as in Gymnasium)
from dprl.environments.simulators import ClassicControl

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MAX_POSITION, MAX_ANGLE = 2.4, 12 * 2 * math.pi / 360
OBSERVATION_LIMITS = (2.4, 3.0, 0.2095, 3.0)
"""Observations are clamped to plus and minus these."""


@dataclass(frozen=True, kw_only=True)
class CartPole(ClassicControl):
    """The cart as pure functions; the state is ``(4,)`` float64 and, unlike the observation, never clamped.

    Attributes:
        horizon: transitions after which a trajectory is truncated (500 in Gymnasium).
        discount: discount factor of a step.
    """

    name = "cart-pole"
    actions = 2
    """Left, right."""
    observation_bounds = tuple((-x, x) for x in OBSERVATION_LIMITS)
    """Bounds of position, velocity, angle and angular velocity."""
    reward_bounds = (1.0, 1.0)
    """The reward is 1 in every step."""

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a state with each component somewhere in [-0.05, 0.05]."""
        return jax.random.uniform(key, (4,), dtype=jnp.float64, minval=-0.05, maxval=0.05)

    def observe(self, state: Any) -> jax.Array:
        """Return ``(4,)`` float32: the state, clamped to :attr:`observation_bounds`."""
        limit = jnp.asarray(OBSERVATION_LIMITS, jnp.float64)
        return jnp.clip(jnp.asarray(state), -limit, limit).astype(jnp.float32)

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step of Euler's method; deterministic, ``key`` is not used."""
        x, velocity, angle, spin = state[0], state[1], state[2], state[3]
        mass, moment = CART + POLE, POLE * HALF_LENGTH
        force = jnp.where(jnp.asarray(action) == 1, FORCE, -FORCE)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + moment * spin**2 * sine) / mass
        angular = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cosine**2 / mass))
        linear = push - moment * angular * cosine / mass
        x, velocity = x + SECONDS * velocity, velocity + SECONDS * linear
        angle, spin = angle + SECONDS * spin, spin + SECONDS * angular
        terminated = (jnp.abs(x) > MAX_POSITION) | (jnp.abs(angle) > MAX_ANGLE)
        return jnp.stack([x, velocity, angle, spin]), jnp.ones((), jnp.float32), terminated
