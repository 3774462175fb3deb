"""Actors of a Ray cluster that compute shares of exact sums and return only these sums.

A worker that dies is replaced, and its successor is asked for the same share. The sum is the same: a worker draws no
noise and no coins for who takes part. Other workers are not asked again.

A worker's failure comes back as a sentence without a cause: Ray would write the text of an exception, which may quote a
row, into its logs and onto the driver's screen. A worker sets its number of threads first and imports JAX only when
there is something to compute.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from dprl.errors import DprlError
from dprl.release.engines.cluster import cluster, import_ray

ATTEMPTS = 10
"""How often one share of one step is asked for, if each worker that is asked dies."""
START_SECONDS = 300
"""Longest wait for a cluster to start the workers, in seconds."""
ROOM_SECONDS = 900
"""Longest wait for room for a worker that replaces an ended one, in seconds; its machine may be gone."""
_INLINE = 1 << 16  # bytes; a larger state is put into the cluster's memory once, for all workers

Answer = tuple[str, Any]
DONE, REFUSED, FAILED = "done", "refused", "failed"
# facts in which workers may differ: they do not change digits
_OWN = ("cpus", "XLA_FLAGS")


class EngineChoice(NamedTuple):
    """Choice of what computes the sums over a log in parts. The choice changes no digit of a release.

    Attributes:
        engine: ``local`` for this process, or ``ray``.
        shards: number of workers of the engine ``ray``; by default one for each processor.
        address: address of a running Ray cluster; by default a cluster is started on this machine, for this release
            only.
    """

    engine: str
    shards: int | None
    address: str | None


class Worker:
    """A Ray actor. From call to call it keeps only what it compiled and what its task keeps.

    Args:
        task: the pickled task, an object with the methods ``begin`` and ``total`` that are called here.
        facts: facts of the driver, see :func:`machine_facts`.
        core: processor to stay on, if the worker runs on the driver's own machine.
    """

    def __init__(self, task: bytes, facts: Mapping[str, Any], core: int | None) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{given} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".strip()
        if core is not None:
            with suppress(OSError, AttributeError):
                os.sched_setaffinity(0, {core})
        self._pickled, self._facts = task, facts
        self._opened: Any = None

    def ready(self) -> Answer:
        """Check that the task can be done on this machine, without reading a row."""
        return self._answered(lambda: self._task() and None)

    def begin(self, *arguments: Any) -> Answer:
        """Compute a share of the first pass."""
        return self._answered(lambda: self._task().begin(*arguments))

    def total(self, state: bytes, *arguments: Any) -> Answer:
        """Compute a share of a step's sum; ``state`` is pickled."""
        return self._answered(lambda: self._task().total(pickle.loads(state), *arguments))

    def pid(self) -> int:
        """Return the id of the worker's process."""
        return os.getpid()

    def _task(self) -> Any:
        if self._opened is None:
            here = machine_facts()
            if self._facts != here:
                names = sorted(name for name in here if self._facts.get(name) != here[name])
                raise DprlError(
                    f"A worker is another machine than this one, or has other libraries ({', '.join(names)}), so that "
                    "its digits may differ: let workers be of one kind, and start the release on such a machine "
                    "(JAX_PLATFORMS=cpu keeps JAX off a GPU)."
                )
            self._opened = pickle.loads(self._pickled)
        return self._opened

    def _answered(self, work: Callable[[], Any]) -> Answer:
        try:
            return DONE, work()
        except DprlError as error:
            return REFUSED, str(error)
        except BaseException as error:  # of any kind, for Ray would show it
            return FAILED, type(error).__name__


def machine_facts() -> dict[str, Any]:
    """Return the facts besides the data that digits depend on; driver and workers must agree on them."""
    from dprl import machine

    return {name: x for name, x in (machine.versions() | machine.device()).items() if name not in _OWN}


