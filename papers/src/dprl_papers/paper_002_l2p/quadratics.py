"""Paper 002's quadratics (C.1): the final losses of every method for each epsilon, on problems outside of training.

All methods have the same budget, each with its own accountant that holds. Step sizes, clip norms and numbers of steps
are the best on *public training problems*, in grids whose optimum is inside, and protectors are trained on such
problems. Runs are simulations with public seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.protectors.meta_training import Training, simulation_of
from dprl.protectors.projector import Architecture, Weights
from dprl.protectors.simulation import Simulation, first_carry, step_body
from dprl_papers.baselines import agd, descent
from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p.trainings import DELTA, SCHEDULERS, Learned, learned, seeds_of
from dprl_papers.records.losses import Records
from dprl_papers.records.tasks import START, Quadratics

EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
STEPS = (10, 20, 30, 40, 50, 60)
"""Numbers of steps of SGD; the best one on public problems is taken."""
PROJECTED = (20, 60)
"""Numbers of steps of L2P-Proj, likewise."""
LONGEST = 60
CLIPS = (0.25, 1.0, 4.0, 16.0)
"""Gradients are some 4 to 12 long: a smaller clip only rescales the step."""
SIZES = tuple(float(s) for s in np.geomspace(1e-4, 1.0, 17))
"""Step sizes of SGD, of the mean gradient; the paper's 0.001 to 0.02 are of the sum of all 60."""
REACHES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Largest candidates of AGD, along a gradient of length one."""
TUNING, TARGETS = 8, 64
_TRAIN, _TARGET = 7, 1000  # seeds of problems
METHODS = ("SGD-Adv", "SGD", "AGD", *SCHEDULERS)


@dataclass(frozen=True)
class Problem:
    """Problem on records.

    Attributes:
        spread: spread of the problems' centres, see :class:`Quadratics`.
        units: number of records for which the noise is calibrated; each of the 60 terms stands for equally many.
    """

    spread: float
    units: int = 60

    @property
    def label(self) -> str:
        where = "as printed" if self.spread == 0.0 else "centres of their own"
        return f"{self.units:,} records, {where}"


PRINTED, OWN, MANY = Problem(0.0), Problem(0.5), Problem(0.5, 6000)


def family_of(problem: Problem, steps: int = LONGEST) -> Quadratics:
    """Return the family of a problem's tasks, for protectors: 60 terms, and noise for all records."""
    return Quadratics(spread=problem.spread, units=problem.units, terms=60, steps=steps)


def problems(problem: Problem, count: int, first: int) -> Records:
    """Return ``count`` problems, stacked, from public seeds."""
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(first), i))(jnp.arange(count))
    return jax.vmap(family_of(problem).sample)(keys)


