"""Compute the sums over a log in parts, in this process or by the workers of a Ray cluster.

An engine computes only exact sums of clipped vectors. The release draws the noise itself, once, and sends it to no
worker. Workers are told who takes part in a step and return sums, so a cluster sees what the log's owner sees. The kind
of engine and its number of shards change no digit of a release and stand in no artifact.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.engine import shards as sizes
from dprl.engine.plan import Plan
from dprl.engine.program import Learned
from dprl.engine.shards import FirstPass, Shard, Task, combine_shards, sum_of
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT
from dprl.release.engines.ray_workers import EngineChoice, RayWorkers, open_workers

ENGINES = ("local", "ray")


class RayUnits:
    """Units of a log in parts, cut into shards of about equally many rows, one for each worker of a Ray cluster."""

    stability = ADDS_ONE_UNIT

    def __init__(self, workers: RayWorkers, task: Task) -> None:
        self.units = task.parts.units
        self._workers, self._task = workers, task
        self._ranges: list[tuple[int, int]] = []

    def begin(self, function: Learned | None = None) -> FirstPass:
        """Read the rows once; see :meth:`~dprl.engine.shards.Shard.begin`."""
        rows = np.cumsum(self._task.parts.rows_of(np.arange(self.units)))
        count = len(self._workers)
        aims = np.arange(1, count) * (int(rows[-1]) if self.units else 0) // count
        self._ranges = list(pairwise([0, *np.searchsorted(rows, aims).tolist(), self.units]))
        shares = [(start, stop, function) for start, stop in self._ranges]
        return combine_shards(self._workers.begin(shares))

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: np.ndarray) -> np.ndarray:
        """Return the sum of a step; see :class:`~dprl.engine.unit_source.Source`."""
        if program != self._task.plan.program or mechanism != program.stages[stage].mechanism:
            raise RuntimeError("The workers have another program.")
        shares = [(a, b, np.packbits(included[a:b]).tobytes()) for a, b in self._ranges]
        return sum_of(self._workers.totals((stage, state), shares))


Engine = Shard | RayUnits
"""Units of a log in parts: a :class:`~dprl.engine.unit_source.Source` whose rows are read once before the first sum."""


def policy_for_workers(spec: Any, policy: Any) -> Any:
    """Return what workers get for a policy: the absolute path of its file and its name there, or the policy itself."""
    if isinstance(spec, str) and ".py:" in spec:
        file, _, function = spec.rpartition(":")
        return f"{os.path.abspath(file)}:{function}"
    return policy


def check_engine(engine: str | None, shards: int | None, address: str | None) -> EngineChoice:
    """Return the choice of an engine, from the request.

    Refuses an unknown engine, and ``shards`` or an ``address`` for the engine ``local``, which has no workers.
    """
    engine = "local" if engine is None else engine
    if engine not in ENGINES:
        raise DprlError(f"engine must be one of {', '.join(ENGINES)}.")
    if engine == "local" and (shards is not None or address is not None):
        raise DprlError("shards and address are those of the engine ray: add --engine ray, or leave them out.")
    if shards is not None and (isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= 4096):
        raise DprlError("shards must be a whole number from 1 to 4096.")
    if address is not None and not (isinstance(address, str) and address):
        raise DprlError("address must be that of a Ray cluster, such as 10.0.0.1:6379, or auto.")
    return EngineChoice(engine, shards, address)


@contextmanager
def open_engine(
    where: EngineChoice, log: Log, plan: Plan, policies: Sequence[Any], behavior: Any, exact: bool
) -> Iterator[Engine | None]:
    """Start the engine of a log in parts; yields None for a log in memory. No row is read before ``begin``.

    Args:
        where: result of :func:`check_engine`.
        policies, behavior: as :class:`Task` takes them; for the engine ``ray``, those of :func:`policy_for_workers`.
        exact: see :class:`Task`.

    Raises:
        DprlError: the log is not in parts and the engine needs them, or the workers cannot be started.
    """
    if not isinstance(log.source, Parts):
        if where.engine != "local":
            raise DprlError(
                f"The engine {where.engine} needs a log in parts: make one with `dprl data partition LOG --by COLUMN "
                "--out FOLDER` and evaluate that folder."
            )
        yield None
        return
    task = Task(plan, log, tuple(policies), behavior, exact, sizes.KEPT_BYTES, sizes.BLOCK_ROWS)
    if where.engine == "local":
        yield Shard(task)
        return
    with open_workers(replace(task, log=replace(log, behavior_policy=None)), where) as workers:
        yield RayUnits(workers, task)
