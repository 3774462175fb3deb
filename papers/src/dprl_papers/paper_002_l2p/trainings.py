"""Several trainings of each protector of paper 002, from other seeds, and the error of what is measured of them."""

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
    """Return the seeds of a method's trainings: one where it is quick, or nothing is ``learned``."""
    return range(run.seed, run.seed + (TRAININGS if learned and not run.quick else 1))


def count_of(run: Run) -> str:
    """Return how many trainings there are, in words for a caption."""
    return "one training" if run.quick else f"{TRAININGS} trainings"


def errors_over(run: Run) -> str:
    """Return what a caption says of errors."""
    return "over runs" if run.quick else f"over runs and, of L2P, over {TRAININGS} trainings as well"


def over_trainings(
    run: Run, function: Callable[..., dict[str, Any]], *given: Any, learned: bool = True
) -> dict[str, np.ndarray]:
    """Return what ``function`` measures of each protector, the first axis that of trainings; kept one by one.

    Its last argument is the seed of the training. Runs have the same seeds whatever was trained, as all methods are
    compared in them.
    """
    each = [run.kept(function, run, *given, seed) for seed in seeds_of(run, learned)]
    return {name: np.array([one[name] for one in each]) for name in each[0]}


def standard_error(values: np.ndarray, factor: Callable[[int], float] = lambda count: 1.0) -> float:
    """Return the standard error of the mean of ``(trainings, runs)``, of both together.

    ``factor`` of their number multiplies each.
    """
    means = [m for m in (values.mean(axis=1), values.mean(axis=0)) if len(m) > 1]
    return math.hypot(*(factor(len(m)) * float(m.std(ddof=1)) / math.sqrt(len(m)) for m in means))


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of ``(trainings, runs)`` and half the width of its 95% interval, by Student's t."""
    return float(values.mean()), standard_error(values, lambda count: float(stats.t.ppf(0.975, count - 1)))


def error_text(values: np.ndarray, places: int = 3) -> str:
    """Return the mean of ``(trainings, runs)`` with its standard error."""
    return f"{number(float(values.mean()), places)} ± {number(standard_error(values), places)}"
