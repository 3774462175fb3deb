"""Paper 002's classifiers (C.2, C.3, figures 4 and 7): accuracy and training loss for each epsilon.

The private data are the digits 3 and 5, and one simulated country. The other digits and other countries are public. The
numbers that a method has to choose are the best on public tasks. Protectors are trained on public tasks, each for all
epsilon at once. Runs are simulations with public seeds; each run has its own split of the digits, or its own people.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.protectors.meta_training import Training, simulation_of
from dprl.protectors.projector import Architecture, Weights
from dprl.protectors.simulation import Simulation, unroll
from dprl_papers.baselines import agd, descent, objective_perturbation, output_perturbation
from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p.trainings import DELTA, SCHEDULERS, Learned, learned
from dprl_papers.records import tables
from dprl_papers.records.losses import Records, accuracy
from dprl_papers.records.tasks import OTHERS, Classification

Table = Literal["census", "digits"]
Kind = Literal["logistic", "svm", "network"]

EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
PRIVATE = (3, 5)
UNITS = {"digits": 292, "census": 2000}
"""Records that are protected; four fifths of the digits 3 and 5."""
STEPS = (5, 20, 60)
SIZES = tuple(float(s) for s in np.geomspace(0.003, 100.0, 12))
REACHES = tuple(float(s) for s in np.geomspace(0.01, 100.0, 9))
RIDGES = tuple(float(s) for s in np.geomspace(1.0, 3e4, 10))
"""Ridges of the sum over all records, for objective and output perturbation."""
PUBLIC = 6
"""Public tasks on which a baseline's numbers are chosen, with two runs each."""
METHODS = (
    "no privacy",
    "L2P, public schedule",
    "L2P, adaptive noise",
    "SGD-MA",
    "SGD-Adv",
    "AGD",
    "objective perturbation",
    "output perturbation",
)
_COUNTRY = 1990


def family_of(kind: Kind, table: Table, digits: tuple[int, ...] = OTHERS) -> Classification:
    """Return the family of public tasks."""
    network = kind == "network"
    return Classification(
        kind=kind,
        table=table,
        digits=digits,
        units=UNITS[table],
        records=150 if network else 250,
        step_size=4.0 if network else 2.0,
    )


def target(table: Table, seed: jax.Array) -> tuple[Records, Records]:
    """Return the protected records of run ``seed``, and the records on which a classifier is judged."""
    key = jax.random.key(_COUNTRY)
    people = jax.random.fold_in(key, seed)
    units = UNITS[table]
    if table == "census":
        both = tables.census(key, people, 2 * units)
    else:
        x, y = (jnp.asarray(a) for a in tables.digit_pair(PRIVATE, OTHERS))
        order = jax.random.permutation(people, len(y))
        both = Records(x[order], y[order])
    return jax.tree.map(lambda a: a[:units], both), jax.tree.map(lambda a: a[units:], both)


def public_tasks(family: Classification, count: int) -> Records:
    """Return ``count`` public tasks, stacked."""
    return jax.vmap(family.sample)(jax.random.split(jax.random.key(_COUNTRY + 1), count))


