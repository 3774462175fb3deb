"""Meta-training: from public tasks and a budget to a protector, by gradients through whole simulated runs.

Paper 002, appendix B; the incremental pre-training is that of B.7. With a public schedule the budget is met by
construction, because the accountant finds the scale of the noise. Everything is a function of public seeds. After an
interruption, the same call with ``resume`` ends with the same weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path, tree_map_with_path

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.certificate import versions
from dprl.accounting.renyi_filter import cost, effective_multiplier, plan_filter
from dprl.errors import DprlError, explained
from dprl.files import write_atomically
from dprl.protectors.objective import (
    Training,
    adam,
    draw_tasks,
    meta_gradient,
    task_losses,
    task_objectives,
    update_lagrangian,
)
from dprl.protectors.projector import Architecture, Weights, init_weights, levels_of
from dprl.protectors.protector import Protector
from dprl.protectors.simulation import Simulation, noise_covariance
from dprl.untrusted_files import read_tensors, tensors_to_bytes

CHECKPOINT_FILE = "training.safetensors"
_SCHEMA = "dprl.meta-training/1"


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training.

    Attributes:
        weights: the best weights of all validations.
        log: one record per validation.
        earlier_log: log of an earlier training from whose weights this training began.
    """

    weights: Weights
    log: list[dict[str, float]]
    earlier_log: list[dict[str, float]] = field(default_factory=list)


def train(
    simulation: Simulation,
    training: Training,
    weights: Weights | None = None,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, Mapping[str, float]], None] | None = None,
) -> TrainingResult:
    """Train a protector.

    Args:
        weights: weights to begin with, such as those for a smaller epsilon; by default new ones.
        checkpoint: folder to which every validation writes all that is needed to go on, whole or not at all.
        resume: whether to go on with the checkpoint in that folder; without a checkpoint, training starts anew.
        progress: called after every epoch with its number, from 1, and its record.
    """
    if simulation.adaptive or training.intermediate > 0.0:
        simulation = dataclasses.replace(simulation, every=True)
    path, identity = None if checkpoint is None else Path(checkpoint) / CHECKPOINT_FILE, _identity(simulation, training)
    given = init_weights(simulation.architecture, jax.random.key(training.seed)) if weights is None else weights
    begun = {name: jnp.asarray(value, dtype=jnp.float32) for name, value in given.items()}
    zeros = jax.tree.map(jnp.zeros_like, begun)
    penalty = jnp.float32(training.schedule.start)
    state = {"weights": begun, "best": begun, "moments": (zeros, zeros), "lagrangian": (jnp.float32(0.0), penalty)}
    done, best_loss, log = 0, math.inf, list[dict[str, float]]()
    if path is not None and resume and path.exists():
        state, (done, best_loss, log) = _read(path, identity, state)

    # compiled code must not depend on the length and the speed of the training
    core = dataclasses.replace(training, epochs=1, learning_rate=1.0, validate=1, incremental=())

    def validated() -> dict[str, float]:
        return {name: float(x) for name, x in validate(simulation, core, state["weights"]).items()}

    if not log:  # the first weights are validated too: if none become better, these are kept
        log = [{"epoch": 0.0} | validated()]
        best_loss = log[0]["validation"] if math.isfinite(log[0]["validation"]) else math.inf
    for epoch in range(done, training.epochs):
        key = jax.random.fold_in(jax.random.key(training.seed), epoch + 1)
        factor, rate = jnp.float32(training.noise_factor_at(epoch)), jnp.float32(training.learning_rate_at(epoch))
        gradient, found = meta_gradient(simulation, core, state["weights"], state["lagrangian"], key, factor)
        moved, state["moments"], found["gradient_norm"] = adam(
            core, state["weights"], state["moments"], gradient, epoch + 1, rate
        )
        state["weights"] = moved
        if "excess" in found:
            state["lagrangian"] = update_lagrangian(training.schedule, *state["lagrangian"], found["excess"])
        record = {"epoch": epoch + 1.0} | {name: float(x) for name, x in found.items()}
        if (epoch + 1) % training.validate == 0 or epoch + 1 == training.epochs:
            record |= validated()
            log = [*log, record]
            if record["validation"] < best_loss:
                state["best"], best_loss = moved, record["validation"]
            if path is not None:
                _write(path, identity, state, (epoch + 1, best_loss, log))
        if progress is not None:
            progress(epoch + 1, record)
    return TrainingResult(state["best"] if math.isfinite(best_loss) else state["weights"], log)


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def validate(simulation: Simulation, training: Training, weights: Weights) -> dict[str, jax.Array]:
    """Return measures of the weights on tasks that training does not see.

    They are the mean of the objective, the mean loss and the hand schedule's, the geometric mean and the worst of the
    ratios of the two losses, and Theorem B.2's covariance of the noise with the last gradient; with an adaptive
    scheduler also the share of the budget that was spent.
    """
    key = jax.random.fold_in(jax.random.key(training.seed), 0)
    tasks, keys, factors = draw_tasks(simulation, training, key, training.validation)
    aim, _, spent = task_losses(simulation, weights, tasks, keys, factors, deployed=simulation.adaptive)
    hand, _, _ = task_losses(simulation, weights, tasks, keys, factors, learned=False)
    ratios = aim / jnp.maximum(hand, 1e-12)
    found = {
        "validation": jnp.mean(task_objectives(training, aim, hand)),
        "validation_loss": jnp.mean(aim),
        "hand_loss": jnp.mean(hand),
        "geometric_ratio": jnp.exp(jnp.mean(jnp.log(jnp.maximum(ratios, 1e-12)))),
        "worst_ratio": jnp.max(ratios),
        "noise_covariance": noise_covariance(simulation, weights, tasks, keys[:, 0]),
    }
    if simulation.adaptive:
        found["spent"] = jnp.mean(spent)
    return found


