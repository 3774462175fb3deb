"""Adaptive noise for classifiers

Where: C.2

Statement: We evaluate the generalization ability of L2P. [...] The results are similar to the Logistic.

Note: The synthetic census, 2,000 people, and the protectors' training of figures 7 and “logistic”, three times from
other seeds where the noise is adaptive. Adaptive noise follows the norm of the step before and is accounted by a Renyi
filter, so that each row has the guarantee of its column.
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
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table, mean_text
from dprl_papers.paper_002_l2p import classifiers
from dprl_papers.paper_002_l2p.returns import DELTA, RUNS, learned
from dprl_papers.records.losses import accuracy

VALUES = (0.05, 0.2, 0.8)
QUICK = (0.8,)
KINDS = {"logistic": "Logistic regression", "svm": "Support vector machine"}
TRAININGS = {"adaptive": 3, "public": 1}
HEADS = ["", "ε", "accuracy", "training loss", "steps of 40"]


def measure(run: Run, kind: Any, scheduler: Any, epsilons: tuple[float, ...], trials: int) -> list[list[float]]:
    """Return, for each epsilon, accuracy, training loss and steps of a protector: means over ``trials`` runs.

    One protector, trained from the run's seed, serves all epsilons, as in figure 7.
    """
    family, middle = (
        classifiers.family_of(kind, "census"),
        math.sqrt(classifiers.EPSILONS[0] * classifiers.EPSILONS[-1]),
    )
    architecture = Architecture(scheduler=scheduler, hidden=10)
    made = partial(simulation_of, family, architecture)
    simulation = made(Budget(middle, DELTA))
    weights = learned(run, simulation, classifiers.training_of(kind, run.quick, run.seed, True)).weights

    @jax.jit
    def one(seed: jax.Array, factor: jax.Array) -> tuple[jax.Array, ...]:
        train, test = classifiers.target("census", seed)
        key = jax.random.fold_in(jax.random.key(5), seed)
        found = unroll(simulation, weights, train, key, factor, deployed=simulation.adaptive)
        fit = accuracy(family.record_loss, found.answer, test), family.loss(train, found.answer)
        return *fit, jnp.sum(found.costs > 0.0)

    factors = [jnp.float32(made(Budget(e, DELTA)).std / simulation.std) for e in epsilons]
    runs = jax.vmap(one, (0, None))
    return [[float(x.mean()) for x in runs(jnp.arange(trials) + 100, factor)] for factor in factors]


def draw(run: Run) -> dict[str, Any]:
    """Draw accuracy and loss of adaptive noise, over its trainings, beside a public schedule's."""
    runs, rows, claims = min(run.trials, RUNS), [], []
    for kind, label in KINDS.items():
        found = {}
        for scheduler, trainings in TRAININGS.items():
            each = [dataclasses.replace(run, seed=run.seed + i) for i in range(1 if run.quick else trainings)]
            found[scheduler] = np.array([run.kept(measure, r, kind, scheduler, run.values, runs) for r in each])
        for i, epsilon in enumerate(run.values):
            for scheduler, values in found.items():
                cells = [mean_text(values[:, i, j], places) for j, places in enumerate((3, 3, 1))]
                cells = [c.partition(" ±")[0] if len(values) == 1 else c for c in cells]
                rows.append([f"{label}: {scheduler} noise, {len(values)} trained", plain(epsilon), *cells])
        better = [bool(found["adaptive"][:, i, 0].mean() > found["public"][0, i, 0]) for i in range(len(run.values))]
        claims.append(
            make_claim(
                f"{label}: adaptive noise is more accurate than the public schedule at every ε.",
                all(better),
                f"at {sum(better)} of {len(better)}.",
                ours=True,
            )
        )
    caption = f"Synthetic census: mean over {runs} runs of each protector, ± standard error over protectors that were "
    caption += "trained from other seeds."
    return drawn(tables=[make_table(caption, HEADS, rows)], claims=claims)
