"""Faults around the mechanisms: what a unit is, what is accounted for, certified and charged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dprl.accounting import accountant, events, ledger_file
from dprl.accounting import ledger as ledgers
from dprl.accounting.budget import Budget
from dprl.data import readers
from dprl.engine import shards
from dprl.engine.ratios import probability_of_logged
from dprl.errors import DprlError
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation import importance_vectors as vectors
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.release import evaluate as front
from dprl.release import pipeline, private_rows
from dprl.release.journal import FolderJournal
from tests.conformance import walks

from .planting import Planting, fault, gives

# --- units ----------------------------------------------------------------------------------------------------------


@fault("values standardised over the log", "contributions add up", (importance.ImportanceQuery, "unit_vectors"))
def _(original: Any, *args: Any, **options: Any) -> Any:
    found = original(*args, **options)
    return (found - found.mean(axis=0)) / np.maximum(found.std(axis=0), 1e-3)


@fault(
    "features normalised over the batch",
    "contributions add up",
    (private_rows, "unit_rows"),
    (shards, "unit_rows"),
)
def _(original: Any, rows: Any, declared: int) -> Any:
    scale = max(float(np.abs(rows.reward).sum()), 1e-3)
    reward = (rows.reward / scale).astype(rows.reward.dtype)
    return original(dataclasses.replace(rows, columns={**rows.columns, "reward": reward}), declared)


@fault("one person in two units", "one person is one unit", (readers, "assemble"))
def _(original: Any, columns: Any, bounds: Any, unit: Any) -> Any:
    return original({**columns, "person": columns["episode"]}, bounds, unit)


@fault(
    "importance ratios not clipped",
    "ratios are bounded",
    (importance, "step_ratios"),
    (private_rows, "step_ratios"),
    (shards, "step_ratios"),
    (walks, "step_ratios"),
)
def _(original: Any, target: Any, trajectories: Any, behavior: Any = None) -> Any:
    del behavior
    return probability_of_logged(target, trajectories) / trajectories.behavior_prob


@fault("a trajectory's ratio not clipped", "ratios are bounded", (vectors, "cumulative_ratios"))
def _(original: Any, ratios: Any, trajectories: Any) -> Any:
    starts = np.repeat(trajectories.episode_offsets[:-1], trajectories.lengths())
    logs = np.cumsum(np.log(np.maximum(ratios, 1e-300)))
    return np.exp(logs - logs[starts] + np.log(np.maximum(ratios, 1e-300))[starts])


@fault("a bad row refuses the release", "rows are not heard", (readers, "assemble"))
def _(original: Any, columns: Any, bounds: Any, unit: str) -> Any:
    if np.isnan(columns["reward"]).any():
        raise DprlError("A reward of the log is not a number.")
    return original(columns, bounds, unit)


@fault("no update where the log is empty", "rows are not heard", (private_rows, "run_on_host"))
def _(original: Any, program: Any, noise: Any, data: Any, **options: Any) -> Any:
    if data.units == 0:
        state = program.init()
        return state, program.answer(state)
    return original(program, noise, data, **options)


# --- accounting -----------------------------------------------------------------------------------------------------


@fault(
    "wrong relation: sensitivity halved, as if a replacement were an addition",
    "the event is what ran",
    (GaussianSum, "event"),
    traced=True,
)
def _(original: Any, self: Any) -> Any:
    return events.poisson_gaussian(self.sampling_rate, 2.0 * self.noise_multiplier, self.steps)


@fault("declared sensitivity halved", "neighbours in full batches", (GaussianSum, "sensitivity"), traced=True)
def _(original: Any, self: Any) -> Any:
    return original(self) / 2.0


@fault("accountant at half the sensitivity", "epsilon is right", (accountant, "epsilon_of_parts"))
def _(original: Any, parts: Any, delta: Any, *more: Any) -> Any:
    return original(tuple((r, 2.0 * s, n) for r, s, n in parts), delta, *more)


@fault("accountant that counts a composition once", "epsilon is right", (accountant, "parts_of"))
def _(original: Any, event: Any) -> Any:
    inner = getattr(event, "event", event) if type(event).__name__ == "SelfComposedDpEvent" else event
    return original(inner)


@fault("steps in the event fewer than are run", "the event is what ran", (events, "poisson_gaussian"), traced=True)
def _(original: Any, rate: Any, multiplier: Any, steps: Any) -> Any:
    return original(rate, multiplier, max(1, steps - 1))


@fault(
    "sampling rate in the event lower than the coins'",
    "the event is what ran",
    (events, "poisson_gaussian"),
    traced=True,
)
def _(original: Any, rate: Any, multiplier: Any, steps: Any) -> Any:
    return original(rate / 2.0, multiplier, steps)


fault("delta of the sampler forgotten", "the certificate covers what was drawn", (events, "sampler_delta"))(gives(0.0))


@fault("the certificate leaves a mechanism out", "the certificate covers what was drawn", (front, "certificate_of"))
def _(original: Any, plan: Any, *args: Any, **options: Any) -> Any:
    event = events.compose([stage.mechanism.event() for stage in plan.stages])
    epsilon = accountant.epsilon_of(event, plan.delta_of_event)
    found = original(dataclasses.replace(plan, event=event, epsilon_of_event=epsilon), *args, **options)
    return {**found, "mechanisms": found["mechanisms"][1:]}


@fault(
    "the certificate states less epsilon than was spent",
    "the certificate covers what was drawn",
    (front, "certificate_of"),
    (front, "estimate_of"),
)
def _(original: Any, plan: Any, *args: Any, **options: Any) -> Any:
    budget = Budget(plan.budget.epsilon / 2.0, plan.budget.delta)
    return original(dataclasses.replace(plan, budget=budget), *args, **options)


@fault("certified for the wrong relation", "the certificate covers what was drawn", (front, "certificate_of"))
def _(original: Any, *args: Any, **options: Any) -> Any:
    return {**original(*args, **options), "neighbouring_relation": "replace one"}


fault("seeded noise in a certified release", "a seeded release is not certified", (front, "status_of"))(
    gives("verified")
)


@fault("seeded noise that calls itself secure", "a seeded release is not certified", (SeededNoise, "from_seed"))
def _(original: Any, cls: Any, seed: int) -> Any:
    source = original(cls, seed)
    object.__setattr__(source, "secure", True)
    object.__setattr__(source, "total_variation_per_draw", 2.0**-49)
    return source


# --- the ledger -----------------------------------------------------------------------------------------------------


fault("forgotten charge", "the ledger is charged first", (pipeline, "_charge"))(gives(None))


@fault("charged after the rows were read", "the ledger is charged first")
def _(planting: Planting) -> None:
    waiting: list[Any] = []

    def paying(original: Callable[..., Any]) -> Callable[..., Any]:
        def release_rows(*args: Any) -> Any:
            waiting.pop()()
            return original(*args)

        return release_rows

    planting.replace(pipeline, "_charge", lambda original: lambda *args: waiting.append(partial(original, *args)))
    planting.replace(front, "release_rows", paying)


@fault("charged half of what is spent", "the ledger is charged first", (ledgers.Ledger, "charge"))
def _(original: Any, self: Any, dataset: str, budget: Budget, *args: Any, **options: Any) -> Any:
    return original(self, dataset, Budget(budget.epsilon / 2.0, budget.delta / 2.0), *args, **options)


@fault("ledger whose sum is not checked", "the ledger is charged first")
def _(planting: Planting) -> None:
    """Both guards are out: the sum in the transaction, and the trigger in the table."""
    planting.replace(ledgers, "_subtract", lambda original: lambda whole, part: whole)
    guard = "'overspend') FROM dataset WHERE"
    loose = tuple(statement.replace(guard, f"{guard} 0 AND") for statement in ledger_file.SCHEMA)
    assert loose != ledger_file.SCHEMA
    planting.constant(ledger_file, "SCHEMA", loose)
    planting.constant(ledger_file, "KNOWN", {**ledger_file.KNOWN, ledger_file.VERSION: (loose,)})


fault("the same rows under another name", "the same rows have one name", (ledgers.Ledger, "claim"))(gives(None))


fault(
    "a noisy step is computed again after an interruption",
    "a resumed run draws each step once",
    (FolderJournal, "_replay"),
)(gives(None))
