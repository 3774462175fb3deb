"""Actors of a Ray cluster that compute shares of exact sums, and say nothing but sums.

One that dies is replaced, and asked for the same share again: as there is no coin of who takes part and no noise in a
share, it is the same sum. Others are not asked again.

What goes wrong comes back as a sentence without a cause: Ray would write an exception's text, which may quote a row,
into its logs and onto the driver's screen. JAX is imported when there is something to compute, after a worker's threads
are set.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from dprl.cluster import cluster, import_ray
from dprl.errors import DprlError

ATTEMPTS = 10
"""How often a share of one step is asked for, where workers die of it."""
START_SECONDS = 300
"""After which a cluster that has started no workers is given up."""
ROOM_SECONDS = 900
"""After which one is given up that has no room for a worker in the place of one that ended: its machine is gone."""
_INLINE = 1 << 16  # bytes of a state beyond which it is put into the cluster's memory once for all workers

Answer = tuple[str, Any]
DONE, REFUSED, FAILED = "done", "refused", "failed"
# what one worker may have of its own, and what does not change digits
_OWN = ("cpus", "XLA_FLAGS")


class Workplace(NamedTuple):
    """Place where sums over a log in parts are computed; it changes no digit.

    Attributes:
        engine: ``local`` for this process, or ``ray``.
        shards: number of workers of the engine ``ray``; by default one for each processor.
        address: of a Ray cluster that runs; by default one is started on this machine, for this release alone.
    """

    engine: str
    shards: int | None
    address: str | None


class Worker:
    """A Ray actor. It keeps what it compiled and what its task keeps; nothing else from call to call.

    Args:
        task: pickled; it has the methods ``begin`` and ``total`` that are called here.
        facts: of the driver, see :func:`facts`.
        core: processor to stay on, where the machine is the driver's own.
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
        """Tell whether the task can be done here: no row is read."""
        return self._answered(lambda: self._task() and None)

    def begin(self, *arguments: Any) -> Answer:
        """Return a share of the first pass."""
        return self._answered(lambda: self._task().begin(*arguments))

    def total(self, state: bytes, *arguments: Any) -> Answer:
        """Return a share of a step's sum."""
        return self._answered(lambda: self._task().total(pickle.loads(state), *arguments))

    def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    def _task(self) -> Any:
        if self._opened is None:
            here = facts()
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
        except BaseException as error:  # whatever it is: Ray would show it
            return FAILED, type(error).__name__


def facts() -> dict[str, Any]:
    """Return what digits depend on besides the data, and what must therefore be the same for driver and workers."""
    from dprl import machine

    return {name: x for name, x in (machine.versions() | machine.device()).items() if name not in _OWN}


class RayWorkers:
    """Workers with one task. Use :func:`open_workers`."""

    def __init__(self, ray: Any, task: bytes, shards: int, cores: Sequence[int] | None) -> None:
        self._ray, self._cores = ray, cores
        self._actor = ray.remote(Worker).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self._given = (ray.put(task), facts())
        self._workers = [self._started(shard) for shard in range(shards)]
        try:
            self._ask("ready", [()] * shards, START_SECONDS)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._workers)

    def begin(self, shares: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what the first workers' shares of a first pass are, in order; each has ``shares`` of its own."""
        return self._ask("begin", shares)

    def totals(self, state: Any, shares: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the same of a step, of which all are told the ``state``."""
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
        """Return what the first workers answer, in order; each has ``arguments`` of its own."""
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
            except self._ray.exceptions.RayError:  # not ours: what a worker's own code raises comes as an answer
                attempts[shard] += 1
                if attempts[shard] == ATTEMPTS:
                    raise _refusal("gave up", method) from None
                self._end(self._workers[shard])
                self._workers[shard] = self._started(shard)
                # a share may take any time, a worker may not: where a machine is gone, there may be no room for it
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
def open_workers(task: Any, where: Workplace) -> Iterator[RayWorkers]:
    """Workers on the cluster at an address, on the one that this process is connected to, or on one of their own.

    Args:
        task: see :class:`Worker`.
        where: a place with the engine ``ray``.
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
"""What goes wrong, and whether workers were to be made ready or to compute a share -> what is said."""


def _refusal(what: str, method: str, error: str = "") -> DprlError:
    sentence = _SENTENCES[what, "ready" if method == "ready" else "share"]
    return DprlError(sentence.format(minutes=ROOM_SECONDS // 60, attempts=ATTEMPTS, error=error))
