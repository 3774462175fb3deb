"""The one place where private rows meet the mechanisms, for logs in memory and for logs in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dprl.arrays import AnyArray
from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import ALWAYS
from dprl.engine.layouts import UnitRows, unit_rows
from dprl.engine.loop import run_on_host
from dprl.engine.plan import Plan
from dprl.engine.program import Learned
from dprl.engine.ratios import policy_columns, step_ratios
from dprl.engine.sample_split import FirstPartRelease
from dprl.engine.value_query import LatePolicyQuery, LearningQuery, as_numbers, clipped_total, exact_sum, release_total
from dprl.evaluation.contrasts import Contrast, contrasts_of
from dprl.evaluation.intervals import ValueEstimate
from dprl.evaluation.subgroups import Subgroup, subgroups_of
from dprl.protocols import NO_JOURNAL
from dprl.release.engines.engine import Engine
from dprl.release.pipeline import ClaimRows
from dprl.release.run_folder import RunFolder


@dataclass(frozen=True)
class RowsInMemory:
    """A log in memory, with the target policies and the public behaviour policy, if there is one."""

    plan: Plan
    log: Trajectories
    policies: Sequence[Any]
    behavior: Any = None

    @cached_property
    def units(self) -> UnitRows | None:
        """The units in the form that the program takes; None if the plan has no program."""
        if self.plan.program is None:
            return None
        ratios = step_ratios(self.policies[0], self.log, self.behavior)
        return unit_rows(self.plan.rows(self.log, ratios), self.plan.bounds.units)

    @cached_property
    def _vectors(self) -> Float[np.ndarray, "units dim"]:
        return self._vectors_around(None)

    def _vectors_around(self, function: Learned | None) -> Float[np.ndarray, "units dim"]:
        return self.plan.query.around(function).unit_vectors(self.log, self.policies, self.behavior)

    def entering(self) -> Iterator[Any]:
        """Yield every array that enters the mechanisms; policies, features and the order of rows show in them, too.

        These are the value query's vectors and the program's rows. Where the vectors are not known yet, because a value
        function or a first part of the people comes before, they are the arrays from which the vectors are made.
        """
        log, first = self.log, self.plan.first
        if self.plan.around_function or first is not None:
            yield from (log.observation, log.action, log.reward, log.valid, log.episode_offsets, log.unit_offsets)
            yield from (policy_columns(policy, log, self.behavior) for policy in self.policies)
        else:
            yield self._vectors
        if first is not None:  # which policies are valued, and on whom, is not known yet
            yield from first.entering(log, self.behavior)
            yield from (log.next_observation, log.terminated, log.has_next)
            return
        units = self.units
        if units is not None:
            own = ("phi", "delta_phi", *ALWAYS)
            columns = units.mapped(lambda x: np.asarray(x)[: units.padding + 1])
            yield from (*(columns[name] for name in own), units.units, units.declared)
            yield from (columns[name] for name in sorted(columns) if name not in own)
            for members, index in units.buckets:
                yield from (members, index)

    def total(self, function: Learned | None) -> Int[AnyArray, " dim"]:
        """Return the sum of the clipped vectors."""
        vectors = self._vectors_around(function) if self.plan.around_function else self._vectors
        return clipped_total(self.plan.value_mechanism, vectors)

    def exact(self, function: Learned | None) -> tuple[int, ...]:
        """Return the sum without clipping."""
        return exact_sum(self._vectors_around(function))

    def after_first(self, noise: Any, journal: Any) -> tuple[FirstPartRelease, RowsInMemory]:
        """Return what the first part released, and the second part's rows with a plan for the policies it values."""
        first, log = self.plan.first, self.log
        assert first is not None
        chooses = first.split.in_first(noise, log.units)
        found = first.released(log.of_units(chooses, log.bounds), self.behavior, noise, journal)
        second, policies, plan = log.of_units(~chooses, self.plan.bounds), list(found.policies.values()), self.plan
        if isinstance(plan.query, LatePolicyQuery):
            plan = replace(plan, query=plan.query.with_policies(policies))
        return found, RowsInMemory(plan, second, policies, self.behavior)


