"""RiverSwim learned from people who answer

Where: Rio et al. 2025, RiverSwim (with our steps, starts and budgets)

Note: Each of N people swims once, from anywhere, for 12 steps. At epsilon 10 there is hardly any noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import dprl
from dprl.accounting.budget import Budget
from dprl.bounds import Interval
from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table, mean_text
from dprl_papers.paper_beyond.processes import Process, river_swim

VALUES = (2000, 20_000)
QUICK = (500,)
EPSILON = (0.3, 1.0, 4.0, 10.0)


def draw(run: Run) -> dict[str, Any]:
    """Draw what the learned policies lose against the best."""
    process = river_swim()
    chance = process.value() - process.value(np.full(process.shape, 1.0 / process.shape[2]))
    given = (run.delta, run.seed, run.trials)
    rows = [
        [plain(people), *(mean_text(run.values_of(measure, epsilon, people, *given), 3) for epsilon in run.epsilon)]
        for people in run.whole
    ]
    caption = "RiverSwim: value that dp-pg with default options loses against the best policy, which is worth "
    caption += f"{process.value():.2f}; acting by chance loses {chance:.2f} "
    caption += f"(mean ± standard error over {run.trials} seeds)."
    return figure_contents(
        tables=[make_table(caption, ["N", *(f"ε = {plain(epsilon)}" for epsilon in run.epsilon)], rows)]
    )


def measure(epsilon: float, people: int, delta: float, seed: int, seeds: int) -> np.ndarray:
    """Return ``(seeds,)`` what is lost."""
    budget = Budget(epsilon, delta)
    return np.array([lost_by_learning(river_swim(), people, budget, one) for one in range(seed, seed + seeds)])


# --- people who answer one after the other, as ``dp-pg`` learns from them ---------------------------------------------


@dataclass(frozen=True, eq=False)
class ProcessEnvironment:
    """A stationary process as an environment; a state is seen as its number, and an episode begins anywhere.

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
    release = dprl.train(
        ProcessEnvironment(process), budget, algorithm=dprl.DPPG(users=users), simulated=True, seed=seed
    )
    chances = release.policy(np.arange(process.shape[1], dtype=float)[:, None])
    return process.value() - process.value(np.broadcast_to(chances, process.shape))
