"""RiverSwim learned from people who answer

Where: Rio et al. 2025, RiverSwim (with our steps, starts and budgets)

Note: Each of N people swims once, from anywhere, for 12 steps. At epsilon 10 there is hardly any noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, drawn, make_table, mean_text
from dprl_papers.paper_beyond.answering import lost_by_learning
from dprl_papers.paper_beyond.processes import river_swim

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
    return drawn(tables=[make_table(caption, ["N", *(f"ε = {plain(epsilon)}" for epsilon in run.epsilon)], rows)])


def measure(epsilon: float, people: int, delta: float, seed: int, seeds: int) -> np.ndarray:
    """Return ``(seeds,)`` what is lost."""
    budget = Budget(epsilon, delta)
    return np.array([lost_by_learning(river_swim(), people, budget, one) for one in range(seed, seed + seeds)])