# --- what is kept between two calls -----------------------------------------------------------------------------------


def _identity(simulation: Simulation, training: Training) -> str:
    """Return, as JSON text, all facts that identify the training to which a checkpoint belongs."""
    family = {"name": simulation.family.name, "facts": simulation.family.describe()}
    facts = {
        "family": family, "hand": dataclasses.asdict(simulation.hand), "training": dataclasses.asdict(training),
        "architecture": dataclasses.asdict(simulation.architecture), "std": simulation.std,
        "norm_std": simulation.norm_std, "ratios": simulation.ratios, "costs": simulation.costs,
    }  # fmt: skip
    return json.dumps(facts, sort_keys=True)


def _write(path: Path, identity: str, state: Mapping[str, Any], numbers: tuple[int, float, list[Any]]) -> None:
    tensors = {keystr(place): np.asarray(x) for place, x in tree_leaves_with_path(state)}
    metadata = {"schema": _SCHEMA, "identity": identity, "numbers": json.dumps(numbers)}
    with explained(f"A checkpoint in {str(path.parent)!r} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, tensors_to_bytes(tensors, metadata))


def _read(path: Path, identity: str, like: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, float, list[Any]]]:
    """Return state and numbers of a checkpoint; the state has the structure of ``like``."""
    begin_anew = f"The checkpoint in {str(path.parent)!r} is {{}}: begin anew, without --resume."
    try:
        tensors, metadata = read_tensors(path, "a checkpoint")
        if (metadata["schema"], metadata["identity"]) != (_SCHEMA, identity):
            raise DprlError(begin_anew.format("of another training"))
        # a file stores a single number as a list of one
        state = tree_map_with_path(lambda place, x: jnp.asarray(tensors[keystr(place)].reshape(x.shape)), like)
        return state, json.loads(metadata["numbers"])
    except (KeyError, ValueError) as error:
        if "another training" in str(error):
            raise
        raise DprlError(begin_anew.format("damaged")) from error


# --- from a budget to a protector -------------------------------------------------------------------------------------

TRAINING_LOG = "training.json"
CHECKPOINT_SUFFIX = ".training"
"""Suffix that makes, of a protector's folder, the name of the folder with an interrupted training."""
REFINEMENT_FOLDER = "refinement"
"""Folder within that folder, with an interrupted second training."""
LEAST_SPREAD = 1.25
"""Least factor by which noise may be lower or higher than a protector was trained for; see ``spread`` of a training."""


def simulation_of(
    family: Any, architecture: Architecture, budget: Budget, value_budget_fraction: float = 0.0, **options: Any
) -> Simulation:
    """Return a simulation of the family's tasks, with the noise to which a release with ``budget`` would be calibrated.

    Args:
        value_budget_fraction: share of mu^2 (of the filter's budget, where the noise is adaptive) that pays for values
            first.
        options: further options of :class:`Simulation`.
    """
    hand = family.hand
    batch = hand.sampling_rate * family.units
    if architecture.scheduler == "adaptive":
        made = plan_filter(
            budget.epsilon, budget.delta, hand.sampling_rate, hand.steps, architecture.norm, share=value_budget_fraction
        )
        z, ratios = made.noise_multiplier, levels_of(architecture)
        each = [
            cost(made.order, hand.sampling_rate, effective_multiplier(z * ratio, z * architecture.norm)) / made.budget
            for ratio in ratios
        ]
        options |= {"ratios": ratios, "costs": tuple(each), "norm_std": z * architecture.norm / batch}
    else:
        whole = (
            []
            if value_budget_fraction == 0.0
            else [events.gaussian(whole_budget_multiplier(budget) / math.sqrt(value_budget_fraction))]
        )

        def together(noise_multiplier: float) -> events.DpEvent:
            return events.compose([*whole, events.poisson_gaussian(hand.sampling_rate, noise_multiplier, hand.steps)])

        z = noise_multiplier_for(together, budget)
    return Simulation(family=family, architecture=architecture, std=z / batch, **options)


