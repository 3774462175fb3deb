"""Small processes of which everything is known, and logs of them: what DP-APVI, DP-VAPVI and dprl's learners learn on.

An episode has H steps; rewards are 0 or 1. Nobody's data are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dprl
from dprl.accounting.budget import Budget
from dprl.engine.sample_split import SHARE
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import NO_JOURNAL


@dataclass(frozen=True, eq=False)
class Process:
    """A finite process.

    Attributes:
        following: ``(H, S, A, S)`` law of the next state.
        rewards: ``(H, S, A)`` chance of a reward of 1.
        behavior: ``(S, A)`` policy of the log.
        features: ``(S, A, d)`` of norm at most 1, in which laws and rewards of a linear process are linear.
        ratio: bound of one over the probabilities of the log's actions.
        stationary: whether laws are the same in every step, so that learners need not know which step it is.
    """

    following: np.ndarray
    rewards: np.ndarray
    behavior: np.ndarray
    features: np.ndarray
    ratio: float
    stationary: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, S and A."""
        return self.rewards.shape  # type: ignore[return-value]

    def value(self, chances: np.ndarray | None = None) -> float:
        """Return the exact value, from a uniform start, of a policy ``(H, S, A)``, or of the best one."""
        ahead = np.zeros(self.shape[1])
        for h in reversed(range(self.shape[0])):
            q = self.rewards[h] + self.following[h] @ ahead
            ahead = q.max(axis=1) if chances is None else np.sum(chances[h] * q, axis=1)
        return float(ahead.mean())

    def value_lost(self, actions: np.ndarray) -> float:
        """Return what the best policy is worth more than the one with these actions ``(H, S)``."""
        return self.value() - self.value(np.eye(self.shape[2])[actions])

    def draw(self, seed: int, people: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return states ``(n, H + 1)``, actions and rewards ``(n, H)`` of a log."""
        rng, (steps, states, _) = np.random.default_rng([seed, 3]), self.shape
        s, a, r = (np.zeros((people, steps + extra), int) for extra in (1, 0, 0))
        s[:, 0] = rng.integers(0, states, people)
        for h in range(steps):
            a[:, h] = draw_per_row(rng, self.behavior[s[:, h]])
            r[:, h] = rng.random(people) < self.rewards[h, s[:, h], a[:, h]]
            s[:, h + 1] = draw_per_row(rng, self.following[h, s[:, h], a[:, h]])
        return s, a, r


def draw_per_row(rng: np.random.Generator, chances: np.ndarray) -> np.ndarray:
    """Draw one place for each row of chances."""
    edges = np.cumsum(chances, axis=1)[:, :-1]
    return np.sum(rng.random(len(chances))[:, None] >= edges, axis=1)


def river_swim(steps: int = 12) -> Process:
    """Return RiverSwim (Strehl and Littman 2008): six states, a current to the left, and most reward at the right."""
    following, rewards = np.zeros((6, 2, 6)), np.zeros((6, 2))
    for s in range(6):
        following[s, 0, max(s - 1, 0)] = 1.0
        left, right = (0.0, 0.6) if s == 0 else (0.05, 0.0) if s == 5 else (0.05, 0.35)
        following[s, 1] = right * np.eye(6)[min(s + 1, 5)] + left * np.eye(6)[max(s - 1, 0)]
        following[s, 1, s] += 1.0 - left - right
    rewards[0, 0], rewards[5, 1] = 0.1, 1.0
    return _stationary_process(following, rewards, np.full((6, 2), [0.3, 0.7]), 4.0, steps)


def random_process(seed: int, steps: int = 5, states: int = 10, actions: int = 3) -> Process:
    """Return a random process whose log prefers some actions."""
    rng = np.random.default_rng([seed, 5])
    following = rng.dirichlet(np.full(states, 0.3), (states, actions))
    behavior = 0.7 * rng.dirichlet(np.ones(actions), states) + 0.3 / actions
    return _stationary_process(following, rng.random((states, actions)), behavior, 10.0, steps)


def _stationary_process(
    following: np.ndarray, rewards: np.ndarray, behavior: np.ndarray, ratio: float, steps: int
) -> Process:
    states, actions = rewards.shape
    features = np.eye(states * actions).reshape(states, actions, -1)
    every = lambda x: np.broadcast_to(x, (steps, *x.shape))  # noqa: E731
    return Process(every(following), every(rewards), behavior, features, ratio, stationary=True)


def linear_process(seed: int, steps: int = 20) -> Process:
    """Return the linear process of Min et al. (2021) with 2 states and 100 actions; docs/papers/beyond.md, 5."""
    rng, bits = np.random.default_rng([seed, 7]), (np.arange(100)[:, None] >> np.arange(8)) & 1
    fits = np.array([np.arange(100) == 0, np.arange(100) != 0], float)
    features = np.concatenate(
        [np.broadcast_to(2.0 * bits - 1.0, (2, 100, 8)), fits[..., None], 1.0 - fits[..., None]], 2
    )
    one = features[..., 8:] @ rng.random((steps, 1, 2, 1))
    behavior = np.full((2, 100), 0.4 / 99)
    behavior[:, 0] = 0.6
    rewards = np.broadcast_to(np.where(fits > 0.0, 0.99, 0.01), (steps, 2, 100))
    return Process(np.concatenate([1.0 - one, one], 3), rewards, behavior, features / 3.0, 250.0, stationary=False)


def learn_by_dprl(process: Process, log: Sequence[np.ndarray], learner: str, budget: Budget, seed: int) -> np.ndarray:
    """Return the actions ``(H, S)`` that a learner of ``dprl learn`` finds of a log, all of whose people teach."""
    (s, a, r), (steps, states, actions) = log, process.shape
    people, t = len(a), np.tile(np.arange(steps), len(a))
    known = ((0.0, steps - 1.0), (0.0, states - 1.0))[process.stationary :]
    columns = {
        "episode_id": np.repeat(np.arange(people), steps), "t": t, "action": a.ravel(), "reward": 1.0 * r.ravel(),
        "behavior_prob": process.behavior[s[:, :-1], a].ravel(), "terminated": t == steps - 1,
        "observation": np.stack([t, s[:, :-1].ravel()], axis=1)[:, process.stationary :].astype(float),
    }  # fmt: skip
    facts = dprl.Bounds(
        units=people, horizon=steps, reward=(0.0, 1.0), observation=known, actions=actions,
        max_importance_ratio=process.ratio,
    )  # fmt: skip
    policy = learned_policy(columns, facts, learner, budget, 1.0, seed)
    at = np.indices((steps, states)).reshape(2, -1).T[:, process.stationary :]
    return policy.action(1.0 * at).reshape(steps, states)


def learned_policy(columns: Any, facts: dprl.Bounds, learner: str, budget: Budget, discount: float, seed: int) -> Any:
    """Return the policy that a learner finds of a log, all of whose people teach: as many as teach of a larger one."""
    bounds = replace(facts, units=round(facts.units / SHARE))
    first = plan_of_learned(dprl.ImportanceSampling(discount=discount), bounds, budget, learner=learner).first
    assert first is not None
    log, noise = dprl.read_log(columns, bounds=bounds).load(None), SeededNoise.from_seed(seed)
    return next(iter(first.released(log, None, noise, NO_JOURNAL).policies.values()))
