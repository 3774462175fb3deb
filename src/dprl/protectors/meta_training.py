"""Meta-training: a protector's weights from gradients through whole simulated runs on public tasks.

Paper 002, appendix B; incremental pre-training over epsilon is that of B.7. With a public schedule the budget is met by
construction: the accountant finds the scale of the noise. Everything is a function of public seeds; interrupted, the
same call with ``resume`` ends with the same weights.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import DprlError
from dprl.files import write_atomically
from dprl.protectors.objective import (
    Schedule,
    Training,
    adam,
    augmented,
    batch_of,
    losses_of,
    meta_gradient,
    tighten,
    values_of,
)
from dprl.protectors.projector import Weights, init_weights
from dprl.protectors.simulation import Simulation, begin, noise_covariance, step_of
from dprl.tensor_file import to_bytes

STATE = "training.safetensors"
_SCHEMA = "dprl.meta-training/1"


# --- training ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """Result of training: the best weights of all validations, and the log, one record per validation.

    ``before``: the log of the training from whose weights this one began.
    """

    weights: Weights
    log: list[dict[str, float]]
    before: list[dict[str, float]] = field(default_factory=list)


def train(
    simulation: Simulation,
    training: Training,
    weights: Weights | None = None,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, Mapping[str, float]], None] | None = None,
) -> Trained:
    """Train a protector.

    Args:
        weights: to begin with, such as those of a smaller epsilon's; new ones by default.
        checkpoint: folder in which, at every validation, what is needed to go on is written, whole or not at all.
        resume: go on with what is there; from the beginning where nothing is.
        progress: called after every epoch with its number, from 1, and what is known of it.
    """
    if simulation.adaptive or training.intermediate > 0.0 or training.batch:
        simulation = dataclasses.replace(simulation, every=True)
    path = None if checkpoint is None else Path(checkpoint) / STATE
    identity = _identity(simulation, training)
    state = _start(simulation, training, weights)
    if path is not None and resume and path.exists():
        state = _read(path, identity, state)
    root = jax.random.key(training.seed)
    core = _core(training)
    if state["epoch"] == 0:  # what does not become better than it began stays as it began
        found = {n: float(x) for n, x in validate(simulation, core, state["weights"]).items()}
        state["best_loss"] = found["validation"] if math.isfinite(found["validation"]) else math.inf
        state["log"] = [{"epoch": 0.0} | found]
    for epoch in range(state["epoch"], training.epochs):
        numbers = _epoch(simulation, training, state, jax.random.fold_in(root, epoch + 1), epoch)
        if (epoch + 1) % training.validate == 0 or epoch + 1 == training.epochs:
            found = {n: float(x) for n, x in validate(simulation, core, state["weights"]).items()}
            numbers |= found
            state["log"] = [*state["log"], numbers]
            if found["validation"] < state["best_loss"]:
                state |= {"best": state["weights"], "best_loss": found["validation"]}
            if path is not None:
                _write(path, identity, state)
        if progress is not None:
            progress(epoch + 1, numbers)
    return Trained(state["best"] if math.isfinite(state["best_loss"]) else state["weights"], state["log"])


def _core(training: Training) -> Training:
    """Return what is compiled does not depend on how long and how fast is trained."""
    return dataclasses.replace(training, epochs=1, learning_rate=1.0, validate=1, incremental=())


def _epoch(
    simulation: Simulation, training: Training, state: dict[str, Any], key: jax.Array, epoch: int
) -> dict[str, float]:
    """Update ``state`` once, or in the batch form once a batch; return it and its record."""
    factor, rate = (jnp.asarray(x, dtype=jnp.float32) for x in (training.factor(epoch), training.rate(epoch)))
    weights, moments, core = state["weights"], (state["first"], state["second"]), _core(training)
    if training.batch:
        number = jnp.asarray(epoch, dtype=jnp.int32)
        weights, moments, batches, record = two_passes(
            simulation, core, weights, moments, state["batches"], key, factor, number, rate
        )
        state["batches"] = batches
    else:
        gradient, record = meta_gradient(simulation, core, weights, state["multiplier"], state["penalty"], key, factor)
        weights, moments, record["gradient_norm"] = adam(core, weights, moments, gradient, epoch + 1, rate)
        if "excess" in record:
            found = tighten(training.schedule, state["multiplier"], state["penalty"], record["excess"])
            state["multiplier"], state["penalty"] = found
    state |= {"epoch": epoch + 1, "weights": weights, "first": moments[0], "second": moments[1]}
    return {"epoch": epoch + 1.0} | {n: float(x) for n, x in record.items()}


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def validate(simulation: Simulation, training: Training, weights: Weights) -> dict[str, jax.Array]:
    """On tasks that training does not see: mean loss, the hand schedule's, their worst ratio, and Theorem B.2's
    covariance of the noise with the last gradient.
    """
    key = jax.random.fold_in(jax.random.key(training.seed), 0)
    tasks, keys, factors = batch_of(simulation, training, key, training.validation)
    aim, _, spent = losses_of(simulation, weights, tasks, keys, factors, deployed=simulation.adaptive)
    hand, _, _ = losses_of(simulation, weights, tasks, keys, factors, learned=False)
    ratios = aim / jnp.maximum(hand, 1e-12)
    found = {
        "validation": jnp.mean(values_of(training, aim, hand)),
        "validation_loss": jnp.mean(aim),
        "hand_loss": jnp.mean(hand),
        "geometric_ratio": jnp.exp(jnp.mean(jnp.log(jnp.maximum(ratios, 1e-12)))),
        "worst_ratio": jnp.max(ratios),
        "noise_covariance": noise_covariance(simulation, weights, tasks, keys[:, 0]),
    }
    if simulation.adaptive:
        found["spent"] = jnp.mean(spent)
    return found


# --- batches of steps -------------------------------------------------------------------------------------------------
#
# Gradients through one batch of steps at a time (B.5). The first pass over a run updates the weights after each batch,
# whose constraint is the batch's own share of the budget; the second one, with the weights held fixed, finds what each
# batch costs, and from that the shares. Memory does not grow with the number of steps; what a batch does to later ones
# has no gradient.


class Batches(NamedTuple):
    """Variables of the batch form (B.5), for B batches of steps.

    Attributes:
        budgets: ``(B,)`` r_b.
        multipliers, penalties: ``(B,)`` z_b and mu_b.
        multiplier, penalty: () z_r and mu_r, of the whole budget.
    """

    budgets: jax.Array
    multipliers: jax.Array
    penalties: jax.Array
    multiplier: jax.Array
    penalty: jax.Array


def start_batches(schedule: Schedule, batches: int) -> Batches:
    """Even shares of the budget."""
    one = jnp.ones((), dtype=jnp.float32)
    each = jnp.ones(batches, dtype=jnp.float32)
    return Batches(each / batches, 0.0 * each, schedule.start * each, 0.0 * one, schedule.start * one)


def second_pass(schedule: Schedule, state: Batches, costs: jax.Array) -> Batches:
    """Return the second pass of B.5: new budgets of the batches from what they cost with the protector held fixed.

    The budgets minimise ``sum_b (rho^_b - r_b)^2 / (2 mu_b) - z_r h_r + h_r^2 / (2 mu_r)`` with
    ``rho^_b = cost_b - z_b mu_b`` and ``h_r = sum r_b - 1``. That is a quadratic with a closed form: its gradient is
    zero where ``r_b = rho^_b + mu_b (z_r - h_r / mu_r)``, and summed over the batches this is linear in h_r.

    Args:
        costs: ``(B,)`` of the batches.
    """
    supplemented = costs - state.multipliers * state.penalties
    total = jnp.sum(state.penalties)
    excess = (jnp.sum(supplemented) - 1.0 + total * state.multiplier) / (1.0 + total / state.penalty)
    budgets = supplemented + state.penalties * (state.multiplier - excess / state.penalty)
    multipliers, penalties = tighten(schedule, state.multipliers, state.penalties, costs - budgets)
    multiplier, penalty = tighten(schedule, state.multiplier, state.penalty, jnp.sum(budgets) - 1.0)
    return Batches(budgets, multipliers, penalties, multiplier, penalty)


def number_of_batches(simulation: Simulation, training: Training) -> int:
    """B; refuses a batch length that does not divide the steps."""
    count, rest = divmod(simulation.hand.steps, training.batch)
    if rest or not count:
        raise DprlError("meta-training: batch must divide the number of steps.")
    return count


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def two_passes(
    simulation: Simulation,
    training: Training,
    weights: Weights,
    moments: tuple[Weights, Weights],
    batches: Batches,
    key: jax.Array,
    factor: Any,
    epoch: Any,
    rate: Any,
) -> tuple[Weights, tuple[Weights, Weights], Batches, dict[str, jax.Array]]:
    """Run one epoch on fresh tasks: an update after each batch of steps, then new shares of the budget.

    Args:
        batches: shares and multipliers of the batches.
        epoch: () from 0.

    Returns:
        Weights, moments, shares and multipliers, and the record.
    """
    count, length = number_of_batches(simulation, training), training.batch
    tasks, keys, factors = batch_of(simulation, training, key, training.tasks)

    def over_runs(one: Any, *carries: Any) -> Any:
        inner = jax.vmap(one, (None, 0, None, *[0] * len(carries)))
        return jax.vmap(inner, (0, 0, 0, *[0] * len(carries)))(tasks, keys, factors * factor, *carries)

    def part(weights: Weights, carries: Any, batch: Any) -> tuple[Any, jax.Array, jax.Array]:
        """The runs after a batch of steps, its mean loss and its mean cost."""

        def one(task: Any, key: Any, factor: Any, carry: Any) -> Any:
            steps = batch * length + jnp.arange(length, dtype=jnp.int32)
            return jax.lax.scan(step_of(simulation, weights, task, key, factor), carry, steps)

        carries, (losses, costs) = over_runs(one, carries)
        return carries, jnp.mean(losses), jnp.mean(jnp.sum(costs, axis=-1))

    def update(state: Any, batch: Any) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        weights, moments, carries = state

        def of(weights: Weights) -> tuple[jax.Array, Any]:
            following, loss, cost = part(weights, carries, batch)
            total = loss
            if simulation.adaptive:
                excess = cost - batches.budgets[batch]
                total = total + augmented(excess, batches.multipliers[batch], batches.penalties[batch])
            return total, (following, loss)

        gradient, (following, loss) = jax.grad(of, has_aux=True)(weights)
        number = epoch * count + batch + 1
        weights, moments, norm = adam(training, weights, moments, gradient, number, rate)
        return (weights, moments, jax.lax.stop_gradient(following)), (loss, norm)

    def start(weights: Weights) -> Any:
        return over_runs(lambda task, key, factor: begin(simulation, weights, task))

    numbers = jnp.arange(count, dtype=jnp.int32)
    (weights, moments, _), (losses, norms) = jax.lax.scan(update, (weights, moments, start(weights)), numbers)
    record = {"loss": losses[-1], "gradient_norm": jnp.max(norms)}
    if simulation.adaptive:

        def spend(carries: Any, batch: Any) -> tuple[Any, jax.Array]:
            carries, _, cost = part(weights, carries, batch)
            return carries, cost

        costs = jax.lax.scan(spend, start(weights), numbers)[1]
        batches = second_pass(training.schedule, batches, costs)
        record["excess"] = jnp.sum(costs) - 1.0
    return weights, moments, batches, record


# --- what is kept between two calls -----------------------------------------------------------------------------------


def _start(simulation: Simulation, training: Training, weights: Weights | None) -> dict[str, Any]:
    batches = number_of_batches(simulation, training) if training.batch else 0
    given = init_weights(simulation.architecture, jax.random.key(training.seed)) if weights is None else weights
    weights = {name: jnp.asarray(value, dtype=jnp.float32) for name, value in given.items()}
    zeros = {name: jnp.zeros_like(value) for name, value in weights.items()}
    return {
        "epoch": 0, "weights": weights, "first": zeros, "second": zeros, "best": weights, "best_loss": math.inf,
        "multiplier": jnp.zeros((), dtype=jnp.float32),
        "penalty": jnp.asarray(training.schedule.start, dtype=jnp.float32), "log": [],
        "batches": start_batches(training.schedule, max(batches, 1)),
    }  # fmt: skip


_TABLES = ("weights", "first", "second", "best")


def _identity(simulation: Simulation, training: Training) -> str:
    """Return what a checkpoint belongs to."""
    family = {"name": simulation.family.name, "facts": simulation.family.describe()}
    facts = {
        "family": family, "hand": dataclasses.asdict(simulation.hand), "training": dataclasses.asdict(training),
        "architecture": dataclasses.asdict(simulation.architecture), "std": simulation.std,
        "norm_std": simulation.norm_std, "ratios": simulation.ratios, "costs": simulation.costs,
    }  # fmt: skip
    return json.dumps(facts, sort_keys=True)


def _write(path: Path, identity: str, state: Mapping[str, Any]) -> None:
    tensors = {f"{t}/{n}": np.asarray(x) for t in _TABLES for n, x in state[t].items()}
    tensors |= {n: np.asarray(state[n], dtype=np.float32) for n in ("multiplier", "penalty")}
    tensors |= {f"batches/{n}": np.asarray(x, dtype=np.float32) for n, x in state["batches"]._asdict().items()}
    numbers = {n: state[n] for n in ("epoch", "log")}
    numbers["best_loss"] = state["best_loss"] if math.isfinite(state["best_loss"]) else None
    metadata = {"schema": _SCHEMA, "identity": identity, "numbers": json.dumps(numbers)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_bytes(tensors, metadata))
    except OSError as error:
        raise DprlError(f"Cannot write a checkpoint into {str(path.parent)!r}: {error.strerror}.") from error


def _read(path: Path, identity: str, like: Mapping[str, Any]) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        numbers = json.loads(metadata["numbers"])
        same = metadata["schema"] == _SCHEMA and metadata["identity"] == identity
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DprlError(f"The checkpoint in {str(path.parent)!r} is damaged: begin anew, without --resume.") from error
    if not same:
        raise DprlError(f"The checkpoint in {str(path.parent)!r} is of another training: begin anew, without --resume.")
    state: dict[str, Any] = {
        t: {n: jnp.asarray(tensors[f"{t}/{n}"].reshape(x.shape)) for n, x in like[t].items()} for t in _TABLES
    }
    state |= {n: jnp.asarray(tensors[n].reshape(())) for n in ("multiplier", "penalty")}
    shapes = like["batches"]._asdict().items()
    state["batches"] = Batches(*(jnp.asarray(tensors[f"batches/{n}"].reshape(x.shape)) for n, x in shapes))
    best_loss = math.inf if numbers["best_loss"] is None else numbers["best_loss"]
    return state | {"epoch": numbers["epoch"], "log": numbers["log"], "best_loss": best_loss}
