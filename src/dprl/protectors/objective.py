"""The objective that meta-training minimises, its exact gradient, and Adam.

Paper 002, appendix B. The objective is the mean loss of an answer or, with an adaptive scheduler, the budget-weighted
losses and an augmented Lagrangian (B.2). In pre-training the noise has another factor (B.7).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dprl.config import check_ranges
from dprl.errors import require
from dprl.protectors.projector import Weights
from dprl.protectors.simulation import Simulation, unroll


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of the penalty ``mu``: from ``start``, times ``shrink`` at every update, but at least ``least``."""

    start: float = 1.0
    shrink: float = 0.95
    least: float = 1e-3


_RANGES = {
    "epochs": "1..1000000",
    "validate": "1..1000000",
    "seed": "0..2147483647",
    **dict.fromkeys(("tasks", "repeats", "validation"), "1..100000"),
    "learning_rate": "(0, 10]",
    "spread": "[1, 100]",
    "gradient_clip": "(0, inf)",
    "share": "(0, 1]",
    **dict.fromkeys(("task_clip", "mean_weight", "penalty", "intermediate"), "[0, inf)"),
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of the training of a protector; all of them are public facts.

    Attributes:
        epochs: number of meta-gradient steps.
        tasks: number of fresh tasks in each step.
        repeats: number of runs on each task.
        learning_rate: learning rate of Adam at the start; it falls to a tenth along half a cosine.
        rates: pairs of a text and a factor of the learning rate, for weights whose names begin with the text.
        gradient_clip: largest L2 norm of a meta-gradient.
        task_clip: largest L2 norm of one task's meta-gradient, before the tasks' are averaged, because through long
            steps a few of them explode. 0 for no limit.
        objective: what is minimised, in the mean over tasks: ``loss``, the loss over the task's reference; ``log``, the
            logarithm of this; ``hand``, the loss over the hand schedule's on the same task with the same noise; or
            ``both``, the logarithm of the latter plus ``mean_weight`` times the loss over the hand schedule's mean.
        mean_weight: see ``objective``.
        penalty: weight of ``relu(log(F / F_hand) - log 1.1)``, which penalises each task that is more than a tenth
            worse than the hand schedule; 0 for none.
        intermediate: weight of the mean of the losses after each step, which is added to the loss of the answer.
        spread: the noise of a task is that of the budget times a random factor between ``1 / spread`` and ``spread``.
        incremental: factors of the noise in pre-training, each for a share of the epochs (B.7); in the rest it is 1.
        share: share of the epochs in each stage of pre-training.
        schedule: schedule of the penalty in an adaptive scheduler's Lagrangian.
        validate: number of epochs between two validations; the best weights found there are kept.
        validation: number of tasks in a validation.
        seed: seed of all that is random.
    """

    epochs: int = 300
    tasks: int = 16
    repeats: int = 2
    learning_rate: float = 3e-3
    rates: tuple[tuple[str, float], ...] = ()
    gradient_clip: float = 1.0
    task_clip: float = 0.0
    objective: Literal["loss", "log", "hand", "both"] = "loss"
    mean_weight: float = 1.0
    penalty: float = 0.0
    intermediate: float = 0.0
    spread: float = 1.0
    incremental: tuple[float, ...] = ()
    share: float = 0.15
    schedule: Schedule = field(default_factory=Schedule)
    validate: int = 25
    validation: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES, "meta-training")
        left = len(self.incremental) * self.share < 1.0
        require(left, "meta-training: incremental must leave epochs at full noise.")

    @property
    def compares_with_hand(self) -> bool:
        """Whether the objective depends on the hand schedule's loss."""
        return self.objective in ("hand", "both") or self.penalty > 0.0

    def noise_factor_at(self, epoch: int) -> float:
        """Return the factor of the noise in an epoch."""
        stage = int(epoch / (self.share * self.epochs)) if self.incremental else 0
        return self.incremental[stage] if stage < len(self.incremental) else 1.0

    def learning_rate_at(self, epoch: int) -> float:
        """Return the learning rate of Adam in an epoch."""
        return self.learning_rate * (0.1 + 0.45 * (1.0 + math.cos(math.pi * epoch / self.epochs)))


# --- the budget of an adaptive scheduler: costs are shares of it ------------------------------------------------------


def budget_weighted(losses: jax.Array, costs: jax.Array) -> jax.Array:
    """Return F^ = ``sum I_t f_t / sum I_t`` with ``I_t = max(0, 1 - |h_t|)``.

    Here h_t is what the steps up to t have spent, minus the whole budget.

    Args:
        losses: ``(T,)`` loss f_t after each step.
        costs: ``(T,)`` cost of each step.
    """
    inside = jnp.maximum(0.0, 1.0 - jnp.abs(jnp.cumsum(costs) - 1.0))
    return jnp.sum(inside * losses) / jnp.maximum(jnp.sum(inside), 1e-9)


def lagrangian_terms(excess: jax.Array, multiplier: jax.Array, penalty: jax.Array) -> jax.Array:
    """Return what B.2 adds to the objective: ``- z h + h^2 / (2 mu)``, where h is the excess over the budget."""
    return -multiplier * excess + excess * excess / (2.0 * penalty)


def update_lagrangian(
    schedule: Schedule, multiplier: jax.Array, penalty: jax.Array, excess: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the next multiplier ``z - h / mu`` and a smaller penalty mu: steps 3 and 4 of B.2."""
    return multiplier - excess / penalty, jnp.maximum(schedule.shrink * penalty, schedule.least)


# --- the objective ----------------------------------------------------------------------------------------------------


def draw_tasks(simulation: Simulation, training: Training, key: jax.Array, count: int) -> tuple[Any, Any, Any]:
    """Return ``count`` fresh tasks, ``(count, repeats)`` keys of their runs, and a factor of each task's noise."""
    tasks, runs, factors = jax.random.split(key, 3)
    found = jax.vmap(simulation.family.sample)(jax.random.split(tasks, count))
    keys = jax.random.split(runs, (count, training.repeats))
    spread = math.log(training.spread)
    return found, keys, jnp.exp(jax.random.uniform(factors, (count,), jnp.float32, -spread, spread))


def task_losses(
    simulation: Simulation,
    weights: Weights,
    tasks: Any,
    keys: Any,
    factors: Any,
    learned: bool = True,
    deployed: bool = False,
    own: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return three numbers for every task, ``(tasks,)`` each, as means over the task's runs.

    They are the loss that is minimised, the mean of the losses after each step, and the share of the budget that all
    steps have spent.

    Args:
        deployed: see :func:`.unroll`.
        own: whether the weights have a first axis, with separate weights for each task.
    """

    def one(weights: Weights, task: Any, key: Any, factor: Any) -> tuple[Any, Any, Any]:
        run = unroll(simulation, weights, task, key, factor, learned, deployed)
        aim = run.final
        if simulation.adaptive and learned and not deployed:
            aim = budget_weighted(run.losses, run.costs)
        return aim, jnp.mean(run.losses), jnp.sum(run.costs)

    repeated = jax.vmap(one, (None, None, 0, None))
    runs = jax.vmap(repeated, (0 if own else None, 0, 0, 0))(weights, tasks, keys, factors)
    aim, every, spent = (jnp.mean(x, axis=1) for x in runs)
    return aim, every, spent


def task_objectives(training: Training, aim: jax.Array, hand: jax.Array) -> jax.Array:
    """Return the ``(tasks,)`` objective of each task, from its loss and the hand schedule's; see :class:`Training`."""
    ratio = jnp.log(jnp.maximum(aim / jnp.maximum(hand, 1e-12), 1e-12))
    value = aim
    if training.objective == "log":
        value = jnp.log(jnp.maximum(aim, 1e-12))
    if training.objective == "hand":
        value = jnp.exp(ratio)
    if training.objective == "both":
        value = ratio + training.mean_weight * aim / jnp.maximum(jnp.mean(hand), 1e-12)
    if training.penalty > 0.0:
        value = value + training.penalty * jax.nn.relu(ratio - math.log(1.1))
    return value


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def meta_gradient(
    simulation: Simulation, training: Training, weights: Weights, lagrangian: Any, key: Any, factor: Any
) -> tuple[Weights, dict[str, jax.Array]]:
    """Return the exact gradient of the objective in the weights, over fresh tasks, and the numbers of a record.

    Args:
        lagrangian: () multiplier and penalty of an adaptive scheduler's budget.
        key: key of the tasks, and of the runs on them.
        factor: () factor of every noise.
    """
    tasks, keys, factors = draw_tasks(simulation, training, key, training.tasks)
    batch, own = (tasks, keys, factors * factor), training.task_clip > 0.0

    def objective(weights: Weights) -> tuple[jax.Array, dict[str, jax.Array]]:
        aim, every, spent = task_losses(simulation, weights, *batch, own=own)
        record, hand = {"loss": jnp.mean(aim)}, aim
        if training.compares_with_hand:
            hand = jax.lax.stop_gradient(task_losses(simulation, weights, *batch, learned=False, own=own)[0])
            record["ratio"] = jnp.mean(aim / jnp.maximum(hand, 1e-12))
        total = jnp.mean(task_objectives(training, aim, hand)) + training.intermediate * jnp.mean(every)
        if simulation.adaptive:
            record["excess"] = jnp.mean(spent) - 1.0
            total = total + lagrangian_terms(record["excess"], *lagrangian)
        return total, record

    if not own:
        return jax.grad(objective, has_aux=True)(weights)
    copies = {name: jnp.broadcast_to(w, (training.tasks, *w.shape)) for name, w in weights.items()}
    each, record = jax.grad(objective, has_aux=True)(copies)
    square = sum(jnp.sum(g * g, axis=tuple(range(1, g.ndim))) for g in each.values())
    norms = training.tasks * jnp.sqrt(square)
    scale = jnp.where(jnp.isfinite(norms), jnp.minimum(1.0, training.task_clip / jnp.maximum(norms, 1e-30)), 0.0)
    finite = {name: jnp.where(jnp.isfinite(g), g, 0.0) for name, g in each.items()}
    return {name: jnp.tensordot(scale, g, axes=1) for name, g in finite.items()}, record


# --- Adam -------------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="training")
def adam(
    training: Training, weights: Weights, moments: tuple[Weights, Weights], gradient: Weights, count: Any, rate: Any
) -> tuple[Weights, tuple[Weights, Weights], jax.Array]:
    """Take a step of Adam (Kingma and Ba, 2015, Algorithm 1) with the clipped gradient.

    A gradient that is not finite changes nothing.

    Args:
        count: () number of the step, from 1.
        rate: () learning rate.

    Returns:
        The next weights, the next moments, and the norm of the gradient before it was clipped.
    """
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradient.values()))
    scale = jnp.minimum(1.0, training.gradient_clip / jnp.maximum(norm, 1e-30))
    fine, count = jnp.isfinite(norm), jnp.asarray(count, dtype=jnp.float32)
    clipped = {name: jnp.where(fine, g * scale, 0.0) for name, g in gradient.items()}
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], clipped)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], clipped)

    def moved(name: str) -> jax.Array:
        factor = next((factor for start, factor in training.rates if name.startswith(start)), 1.0)
        root = jnp.sqrt(second[name] / (1.0 - 0.999**count))
        return weights[name] - factor * rate * (first[name] / (1.0 - 0.9**count) / (root + 1e-8))

    new = {name: moved(name) for name in weights}, (first, second)
    kept = jax.tree.map(lambda x, old: jnp.where(fine, x, old).astype(jnp.float32), new, (weights, moments))
    return *kept, norm
