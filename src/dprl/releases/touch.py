"""The one place where private rows meet the mechanisms: of a log in memory, and of one in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dprl.algorithms.evaluation import importance_sampling as importance
from dprl.algorithms.evaluation.importance_sampling import ValueEstimate
from dprl.algorithms.evaluation.plan import Plan
from dprl.algorithms.evaluation.program import ValueProgram, run_on_host
from dprl.algorithms.evaluation.ratios import step_ratios
from dprl.algorithms.evaluation.streamed import Begun, as_numbers, exact_sum, plan_rows, release_total, silence
from dprl.algorithms.evaluation.unit_data import UnitRows
from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.data.trajectories import Trajectories
from dprl.protocols import NO_JOURNAL, Journal
from dprl.releases.engines.engine import Engine
from dprl.releases.run_folder import RunFolder
from dprl.value_functions.linear import ValueFunction

Touched = tuple[list[ValueEstimate], ValueFunction | None]


def touch_log(
    log: Log,
    units: Engine | None,
    claim: Callable[[Any], object] | None,
    plan: Plan,
    policies: list[Any],
    behavior: Any,
    noise: Any,
    folder: RunFolder | None,
    progress: Any,
    simulated: bool,
) -> tuple[list[ValueEstimate], ValueFunction | None, list[float] | None]:
    """Read the log and release what the plan says; the ledger was charged.

    Args:
        units: of a log in parts; None for one that fits into memory.
        claim: called with the rows before anything is made of them; what it raises ends it all.

    Returns:
        Estimates, value function, and for a simulation the estimates without noise.
    """
    with silence():
        if units is None:
            trajectories = log.load(claim)
            found = touch(plan, trajectories, policies, behavior, noise, folder, progress)
            return *found, references(plan, trajectories, policies, behavior) if simulated else None
        assert isinstance(log.source, Parts)
        if claim is None:
            log.source.check()
        else:
            log.claim_in_blocks(claim)
        found, begun = touch_parts(plan, units, log.source.digest, noise, folder, progress)
        return *found, references_of(plan, begun.exact) if simulated else None


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
    vectors = importance.unit_vectors(plan.query, trajectories, policies, behavior)
    units = None
    if plan.program is not None:
        units = plan_rows(plan, trajectories, step_ratios(policies[0], trajectories, behavior))
    journal: Any = NO_JOURNAL
    if folder is not None:
        noise = folder.bind(_entering(vectors, units))
        journal = folder.journal
    noised = importance.release_vector(
        plan.value_mechanism, noise.stream("value"), vectors, journal=journal.stream("value")
    )
    return _rest(plan, noised, units, noise, journal, progress)


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
    noised = release_total(plan.value_mechanism, noise.stream("value"), begun.total, journal.stream("value"))
    return _rest(plan, noised, None if plan.program is None else units, noise, journal, progress), begun


def _rest(
    plan: Plan, noised: np.ndarray, units: UnitRows | Engine | None, noise: Any, journal: Journal, progress: Any
) -> Touched:
    """From the noised value vector on."""
    estimates = importance.decode(plan.query, plan.value_mechanism, noised)
    if units is None:
        return estimates, None
    assert plan.program is not None
    assert plan.features is not None
    state, theta = run_on_host(plan.program, noise, units, progress=progress, journal=journal)
    if isinstance(plan.program, ValueProgram):
        estimates[0] = plan.program.estimate(state)
    weights = np.nan_to_num(np.asarray(theta, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return estimates, ValueFunction(weights, plan.features, plan.bounds.value_interval(plan.config.discount))


def _entering(vectors: np.ndarray, units: UnitRows | None) -> Iterator[Any]:
    """Everything made of the rows that enters a mechanism, in order: policies, features and row order included."""
    yield vectors
    if units is not None:
        yield from (units.phi, units.delta_phi, units.reward, units.rho, units.weight, units.units, units.declared)
        yield from (units.extra[name] for name in sorted(units.extra))
        for members, index in units.buckets:
            yield from (members, index)


def references(plan: Plan, trajectories: Trajectories, policies: list[Any], behavior: Any) -> list[float]:
    """The same estimator without noise: for simulations only."""
    return references_of(plan, exact_sum(importance.unit_vectors(plan.query, trajectories, policies, behavior)))


def references_of(plan: Plan, exact: tuple[int, ...]) -> list[float]:
    """:func:`references` from the sum of the units' vectors."""
    return [e.value for e in importance.decode(plan.query, plan.value_mechanism, as_numbers(exact))]
