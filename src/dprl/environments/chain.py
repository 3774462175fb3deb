"""The chain of recovery of Xie, Thomas and Miklau (2019, section 7).

States ``0 .. length - 2`` are transient and ``length - 1`` is absorbing: a patient progresses through stages and never
goes back. A trajectory starts in a uniformly random transient state, each step stays with probability ``stay`` or
advances by one, and the only reward is 1 on reaching the absorbing state.

The paper has no actions. With ``actions = A > 1`` action ``a`` advances with probability ``(1 - stay) (a + 1) / A``, so
that the last action gives the paper's chain, and ``A = 1`` is exactly the paper's chain.

Observation: one component, the index of the transient state, ``0 .. length - 2``. The absorbing state has no index of
its own (``terminated`` says that it was reached) and is reported as the last transient state, so that a table over the
observation bounds has a cell for each transient state and no cell that is never visited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import dprl.x64  # noqa: F401  (starts are drawn in float64)
from dprl.bounds import Interval
from dprl.errors import DprlError


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The chain as pure functions; the state is an int32 scalar.

    Attributes:
        length: number of states, including the absorbing state.
        stay: probability of staying under the last action.
        actions: number of actions (1 in the paper).
        horizon: transitions after which a trajectory is truncated.
        discount: discount factor of a step.
    """

    length: int = 40
    stay: float = 0.5
    actions: int = 1
    horizon: int = 1000
    discount: float = 0.99

    def __post_init__(self) -> None:
        if self.length < 2 or self.actions < 1 or self.horizon < 1:
            raise DprlError("chain: length must be at least 2, actions and horizon at least 1.")
        if not (0.0 <= self.stay < 1.0) or not (0.0 <= self.discount <= 1.0):
            raise DprlError("chain: stay must be in [0, 1) and discount in [0, 1].")

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """Smallest and largest index of a transient state."""
        return ((0.0, float(self.length - 2)),)

    reward_bounds = (0.0, 1.0)
    value_bounds = (0.0, 1.0)
    """Smallest and largest discounted return: the one reward is at most 1."""

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a uniformly random transient state."""
        uniform = jax.random.uniform(key, dtype=jnp.float64)
        return jnp.minimum((uniform * (self.length - 1)).astype(jnp.int32), self.length - 2)

    def observe(self, state: Any) -> jax.Array:
        """Return ``(1,)`` float32, the index of the transient state."""
        return jnp.minimum(jnp.asarray(state), self.length - 2).astype(jnp.float32)[None]

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step: stay, or advance by one state."""
        probability = (1.0 - self.stay) * (jnp.asarray(action, jnp.float32) + 1.0) / self.actions
        advance = jax.random.uniform(key, dtype=jnp.float32) < probability
        following = jnp.minimum(jnp.asarray(state, jnp.int32) + advance.astype(jnp.int32), self.length - 1)
        terminated = following == self.length - 1
        return following, terminated.astype(jnp.float32), terminated
