"""The gain of private Q-learning with default options, on walks whose rewards and moves are drawn by seed.

The gain is how much a policy is worth more than acting at random, as a share of what the best policy is worth more. All
values are computed by dynamic programming on the true rewards. The budget (0.9, 1e-4) is that of paper 001's figures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import dprl
from benchmarks.harness import figure, goal, table
from dprl.environments.interval_walk import IntervalWalk
from dprl.protocols import EnvironmentSpec

BUDGET = dprl.Budget(0.9, 1e-4)
RUNS, MORE_RUNS = 50, 200
"""Number of releases of a row, and where their mean is within two standard errors of the goal."""
PEOPLE = {30: 0.7, 100: 0.9}
"""Number of people -> the goal, a share of the possible gain."""
JUDGING = (("place", 100), ("waves", 100), ("costly", 100))
POINTS = np.linspace(0.0, 1.0, 257)


@dataclass(frozen=True, kw_only=True)
class DrawnWalk(IntervalWalk):
    """An interval walk with drawn rewards.

    Attributes:
        place: state of the largest reward (families place and costly), or phase of the reward's waves.
        waves: number of full waves of the reward over the interval; 0 for a tent.
        cost: cost of moving up.
    """

    place: float
    waves: float = 0.0
    cost: float = 0.0

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """Bounds of a reward: from minus the cost of a move to 1."""
        return (-self.cost, 1.0)

    @property
    def facts(self) -> EnvironmentSpec:
        """Public facts, with those about rewards declared for the drawn ones."""
        slope = np.pi * self.waves if self.waves else 1.0
        of = "state-action" if self.cost else "state"
        bounds = self.reward_bounds
        return replace(super().facts, name="drawn", reward_bounds=bounds, reward_of=of, reward_lipschitz=float(slope))

    def reward(self, state: Any, action: Any) -> Any:
        """Return the reward, which is private."""
        s = jnp.asarray(state, jnp.float64).mean(-1)
        tent = 1.0 - jnp.abs(s - self.place)
        wave = 0.5 + 0.5 * jnp.cos(2.0 * np.pi * self.waves * (s - self.place))
        return (wave if self.waves else tent) - self.cost * (jnp.asarray(action) % 2)


def problem(family: str, seed: int) -> DrawnWalk:
    """Return the family's walk for a seed."""
    rng = np.random.default_rng([("place", "waves", "costly").index(family), seed])
    place, discount = float(rng.uniform(0.0, 1.0)), float(rng.choice([0.8, 0.9]))
    waves = float(rng.uniform(0.5, 1.5)) if family == "waves" else 0.0
    cost = float(rng.uniform(0.05, 0.2)) if family == "costly" else 0.0
    return DrawnWalk(place=place, waves=waves, cost=cost, discount=discount)


def gain(walk: DrawnWalk, people: int, seed: int, **options: Any) -> float:
    """Return the share of the possible gain that one release reaches."""
    algorithm = dprl.FunctionalQ(people=people, **options)
    q = dprl.train(walk, BUDGET, algorithm=algorithm, simulated=True, seed=seed).q_function
    moves = walk.transition_matrix(POINTS)
    rewards = np.stack([np.asarray(walk.reward(POINTS[:, None], a)) for a in range(2)])
    ahead = np.zeros((3, len(POINTS)))
    chosen = q.policy(POINTS)
    for _ in range(walk.horizon):
        values = rewards[:, None] + walk.discount * np.einsum("ast,pt->aps", moves, ahead)
        learned = values[chosen, 0, np.arange(len(POINTS))]
        ahead = np.stack([learned, values[:, 1].mean(axis=0), values[:, 2].max(axis=0)])
    of_policy, by_chance, best = ahead.mean(axis=1)
    return float((of_policy - by_chance) / (best - by_chance))


def mean_and_error(gains: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(np.mean(gains)), float(np.std(gains, ddof=1) / len(gains) ** 0.5)


def run() -> dict[str, Any]:
    """Return the record of the problems that were not used for any choice."""
    rows, goals = [], []
    for family, seed in JUDGING:
        walk, row = problem(family, seed), [f"{family} {seed}"]
        for people, least in PEOPLE.items():
            gains = [gain(walk, people, r) for r in range(RUNS)]
            mean, error = mean_and_error(gains)
            if abs(mean - least) < 2.0 * error:
                mean, error = mean_and_error([*gains, *(gain(walk, people, r) for r in range(RUNS, MORE_RUNS))])
            row += [figure(mean), figure(error)]
            goals.append(goal(f"{family}, {people} people", mean, least, True))
        rows.append(row)
    return {
        "title": "Functional Q-learning with default options on walks drawn by seed",
        "notes": [
            f"Share of the possible gain over acting by chance, mean of {RUNS} releases at (0.9, 1e-4) and its "
            f"standard error; of {MORE_RUNS} releases where {RUNS} leave the goal within two standard errors. Features "
            "were compared on other seeds of place and waves; how much of the differences of actions is taken away was "
            "compared on other seeds of costly, too."
        ],
        "table": table(["problem", "n = 30", "error", "n = 100", "error"], rows),
        "goals": goals,
    }
