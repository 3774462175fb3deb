"""Logs on which intervals of importance sampling used to fail, and how they do: for tests and planted faults."""

from __future__ import annotations

import numpy as np

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan

from .helpers import bandit_bounds as one_decision
from .helpers import columns_of

LOGS = 40


def estimates(generate, policy, bounds: Bounds, config: ImportanceSampling, epsilon: float = 1.0) -> list:
    """Of ``LOGS`` logs, with the noise of a release."""
    plan = make_plan(config, bounds, Budget(epsilon, 1e-6), [policy])
    log = read_log(generate(LOGS * bounds.units), bounds=bounds).load()
    vectors = plan.query.unit_vectors(log, [policy])
    sums = vectors.reshape(LOGS, bounds.units, -1).sum(axis=1)
    noise = plan.value_mechanism.noise_std * np.random.default_rng(5).normal(size=sums.shape)
    return [plan.query.decode(plan.value_mechanism, row)[0] for row in sums + noise]


def hits(found: list, truth: float) -> int:
    return sum(e.interval[0] <= truth <= e.interval[1] for e in found)


def bernoulli(ratio: float, rate: float):
    """One decision: the target's action is taken with probability 1/ratio and earns 1 with probability ``rate``."""

    def generate(people: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(3)
        action = (rng.random(people) >= 1.0 / ratio).astype(int)
        reward = (rng.random(people) < np.where(action == 0, rate, 0.9)).astype(float)
        below = np.where(action == 0, 1.0 / ratio, 1.0 - 1.0 / ratio)
        return {"observation": np.zeros(people), "action": action, "reward": reward, "behavior_prob": below}

    return generate


def without(generate, every: int):
    """The same log, of which one row in ``every`` cannot be used: as if its person were missing."""

    def fewer(people: int) -> dict[str, np.ndarray]:
        columns = generate(people)
        gone = np.arange(people) % every == 0
        return columns | {"reward": np.where(gone, np.nan, columns["reward"])}

    return fewer


def first(states: np.ndarray) -> np.ndarray:
    return np.tile([1.0, 0.0], (len(states), 1))


def several(units: int, often: float, cumulative: float | None, steps: int = 10) -> tuple:
    """Ten decisions with two actions, drawn evenly; the target takes the one that pays with probability ``often``."""

    def generate(people: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(4)
        action = rng.integers(0, 2, (people, steps))
        return columns_of(action, observation=0.0, reward=(rng.random((people, steps)) < 0.9 * action).astype(float))

    bounds = one_decision(units, 2 * often, horizon=steps, max_cumulative_ratio=cumulative)
    return generate, lambda s: np.tile([1.0 - often, often], (len(s), 1)), bounds, steps * often * 0.9