def minimal(tasks: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimisers ``(k, 2)`` of stacked problems and their losses ``(k,)``, by the normal equations."""
    x, y = np.asarray(tasks.x, np.float64), np.asarray(tasks.y, np.float64)
    matrix = np.einsum("tnij,tnik->tjk", x, x) + 0.001 * np.eye(2)
    best = np.linalg.solve(matrix, np.einsum("tnij,tni->tj", x, y)[..., None])[..., 0]
    rest = np.einsum("tnij,tj->tni", x, best) - y
    return best, (rest**2).sum(axis=(1, 2)) / x.shape[1] + 0.001 / x.shape[1] * (best**2).sum(axis=1)


def own_seeds(tasks: Records, seeds: jax.Array) -> jax.Array:
    """Return ``(problems, seeds)`` seeds, which differ between problems.

    Thus each problem has its own noise, and a mean over problems is also a mean over noise.
    """
    return seeds + 100_000 * jnp.arange(tasks.y.shape[0])[:, None]


# --- baselines --------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=(0, 1))
def _sgd(config: descent.Descent, family: Quadratics, tasks: Records, numbers: jax.Array, seeds: jax.Array) -> Any:
    """Return ``(problems, numbers, seeds)`` last losses.

    A row of ``numbers`` ``(k, 3)`` holds noise multiplier, clip norm and step size.
    """

    def one(task: Records, n: jax.Array, seed: jax.Array) -> jax.Array:
        start = jnp.asarray(START, jnp.float32)
        # several records behind each term have the same mean, with less noise in it
        multiplier = n[0] * family.terms / family.units
        last = descent.descend(config, family.record_loss, task, start, multiplier, n[1], n[2], seed)[-1]
        return family.loss(task, last)

    over_seeds = jax.vmap(one, (None, None, 0))
    each = own_seeds(tasks, seeds)
    return jax.vmap(jax.vmap(over_seeds, (None, 0, None)), (0, None, 0))(tasks, numbers, each)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _agd(
    config: agd.AGD, rounds: int, family: Quadratics, tasks: Records, rho: Any, query: Any, numbers: Any, seeds: Any
) -> Any:
    """Return ``(problems, numbers, seeds)`` last losses, numbers of gradient and objective queries, and steps taken.

    A row of ``numbers`` ``(k, 2)`` holds clip norm and reach.
    """
    copies = (family.units / family.terms) ** 2

    def one(task: Records, n: jax.Array, seed: jax.Array) -> Any:
        start = jnp.asarray(START, jnp.float32)
        # several records behind each term multiply gradients and losses by their number, and rho by its square
        run = agd.descend(
            config, family.record_loss, rounds, task, start, rho * copies, query * copies, n[0], n[1], seed
        )
        return family.loss(task, run.parameters), run.gradient_queries, run.objective_queries, run.steps

    over_seeds = jax.vmap(one, (None, None, 0))
    each = own_seeds(tasks, seeds)
    return jax.vmap(jax.vmap(over_seeds, (None, 0, None)), (0, None, 0))(tasks, numbers, each)


def tuned_sgd(problem: Problem, epsilon: float, accounting: descent.Accounting) -> dict[str, Any]:
    """Return the number of steps, clip norm and step size that are best on public problems."""
    tasks, family = problems(problem, TUNING, _TRAIN), family_of(problem)
    found = []
    for steps in STEPS:
        config = descent.Descent(steps=steps, accounting=accounting)
        z = descent.noise_multiplier(config, Budget(epsilon, DELTA))
        config = descent.Descent(steps=steps)  # a run does not depend on the accountant
        grid = np.array([(z, c, s) for c in CLIPS for s in SIZES], np.float32)
        losses = np.asarray(_sgd(config, family, tasks, grid, jnp.arange(4)), np.float64).mean(axis=(0, 2))
        k = int(np.nanargmin(losses))
        found.append({"steps": steps, "numbers": grid[k].tolist(), "loss": float(losses[k])})
    return min(found, key=lambda one: one["loss"])


def tuned_agd(problem: Problem, epsilon: float) -> np.ndarray:
    """Return the clip norm and reach that are best on public problems."""
    tasks, family, budget = problems(problem, TUNING, _TRAIN), family_of(problem), Budget(epsilon, DELTA)
    config = agd.AGD(largest_loss=20.0)
    grid = np.array([(c, r) for c in CLIPS for r in REACHES], np.float32)
    losses, *_ = _agd(
        config, agd.most_rounds(config, budget), family, tasks, agd.budget_rho(budget),
        agd.query_rho(config, budget), grid, jnp.arange(4),
    )  # fmt: skip
    return grid[int(np.nanargmin(np.asarray(losses, np.float64).mean(axis=(0, 2))))]


# --- protectors -------------------------------------------------------------------------------------------------------


def training_of(quick: bool, seed: int, wide: bool) -> Training:
    """Return the options of training; if ``wide``, training covers all epsilon of figure 6 at once."""
    return Training(
        epochs=40 if quick else 700,
        tasks=32,
        repeats=1,
        learning_rate=5e-3,
        spread=5.3 if wide else 1.0,
        incremental=(0.0, 0.3),
        validate=20 if quick else 100,
        validation=64 if quick else 256,
        seed=seed,
    )


def protector_of(
    run: Run, problem: Problem, method: str, steps: int, epsilon: float, seed: int, wide: bool = False
) -> tuple[Simulation, Learned]:
    """Return a simulation, and a protector of ``method`` that is trained in it, on public problems at ``epsilon``."""
    architecture = Architecture(scheduler=SCHEDULERS[method])
    simulation = simulation_of(family_of(problem, steps), architecture, Budget(epsilon, DELTA))
    return simulation, learned(run, simulation, training_of(run.quick, seed, wide))


@partial(jax.jit, static_argnums=0)
def protected(simulation: Simulation, weights: Weights, tasks: Records, factor: Any, seeds: jax.Array) -> Any:
    """Return last losses and steps taken, ``(problems, seeds)``, and paths, ``(problems, seeds, T, 2)``, when deployed.

    Where its noise is adaptive, the run stops before a step would exceed the budget, as the filter requires.
    """
    steps = simulation.hand.steps

    def one(task: Records, seed: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.key(_TARGET), seed)
        body = step_body(simulation, weights, task, key, factor, deployed=True)

        def seen(carry: Any, step: jax.Array) -> tuple[Any, Any]:
            after, (_, cost) = body(carry, step)
            return after, (after[1], cost > 0.0)

        last, (path, taken) = jax.lax.scan(
            seen, first_carry(simulation, weights, task), jnp.arange(steps, dtype=jnp.int32)
        )
        return simulation.family.loss(task, last[1]), jnp.sum(taken), path

    return jax.vmap(jax.vmap(one, (None, 0)))(tasks, own_seeds(tasks, seeds))


# --- a figure's numbers -----------------------------------------------------------------------------------------------


def measure(
    run: Run, problem: Problem, method: str, epsilon: float, trials: int, wide: bool, seed: int
) -> dict[str, Any]:
    """Return ``losses`` ``(problems, trials)`` above the minimum, the ``chosen`` numbers, ``steps``, and ``queries``.

    Nothing was tuned or trained on the problems; the first of them is figure 8's. ``steps`` counts the steps taken, and
    ``queries`` the queries of the data.

    ``seed`` is the seed of training.
    """
    tasks, budget = problems(problem, 4 if run.quick else TARGETS, _TARGET), Budget(epsilon, DELTA)
    seeds, family = jnp.arange(run.seed, run.seed + trials) + 100, family_of(problem)
    least = minimal(tasks)[1][:, None]
    if method in ("SGD", "SGD-Adv"):
        best = run.cached(tuned_sgd, problem, epsilon, "pld" if method == "SGD" else "strong-composition")
        config = descent.Descent(steps=best["steps"])
        losses = _sgd(config, family, tasks, jnp.asarray([best["numbers"]], jnp.float32), seeds)[:, 0]
        chosen = f"T = {best['steps']}, C = {best['numbers'][1]:g}, step {best['numbers'][2]:.2g}"
        return _found(losses - least, chosen, best["steps"], best["steps"])
    if method == "AGD":
        config, numbers = agd.AGD(largest_loss=20.0), run.cached(tuned_agd, problem, epsilon)
        losses, gradients, objectives, taken = _agd(
            config, agd.most_rounds(config, budget), family, tasks, agd.budget_rho(budget),
            agd.query_rho(config, budget), jnp.asarray([numbers], jnp.float32), seeds,
        )  # fmt: skip
        chosen = f"C = {numbers[0]:g}, steps up to {numbers[1]:.2g}"
        return _found(losses[:, 0] - least, chosen, float(taken.mean()), float((gradients + objectives).mean()))
    lengths = PROJECTED if method == "L2P-Proj" and not wide and not run.quick else (LONGEST,)
    made = [protector_of(run, problem, method, t, epsilon_of_training(epsilon, wide), seed, wide) for t in lengths]
    simulation, found = min(made, key=lambda one: min(r["validation"] for r in one[1].log))
    factor = simulation_of(simulation.family, simulation.architecture, budget).std / simulation.std
    losses, taken, _ = protected(simulation, found.weights, tasks, jnp.float32(factor), seeds)
    # an adaptive step releases a norm, too
    each = 2 if simulation.adaptive else 1
    return _found(losses - least, f"T = {simulation.hand.steps}", float(taken.mean()), each * float(taken.mean()))


def epsilon_of_training(epsilon: float, wide: bool) -> float:
    """Return the epsilon of training.

    A protector that is trained over all epsilon of figure 6 has noise around that of their geometric mean.
    """
    return math.sqrt(EPSILONS[0] * EPSILONS[-1]) if wide else epsilon


def _found(losses: Any, chosen: str, steps: float, queries: float) -> dict[str, Any]:
    return {"losses": np.asarray(losses).tolist(), "chosen": chosen, "steps": steps, "queries": queries}


def lies_below(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether the first mean's interval lies below the second's."""
    return first[0] + first[1] < second[0] - second[1]


def dataless(problem: Problem, quick: bool) -> dict[str, np.ndarray]:
    """Return the ``(1, problems, 2)`` losses above the minimum of two answers that need no data."""
    tasks = problems(problem, 4 if quick else TARGETS, _TARGET)
    least = minimal(tasks)[1]
    found = {}
    for name, theta in (("no data: the start", START), ("no data: the origin", (0.0, 0.0))):
        losses = jax.vmap(lambda t, theta=theta: family_of(problem).loss(t, jnp.asarray(theta, jnp.float32)))(tasks)
        found[name] = np.repeat((np.asarray(losses) - least)[None, :, None], 2, axis=2)
    return found


def paths(run: Run, problem: Problem, epsilon: float, trials: int) -> dict[str, Any]:
    """Return the mean paths in the plane of each method on the first problem, and the problem's minimiser."""
    tasks = problems(problem, 1, _TARGET)
    one, seeds = jax.tree.map(lambda a: a[0], tasks), jnp.arange(run.seed, run.seed + trials) + 100
    family, budget, start = family_of(problem), Budget(epsilon, DELTA), jnp.asarray(START, jnp.float32)
    copies, found = family.units / family.terms, {}
    best = run.cached(tuned_sgd, problem, epsilon, "pld")
    z, clip, size = best["numbers"]
    found["SGD"] = jax.vmap(
        lambda s: descent.descend(
            descent.Descent(steps=best["steps"]), family.record_loss, one, start, z / copies, clip, size, s
        )
    )(seeds)
    config, (clip, reach) = agd.AGD(largest_loss=20.0), run.cached(tuned_agd, problem, epsilon)
    rho, query = (x * copies**2 for x in (agd.budget_rho(budget), agd.query_rho(config, budget)))
    rounds = agd.most_rounds(config, budget)
    found["AGD"] = jax.vmap(
        lambda s: agd.descend(config, family.record_loss, rounds, one, start, rho, query, clip, reach, s).visited
    )(seeds)
    for method in SCHEDULERS:
        trained = [protector_of(run, problem, method, LONGEST, epsilon, seed) for seed in seeds_of(run)]
        each = [protected(made, one.weights, tasks, jnp.float32(1.0), seeds)[2][0] for made, one in trained]
        path = jnp.mean(jnp.stack(each), axis=0)
        found[method] = jnp.concatenate([jnp.broadcast_to(start, (len(seeds), 1, 2)), path], axis=1)
    means = {name: np.asarray(path).mean(axis=0) for name, path in found.items()}
    return {name: path[:: max(1, len(path) // 12)] for name, path in means.items()} | {"minimum": minimal(tasks)[0]}
