"""The one place where private rows meet the mechanisms: of a log in memory, and of one in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.data.trajectories import Trajectories
from dprl.engine.layouts import UnitRows, unit_rows
from dprl.engine.program import run_on_host
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import ALWAYS
from dprl.evaluation import estimators
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation.intervals import ValueEstimate
from dprl.evaluation.plan import Plan
from dprl.evaluation.streamed import Begun, as_numbers, exact_sum, release_total
from dprl.protocols import NO_JOURNAL, Journal
from dprl.release.engines.engine import Engine
from dprl.release.resumable import Claim
from dprl.release.run_folder import RunFolder
from dprl.value_functions.linear import ValueFunction

Touched = tuple[list[ValueEstimate], ValueFunction | None]


def read_rows(log: Log, units: Engine | None, claim: Claim | None) -> Trajectories | None:
    """Read the rows of a log and claim them; of one in parts, whose rows are read as they are needed, check them."""
    if units is None:
        return log.load(claim)
    assert isinstance(log.source, Parts)
    if claim is None:
        log.source.check()
    else:
        log.claim_in_blocks(claim)
    return None


def release_rows(
    rows: Trajectories | None,
    log: Log,
    units: Engine | None,
    plan: Plan,
    policies: list[Any],
    behavior: Any,
    noise: Any,
    folder: RunFolder | None,
    progress: Any,
    simulated: bool,
) -> tuple[list[ValueEstimate], ValueFunction | None, list[float] | None]:
    """Release what the plan says of what :func:`read_rows` gave.

    Args:
        units: of a log in parts; None for one that fits into memory.

    Returns:
        Estimates, value function, and for a simulation the estimates without noise.
    """
    if units is None:
        assert rows is not None
        found = touch(plan, rows, policies, behavior, noise, folder, progress)
        return *found, references(plan, rows, policies, behavior, found[1]) if simulated else None
    found, begun = touch_parts(plan, units, log.source.digest, noise, folder, progress)
    return *found, references_of(plan, begun.exact, found[1]) if simulated else None


def touch(
    plan: Plan,
    trajectories: Trajectories,
    policies: list[Any],
    behavior: Any,
    noise: Any,
    folder: RunFolder | None,
    progress: Any,
) -> Touched:
    """What is released of a log in memory."""

    def vectors_around(function: ValueFunction | None) -> np.ndarray:
        baseline = estimators.baseline_of(plan.query, function)
        return estimators.unit_vectors(plan.query, trajectories, policies, behavior, baseline)

    vectors = None if plan.around_function else vectors_around(None)
    units = None
    if plan.program is not None:
        rows = plan.rows(trajectories, step_ratios(policies[0], trajectories, behavior))
        units = unit_rows(rows, plan.bounds.units)
    journal: Any = NO_JOURNAL
    if folder is not None:
        first = [vectors] if vectors is not None else _under(trajectories, policies, behavior)
        noise = folder.bind(_entering(first, units))
        journal = folder.journal

    def value_vector(function: ValueFunction | None) -> np.ndarray:
        own = vectors_around(function) if vectors is None else vectors
        stream = noise.stream("value")
        return importance.release_vector(plan.value_mechanism, stream, own, journal=journal.stream("value"))

    return _in_order(plan, value_vector, units, noise, journal, progress)


def touch_parts(
    plan: Plan, units: Engine, parts: str, noise: Any, folder: RunFolder | None, progress: Any
) -> tuple[Touched, Begun]:
    """What is released of a log in parts, whose digest is ``parts``; and the engine's first pass."""
    begun = units.begin()
    journal: Any = NO_JOURNAL
    if folder is not None:
        # all rows; and what policies, which are functions, make of them
        noise = folder.bind((parts, units.units, begun.total, f"{begun.digest:032x}"))
        journal = folder.journal

    def value_vector(function: ValueFunction | None) -> np.ndarray:
        nonlocal begun
        if plan.around_function and function is not None:
            begun = units.begin(function.theta)
        return release_total(plan.value_mechanism, noise.stream("value"), begun.total, journal.stream("value"))

    found = _in_order(plan, value_vector, None if plan.program is None else units, noise, journal, progress)
    return found, begun


def _in_order(
    plan: Plan,
    value_vector: Callable[[ValueFunction | None], np.ndarray],
    units: UnitRows | Engine | None,
    noise: Any,
    journal: Journal,
    progress: Any,
) -> Touched:
    """The values and the value function, in the plan's order; ``value_vector`` releases that of the values."""
    noised = None if plan.around_function else value_vector(None)
    function = None
    if units is not None:
        assert plan.program is not None
        function = plan.function_of(run_on_host(plan.program, noise, units, progress=progress, journal=journal)[1])
    if noised is None:
        noised = value_vector(function)
    baseline = estimators.baseline_of(plan.query, function)
    return estimators.decode(plan.query, plan.value_mechanism, noised, baseline), function


def _under(trajectories: Trajectories, policies: list[Any], behavior: Any) -> Iterator[Any]:
    """All that a vector of values is made of, besides what is released."""
    yield from (trajectories.observation, trajectories.reward, trajectories.valid)
    yield from (trajectories.episode_offsets, trajectories.unit_offsets)
    yield from (step_ratios(policy, trajectories, behavior) for policy in policies)


def _entering(first: Iterable[Any], units: UnitRows | None) -> Iterator[Any]:
    """Everything made of the rows that enters a mechanism, in order: policies, features and row order included."""
    yield from first
    if units is not None:
        own = ("phi", "delta_phi", *ALWAYS)
        yield from (*(units.columns[name] for name in own), units.units, units.declared)
        yield from (units.columns[name] for name in sorted(units.columns) if name not in own)
        for members, index in units.buckets:
            yield from (members, index)


def references(
    plan: Plan, trajectories: Trajectories, policies: list[Any], behavior: Any, function: ValueFunction | None
) -> list[float]:
    """The same estimator without noise, around the same value function: for simulations only."""
    baseline = estimators.baseline_of(plan.query, function)
    vectors = estimators.unit_vectors(plan.query, trajectories, policies, behavior, baseline)
    return references_of(plan, exact_sum(vectors), function)


def references_of(plan: Plan, exact: tuple[int, ...], function: ValueFunction | None) -> list[float]:
    """:func:`references` from the sum of the units' vectors."""
    baseline = estimators.baseline_of(plan.query, function)
    return [e.value for e in estimators.decode(plan.query, plan.value_mechanism, as_numbers(exact), baseline)]