class RayWorkers:
    """Workers that share one task. Open them with :func:`open_workers`."""

    def __init__(self, ray: Any, task: bytes, shards: int, cores: Sequence[int] | None) -> None:
        self._ray, self._cores = ray, cores
        self._actor = ray.remote(Worker).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self._given = (ray.put(task), machine_facts())
        self._workers = [self._started(shard) for shard in range(shards)]
        try:
            self._ask("ready", [()] * shards, START_SECONDS)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._workers)

    def begin(self, shares: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the results of a first pass, in order; each entry of ``shares`` is the arguments of one worker."""
        return self._ask("begin", shares)

    def totals(self, state: Any, shares: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the results of a step in order, as for :meth:`begin`; every worker also gets the ``state``."""
        content: Any = pickle.dumps(state)
        if len(content) > _INLINE:
            content = self._ray.put(content)
        return self._ask("total", [(content, *share) for share in shares])

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
        """Call ``method`` on one worker per entry of ``arguments`` and return the answers in order.

        A worker that ends is replaced and its share is asked for again. If ``seconds`` is given, all must answer within
        them.
        """
        answers: list[Any] = [None] * len(arguments)
        attempts, end = [0] * len(arguments), None if seconds is None else time.monotonic() + seconds
        waiting: dict[Any, tuple[int, str, float | None]] = {}

        def call(shard: int, name: str, until: float | None) -> None:
            given = arguments[shard] if name == method else ()
            waiting[getattr(self._workers[shard], name).remote(*given)] = (shard, name, until)

        for shard in range(len(arguments)):
            call(shard, method, end)
        while waiting:
            limits = [until for _, _, until in waiting.values() if until is not None]
            left = max(0.0, min(limits) - time.monotonic()) if limits else None
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=left)
            if not done:
                raise _refusal("no room", method)
            shard, name, _ = waiting.pop(done[0])
            try:
                kind, answer = self._ray.get(done[0])
            except self._ray.exceptions.RayError:  # the worker ended: what its code raises comes as an answer
                attempts[shard] += 1
                if attempts[shard] == ATTEMPTS:
                    raise _refusal("gave up", method) from None
                self._end(self._workers[shard])
                self._workers[shard] = self._started(shard)
                # a share may take any time, but starting a worker may not: if a machine is gone, no room may be left
                call(shard, "ready", time.monotonic() + ROOM_SECONDS if end is None else end)
                continue
            if kind == REFUSED:
                raise DprlError(answer)
            if kind == FAILED:
                raise _refusal(FAILED, name, answer)
            if name == method:
                answers[shard] = answer
            else:
                call(shard, method, None)
        return answers


@contextmanager
def open_workers(task: Any, where: EngineChoice) -> Iterator[RayWorkers]:
    """Start workers on the cluster at an address, on the cluster that this process is connected to, or on a new one.

    Args:
        task: see :class:`Worker`.
        where: a choice whose engine is ``ray``.
    """
    ray = import_ray()
    with cluster(ray, where.shards, where.address) as cores:
        there = int(ray.cluster_resources().get("CPU", 0))
        shards = max(1, there) if where.shards is None else where.shards
        if shards > there:
            raise DprlError(f"The Ray cluster has {there} processors: ask for as many --shards at most.")
        try:
            pickled = ray.cloudpickle.dumps(task)
        except Exception:
            raise DprlError(
                "A policy cannot be sent to the workers: put it into a file, and name it FILE.py:function."
            ) from None
        workers = RayWorkers(ray, pickled, shards, cores)
        try:
            yield workers
        finally:
            workers.close()


_CHARGED = "What was charged is not lost: the release can be resumed from its run folder, if it has one."
_SENTENCES = {
    ("no room", "ready"): "The Ray cluster has no room for the workers: ask for fewer --shards.",
    ("no room", "share"): (
        "The Ray cluster had no room for a worker in the place of one that ended, for {minutes} minutes: add a "
        f"machine, or ask for fewer --shards. {_CHARGED}"
    ),
    ("gave up", "ready"): (
        "The Ray cluster cannot start a worker: the same dprl and its libraries must be installed on every machine."
    ),
    ("gave up", "share"): (
        "A worker ended {attempts} times over the same share, as it does when memory is short: ask for other --shards. "
        + _CHARGED
    ),
    (FAILED, "ready"): (
        "A worker cannot take up its task ({error}): the log in parts and the policies' files must have the same path "
        "on every machine, and a policy that is no file must be in a module that is installed there."
    ),
    (FAILED, "share"): (
        "A worker could not compute its share ({error}); what it says of the rows is not shown. With the engine local "
        "the same happens here."
    ),
}
"""Kind of failure, and whether a worker was to get ready or to compute a share -> the error's sentence."""


def _refusal(what: str, method: str, error: str = "") -> DprlError:
    sentence = _SENTENCES[what, "ready" if method == "ready" else "share"]
    return DprlError(sentence.format(minutes=ROOM_SECONDS // 60, attempts=ATTEMPTS, error=error))
