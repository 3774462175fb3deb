"""What meta-training makes small, its exact gradient, and Adam.

Paper 002, appendix B: the mean loss of an answer, or the budget-weighted losses of an adaptive scheduler with its
augmented Lagrangian (B.2); in pre-training with less noise (B.7).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dprl.errors import DprlError
from dprl.protectors.projector import Weights
from dprl.protectors.simulation import Simulation, unroll


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of the penalty: ``mu`` starts here, is multiplied by ``shrink`` at every update and stays above
    ``least``.
    """

    start: float = 1.0
    shrink: float = 0.95
    least: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a protector is trained; public facts, all of them.

    Attributes:
        epochs: number of meta-gradient steps.
        tasks: fresh tasks of a step.
        repeats: runs on each of them.
        learning_rate: of Adam at the start; it falls to a tenth along half a cosine.
        rates: factors of the learning rate for the weights whose names begin so.
        gradient_clip: largest L2 norm of a meta-gradient.
        task_clip: largest L2 norm of one task's meta-gradient, before they are averaged: through long steps a few of
            them explode. 0 for no limit.
        objective: what is made small: the mean ``loss`` over the task's reference, its ``log``, the loss over that of
            the ``hand`` schedule on the same task with the same noise, or ``both``: the mean of the latter's logarithm
            and ``mean_weight`` times the mean loss over the hand schedule's mean.
        mean_weight: see ``objective``.
        penalty: weight of what a task is worse than the hand schedule by, beyond a tenth: ``relu(log(F / F_hand) -
            log 1.1)``; 0 for none.
        intermediate: weight of the mean loss after the steps, beside the answer's.
        spread: noise of a task is that of the budget times a factor between one over this and this.
        incremental: factors of the noise in pre-training, each for a share of the epochs (B.7); the rest are at 1.
        share: of the epochs, in each stage of pre-training.
        schedule: penalty of an adaptive scheduler's Lagrangian.
        validate: epochs between two validations; the best weights found there are kept.
        validation: tasks of a validation.
        seed: of everything.
        batch: steps of a run that are differentiated together (B.5), a divisor of all; 0 for all of them.
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
    batch: int = 0

    def __post_init__(self) -> None:
        checks = {
            "epochs must be between 1 and 1000000": 1 <= self.epochs <= 10**6,
            "tasks, repeats and validation must be between 1 and 100000": all(
                1 <= n <= 10**5 for n in (self.tasks, self.repeats, self.validation)
            ),
            "validate must be at least 1": self.validate >= 1,
            "learning_rate must be above 0 and at most 10": 0.0 < self.learning_rate <= 10.0,
            "gradient_clip must be positive": self.gradient_clip > 0.0,
            "task_clip must not be negative": self.task_clip >= 0.0,
            "penalty and intermediate must not be negative": self.penalty >= 0.0 and self.intermediate >= 0.0,
            "spread must be between 1 and 100": 1.0 <= self.spread <= 100.0,
            "incremental must leave epochs at full noise": len(self.incremental) * self.share < 1.0,
            "batch must be between 0 and 1000000": 0 <= self.batch <= 10**6,
            "seed must be between 0 and 2147483647": 0 <= self.seed < 2**31,
        }
        for sentence, holds in checks.items():
            if not holds:
                raise DprlError(f"meta-training: {sentence}.")

    @property
    def beside_hand(self) -> bool:
        """Whether what is made small depends on the hand schedule's loss."""
        return self.objective in ("hand", "both") or self.penalty > 0.0

    def factor(self, epoch: int) -> float:
        """Return the factor of the noise in an epoch."""
        stage = int(epoch / (self.share * self.epochs)) if self.incremental else 0
        return self.incremental[stage] if stage < len(self.incremental) else 1.0

    def rate(self, epoch: int) -> float:
        """Return the learning rate of Adam in an epoch."""
        return self.learning_rate * (0.1 + 0.45 * (1.0 + math.cos(math.pi * epoch / self.epochs)))


# --- the budget of an adaptive scheduler: costs are shares of it ------------------------------------------------------


def budget_weighted(losses: jax.Array, costs: jax.Array) -> jax.Array:
    """F^ = ``sum I_t f_t / sum I_t`` with ``I_t = max(0, 1 - |h_t|)`` and h_t what was spent, less the budget.

    Args:
        losses: ``(T,)`` after each step.
        costs: ``(T,)`` of each step.
    """
    inside = jnp.maximum(0.0, 1.0 - jnp.abs(jnp.cumsum(costs) - 1.0))
    return jnp.sum(inside * losses) / jnp.maximum(jnp.sum(inside), 1e-9)


def augmented(excess: jax.Array, multiplier: jax.Array, penalty: jax.Array) -> jax.Array:
    """Return what B.2 adds to the objective: ``- z h + h^2 / (2 mu)``, of the excess h over the budget."""
    return -multiplier * excess + excess * excess / (2.0 * penalty)


