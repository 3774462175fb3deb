"""Meta-training: a protector's weights from gradients through whole simulated runs on public tasks.

Paper 002, appendix B; the incremental pre-training is that of B.7. With a public schedule the budget is met by
construction, because the accountant finds the scale of the noise. Everything is a function of public seeds. After an
interruption, the same call with ``resume`` ends with the same weights.
"""

from __future__ import annotations

import dataclasses
import functools
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

from dprl.errors import DprlError, explained
from dprl.files import write_atomically
from dprl.protectors.objective import Training, adam, batch_of, losses_of, meta_gradient, tighten, values_of
from dprl.protectors.projector import Weights, init_weights
from dprl.protectors.simulation import Simulation, noise_covariance
from dprl.untrusted_files import read_tensors, tensors_to_bytes

STATE = "training.safetensors"
_SCHEMA = "dprl.meta-training/1"


# --- training ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """Result of a training.

    Attributes:
        weights: the best weights of all validations.
        log: one record per validation.
        before: log of an earlier training from whose weights this training began.
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
        weights: weights to begin with, such as those for a smaller epsilon; by default new ones.
        checkpoint: folder to which every validation writes all that is needed to go on, whole or not at all.
        resume: whether to go on with the checkpoint in that folder; without a checkpoint, training starts anew.
        progress: called after every epoch with its number, from 1, and its record.
    """
    if simulation.adaptive or training.intermediate > 0.0:
        simulation = dataclasses.replace(simulation, every=True)
    path, identity = None if checkpoint is None else Path(checkpoint) / STATE, _identity(simulation, training)
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
        factor, rate = jnp.float32(training.factor(epoch)), jnp.float32(training.rate(epoch))
        gradient, found = meta_gradient(simulation, core, state["weights"], state["lagrangian"], key, factor)
        moved, state["moments"], found["gradient_norm"] = adam(
            core, state["weights"], state["moments"], gradient, epoch + 1, rate
        )
        state["weights"] = moved
        if "excess" in found:
            state["lagrangian"] = tighten(training.schedule, *state["lagrangian"], found["excess"])
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
    return Trained(state["best"] if math.isfinite(best_loss) else state["weights"], log)


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def validate(simulation: Simulation, training: Training, weights: Weights) -> dict[str, jax.Array]:
    """Return measures of the weights on tasks that training does not see.

    They are the mean of the objective, the mean loss and the hand schedule's, the geometric mean and the worst of the
    ratios of the two losses, and Theorem B.2's covariance of the noise with the last gradient; with an adaptive
    scheduler also the share of the budget that was spent.
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