def whole_budget_multiplier(budget: Budget) -> float:
    """Return the noise multiplier of one Gaussian release that spends the whole ``budget``."""
    return noise_multiplier_for(events.gaussian, budget)


def tuned_for(family: Any, budget: Budget, value_budget_fraction: float = 0.0) -> Any:
    """Return the family with its hand schedule for ``budget``, which the method ``tuned`` chooses where it has one."""
    return family.tuned(budget, value_budget_fraction) if hasattr(family, "tuned") else family


def learn_protector(
    family: Any,
    budget: Budget,
    architecture: Architecture,
    training: Training,
    *,
    value_budget_fraction: float = 0.0,
    weights: Weights | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, Mapping[str, float]], None] | None = None,
    refinement: Training | None = None,
) -> tuple[Protector, TrainingResult]:
    """Train a protector for ``budget`` on the tasks of ``family``, all of which are public simulations.

    Where no validation finds weights that are better than the hand schedule, the protector is the hand schedule.

    Args:
        value_budget_fraction: share of a release's budget that pays for values and intervals before the value function;
            see :func:`simulation_of`.
        weights: weights to begin with; by default those of the family's method ``begin``, where it has one.
        checkpoint, resume, progress: see :func:`train`.
        refinement: a second training, which begins with the weights that the first one gives.
    """
    if not 0.0 <= value_budget_fraction < 1.0:
        raise DprlError("value_budget_fraction must be at least 0 and below 1.")
    simulation = simulation_of(family, architecture, budget, value_budget_fraction)
    if weights is None and hasattr(family, "begin"):
        weights = family.begin(architecture, training.seed)
    trained = train(simulation, training, weights, checkpoint=checkpoint, resume=resume, progress=progress)
    if refinement is not None:
        inner = None if checkpoint is None else Path(checkpoint) / REFINEMENT_FOLDER
        report = None if progress is None else lambda epoch, record: progress(training.epochs + epoch, record)
        second = train(simulation, refinement, trained.weights, checkpoint=inner, resume=resume, progress=report)
        log = [record | {"epoch": training.epochs + record["epoch"]} for record in second.log]
        trained = TrainingResult(second.weights, log, trained.log)
    kept = trained.weights
    # weights that are passed in may begin as something worse
    if not best_validation(trained)["geometric_ratio"] <= 1.0:
        kept = init_weights(architecture, jax.random.key(training.seed))
    provenance = {
        "public": True,
        "tasks": family.name,
        "family": dict(family.describe()),
        "units": family.units,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "value_budget_fraction": value_budget_fraction,
        "training": dataclasses.asdict(training),
        "refinement": None if refinement is None else dataclasses.asdict(refinement),
        "versions": versions(),
        "log_digest": hashlib.sha256(log_bytes(trained)).hexdigest(),
    }
    spread = max(training.spread, LEAST_SPREAD)
    ranges = dict(family.ranges())
    strength = (
        family.units
        * math.sqrt(1.0 - value_budget_fraction)
        / whole_budget_multiplier(budget)
        / getattr(family, "ratio", 1.0)
    )
    ranges.setdefault("strength", (strength / spread, strength * spread))
    protector = Protector(
        architecture=architecture,
        hand=family.hand,
        weights=kept,
        algorithm=family.algorithm,
        features="" if architecture.dimension is None else getattr(family, "features", ""),
        ranges=ranges,
        provenance=provenance,
    )
    return protector, trained


def best_validation(trained: TrainingResult) -> dict[str, float]:
    """Return the record of the validation whose weights were kept."""
    return min(trained.log, key=lambda record: math.inf if math.isnan(record["validation"]) else record["validation"])


def save_with_log(protector: Protector, trained: TrainingResult, folder: str | Path) -> Path:
    """Write the protector and the training's log into a folder."""
    folder = protector.save(folder)
    write_atomically(folder / TRAINING_LOG, log_bytes(trained))
    return folder


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoints of a training that has ended from ``folder``."""
    for place in (folder / REFINEMENT_FOLDER, folder):
        (place / CHECKPOINT_FILE).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's files stay
            place.rmdir()


def log_bytes(trained: TrainingResult) -> bytes:
    """Return the training log as it is stored beside a protector, ``training.json``."""
    log = [
        {name: x if math.isfinite(x) else None for name, x in r.items()} for r in (*trained.earlier_log, *trained.log)
    ]
    content = {"schema": "dprl.protector-training/1", "log": log}
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
