"""Faults around the mechanisms: what a unit is, what is accounted for, certified and charged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dprl.accounting import accountant, events, ledger_file
from dprl.accounting import ledger as ledgers
from dprl.accounting.budget import Budget
from dprl.audits.conformance import evaluation as conformance
from dprl.data import readers
from dprl.engine import program as engine
from dprl.engine import shards
from dprl.engine.ratios import probability_of_logged
from dprl.errors import DprlError
from dprl.evaluation import importance_sampling as importance
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.release import evaluate as front
from dprl.release import pipeline
from dprl.release import touch as touching
from dprl.release.journal import FolderJournal

from .planting import Planting, fault

# --- units ----------------------------------------------------------------------------------------------------------


@fault("values standardised over the log", "contributions add up")
def _(planting: Planting) -> None:
    def standardised(original: Callable[..., Any]) -> Callable[..., Any]:
        def vectors(*args: Any, **options: Any) -> Any:
            found = original(*args, **options)
            return (found - found.mean(axis=0)) / np.maximum(found.std(axis=0), 1e-3)

        return vectors

    planting.replace(importance.ImportanceQuery, "unit_vectors", standardised)


@fault("features normalised over the batch", "contributions add up")
def _(planting: Planting) -> None:
    def normalised(original: Callable[..., Any]) -> Callable[..., Any]:
        def units(rows: Any, declared: int) -> Any:
            scale = max(float(np.abs(rows.reward).sum()), 1e-3)
            return original(rows.with_columns(reward=(rows.reward / scale).astype(rows.reward.dtype)), declared)

        return units

    for module in (touching, shards, conformance):
        planting.replace(module, "unit_rows", normalised)


@fault("one person in two units", "one person is one unit")
def _(planting: Planting) -> None:
    def split(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda columns, bounds, unit: original({**columns, "person": columns["episode"]}, bounds, unit)

    planting.replace(readers, "assemble", split)


@fault("importance ratios not clipped", "ratios are bounded")
def _(planting: Planting) -> None:
    def raw(target: Any, trajectories: Any, behavior: Any = None) -> Any:
        del behavior
        return probability_of_logged(target, trajectories) / trajectories.behavior_prob

    for module in (importance, touching, shards, conformance):
        planting.replace(module, "step_ratios", lambda original: raw)


@fault("a trajectory's ratio not clipped", "ratios are bounded")
def _(planting: Planting) -> None:
    def raw(ratios: Any, trajectories: Any) -> Any:
        starts = np.repeat(trajectories.episode_offsets[:-1], trajectories.lengths())
        logs = np.cumsum(np.log(np.maximum(ratios, 1e-300)))
        return np.exp(logs - logs[starts] + np.log(np.maximum(ratios, 1e-300))[starts])

    planting.replace(importance, "cumulative_ratios", lambda original: raw)


@fault("a bad row refuses the release", "rows are not heard")
def _(planting: Planting) -> None:
    def loud(original: Callable[..., Any]) -> Callable[..., Any]:
        def assemble(columns: Any, bounds: Any, unit: str) -> Any:
            if np.isnan(columns["reward"]).any():
                raise DprlError("A reward of the log is not a number.")
            return original(columns, bounds, unit)

        return assemble

    planting.replace(readers, "assemble", loud)


@fault("no update where the log is empty", "rows are not heard")
def _(planting: Planting) -> None:
    def run(original: Callable[..., Any]) -> Callable[..., Any]:
        def short(program: Any, noise: Any, data: Any, **options: Any) -> Any:
            if data.units == 0:
                state = program.init()
                return state, program.answer(state)
            return original(program, noise, data, **options)

        return short

    for module in (engine, touching):
        planting.replace(module, "run_on_host", run)


# --- accounting -----------------------------------------------------------------------------------------------------


@fault("wrong relation: sensitivity halved, as if a replacement were an addition", "the event is what ran", traced=True)
def _(planting: Planting) -> None:
    def halved(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self: events.poisson_gaussian(self.sampling_rate, 2.0 * self.noise_multiplier, self.steps)

    planting.replace(GaussianSum, "event", halved)


@fault("declared sensitivity halved", "neighbours in full batches", traced=True)
def _(planting: Planting) -> None:
    planting.replace(GaussianSum, "sensitivity", lambda original: lambda self: original(self) / 2.0)


@fault("accountant at half the sensitivity", "the accountant agrees with closed forms")
def _(planting: Planting) -> None:
    def halved(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda parts, delta, *more: original(tuple((r, 2.0 * s, n) for r, s, n in parts), delta, *more)

    planting.replace(accountant, "epsilon_of_parts", halved)


@fault("accountant that counts a composition once", "the accountant agrees with closed forms")
def _(planting: Planting) -> None:
    def once(original: Callable[..., Any]) -> Callable[..., Any]:
        def parts(event: Any) -> Any:
            inner = getattr(event, "event", event) if type(event).__name__ == "SelfComposedDpEvent" else event
            return original(inner)

        return parts

    planting.replace(accountant, "parts_of", once)


@fault("steps in the event fewer than are run", "the event is what ran", traced=True)
def _(planting: Planting) -> None:
    def fewer(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda rate, multiplier, steps: original(rate, multiplier, max(1, steps - 1))

    planting.replace(events, "poisson_gaussian", fewer)


@fault("sampling rate in the event lower than the coins'", "the event is what ran", traced=True)
def _(planting: Planting) -> None:
    def lower(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda rate, multiplier, steps: original(rate / 2.0, multiplier, steps)

    planting.replace(events, "poisson_gaussian", lower)


@fault("delta of the sampler forgotten", "the certificate covers what was drawn")
def _(planting: Planting) -> None:
    planting.replace(events, "sampler_delta", lambda original: lambda *args, **options: 0.0)


@fault("the certificate leaves a mechanism out", "the certificate covers what was drawn")
def _(planting: Planting) -> None:
    def without(original: Callable[..., Any]) -> Callable[..., Any]:
        def certified(plan: Any, *args: Any, **options: Any) -> Any:
            event = events.compose([stage.mechanism.event() for stage in plan.stages])
            epsilon = accountant.epsilon_of(event, plan.delta_of_event)
            found = original(dataclasses.replace(plan, event=event, epsilon_of_event=epsilon), *args, **options)
            return {**found, "mechanisms": found["mechanisms"][1:]}

        return certified

    planting.replace(front, "certificate_of", without)


@fault("the certificate states less epsilon than was spent", "the certificate covers what was drawn")
def _(planting: Planting) -> None:
    def less(original: Callable[..., Any]) -> Callable[..., Any]:
        def certified(plan: Any, *args: Any, **options: Any) -> Any:
            budget = Budget(plan.budget.epsilon / 2.0, plan.budget.delta)
            return original(dataclasses.replace(plan, budget=budget), *args, **options)

        return certified

    planting.replace(front, "certificate_of", less)
    planting.replace(front, "estimate_of", less)


@fault("certified for the wrong relation", "the certificate covers what was drawn")
def _(planting: Planting) -> None:
    planting.replace(
        front,
        "certificate_of",
        lambda original: (
            lambda *args, **options: {
                **original(*args, **options),
                "neighbouring_relation": "replace one",
            }
        ),
    )


@fault("seeded noise in a certified release", "a seeded release is not certified")
def _(planting: Planting) -> None:
    planting.replace(front, "status_of", lambda original: lambda plan, *said: "verified")


@fault("seeded noise that calls itself secure", "a seeded release is not certified")
def _(planting: Planting) -> None:
    def posing(original: Callable[..., Any]) -> Callable[..., Any]:
        def from_seed(cls: Any, seed: int) -> Any:
            source = original(cls, seed)
            object.__setattr__(source, "secure", True)
            object.__setattr__(source, "total_variation_per_draw", 2.0**-49)
            return source

        return from_seed

    planting.replace(SeededNoise, "from_seed", posing)


# --- the ledger -----------------------------------------------------------------------------------------------------


@fault("forgotten charge", "the ledger is charged first")
def _(planting: Planting) -> None:
    planting.replace(pipeline, "_charged", lambda original: lambda *args: None)


@fault("charged after the rows were read", "the ledger is charged first")
def _(planting: Planting) -> None:
    waiting: list[Any] = []

    def later(original: Callable[..., Any]) -> Callable[..., Any]:
        def charge(*args: Any) -> Any:
            waiting.append(lambda: original(*args))
            return None

        return charge

    def paying(original: Callable[..., Any]) -> Callable[..., Any]:
        def release_rows(*args: Any) -> Any:
            waiting.pop()()
            return original(*args)

        return release_rows

    planting.replace(pipeline, "_charged", later)
    planting.replace(front, "release_rows", paying)


@fault("charged half of what is spent", "the ledger is charged first")
def _(planting: Planting) -> None:
    def half(original: Callable[..., Any]) -> Callable[..., Any]:
        def charge(self: Any, dataset: str, budget: Budget, *args: Any, **options: Any) -> Any:
            return original(self, dataset, Budget(budget.epsilon / 2.0, budget.delta / 2.0), *args, **options)

        return charge

    planting.replace(ledgers.Ledger, "charge", half)


@fault("ledger whose sum is not checked", "the ledger is charged first")
def _(planting: Planting) -> None:
    """Both guards are out: the sum in the transaction, and the trigger in the table."""
    planting.replace(ledgers, "_subtract", lambda original: lambda whole, part: whole)
    guard = "'overspend') FROM dataset WHERE"
    loose = tuple(statement.replace(guard, f"{guard} 0 AND") for statement in ledger_file.SCHEMA)
    assert loose != ledger_file.SCHEMA
    planting.constant(ledger_file, "SCHEMA", loose)
    planting.constant(ledger_file, "KNOWN", {**ledger_file.KNOWN, ledger_file.VERSION: (loose,)})


@fault("the same rows under another name", "the same rows have one name")
def _(planting: Planting) -> None:
    planting.replace(ledgers.Ledger, "claim", lambda original: lambda self, dataset, columns: None)


@fault("a noised step is computed again after an interruption", "a resumed run draws each step once")
def _(planting: Planting) -> None:
    planting.replace(FolderJournal, "_replay", lambda original: lambda self, head, length: None)