def tighten(
    schedule: Schedule, multiplier: jax.Array, penalty: jax.Array, excess: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return steps 3 and 4 of B.2: ``z - h / mu``, and a smaller mu."""
    return multiplier - excess / penalty, jnp.maximum(schedule.shrink * penalty, schedule.least)


# --- the objective ----------------------------------------------------------------------------------------------------


def batch_of(simulation: Simulation, training: Training, key: jax.Array, count: int) -> tuple[Any, Any, Any]:
    """Return ``count`` fresh tasks, ``(count, repeats)`` keys of their runs, and a factor of the noise for each
    task.
    """
    tasks, runs, factors = jax.random.split(key, 3)
    found = jax.vmap(simulation.family.sample)(jax.random.split(tasks, count))
    keys = jax.random.split(runs, (count, training.repeats))
    spread = math.log(training.spread)
    return found, keys, jnp.exp(jax.random.uniform(factors, (count,), jnp.float32, -spread, spread))


def losses_of(
    simulation: Simulation,
    weights: Weights,
    tasks: Any,
    keys: Any,
    factors: Any,
    learned: bool = True,
    deployed: bool = False,
    own: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return for every task the mean over its runs, ``(tasks,)`` each: what is minimised; the mean loss after the
    steps; and what was spent in all steps, over the budget. ``deployed`` as of :func:`.unroll`; with ``own``,
    weights have a first axis: those of each task.
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


def values_of(training: Training, aim: jax.Array, hand: jax.Array) -> jax.Array:
    """Return ``(tasks,)`` what is made small of every task, from its loss and the hand schedule's; see
    :class:`Training`.
    """
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


def objective(
    simulation: Simulation,
    training: Training,
    weights: Weights,
    multiplier: jax.Array,
    penalty: jax.Array,
    tasks: Any,
    keys: Any,
    factors: Any,
    own: bool = False,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return () what is minimised over a batch, and the numbers of the record. ``own`` as of :func:`losses_of`."""
    aim, every, spent = losses_of(simulation, weights, tasks, keys, factors, own=own)
    record, hand = {"loss": jnp.mean(aim)}, aim
    if training.beside_hand:
        hand = losses_of(simulation, weights, tasks, keys, factors, learned=False, own=own)[0]
        hand = jax.lax.stop_gradient(hand)
        record["ratio"] = jnp.mean(aim / jnp.maximum(hand, 1e-12))
    value = values_of(training, aim, hand)
    total = jnp.mean(value) + training.intermediate * jnp.mean(every)
    if simulation.adaptive:
        excess = jnp.mean(spent) - 1.0
        record["excess"] = excess
        total = total + augmented(excess, multiplier, penalty)
    return total, record


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def meta_gradient(
    simulation: Simulation, training: Training, weights: Weights, multiplier: Any, penalty: Any, key: Any, factor: Any
) -> tuple[Weights, dict[str, jax.Array]]:
    """Exact gradient of :func:`objective` by the weights, over fresh tasks from ``key``, and its record."""
    tasks, keys, factors = batch_of(simulation, training, key, training.tasks)
    own = training.task_clip > 0.0

    def of(weights: Weights) -> Any:
        return objective(simulation, training, weights, multiplier, penalty, tasks, keys, factors * factor, own)

    if not own:
        return jax.grad(of, has_aux=True)(weights)
    copies = {name: jnp.broadcast_to(w, (training.tasks, *w.shape)) for name, w in weights.items()}
    each, record = jax.grad(of, has_aux=True)(copies)
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
    """Kingma and Ba (2015), Algorithm 1, on the clipped gradient; step number ``count`` from 1. Returns its norm third.

    A gradient that is not finite changes nothing.
    """
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradient.values()))
    scale = jnp.minimum(1.0, training.gradient_clip / jnp.maximum(norm, 1e-30))
    fine, count = jnp.isfinite(norm), jnp.asarray(count, dtype=jnp.float32)
    new: tuple[Weights, Weights, Weights] = ({}, {}, {})
    for name, old in weights.items():
        g = jnp.where(fine, gradient[name] * scale, 0.0)
        first = 0.9 * moments[0][name] + 0.1 * g
        second = 0.999 * moments[1][name] + 0.001 * g * g
        move = first / (1.0 - 0.9**count) / (jnp.sqrt(second / (1.0 - 0.999**count)) + 1e-8)
        factor = next((factor for start, factor in training.rates if name.startswith(start)), 1.0)
        kept = (old - factor * rate * move, first, second)
        for table, value, before in zip(new, kept, (old, moments[0][name], moments[1][name]), strict=True):
            table[name] = jnp.where(fine, value, before).astype(jnp.float32)
    return new[0], (new[1], new[2]), norm
