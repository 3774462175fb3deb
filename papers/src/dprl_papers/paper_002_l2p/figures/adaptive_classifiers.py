"""Adaptive noise for classifiers

Where: C.2

Statement: In this section, we provide additional experiments for evaluating the generalization ability of L2P.

Note: The synthetic census, 2,000 people, and the protectors' training of figures 7 and “logistic”, three times from
other seeds. The noise follows the norm of the step before and is accounted by a Renyi filter at (ε, 1e-8).
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.protectors.learn import simulation_of
from dprl.protectors.projector import Architecture
from dprl.protectors.simulation import unroll
from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, drawn, make_table, mean_text
from dprl_papers.paper_002_l2p import classifiers
from dprl_papers.paper_002_l2p.returns import DELTA, RUNS, learned
from dprl_papers.records.losses import accuracy

VALUES = (0.05, 0.2, 0.8)
QUICK = (0.8,)
KINDS = {"logistic": "Logistic regression", "svm": "Support vector machine"}
TRAININGS = 3
HEADS = ["", "accuracy", "training loss", "steps of 40"]


def measure(run: Run, kind: Any, epsilons: tuple[float, ...], trials: int) -> list[list[float]]:
    """Return, for each epsilon, accuracy, training loss and steps of a protector: means over ``trials`` runs.

    One protector, trained from the run's seed, serves all epsilons, as in figure 7.
    """
    family = classifiers.family_of(kind, "census")
    made = partial(simulation_of, family, Architecture(scheduler="adaptive", hidden=10))
    simulation = made(Budget(math.sqrt(classifiers.EPSILONS[0] * classifiers.EPSILONS[-1]), DELTA))
    weights = learned(run, simulation, classifiers.training_of(kind, run.quick, run.seed, True)).weights

    @jax.jit
    def one(seed: jax.Array, factor: jax.Array) -> tuple[jax.Array, ...]:
        train, test = classifiers.target("census", seed)
        key = jax.random.fold_in(jax.random.key(5), seed)
        found = unroll(simulation, weights, train, key, factor, deployed=True)
        fit = accuracy(family.record_loss, found.answer, test), family.loss(train, found.answer)
        return *fit, jnp.sum(found.costs > 0.0)

    factors = [jnp.float32(made(Budget(e, DELTA)).std / simulation.std) for e in epsilons]
    runs = jax.vmap(one, (0, None))
    return [[float(x.mean()) for x in runs(jnp.arange(trials) + 100, factor)] for factor in factors]


def draw(run: Run) -> dict[str, Any]:
    """Draw accuracy and loss of adaptive noise, over its trainings."""
    runs, rows = min(run.trials, RUNS), []
    seeds = range(run.seed, run.seed + (1 if run.quick else TRAININGS))
    for kind, label in KINDS.items():
        each = [dataclasses.replace(run, seed=seed) for seed in seeds]
        values = np.array([run.kept(measure, one, kind, run.values, runs) for one in each])
        for i, epsilon in enumerate(run.values):
            cells = [mean_text(values[:, i, j], places) for j, places in enumerate((3, 3, 1))]
            rows.append([f"{label}, ε = {plain(epsilon)}", *cells])
    caption = f"Adaptive noise on the synthetic census: mean over {runs} runs of each protector, ± standard error over "
    caption += f"{len(seeds)} protectors that were trained from other seeds."
    return drawn(tables=[make_table(caption, HEADS, rows)])
