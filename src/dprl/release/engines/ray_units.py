"""The units of a log in parts, in shards of about as many rows, each with a worker of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dprl.engine.shards import FirstPass, Task, combine_shards, sum_of
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT
from dprl.release.engines.ray_workers import RayWorkers, open_workers


class RayUnits:
    """See :class:`~dprl.release.engines.engine.Engine`. Use :func:`open_ray`."""

    stability = ADDS_ONE_UNIT

    def __init__(self, workers: RayWorkers, task: Task) -> None:
        self.units = task.parts.units
        self._workers, self._task = workers, task
        self._ranges: list[tuple[int, int]] = []

    def begin(self, weights: np.ndarray | None = None) -> FirstPass:
        """Read the rows once; see :class:`~dprl.release.engines.engine.Engine`."""
        rows = np.cumsum(self._task.parts.rows_of(np.arange(self.units)))
        count = len(self._workers)
        aims = np.arange(1, count) * (int(rows[-1]) if self.units else 0) // count
        self._ranges = list(pairwise([0, *np.searchsorted(rows, aims).tolist(), self.units]))
        shares = [(start, stop, weights) for start, stop in self._ranges]
        return combine_shards([FirstPass(*found) for found in self._workers.begin(shares)])

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: np.ndarray) -> np.ndarray:
        """Return the sum of a step; see :class:`~dprl.engine.unit_source.Source`."""
        if program != self._task.plan.program or mechanism != program.stages[stage].mechanism:
            raise RuntimeError("The workers have another program.")
        shares = [(a, b, np.packbits(included[a:b]).tobytes()) for a, b in self._ranges]
        return sum_of(self._workers.totals((stage, state), shares))


@contextmanager
def open_ray(task: Task, shards: int | None, address: str | None) -> Iterator[RayUnits]:
    """Workers on the cluster at ``address``, on the one that this process is connected to, or on one of their own."""
    sent = replace(task, log=replace(task.log, behavior_policy=None))
    with open_workers(lambda dumps: dumps(sent), shards, address) as workers:
        yield RayUnits(workers, task)
