"""Trained protectors of paper 002, which all figures share, and the errors of measurements over several trainings.

Each protector is trained from several seeds. All data are simulated, or a public table. Noise is drawn from public
seeds, in floating point instead of on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

from dprl.protectors.meta_training import Training, train
from dprl.protectors.projector import Weights
from dprl.protectors.simulation import Simulation
from dprl.report.formatting import number
from dprl_papers.harness.programmed import Run
from dprl_papers.harness.versions import code_of, libraries

DELTA = 1e-8
"""Delta of every figure except those of policy evaluation."""
RUNS = 20
"""Most runs of a point but figure 8's."""


@dataclass(frozen=True)
class Learned:
    """A trained protector's weights, and its training log."""

    weights: Weights
    log: list[dict[str, float]]


def learned(
    run: Run, simulation: Simulation, training: Training, begin: Weights | None = None, after: str = ""
) -> Learned:
    """Return a protector that is trained once for all figures.

    Training starts from the weights ``begin``, which ``after`` names in the key of the result.
    """
    modules = (type(simulation.family).__module__, "dprl.protectors.meta_training")
    key = {
        "protector": {"family": simulation.family.name, "simulation": simulation},
        "training": training,
        "after": after,
        "code": [code_of(name) for name in modules],
        "libraries": libraries(),
    }

    def compute() -> dict[str, Any]:
        found = train(simulation, training, begin)
        return {"weights": {name: np.asarray(w) for name, w in found.weights.items()}, "log": found.log}

    kept = run.store.kept(key, compute)
    return Learned({name: jnp.asarray(w, jnp.float32) for name, w in kept["weights"].items()}, kept["log"])


# --- several trainings ------------------------------------------------------------------------------------------------

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
    each = [run.cached(function, run, *given, seed) for seed in seeds_of(run, learned)]
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
