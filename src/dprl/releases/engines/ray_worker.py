"""One worker of a Ray cluster: computes the share of some units, and says nothing but sums.

What goes wrong comes back as a sentence without a cause: Ray would write an exception's text, which may quote a row,
into its logs and onto the driver's screen. JAX is imported when there is something to compute, after its threads are
set.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dprl.errors import DprlError

Answer = tuple[str, Any]
DONE, REFUSED, FAILED = "done", "refused", "failed"
# what one worker may have of its own, and what does not change digits
_OWN = ("cpus", "XLA_FLAGS")


class Worker:
    """A Ray actor. It keeps what it compiled and, of a small shard, the prepared rows; nothing else from call to call.

    Args:
        task: a pickled :class:`~dprl.algorithms.evaluation.streamed.Task`.
        facts: of the driver, see :func:`facts`.
        core: processor to stay on, where the machine is the driver's own.
    """

    def __init__(self, task: bytes, facts: Mapping[str, Any], core: int | None) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{given} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".strip()
        if core is not None:
            with contextlib.suppress(OSError, AttributeError):
                os.sched_setaffinity(0, {core})
        self._pickled, self._facts = task, facts
        self._task: Any = None
        self._shards: dict[tuple[int, int], Any] = {}

    def ready(self) -> Answer:
        """Whether the task can be done here: no row is read."""
        return self._answered(lambda: self._opened() and None)

    def begin(self, start: int, stop: int) -> Answer:
        """:meth:`Shard.begin` of these units."""
        return self._answered(lambda: tuple(self._shard(start, stop).begin()))

    def total(self, start: int, stop: int, stage: int, state: bytes, included: bytes) -> Answer:
        """:meth:`Shard.total` of these units; ``included`` has a bit for each."""

        def found() -> np.ndarray:
            shard = self._shard(start, stop)
            bits = np.unpackbits(np.frombuffer(included, dtype=np.uint8), count=shard.units).astype(bool)
            program = self._task.plan.program
            return shard.total(program, stage, program.stages[stage].mechanism, pickle.loads(state), bits)

        return self._answered(found)

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def _opened(self) -> Any:
        if self._task is None:
            here = facts()
            if self._facts != here:
                names = sorted(name for name in here if self._facts.get(name) != here[name])
                raise DprlError(
                    f"A worker is another machine than this one, or has other libraries ({', '.join(names)}), so that "
                    "its digits may differ: let workers be of one kind, and start the release on such a machine "
                    "(JAX_PLATFORMS=cpu keeps JAX off a GPU)."
                )
            self._task = pickle.loads(self._pickled)
        return self._task

    def _shard(self, start: int, stop: int) -> Any:
        from dprl.algorithms.evaluation.streamed import Shard

        if (start, stop) not in self._shards:
            self._shards = {(start, stop): Shard(self._opened(), start, stop)}
        return self._shards[start, stop]

    def _answered(self, work: Callable[[], Any]) -> Answer:
        try:
            return DONE, work()
        except DprlError as error:
            return REFUSED, str(error)
        except BaseException as error:  # whatever it is: Ray would show it
            return FAILED, type(error).__name__


def facts() -> dict[str, Any]:
    """What digits depend on besides the data, and what must therefore be the same for driver and workers."""
    from dprl import machine

    return {name: x for name, x in (machine.versions() | machine.device()).items() if name not in _OWN}
