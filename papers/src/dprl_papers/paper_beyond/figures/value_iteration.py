"""DP-APVI and DP-VAPVI beside dprl's learners: the value that is lost

Where: RiverSwim (6 states, 2 actions, 12 steps), random processes (10 states, 3 actions, 5 steps), and the linear
process of Section 5 (2 states, 100 actions, 10 features, 20 steps)

Statement: From Figure 1, we can observe that DP-VAPVI performs slightly worse than its non-private version VAPVI.

Note: Random and linear processes are others for each seed. In the first two DP-VAPVI has indicators of state and action
as features. On the linear process dprl's learner knows step and state and none of the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table, mean_text
from dprl_papers.paper_beyond.processes import learn_by_dprl, linear_process, random_process, river_swim
from dprl_papers.paper_beyond.value_iteration import Counts, apvi, counts_mechanism, regression_mechanisms, vapvi

VALUES = (2000, 20_000)
QUICK = (500,)
EPSILON = (1.0, 4.0)
BONUS, EDGE = 1e-4, 0.1
"""Factors of DP-APVI's printed bonus and threshold, in the rows with chosen ones."""
PROCESSES: dict[str, Any] = {"RiverSwim": lambda _: river_swim(), "random": random_process, "linear": linear_process}
PRIVATE = {
    "DP-APVI as printed": "apvi",
    "DP-APVI, chosen constants": "apvi chosen",
    "DP-VAPVI": "vapvi",
    "dprl learn, fitted-q": "fitted-q",
    "dprl learn, advantage": "advantage",
}
SLOW = (("linear", "fitted-q"),)
PLAIN = {"what was done": "done", "APVI, chosen constants, no privacy": "plain", "VAPVI, no privacy": "plain linear"}


def draw(run: Run) -> dict[str, Any]:
    """Draw what is lost against the best policy."""
    return figure_contents(tables=[table_of(run, name) for name in PROCESSES])


def table_of(run: Run, name: str) -> dict[str, Any]:
    """Return the table of one kind of process."""
    at = [(epsilon, people) for epsilon in run.epsilon for people in run.whole]

    def row(label: str, method: str, given: Sequence[Any]) -> list[str]:
        found = (run.values_of(measure, name, method, *one, run.delta, run.seed, run.trials) for one in given)
        return [label, *(mean_text(values, 3) for values in found)]

    rows = [row(label, method, at) for label, method in PRIVATE.items() if (name, method) not in SLOW]
    rows += [row(label, method, [(0.0, people) for _, people in at]) for label, method in PLAIN.items()]
    best = np.mean([PROCESSES[name](seed).value() for seed in range(run.seed, run.seed + run.trials)])
    caption = f"{name}: value lost against the best policy, which is worth {best:.2f} "
    caption += f"(mean ± standard error over {run.trials} seeds)."
    return make_table(caption, ["", *(f"ε = {plain(e)}, N = {plain(n)}" for e, n in at)], rows)


def measure(name: str, method: str, epsilon: float, people: int, delta: float, seed: int, seeds: int) -> np.ndarray:
    """Return ``(seeds,)`` what a method's policy is worth less than the best."""
    return np.array([_lost(name, method, epsilon, people, delta, one) for one in range(seed, seed + seeds)])


def _lost(name: str, method: str, epsilon: float, people: int, delta: float, seed: int) -> float:
    process = PROCESSES[name](seed)
    log = process.draw(seed, people)
    counts, budget = Counts.from_log(process, log), Budget(epsilon or 1.0, delta)
    match method:
        case "done":
            return process.value() - process.value(np.broadcast_to(process.behavior, process.shape))
        case "plain":
            actions = apvi(counts, 0.0, BONUS)
        case "plain linear":
            actions = vapvi(process, counts, None, seed)
        case "vapvi":
            actions = vapvi(process, counts, regression_mechanisms(process, budget), seed)
        case "apvi" | "apvi chosen":
            mechanism = counts_mechanism(process, budget)
            constants = (1.0, 1.0) if method == "apvi" else (BONUS, EDGE)
            actions = apvi(counts.noisy(mechanism, seed), mechanism.noise_std, *constants)
        case _:
            actions = learn_by_dprl(process, log, method, budget, seed)
    return process.value_lost(actions)
