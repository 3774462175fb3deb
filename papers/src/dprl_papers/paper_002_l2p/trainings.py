"""Several trainings of each protector of paper 002, from different seeds, and the errors of their measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from dprl.report.formatting import number
from dprl_papers.harness.programmed import Run

TRAININGS = 3
SCHEDULERS: dict[str, Any] = {
    "L2P-Proj": "uniform",
    "L2P, public schedule": "public",
    "L2P, adaptive noise": "adaptive",
}


def seeds_of(run: Run, learned: bool = True) -> range:
    """Return the seeds of a method's trainings: one seed in a quick run, or if nothing is ``learned``."""
    return range(run.seed, run.seed + (TRAININGS if learned and not run.quick else 1))


def count_of(run: Run) -> str:
    """Return the number of trainings, in words for a caption."""
    return "one training" if run.quick else f"{TRAININGS} trainings"


def errors_over(run: Run) -> str:
    """Return a caption's words on errors."""
    return "over runs" if run.quick else f"over runs and, of L2P, over {TRAININGS} trainings as well"


def over_trainings(
    run: Run, function: Callable[..., dict[str, Any]], *given: Any, learned: bool = True
) -> dict[str, np.ndarray]:
    """Return what ``function`` measures for each training of a protector; the first axis is that of trainings.

    The last argument of ``function`` is the seed of the training. Each training's result is kept separately. Runs have
    the same seeds for all trainings, because all methods are compared on the same runs.
    """
    each = [run.kept(function, run, *given, seed) for seed in seeds_of(run, learned)]
    return {name: np.array([one[name] for one in each]) for name in each[0]}


def standard_error(values: np.ndarray, factor: Callable[[int], float] = lambda count: 1.0) -> float:
    """Return the standard error of the mean of ``(trainings, runs)`` values, from trainings and runs together.

    The standard error over trainings, and that over runs, is multiplied by ``factor`` of their number.
    """
    means = [m for m in (values.mean(axis=1), values.mean(axis=0)) if len(m) > 1]
    return math.hypot(*(factor(len(m)) * float(m.std(ddof=1)) / math.sqrt(len(m)) for m in means))


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of ``(trainings, runs)`` values and half the width of its 95% interval, by Student's t."""
    return float(values.mean()), standard_error(values, lambda count: float(stats.t.ppf(0.975, count - 1)))


def error_text(values: np.ndarray, places: int = 3) -> str:
    """Return the mean of ``(trainings, runs)`` values with its standard error, as text."""
    return f"{number(float(values.mean()), places)} ± {number(standard_error(values), places)}"
