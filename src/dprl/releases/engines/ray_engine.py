"""Shards of a log in parts in the actors of a Ray cluster.

Each actor opens the folder of parts itself and returns exact int64 sums over a range of units. One that dies is
replaced, and asked for the same share again: as there is no coin and no noise in a share, it is the same sum. Others
are not asked again.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dprl.algorithms.evaluation.streamed import Begun, Task, sum_of, together
from dprl.cluster import cluster, import_ray
from dprl.errors import DprlError
from dprl.releases.engines.ray_worker import FAILED, REFUSED, Worker, facts

ATTEMPTS = 10
"""How often a share of one step is asked for, where workers die of it."""
START_SECONDS = 300
"""After which a cluster that has started no workers is given up."""
_INLINE = 1 << 16  # bytes of a state beyond which it is put into the cluster's memory once for all workers


class RayUnits:
    """The units of a log in parts, in shards of about as many rows. Use :func:`open_ray`."""

    def __init__(self, ray: Any, task: Task, shards: int, cores: Sequence[int] | None) -> None:
        self.units = task.parts.units
        self._ray, self._task, self._cores = ray, task, cores
        self._actor = ray.remote(Worker).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self._given = (ray.put(_pickled(ray, task)), facts())
        self._ranges: list[tuple[int, int]] = []
        self._workers = [self._started(shard) for shard in range(shards)]
        try:
            self._ask("ready", [()] * shards, START_SECONDS)
        except BaseException:
            self.close()
            raise

    def begin(self) -> Begun:
        """See :class:`~dprl.releases.engines.engine.Engine`."""
        rows = np.cumsum(self._task.parts.rows_of(np.arange(self.units)))
        count = len(self._workers)
        aims = np.arange(1, count) * (int(rows[-1]) if self.units else 0) // count
        self._ranges = list(pairwise([0, *np.searchsorted(rows, aims).tolist(), self.units]))
        return together([Begun(*found) for found in self._ask("begin", self._ranges)])

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: np.ndarray) -> np.ndarray:
        """See :class:`~dprl.algorithms.evaluation.unit_source.Units`."""
        if program != self._task.plan.program or mechanism != program.stages[stage].mechanism:
            raise RuntimeError("The workers have another program.")
        content: Any = pickle.dumps(state)
        if len(content) > _INLINE:
            content = self._ray.put(content)
        asked = [(a, b, stage, content, np.packbits(included[a:b]).tobytes()) for a, b in self._ranges]
        return sum_of(self._ask("total", asked))

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            self._end(worker)

    def _started(self, shard: int) -> Any:
        core = None if self._cores is None else self._cores[shard % len(self._cores)]
        return self._actor.remote(*self._given, core)

    def _end(self, worker: Any) -> None:
        with suppress(Exception):
            self._ray.kill(worker)

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...]], seconds: float | None = None) -> list[Any]:
        """What the workers answer, in order; each has ``arguments`` of its own."""
        answers: list[Any] = [None] * len(arguments)
        attempts, end = [0] * len(arguments), None if seconds is None else time.monotonic() + seconds

        def call(shard: int) -> Any:
            return getattr(self._workers[shard], method).remote(*arguments[shard])

        waiting = {call(shard): shard for shard in range(len(arguments))}
        while waiting:
            left = None if end is None else max(0.0, end - time.monotonic())
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=left)
            if not done:
                raise DprlError("The Ray cluster has no room for the workers: ask for fewer --shards.")
            shard = waiting.pop(done[0])
            try:
                kind, answers[shard] = self._ray.get(done[0])
            except self._ray.exceptions.RayError:  # not ours: what a worker's own code raises comes as an answer
                attempts[shard] += 1
                if attempts[shard] == ATTEMPTS:
                    raise _gave_up(method) from None
                self._end(self._workers[shard])
                self._workers[shard] = self._started(shard)
                waiting[call(shard)] = shard
                continue
            if kind == REFUSED:
                raise DprlError(answers[shard])
            if kind == FAILED:
                raise _failed(method, answers[shard])
        return answers


@contextmanager
def open_ray(task: Task, shards: int | None, address: str | None) -> Iterator[RayUnits]:
    """Workers on the cluster at ``address``, on the one that this process is connected to, or on one of their own."""
    ray = import_ray()
    with cluster(ray, shards, address) as cores:
        there = int(ray.cluster_resources().get("CPU", 0))
        shards = max(1, there) if shards is None else shards
        if shards > there:
            raise DprlError(f"The Ray cluster has {there} processors: ask for as many --shards at most.")
        units = RayUnits(ray, task, shards, cores)
        try:
            yield units
        finally:
            units.close()


def _pickled(ray: Any, task: Task) -> bytes:
    try:
        return ray.cloudpickle.dumps(replace(task, log=replace(task.log, behavior_policy=None)))
    except Exception:
        raise DprlError(
            "A policy cannot be sent to the workers: put it into a file, and name it FILE.py:function."
        ) from None


def _gave_up(method: str) -> DprlError:
    if method == "ready":
        return DprlError(
            "The Ray cluster cannot start a worker: the same dprl and its libraries must be installed on every machine."
        )
    return DprlError(
        f"A worker ended {ATTEMPTS} times over the same share, as it does when memory is short: ask for other "
        "--shards. What was charged is not lost: the release can be resumed from its run folder, if it has one."
    )


def _failed(method: str, name: str) -> DprlError:
    if method == "ready":
        return DprlError(
            f"A worker cannot take up its task ({name}): the log in parts and the policies' files must have the same "
            "path on every machine, and a policy that is no file must be in a module that is installed there."
        )
    return DprlError(
        f"A worker could not compute its share ({name}); what it says of the rows is not shown. With the engine local "
        "the same happens here."
    )
