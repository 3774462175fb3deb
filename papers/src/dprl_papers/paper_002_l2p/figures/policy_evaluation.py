"""Private policy evaluation with a learned protector

Where: Past the paper: GPOPE (paper 004) on logs of 300 episodes at (ε, 1e-5)

Note: Random chains of 30 states whose episodes of at most 12 steps end with an outcome of 0 or 1; 12 radial basis
functions, 100 steps at a rate of 1/20, the whole budget on the value function. Hand schedules are the best of a grid
of 500 on public chains; protectors were trained on public chains; both are measured on 48 others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_002_l2p.protectors import (
    FORMS,
    REPEATS,
    UNSEEN,
    family_of,
    geometric,
    hand_on_unseen,
    protected_on_unseen,
    searched_grid,
)
from dprl_papers.paper_002_l2p.trainings import count_of, over_trainings

EPSILON = (0.1, 1.0)
GEOMETRIC, ARITHMETIC, WORST = 0.75, 0.85, 1.5
"""Largest ratio of a protector's error to that of the best hand schedule: both means, and that of any one task."""


def draw(run: Run) -> dict[str, Any]:
    """Draw unseen chains: protectors against the hand schedules that are best on public tasks."""
    rows, claims = [], []
    for epsilon in run.epsilon:
        found, at = searched_grid(run, epsilon), f"ε = {plain(epsilon)}"
        best = [found.best("arithmetic"), found.best("geometric")]
        hands = run.values_of(hand_on_unseen, run, epsilon, best)
        least = min(x.mean() for x in hands), min(geometric(x) for x in hands)
        for name, point, errors in zip(("best mean", "best geometric mean"), best, hands, strict=True):
            edge = found.on_edge(point)
            text = f"step {plain(point.step_size)} and {plain(point.step_size * point.ratio)}, "
            text += f"clip {plain(point.clip_norm)}, {'the last half' if point.tail < 1.0 else 'all'}"
            text += f"; on the edge: {', '.join(edge)}" if edge else "; inside the grid"
            rows.append(_row(f"{at}: hand schedule, {name} ({text})", errors[None], least))
        for form in (*FORMS, "its fallback"):
            learns = form in FORMS
            about = (epsilon, form if learns else "dense", family_of(epsilon), REPEATS, learns)
            found = over_trainings(run, protected_on_unseen, *about, learned=learns)
            name = f"protector, {form}" if learns else form
            rows.append(_row(f"{at}: {name}", found["errors"], least, hands[0], found["rmse"]))
            if form == "dense":
                claims.append(_claim(epsilon, found["errors"], least, hands[0]))
    caption = f"MSPBE over that of the mid-range start on {UNSEEN} unseen chains, mean over {REPEATS} runs of each; "
    caption += "beside it over the best hand schedule's, and on the worst task. Of a protector the mean of "
    caption += f"{count_of(run)}, with its standard error over them, and the worst task of all."
    heads = ["", "mean", "geometric mean", "over best hand: mean", "geometric mean", "worst task", "RMSE of V"]
    return figure_contents(tables=[make_table(caption, heads, rows)], claims=claims)


def _claim(epsilon: float, errors: np.ndarray, least: tuple[float, float], hand: np.ndarray) -> dict[str, Any]:
    each = [(geometric(one) / least[1], one.mean() / least[0], float(np.max(one / hand))) for one in errors]
    return make_claim(
        f"At ε = {plain(epsilon)} the error on unseen chains of each protector, whatever the seed of its training, is "
        f"at most {GEOMETRIC} times (geometric mean) and {ARITHMETIC} times (mean) that of the best hand schedule, and "
        f"on no task above {WORST} times.",
        bool(np.all(np.array(each) <= (GEOMETRIC, ARITHMETIC, WORST))),
        "; ".join(f"{number(low, 3)}, {number(mean, 3)} and {number(worst, 2)}" for low, mean, worst in each) + ".",
        ours=True,
    )


def _row(
    name: str, errors: np.ndarray, least: tuple[float, float], hand: np.ndarray | None = None, rmse: Any = None
) -> list[str]:
    """Return a row of ``(trainings, tasks)`` errors."""
    mean, middle = errors.mean(axis=1), np.array([geometric(one) for one in errors])
    return [
        name,
        *(_mean_text(values, 3) for values in (mean, middle, mean / least[0], middle / least[1])),
        "–" if hand is None else number(float(np.max(errors / hand)), 2),
        "–" if rmse is None else _mean_text(rmse.mean(axis=1), 3),
    ]


def _mean_text(values: np.ndarray, places: int) -> str:
    """Return the mean of ``(trainings,)`` with its standard error, which one training has not."""
    text = number(float(values.mean()), places)
    if len(values) == 1:
        return text
    return f"{text} ± {number(float(values.std(ddof=1)) / math.sqrt(len(values)), places)}"
