"""Logs on which values around a value function are tried: one decision, a walk of ten, and all of three steps."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories

from .helpers import bandit_bounds

GAMMA = 0.9


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
        return bandit_bounds(units, 50.0, observation=((0.0, 4.0),))

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


def small_process(seed: int, blind: bool = False) -> SimpleNamespace:
    """Three steps over four states and two actions, that differ from step to step: all trajectories and the truth.

    ``blind``: in one state the behaviour policy never takes an action that the target takes.
    """
    rng = np.random.default_rng(seed)
    reward, following = rng.random((3, 4, 2)), rng.dirichlet(np.ones(4), size=(3, 4, 2))
    behavior, target = rng.dirichlet([2.0, 2.0], size=4), rng.dirichlet([2.0, 2.0], size=4)
    if blind:
        behavior[0] = 1.0, 0.0
    value = np.zeros(4)
    for t in (2, 1, 0):
        value = np.sum(target * (reward[t] + GAMMA * following[t] @ value), axis=1)
    rows: dict[str, list[float]] = {
        k: [] for k in ("episode_id", "t", "observation", "action", "reward", "behavior_prob", "terminated")
    }
    chances = []
    for number, (start, *moves) in enumerate(itertools.product(range(4), *[range(2), range(4)] * 3)):
        state, chance = start, 0.25
        for t in range(3):
            action, after = moves[2 * t], moves[2 * t + 1]
            chance *= behavior[state, action] * following[t, state, action, after]
            row = (number, t, 4 * t + state, action, reward[t, state, action], behavior[state, action], t == 2)
            for name, x in zip(rows, row, strict=True):
                rows[name].append(float(x))
            state = after
        chances.append(chance)
    policy = lambda states: target[states[:, 0].astype(int) % 4]  # noqa: E731
    with np.errstate(divide="ignore"):
        ratios = np.where(behavior > 0.0, target / behavior, 0.0)
    return SimpleNamespace(
        columns={k: np.array(v) for k, v in rows.items()}, chances=np.array(chances), policy=policy,
        value=value.mean(), largest=float(ratios.max()),
    )  # fmt: skip


def process_bounds(units: int, largest: float, cumulative: float | None = None) -> Bounds:
    return Bounds(
        units=units, horizon=3, reward=(0.0, 1.0), observation=((0.0, 11.0),), actions=2,
        max_importance_ratio=largest * (1 + 1e-9),
        max_cumulative_ratio=(largest**3 if cumulative is None else cumulative) * (1 + 1e-8),
    )  # fmt: skip
