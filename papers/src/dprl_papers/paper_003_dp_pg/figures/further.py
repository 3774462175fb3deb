"""What each part brings, and what lies past the paper

Where: Remark 1: “natural policy gradient (NPG) and proximal policy optimization (PPO)”

Statement: In the future, as the next step, one can also consider designing private versions of other PO methods, such
as natural policy gradient (NPG) and proximal policy optimization (PPO).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table, mean_text
from dprl_papers.paper_003_dp_pg.returns import Problem, measure_epochs, measured, point

EPSILON = (0.5, 1.0)
VARIANTS: dict[str, dict[str, Any]] = {
    "the recipe": {},
    "replace one": {"relation": "replace-one"},
    "independent noise": {"noise": "independent"},
    "no baseline": {"baseline_weight": 0.0},
    "vectors in one scale": {"scale_weight": 0.0},
    "score times whole return": {"estimator": "reinforce"},
    "no log barrier": {"regularisation": 0.0},
    "natural gradient": {"natural": True},
    "average of the iterates": {"release": "average"},
    "4 answers a user": {"interactions": 4},
}
ABSENT = {("bandit", "vectors in one scale"), ("cart-pole", "no log barrier")}
"""Parts that the recipe does not have there."""

Measure = Callable[[Problem, int, float], np.ndarray]


def draw(run: Run) -> dict[str, Any]:
    """Draw what each part of the recipe brings, and what goes beyond it."""
    whole: tuple[tuple[Problem, int], ...] = (("bandit", 10_000), ("cart-pole", 1_000))
    quick: tuple[tuple[Problem, int], ...] = (("bandit", 2_000),)
    problems = quick if run.quick else whole
    places: list[tuple[Problem, int, float]] = [
        (problem, users, epsilon) for problem, users in problems for epsilon in run.epsilon
    ]

    def row(name: str, measure: Measure) -> list[str]:
        texts = []
        for problem, users, epsilon in places:
            absent, digits = (problem, name) in ABSENT, 3 if problem == "bandit" else 0
            texts.append("–" if absent else mean_text(measure(problem, users, epsilon), digits))
        return [name, *texts]

    def with_options(options: dict[str, Any]) -> Measure:
        return lambda problem, users, epsilon: measured(run, point(problem, users, epsilon, **options))

    rows = [row(name, with_options(options)) for name, options in VARIANTS.items()]
    for epochs in (2, 4):
        several = lambda *at, epochs=epochs: run.values_of(measure_epochs, *at, epochs, run.seed, run.trials)  # noqa: E731
        rows.append(row(f"PPO, {epochs} epochs, independent noise, one scale", several))
    caption = "One thing changed at a time: share of the gap on the bandit, return on Cart Pole "
    caption += f"({run.trials} seeds)."
    heads = [f"{problem}, N = {plain(users)}, ε = {plain(epsilon)}" for problem, users, epsilon in places]
    return figure_contents(tables=[make_table(caption, ["", *heads], rows)])
