"""Simulated logs on which intervals of doubly robust values are tried: one decision, and a walk of ten."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.data.trajectories import Trajectories
from dprl.protocols import Bounds


def trajectories(bounds: Bounds, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray, chances: Any) -> Any:
    """From ``(U, H)`` arrays."""
    units, horizon = states.shape
    last = np.tile(np.arange(horizon) == horizon - 1, units)
    observation = states.reshape(-1, 1).astype(np.float64)
    return Trajectories(
        observation=observation, next_observation=np.zeros_like(observation), action=actions.ravel(),
        reward=rewards.ravel().astype(np.float64), behavior_prob=np.broadcast_to(chances, states.shape).ravel(),
        target_prob={}, terminated=last, has_next=~last, episode_offsets=np.arange(units + 1) * horizon,
        unit_offsets=np.arange(units + 1), valid=np.ones(units, dtype=bool), bounds=bounds, unit="trajectory",
    )  # fmt: skip


def weighted_means(rows: Any, ratios: np.ndarray, discount: float) -> np.ndarray:
    """``(n,)`` weights of a table: the mean weighted return from each state on, of all rows, drawn to the middle."""
    horizon = rows.bounds.horizon
    low, high = rows.bounds.value_interval(discount)
    ratios, rewards = (x.reshape(-1, horizon) for x in (ratios, rows.reward))
    following, returns = np.zeros(len(rewards)), np.zeros_like(rewards)
    for t in range(horizon - 1, -1, -1):
        following = returns[:, t] = ratios[:, t] * (rewards[:, t] + discount * following)
    cells = rows.observation[:, 0].astype(int)
    size = int(rows.bounds.observation[0][1]) + 1
    count = np.bincount(cells, minlength=size) + 5.0 * horizon
    total = np.bincount(cells, (2.0 * returns.ravel() - low - high) / (high - low), minlength=size)
    return np.clip(total / count, -1.0, 1.0) / math.sqrt(size)


class OneDecision:
    """The behaviour policy does once in fifty what the target always does; it succeeds with a chance of .05."""

    discount, value = 1.0, 0.05

    @staticmethod
    def policy(states: Any) -> np.ndarray:
        return np.tile([0.0, 1.0], (len(states), 1))

    def bounds(self, units: int) -> Bounds:
        return Bounds(
            units=units, horizon=1, reward=(0.0, 1.0), observation=((0.0, 4.0),), actions=2, max_importance_ratio=50.0
        )

    def read(self, units: int, rng: np.random.Generator) -> Any:
        states = rng.integers(0, 5, (units, 1))
        actions = (rng.random((units, 1)) < 0.02).astype(np.int64)
        rewards = rng.random((units, 1)) < np.where(actions == 1, 0.025 * states, 0.5)
        return trajectories(self.bounds(units), states, actions, rewards, np.where(actions == 1, 0.02, 0.98))

    def learn(self, rows: Any) -> np.ndarray:
        return weighted_means(rows, np.where(rows.action == 1, 50.0, 0.0), self.discount)


class Walk:
    """Ten steps up or down nine states, rewards that grow with the state; the target goes up more often."""

    discount, horizon = 0.95, 10

    @staticmethod
    def policy(states: Any) -> np.ndarray:
        return np.tile([0.3, 0.7], (len(states), 1))

    @property
    def value(self) -> float:
        values = np.zeros(9)
        for _ in range(self.horizon):
            above, below = values[np.minimum(np.arange(9) + 1, 8)], values[np.maximum(np.arange(9) - 1, 0)]
            values = np.arange(9) / 8.0 + self.discount * (0.7 * above + 0.3 * below)
        return float(values[2:7].mean())

    def bounds(self, units: int) -> Bounds:
        return Bounds(
            units=units, horizon=10, reward=(0.0, 1.0), observation=((0.0, 8.0),), actions=2,
            max_importance_ratio=1.4, max_cumulative_ratio=1.4**10,
        )  # fmt: skip

    def read(self, units: int, rng: np.random.Generator) -> Any:
        actions = rng.integers(0, 2, (units, self.horizon))
        states, here = np.empty_like(actions), rng.integers(2, 7, units)
        for t in range(self.horizon):
            states[:, t] = here
            here = np.clip(here + 2 * actions[:, t] - 1, 0, 8)
        rewards = rng.random(states.shape) < states / 8.0
        return trajectories(self.bounds(units), states, actions, rewards, 0.5)

    def learn(self, rows: Any) -> np.ndarray:
        return weighted_means(rows, np.where(rows.action == 1, 1.4, 0.6), self.discount)


one_decision, walk = OneDecision(), Walk()
