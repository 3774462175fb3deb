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

from dprl.errors import DprlError

Answer = tuple[str, Any]
DONE, REFUSED, FAILED = "done", "refused", "failed"
# what one worker may have of its own, and what does not change digits
_OWN = ("cpus", "XLA_FLAGS")


class Worker:
    """A Ray actor. It keeps what it compiled and what its task's share keeps; nothing else from call to call.

    Args:
        task: pickled; its ``share()`` has the methods ``begin`` and ``total`` that are called here.
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
        self._opened: Any = None

    def ready(self) -> Answer:
        """Tell whether the task can be done here: no row is read."""
        return self._answered(lambda: self._share() and None)

    def begin(self, *arguments: Any) -> Answer:
        """Return a share of the first pass."""
        return self._answered(lambda: self._share().begin(*arguments))

    def total(self, state: bytes, *arguments: Any) -> Answer:
        """Return a share of a step's sum."""
        return self._answered(lambda: self._share().total(pickle.loads(state), *arguments))

    def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    def _share(self) -> Any:
        if self._opened is None:
            here = facts()
            if self._facts != here:
                names = sorted(name for name in here if self._facts.get(name) != here[name])
                raise DprlError(
                    f"A worker is another machine than this one, or has other libraries ({', '.join(names)}), so that "
                    "its digits may differ: let workers be of one kind, and start the release on such a machine "
                    "(JAX_PLATFORMS=cpu keeps JAX off a GPU)."
                )
            self._opened = pickle.loads(self._pickled).share()
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