class RowsInParts:
    """A log in parts, whose rows an engine reads block by block."""

    def __init__(self, plan: Plan, log: Log, units: Engine) -> None:
        self.units, self.plan = units, plan
        self._digest = log.source.digest
        self._pass = units.begin()

    def entering(self) -> Iterator[Any]:
        """Yield the digest of all rows, and a sum and a digest of what the policies make of the rows."""
        yield from (self._digest, self.units.units, self._pass.total, f"{self._pass.digest:032x}")

    def total(self, function: Learned | None) -> Int[AnyArray, " dim"]:
        """Return the sum of the clipped vectors. Around a value function this takes a second pass over the rows."""
        if self.plan.around_function and function is not None:
            self._pass = self.units.begin(function)
        return self._pass.total

    def exact(self, function: Learned | None) -> tuple[int, ...]:
        """Return the sum without clipping, from the last pass."""
        del function
        return self._pass.exact


PrivateRows = RowsInMemory | RowsInParts
"""Rows of a log on their way into the mechanisms of a plan. All that these objects return is private."""


def read_rows(
    plan: Plan, log: Log, units: Engine | None, policies: Sequence[Any], behavior: Any, claim: ClaimRows | None
) -> PrivateRows:
    """Read the rows of a log and claim them. The rows of a log in parts are claimed before its engine reads them.

    Args:
        units: engine of a log in parts; None for a log in memory.
        policies, behavior: target policies and the public behaviour policy, for a log in memory.
        claim: gets all rows before anything is computed from them; without a claim, a log in parts is only checked.
    """
    if units is None:
        return RowsInMemory(plan, log.load(claim), policies, behavior)
    assert isinstance(log.source, Parts)
    if claim is None:
        log.source.check()
    else:
        log.claim_in_blocks(claim)
    return RowsInParts(plan, log, units)


class ReleasedEstimates(NamedTuple):
    """All that was released, and the rows of the units on whom policies were valued.

    Attributes:
        estimates: one for each target policy, or for each policy that the first part of the people chose or learned.
        contrasts: one for each contrast of the plan.
        groups: one for each subgroup that the plan asks for.
        learned: value function, propensities or projections; None where the algorithm learns nothing.
        first: what the first part of the people released; None for a plan without a first part.
        rows: rows of the units on whom policies were valued. Private.
    """

    estimates: list[ValueEstimate]
    contrasts: list[Contrast]
    groups: list[Subgroup]
    learned: Learned | None
    first: FirstPartRelease | None
    rows: PrivateRows


def release_rows(
    plan: Plan, rows: PrivateRows, noise: Any, folder: RunFolder | None = None, progress: Any = None
) -> ReleasedEstimates:
    """Release all that the plan asks for: the first part's answers, values, differences, subgroups and what is learned.

    Args:
        noise: noise source of a release without a run folder.
        folder: run folder, if there is one; it is bound to the rows, and then provides noise and journal.
        progress: called with the number of updates done; None for no report.
    """
    journal: Any = NO_JOURNAL
    if folder is not None:
        noise = folder.bind_noise_to_data(rows.entering())
        journal = folder.journal
    first = None
    if plan.first is not None:
        if not isinstance(rows, RowsInMemory):
            raise RuntimeError("Two parts of the people are made of a log in memory.")
        first, rows = rows.after_first(noise, journal)
        plan = rows.plan

    noisy, function = release_values(rows, noise, journal, progress)
    query = plan.query.around(function)
    if isinstance(query, LearningQuery):
        function = query.learned(plan.value_mechanism, noisy)
    contrasts = contrasts_of(query, plan.value_mechanism, noisy, plan.contrasts) if plan.contrasts else []
    groups = subgroups_of(query, plan.value_mechanism, noisy, plan.contrasts)
    return ReleasedEstimates(query.decode(plan.value_mechanism, noisy), contrasts, groups, function, first, rows)


def release_values(
    rows: PrivateRows, noise: Any, journal: Any, progress: Any = None
) -> tuple[Float[np.ndarray, " dim"], Learned | None]:
    """Return the noisy vector of all values, and the value function that the plan's program learns, if there is one."""
    plan = rows.plan

    def value_vector(function: Learned | None) -> Float[np.ndarray, " dim"]:
        own = noise.stream("value"), lambda: rows.total(function), journal.stream("value")
        return release_total(plan.value_mechanism, *own)

    noisy = None if plan.around_function else value_vector(None)
    function = None
    if plan.program is not None:
        assert rows.units is not None
        weights = run_on_host(plan.program, noise, rows.units, progress=progress, journal=journal)[1]
        function = plan.function_of(weights)
    return value_vector(function) if noisy is None else noisy, function


def references(rows: PrivateRows, function: Learned | None) -> list[float]:
    """Return the estimates without noise, around the same released value function; only for simulations."""
    exact = as_numbers(rows.exact(function))
    plan = rows.plan
    return [estimate.value for estimate in plan.query.around(function).decode(plan.value_mechanism, exact)]
