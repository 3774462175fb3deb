"""A small process whose people answer one after the other, as ``dp-pg`` learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import dprl
from dprl.accounting.budget import Budget
from dprl.bounds import Interval
from dprl_papers.paper_beyond.processes import Process


@dataclass(frozen=True, eq=False)
class Answering:
    """A steady process as an environment; a state is seen as its number, and an episode begins anywhere.

    Attributes:
        process: its laws, of which those of the first step hold in all.
    """

    process: Process
    reward_bounds: ClassVar[Interval] = (0.0, 1.0)
    discount: ClassVar[float] = 1.0

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """States are counted from 0."""
        return ((0.0, self.process.shape[1] - 1.0),)

    @property
    def actions(self) -> int:
        """Number of actions."""
        return self.process.shape[2]

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return self.process.shape[0]

    def reset(self, key: Any) -> Any:
        """Return any state."""
        return jax.random.randint(key, (), 0, self.process.shape[1])

    def observe(self, state: Any) -> Any:
        """Return ``(1,)``: the state's number."""
        return jnp.asarray(state, jnp.float32)[None]

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        """Draw the next state and the reward; nothing ends before the horizon."""
        first, second = jax.random.split(key)
        law = jnp.asarray(self.process.following[0])[state, action]
        reward = jax.random.uniform(first) < jnp.asarray(self.process.rewards[0])[state, action]
        return jax.random.choice(second, len(law), p=law), reward.astype(jnp.float32), jnp.zeros((), bool)


def lost_by_learning(process: Process, users: int, budget: Budget, seed: int) -> float:
    """Return what the best policy is worth more than the one that ``dp-pg`` releases, which draws its actions."""
    release = dprl.train(Answering(process), budget, algorithm=dprl.DPPG(users=users), simulated=True, seed=seed)
    chances = release.policy(np.arange(process.shape[1], dtype=float)[:, None])
    return process.value() - process.value(np.broadcast_to(chances, process.shape))
