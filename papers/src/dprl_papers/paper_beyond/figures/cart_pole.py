"""PriMORL beside dprl learn on Cart Pole

Where: Rio et al., Section 5 (Cart Pole, with other actions and logs)

Note: Logs of up to 200 steps by a policy that balances in half of its steps and draws an action in the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table, mean_text
from dprl_papers.paper_beyond.primorl import learn_by_dprl, learn_by_primorl, logged

VALUES = (500, 2000)
QUICK = (200,)
EPSILON = (0.3, 1.0)


def draw(run: Run) -> dict[str, Any]:
    """Draw mean returns."""
    at = [(epsilon, people) for epsilon in run.epsilon for people in run.whole]
    rows = [
        [label, *(mean_text(run.values_of(measure, method, *one, run.delta, run.seed, run.trials), 0) for one in given)]
        for label, method, given in (
            ("PriMORL", "primorl", at),
            ("dprl learn, advantage", "advantage", at),
            ("PriMORL, no privacy", "primorl", [(0.0, people) for _, people in at]),
        )
    ]
    done = len(logged(500, run.seed)["t"]) / 500
    caption = f"Mean return in Cart Pole of 500 steps (mean ± standard error over {run.trials} seeds); a logged "
    caption += f"trajectory has {done:.0f} of at most 200 steps."
    return figure_contents(
        tables=[make_table(caption, ["", *(f"ε = {plain(e)}, N = {plain(n)}" for e, n in at)], rows)]
    )


def measure(method: str, epsilon: float, people: int, delta: float, seed: int, seeds: int) -> np.ndarray:
    """Return ``(seeds,)`` mean returns; an epsilon of 0 is no privacy."""
    budget = Budget(epsilon, delta) if epsilon else None
    found = []
    for one in range(seed, seed + seeds):
        if method == "primorl":
            found.append(learn_by_primorl(people, budget, one))
        else:
            assert budget is not None
            found.append(learn_by_dprl(people, budget, method, one))
    return np.array(found)
