"""Small logs with known answers, shared by the tests of the algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.bounds import Bounds

DISCOUNT = 0.99
STATES = 39  # non-terminal states of the 40-state chain


def columns_of(action: np.ndarray, behavior_prob: Any = 0.5, **others: Any) -> dict[str, np.ndarray]:
    """Columns of trajectories of one length that all end, of ``(people, steps)`` arrays, or ``(people,)`` of one step.

    What is the same for everybody may be one number.
    """
    people, steps = np.shape(action) if np.ndim(action) == 2 else (len(action), 1)
    rows = people * steps
    columns = {"episode_id": np.repeat(np.arange(people), steps), "t": np.tile(np.arange(steps), people)}
    for name, values in {**others, "action": action, "behavior_prob": behavior_prob}.items():
        columns[name] = np.full(rows, values) if np.ndim(values) == 0 else np.reshape(values, rows)
    return {**columns, "terminated": columns["t"] == steps - 1}


def chain_log(episodes: int, seed: int) -> dict[str, Any]:
    """The 40-state chain: stay or advance with probability 1/2, reward 1 on reaching the end."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[float]] = {k: [] for k in ("episode_id", "t", "observation", "reward", "terminated")}
    for episode in range(episodes):
        state, t = int(rng.integers(0, STATES)), 0
        while state < STATES:
            following = state + int(rng.random() < 0.5)
            row = (episode, t, state, float(following == STATES), float(following == STATES))
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
            state, t = following, t + 1
    n = len(columns["t"])
    return {**columns, "action": [0] * n, "behavior_prob": [1.0] * n}


def chain_bounds(units: int, horizon: int = 400) -> Bounds:
    return Bounds(
        units=units, horizon=horizon, reward=(0.0, 1.0), observation=((0.0, 38.0),), actions=1, return_range=(0.0, 1.0)
    )


def bandit_log(people: int, seed: int) -> dict[str, Any]:
    """One decision a person with two actions, drawn evenly; the reward depends on both state and action."""
    rng = np.random.default_rng(seed)
    x, a = rng.random(people), rng.integers(0, 2, people)
    reward = np.clip(0.3 + 0.3 * x * (a == 1) + 0.2 * rng.normal(size=people), 0.0, 1.0)
    return {"observation": x, "action": a, "reward": reward, "behavior_prob": np.full(people, 0.5)}


def bandit_bounds(units: int, ratio: float = 2.0, **changes: Any) -> Bounds:
    known = {"units": units, "horizon": 1, "reward": (0.0, 1.0), "observation": ((0.0, 1.0),), "actions": 2}
    return Bounds(**{**known, "max_importance_ratio": ratio, **changes})


def bandit_policy(states: np.ndarray) -> np.ndarray:
    second = np.where(states[:, 0] > 0.5, 0.8, 0.4)
    return np.column_stack([1.0 - second, second])


def stepped_log(people: int, seed: int, horizon: int = 5) -> dict[str, Any]:
    """Several decisions a person over three states."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, 3, people).astype(float)
    columns: dict[str, list[np.ndarray]] = {
        k: [] for k in ("episode_id", "t", "observation", "action", "reward", "behavior_prob", "terminated")
    }
    for t in range(horizon):
        action = rng.integers(0, 2, people)
        reward = (rng.random(people) < 0.2 + 0.1 * action * state).astype(float)
        row = (
            np.arange(people), np.full(people, t), state, action, reward, np.full(people, 0.5),
            np.full(people, t == horizon - 1),
        )  # fmt: skip
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
        state = np.clip(state + np.where(rng.random(people) < 0.5, 2 * action - 1, 0), 0, 2)
    return {name: np.concatenate(values) for name, values in columns.items()}


def stepped_bounds(units: int, horizon: int = 5) -> Bounds:
    return Bounds(
        units=units, horizon=horizon, reward=(0.0, 1.0), observation=((0.0, 2.0),), actions=2,
        max_importance_ratio=1.2, max_cumulative_ratio=2.5,
    )  # fmt: skip


def stepped_policy(states: np.ndarray) -> np.ndarray:
    return np.column_stack([np.full(len(states), 0.4), np.full(len(states), 0.6)])


def mspbe(theta: np.ndarray, A: np.ndarray, b: np.ndarray, C: np.ndarray) -> float:
    """Return the mean squared projected Bellman error of ``theta``: (b - A theta)' C^+ (b - A theta)."""
    residual = b - A @ theta
    return float(residual @ np.linalg.pinv(C) @ residual)