# --- a method's answer for its numbers --------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=(0, 1, 2))
def _answer(
    method: str, family: Classification, rounds: int, records: Records, numbers: jax.Array, seed: Any
) -> jax.Array:
    """Return the ``(d,)`` parameters of a method's answer.

    ``rounds`` is the number of steps, or the largest number of rounds. ``numbers`` ``(3,)`` holds the method's other
    numbers, see :func:`choices`.

    Fewer records than declared represent all of them, so noise and ridges are those of the mean.
    """
    loss, start = family.record_loss, family.initial()
    copies = family.units / records.y.shape[0]
    if method in ("SGD-MA", "SGD-Adv", "no privacy"):
        visited = descent.descend(
            descent.Descent(steps=rounds), loss, records, start, numbers[0] / copies, 1.0, numbers[1], seed
        )
        # the mean of the last half, as in the hand schedule
        return jnp.mean(visited[-max(1, rounds // 2) :], axis=0)
    if method == "AGD":
        square = copies**2
        return agd.descend(
            agd.AGD(), loss, rounds, records, start, numbers[0] * square, numbers[1] * square, 1.0, numbers[2], seed
        ).parameters
    release = objective_perturbation.release if method.startswith("objective") else output_perturbation.release
    ridge, std = numbers[1] / copies, numbers[0] / copies if method.startswith("objective") else numbers[0]
    return release(loss, records, ridge, std, seed).astype(jnp.float32)  # type: ignore[arg-type]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _public_losses(
    method: str, family: Classification, rounds: int, tasks: Records, numbers: jax.Array, seeds: jax.Array
) -> jax.Array:
    """Return the ``(numbers,)`` mean losses over tasks and seeds."""

    def one(task: Records, n: jax.Array, seed: jax.Array) -> jax.Array:
        return family.loss(task, _answer(method, family, rounds, task, n, seed))

    over = jax.vmap(jax.vmap(jax.vmap(one, (None, None, 0)), (0, None, None)), (None, 0, None))
    return jnp.mean(over(tasks, numbers, seeds), axis=(1, 2))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _judged(
    method: str, family: Classification, table: Table, rounds: int, numbers: jax.Array, seeds: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the ``(seeds,)`` accuracies on held-out records, and training losses."""

    def one(seed: jax.Array) -> tuple[jax.Array, jax.Array]:
        train, test = target(table, seed)
        theta = _answer(method, family, rounds, train, numbers, seed)
        return accuracy(family.record_loss, theta, test), family.loss(train, theta)

    return jax.vmap(one)(seeds)


def choices(method: str, family: Classification, epsilon: float) -> list[tuple[int, np.ndarray]]:
    """Return numbers of steps, or of rounds at most, each with the ``(k, 3)`` candidate numbers of :func:`_answer`."""
    budget = Budget(epsilon, DELTA)
    if method in ("SGD-MA", "SGD-Adv", "no privacy"):
        accounting = "strong-composition" if method == "SGD-Adv" else "pld"
        found = []
        for steps in STEPS if method != "no privacy" else (200,):
            config = descent.Descent(steps=steps, accounting=accounting)
            z = 0.0 if method == "no privacy" else descent.noise_multiplier(config, budget)
            found.append((steps, np.array([(z, s, 0.0) for s in SIZES], np.float32)))
        return found
    if method == "AGD":
        config = agd.AGD()
        rho, query = agd.budget_rho(budget), agd.query_rho(config, budget)
        return [(agd.most_rounds(config, budget), np.array([(rho, query, r) for r in REACHES]))]
    loss = family.record_loss
    rows = []
    for ridge in RIDGES:
        make = objective_perturbation.noise_std if method.startswith("objective") else output_perturbation.noise_std
        try:
            rows.append((make(budget, loss, ridge), ridge, 0.0))  # type: ignore[arg-type]
        except DprlError:
            continue  # this epsilon needs a larger ridge
    # equally many for every epsilon, so that one compiled program serves all
    return [(1, np.array([rows[0]] * (len(RIDGES) - len(rows)) + rows))]


def chosen(method: str, family: Classification, epsilon: float) -> dict[str, Any]:
    """Return the choice that is best on public tasks: ``rounds`` and ``numbers``."""
    tasks, found = public_tasks(family, PUBLIC), []
    for rounds, numbers in choices(method, family, epsilon):
        losses = np.asarray(_public_losses(method, family, rounds, tasks, jnp.asarray(numbers), jnp.arange(2)))
        k = int(np.nanargmin(losses))
        found.append({"rounds": rounds, "numbers": numbers[k].tolist(), "loss": float(losses[k])})
    return min(found, key=lambda one: one["loss"])


# --- protectors -------------------------------------------------------------------------------------------------------


def training_of(kind: Kind, quick: bool, seed: int, wide: bool) -> Training:
    return Training(
        epochs=20 if quick else 150 if kind == "network" else 300,
        tasks=4 if kind == "network" else 12,
        repeats=1,
        learning_rate=1e-2,
        spread=5.3 if wide else 1.0,
        incremental=(0.0, 0.3),
        validate=10 if quick else 50,
        validation=8 if kind == "network" else 48,
        seed=seed,
    )


def protector_of(
    run: Run, family: Classification, method: str, epsilon: float | None, seed: int
) -> tuple[Simulation, Learned]:
    """Return a simulation and its protector, trained at one epsilon, or, for None, at all epsilon at once."""
    middle = math.sqrt(EPSILONS[0] * EPSILONS[-1])
    architecture = Architecture(scheduler=SCHEDULERS[method], hidden=10)
    simulation = simulation_of(family, architecture, Budget(epsilon or middle, DELTA))
    return simulation, learned(run, simulation, training_of(family.kind, run.quick, seed, epsilon is None))


@partial(jax.jit, static_argnums=(0, 1))
def _protected(
    simulation: Simulation, table: Table, weights: Weights, factor: Any, seeds: jax.Array
) -> tuple[jax.Array, ...]:
    """Return the ``(seeds,)`` accuracies on held-out records, training losses, and steps until the budget is spent."""
    family = simulation.family

    def one(seed: jax.Array) -> tuple[jax.Array, ...]:
        train, test = target(table, seed)
        key = jax.random.fold_in(jax.random.key(5), seed)
        found = unroll(simulation, weights, train, key, factor, deployed=True)
        fit = accuracy(family.record_loss, found.answer, test), family.loss(train, found.answer)
        return *fit, jnp.sum(found.costs > 0.0)

    return jax.vmap(one)(seeds)


def measure(run: Run, method: str, kind: Kind, table: Table, epsilon: float, trials: int, seed: int) -> dict[str, Any]:
    """Return ``accuracy`` and ``loss``, ``(trials,)`` each, and a protector's ``steps``; ``seed`` is of training."""
    family = family_of(kind, table)
    if method in SCHEDULERS:
        return protected_at(run, family, method, None, table, epsilon, trials, seed)
    # one choice for all epsilon where the choice does not depend on epsilon
    best = run.cached(chosen, method, family, EPSILONS[0] if method == "no privacy" else epsilon)
    seeds = jnp.arange(run.seed, run.seed + trials) + 100
    found = _judged(method, family, table, best["rounds"], jnp.asarray(best["numbers"]), seeds)
    return dict(zip(("accuracy", "loss"), found, strict=True))


def protected_at(
    run: Run, family: Classification, method: str, trained_at: float | None, table: Table, epsilon: float, trials: int,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the results of a deployed protector of ``family``'s public tasks on the private table."""
    seeds = jnp.arange(run.seed, run.seed + trials) + 100
    simulation, protector = protector_of(run, family, method, trained_at, seed)
    wanted = simulation_of(family, simulation.architecture, Budget(epsilon, DELTA)).std
    found = _protected(simulation, table, protector.weights, jnp.float32(wanted / simulation.std), seeds)
    return dict(zip(("accuracy", "loss", "steps"), found, strict=True))


def mismatched(
    run: Run, method: str, digits: tuple[int, ...], kind: Kind, epsilon: float, trials: int, seed: int
) -> dict[str, Any]:
    """Return the results for figure 4, of a protector trained only on pairs of ``digits``, on the digits 3 and 5."""
    return protected_at(run, family_of(kind, "digits", digits), method, epsilon, "digits", epsilon, trials, seed)
