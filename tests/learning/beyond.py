"""An environment outside of JAX whose observations are not what it declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.protocols import EnvironmentSpec

BELOW = -0.75
"""Of an environment's observation range: how far it goes beyond the domain that it declares."""


FACTS = EnvironmentSpec(
    name="beyond", observation=((0.0, 1.0),), actions=2, horizon=20, discount=0.9, reward_bounds=(0.0, 1.0)
)


class Beyond:
    """A walk on [-0.75, 1.75], of which [0, 1] is declared; every third observation is none. ``more`` is added to its
    rewards: a function of the observation, moved into its domain."""

    facts = FACTS

    def __init__(self, more: Any) -> None:
        self.more = more

    def reset(self, seed: int) -> np.ndarray:
        self.rng, self.time = np.random.default_rng(seed), 0
        return self._next()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        reward = 0.3 + self.more(float(np.clip(self.place, 0.0, 1.0)))
        return self._next(), reward, False, self.time >= 20

    def _next(self) -> np.ndarray:
        self.time += 1
        self.place = BELOW + 2.5 * self.rng.random()
        broken = [np.nan, np.inf, "x", [self.place] * 2, None]
        return np.array([self.place]) if self.time % 3 else broken[self.time // 3 % 5]


def saw(place: float) -> float:
    """A neighbour of 0: at most 0.01 large, with a slope of 0.04."""
    return 0.01 - 0.04 * abs(place % 0.125 - 0.0625)
