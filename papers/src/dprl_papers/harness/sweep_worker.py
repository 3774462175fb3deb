"""One worker of a sweep: computes the cells and figures that it is asked for, and says what it found.

It answers each message with one of its own, over a line to the process that runs the sweep. That one alone reads and
writes the results' folder: while a worker computes a figure, what is kept of it is asked for and handed in over the
line. So workers need no common disk, and one that is killed leaves nothing half-written. Little is imported here:
threads are set before JAX is.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from dprl.errors import DprlError
from dprl_papers.harness.one_thread import one_thread_a_cell
from dprl_papers.harness.store import Store

if TYPE_CHECKING:
    from dprl_papers.harness.runner import Cell, Request
    from dprl_papers.harness.spec import Figure, Paper

OPEN, CELL, FIGURE = "open", "cell", "figure"
"""What a worker is asked: to get ready, for a cell, for a figure. Then what it says."""
READY, DONE, READ, SAVE, REFUSED, FAILED = "ready", "done", "read", "save", "refused", "failed"
Message = tuple[Any, ...]


class Line(Protocol):
    """To the process that runs the sweep."""

    def send(self, message: Message) -> None: ...

    def receive(self) -> Message:
        """Raises :class:`EndOfLine` when nobody is there any more."""
        ...


class EndOfLine(BaseException):
    """The sweep is over."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A :class:`~dprl_papers.harness.runner.Request` as another process makes it: functions are named by their files.

    Attributes:
        paper, figures, trials, quick: the request's.
        plugin: its file, which has the same path everywhere.
        plugin_units: of its figure.
        folder: of the results, which names them; nothing is read or written there.
    """

    paper: Paper
    figures: tuple[Figure, ...]
    trials: int
    quick: bool
    plugin: Path | None
    plugin_units: tuple[float, ...]
    folder: Path

    def request(self) -> Request:
        """The request.

        Raises:
            DprlError: the plugin's file is not there, or not a plugin.
        """
        from dprl_papers.harness.method import add_methods, library_methods
        from dprl_papers.harness.plugin import load_plugin
        from dprl_papers.harness.runner import Request

        methods, plugin = library_methods(), None
        if self.plugin is not None:
            plugin = replace(load_plugin(self.plugin), units=self.plugin_units)
            methods = add_methods(methods, plugin.methods, plugin.path.name)
        return Request(
            paper=self.paper, figures=self.figures, methods=methods, trials=self.trials, quick=self.quick, plugin=plugin
        )


class StoreOverLine(Store):
    """The store of the process that runs the sweep. What is missing is the asker's to compute: others wait for it."""

    def __init__(self, line: Line, folder: Path) -> None:
        self.folder, self._line = folder, line

    def read(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        self._line.send((READ, dict(key)))
        return self._line.receive()[0]

    def save(self, key: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        self._line.send((SAVE, dict(key), dict(results)))
        self._line.receive()

    def write(self, name: str, text: str) -> Path:
        raise NotImplementedError


class Worker:
    """Keeps compiled code, domains and the logs of the last cell from message to message."""

    def __init__(self, line: Line) -> None:
        self._line, self._runner, self._logs = line, None, None

    def answer(self, message: Message) -> Message:
        """Do what is asked. What goes wrong is an answer too; only the end of the line is raised."""
        kind, *about = message
        work: Mapping[str, Callable[..., Message]] = {OPEN: self._open, CELL: self._cell, FIGURE: self._figure}
        try:
            return work[kind](*about)
        except DprlError as error:
            return (REFUSED, str(error))
        except EndOfLine:
            raise
        except BaseException as error:  # whatever it is: the sweep would wait for ever
            return (FAILED, _pickled(error), f"{type(error).__name__}: {error}", traceback.format_exc())

    def _open(self, recipe: bytes, facts: Mapping[str, Any]) -> Message:
        from dprl_papers.harness.runner import Runner

        here = machine_facts()
        if facts != here:
            names = sorted(name for name in here if facts.get(name) != here[name])
            raise DprlError(
                f"A worker is another machine than this one, or has other libraries ({', '.join(names)}), so "
                "that its digits may differ: let all be of one kind, and run the same command again."
            )
        opened: Recipe = pickle.loads(recipe)
        self._runner = Runner(opened.request(), StoreOverLine(self._line, opened.folder))
        return (READY,)

    def _cell(self, cell: Cell, chunk: tuple[int, int]) -> Message:
        runner, group = self._opened(), (cell.domain, chunk)
        if self._logs is None or self._logs[0] != group:
            self._logs = None  # those before make room first
            self._logs = (group, runner.on_logs(*group))
        results = self._logs[1](cell)
        return (DONE, runner.key(cell, chunk), results, runner.seconds.pop(cell))

    def _figure(self, name: str) -> Message:
        from dprl_papers.harness.reproduce import computed

        runner, self._logs = self._opened(), None
        (figure,) = (f for f in runner.request.figures if f.name == name)
        computed(figure, runner)
        return (DONE,)

    def _opened(self) -> Any:
        assert self._runner is not None
        return self._runner


def serve(line: Line) -> None:
    """Answer until nobody asks."""
    worker = Worker(line)
    try:
        while True:
            line.send(worker.answer(line.receive()))
    except EndOfLine:
        pass


def machine_facts() -> dict[str, Any]:
    """What digits depend on besides what a result's key has: libraries, and what is compiled for."""
    from dprl import machine

    # how many processors there are changes nothing, as every cell has one thread; the code that counts is in the key
    own = ("cpus", "XLA_FLAGS", "code")
    return {name: x for name, x in (machine.versions() | machine.device()).items() if name not in own}


def _pickled(error: BaseException) -> bytes | None:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        return None
    return content


# --- lines ----------------------------------------------------------------------------------------------------------


class PipeLine:
    """Of a process of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Message) -> None:
        try:
            self._connection.send_bytes(pickle.dumps(message))
        except OSError:
            raise EndOfLine from None

    def receive(self) -> Message:
        try:
            return pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise EndOfLine from None


def main(descriptor: int, parent: int) -> None:
    """A process that serves the pipe with this descriptor, and ends when its parent has."""
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    one_thread_a_cell()
    serve(PipeLine(Connection(descriptor)))
    sys.stdout.flush()
    os._exit(0)  # at once: there is nothing to tidy up


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class Actor:
    """A Ray actor. Its thread serves; each call brings a message and takes the next one away, pickled.

    What goes wrong is in a message, as Ray would write an exception into its logs and onto the driver's screen.
    """

    def __init__(self) -> None:
        one_thread_a_cell()
        self._to: SimpleQueue[bytes] = SimpleQueue()
        self._from: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=serve, args=(self,), daemon=True).start()

    def exchange(self, content: bytes) -> bytes:
        self._to.put(content)
        return self._from.get()

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def send(self, message: Message) -> None:
        """See :class:`Line`."""
        self._from.put(pickle.dumps(message))

    def receive(self) -> Message:
        """See :class:`Line`."""
        return pickle.loads(self._to.get())
