"""From public tasks and a budget to a protector: calibration, meta-training, provenance (paper 002)."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.certificate import versions
from dprl.accounting.renyi_filter import cost, effective_multiplier, plan_filter
from dprl.errors import DprlError
from dprl.files import write_atomically
from dprl.protectors.meta_training import STATE, Trained, Training, train
from dprl.protectors.projector import Architecture, Weights, init_weights, levels_of
from dprl.protectors.protector import Protector
from dprl.protectors.simulation import Simulation

LOG = "training.json"
CHECKPOINT = ".training"
"""Behind the name of a protector's folder: where an interrupted training is."""

REFINEMENT = "refinement"
"""Within that folder: where an interrupted second training is."""

LEAST_SPREAD = 1.25
"""A protector serves noise between one over this and this times what it was trained for; more if trained for more."""


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
            else [events.gaussian(gaussian_of(budget) / math.sqrt(value_budget_fraction))]
        )

        def together(noise_multiplier: float) -> events.DpEvent:
            return events.compose([*whole, events.poisson_gaussian(hand.sampling_rate, noise_multiplier, hand.steps)])

        z = noise_multiplier_for(together, budget)
    return Simulation(family=family, architecture=architecture, std=z / batch, **options)


def gaussian_of(budget: Budget) -> float:
    """Return the noise multiplier of one Gaussian release that spends the whole ``budget``."""
    return noise_multiplier_for(events.gaussian, budget)


def tuned(family: Any, budget: Budget, value_budget_fraction: float = 0.0) -> Any:
    """Return the family with its hand schedule for ``budget``, which the method ``tuned`` chooses where it has one."""
    return family.tuned(budget, value_budget_fraction) if hasattr(family, "tuned") else family


def learn(
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
) -> tuple[Protector, Trained]:
    """Train a protector for ``budget`` on the tasks of ``family``, all of which are public simulations.

    Where no validation finds weights that are better than the hand schedule, the protector is the hand schedule.

    Args:
        value_budget_fraction: share of a release's budget that pays for values and intervals before the value function;
            see :func:`simulation_of`.
        weights: weights to begin with; by default those of the family's method ``begin``, where it has one.
        checkpoint, resume, progress: see :func:`~dprl.protectors.meta_training.train`.
        refinement: a second training, which begins with the weights that the first one gives.
    """
    if not 0.0 <= value_budget_fraction < 1.0:
        raise DprlError("value_budget_fraction must be at least 0 and below 1.")
    simulation = simulation_of(family, architecture, budget, value_budget_fraction)
    if weights is None and hasattr(family, "begin"):
        weights = family.begin(architecture, training.seed)
    trained = train(simulation, training, weights, checkpoint=checkpoint, resume=resume, progress=progress)
    if refinement is not None:
        inner = None if checkpoint is None else Path(checkpoint) / REFINEMENT
        told = None if progress is None else lambda epoch, record: progress(training.epochs + epoch, record)
        second = train(simulation, refinement, trained.weights, checkpoint=inner, resume=resume, progress=told)
        log = [record | {"epoch": training.epochs + record["epoch"]} for record in second.log]
        trained = Trained(second.weights, log, trained.log)
    kept = trained.weights
    if not best_of(trained)["geometric_ratio"] <= 1.0:  # weights that are passed in may begin as something worse
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
        family.units * math.sqrt(1.0 - value_budget_fraction) / gaussian_of(budget) / getattr(family, "ratio", 1.0)
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


def best_of(trained: Trained) -> dict[str, float]:
    """Return the record of the validation whose weights were kept."""
    return min(trained.log, key=lambda record: math.inf if math.isnan(record["validation"]) else record["validation"])


def save(protector: Protector, trained: Trained, folder: str | Path) -> Path:
    """Write the protector and the training's log into a folder."""
    folder = protector.save(folder)
    write_atomically(folder / LOG, log_bytes(trained))
    return folder


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoints of a training that has ended from ``folder``."""
    for place in (folder / REFINEMENT, folder):
        (place / STATE).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's files stay
            place.rmdir()


def log_bytes(trained: Trained) -> bytes:
    """Return the training log as it is stored beside a protector, ``training.json``."""
    log = [{name: x if math.isfinite(x) else None for name, x in r.items()} for r in (*trained.before, *trained.log)]
    content = {"schema": "dprl.protector-training/1", "log": log}
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
