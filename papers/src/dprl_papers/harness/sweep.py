"""Spreads what a reproduction does not have yet over workers: cells one by one, figures without cells whole.

What is computed does not depend on where, nor on how many do it. Results are written here, each as soon as it has come.
A worker that dies loses what it was computing, which another then computes again.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dprl.errors import DprlError
from dprl_papers.harness.crews import Crew
from dprl_papers.harness.runner import Cell, Request, Runner
from dprl_papers.harness.store import Store, address
from dprl_papers.harness.sweep_worker import (
    CELL,
    DONE,
    FAILED,
    FIGURE,
    OPEN,
    READ,
    READY,
    REFUSED,
    SAVE,
    Message,
    Recipe,
    machine_facts,
)

ATTEMPTS = 3
"""How often a cell is asked for, where workers die of it."""
START_SECONDS = 300
"""After which workers that have not started are given up."""
Group = tuple[str, tuple[int, int]]
Progress = Callable[[int, int, str], None]


@dataclass(eq=False)
class Task:
    """A cell for some trials, or a figure.

    Attributes:
        words: what it is, for people.
        message: what a worker is asked.
        key: everything that determines it.
        cell, chunk: None of a figure.
        attempts: workers that have died of it.
    """

    words: str
    message: Message
    key: Mapping[str, Any]
    cell: Cell | None = None
    chunk: tuple[int, int] = (0, 0)
    attempts: int = 0

    @property
    def group(self) -> Group | None:
        """Tasks that need the same logs."""
        return None if self.cell is None else (self.cell.domain, self.chunk)

    @property
    def program(self) -> Any:
        """Tasks that need the same compiled code."""
        if self.cell is None:
            return None
        return (self.cell.domain, self.cell.units, self.cell.method, self.cell.epsilon, self.cell.at)


class Tasks:
    """What waits to be computed, and who should compute what: a worker keeps its logs, and then its compiled code."""

    def __init__(self, tasks: list[Task]) -> None:
        self._groups: dict[Group | None, list[Task]] = {None: []}
        for task in tasks:
            self._groups.setdefault(task.group, []).append(task)
        self._at: dict[int, Group | None] = {}
        self._known: dict[int, set[Any]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def next(self, worker: int) -> Task:
        """The best task for a worker, of those that wait."""
        group = self._group_for(worker)
        self._at[worker] = group
        mine = self._known.setdefault(worker, set())
        beside = [other for other, at in self._at.items() if at == group and other != worker]
        others = set().union(*(self._known[other] for other in beside))

        def rank(task: Task) -> int:
            return 0 if task.program in mine else 2 if task.program in others else 1

        task = min(self._groups[group], key=rank)  # the first of them
        self._groups[group].remove(task)
        mine.add(task.program)
        return task

    def back(self, task: Task) -> None:
        """A task that has to be computed again."""
        self._groups[task.group].insert(0, task)

    def forget(self, worker: int) -> None:
        """It has ended, and its compiled code with it."""
        self._at.pop(worker, None)
        self._known.pop(worker, None)

    def _group_for(self, worker: int) -> Group | None:
        waiting = [group for group, tasks in self._groups.items() if tasks]
        if None in waiting:
            return None  # figures take longest
        if self._at.get(worker) in waiting:
            return self._at[worker]
        taken = set(self._at.values())
        fresh = [group for group in waiting if group not in taken]
        return fresh[0] if fresh else max(waiting, key=lambda group: len(self._groups[group]))


class Kept:
    """The store as workers use it: what one of them computes others wait for."""

    def __init__(self, store: Store, crew: Crew) -> None:
        self._store, self._crew = store, crew
        self._computed_by: dict[str, int] = {}
        self._waiting: dict[str, list[int]] = {}

    def read(self, worker: int, key: Mapping[str, Any]) -> None:
        found, name = self._store.read(key), address(key)
        if found is None and self._computed_by.setdefault(name, worker) != worker:
            self._waiting.setdefault(name, []).append(worker)
        else:
            self._crew.send(worker, (found,))

    def save(self, worker: int, key: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        self._store.save(key, results)
        name = address(key)
        self._computed_by.pop(name, None)
        for other in self._waiting.pop(name, []):
            self._crew.send(other, (self._store.read(key),))
        self._crew.send(worker, (None,))

    def forget(self, worker: int) -> None:
        """It computes nothing any more: those that wait for it do so themselves, the first of them first."""
        for name in [name for name, by in self._computed_by.items() if by == worker]:
            del self._computed_by[name]
            if self._waiting.get(name):
                self._computed_by[name] = self._waiting[name].pop(0)
                self._crew.send(self._computed_by[name], (None,))
        for others in self._waiting.values():
            if worker in others:
                others.remove(worker)


class Sweep:
    """Tasks, done by a crew.

    Args:
        runner: of the request, with the store that results go to.
        tasks: see :func:`tasks_of`.
        crew: without workers yet.
        progress: told how many are done, of how many, and what was done last.
    """

    def __init__(self, runner: Runner, tasks: list[Task], crew: Crew, progress: Progress | None = None) -> None:
        self._runner, self._crew, self._progress = runner, crew, progress
        self._tasks, self._kept = Tasks(tasks), Kept(runner.store, crew)
        self._doing: dict[int, Task | None] = {}
        self._ready = self._failed_starts = 0
        self._recipe = pickle.dumps(recipe_of(runner.request, runner.store))
        self._facts = machine_facts()
        cells = sum(1 for _ in runner.parts())
        self._total = cells + sum(task.cell is None for task in tasks)
        self._done = self._total - len(tasks)

    def run(self) -> None:
        """Compute all of them.

        Raises:
            DprlError: a task was refused, workers die of it, or none can be started.
        """
        self._tell(f"starting {min(self._crew.size, len(self._tasks))} workers")
        for _ in range(min(self._crew.size, len(self._tasks))):
            self._start()
        end = time.monotonic() + START_SECONDS
        while len(self._tasks) or any(self._doing.values()):
            answers = self._crew.wait(None if self._ready else max(0.0, end - time.monotonic()))
            if not answers:
                raise DprlError("No worker has started for five minutes: the Ray cluster may have no room for them.")
            for worker, answer in answers:
                self._take(worker, answer)

    def _start(self) -> None:
        worker = self._crew.start()
        self._doing[worker] = None
        self._crew.send(worker, (OPEN, self._recipe, self._facts))

    def _take(self, worker: int, answer: Message | None) -> None:
        if answer is None:
            self._died(worker)
            return
        kind, *about = answer
        if kind == READ:
            self._kept.read(worker, *about)
        elif kind == SAVE:
            self._kept.save(worker, *about)
        elif kind == REFUSED:
            raise DprlError(about[0])
        elif kind == FAILED:
            raise _failure(*about)
        elif kind == READY:
            self._ready += 1
            self._give(worker)
        else:
            assert kind == DONE
            self._finish(worker, *about)
            self._give(worker)

    def _give(self, worker: int) -> None:
        """The next task, or the end."""
        self._kept.forget(worker)
        if not len(self._tasks):
            self._end(worker)
            return
        task = self._tasks.next(worker)
        self._doing[worker] = task
        self._crew.send(worker, task.message)

    def _finish(self, worker: int, *found: Any) -> None:
        task, self._doing[worker] = self._doing[worker], None
        assert task is not None
        if task.cell is not None:
            key, results, seconds = found
            _check(key == task.key)
            self._runner.store.save(key, results)
            self._runner.seconds[task.cell] = self._runner.seconds.get(task.cell, 0.0) + seconds
        else:  # it was handed in
            _check(self._runner.store.read(task.key) is not None)
        self._done += 1
        self._tell(task.words)

    def _died(self, worker: int) -> None:
        task = self._doing[worker]
        self._end(worker)
        if task is not None:
            task.attempts += 1
            if task.attempts == ATTEMPTS:
                raise DprlError(
                    f"A worker ended {ATTEMPTS} times over {task.words}, as it does when memory is short: ask for "
                    "fewer --workers; what is finished is kept."
                )
            self._tasks.back(task)
        else:
            self._failed_starts += 1
            if self._failed_starts == ATTEMPTS:
                raise DprlError(
                    "Workers cannot be started: the same dprl and its libraries must be installed wherever they run."
                )
        if len(self._tasks):
            self._start()

    def _end(self, worker: int) -> None:
        self._crew.end(worker)
        del self._doing[worker]
        self._tasks.forget(worker)
        self._kept.forget(worker)

    def _tell(self, words: str) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, words)


def tasks_of(runner: Runner, figures: Mapping[str, Mapping[str, Any]]) -> list[Task]:
    """The cells that a runner's store does not have, and these figures, whose keys are given."""
    tasks = [Task(f"figure {name}", (FIGURE, name), key) for name, key in figures.items()]
    for cell, chunk in runner.missing():
        words = f"{cell.domain}, {cell.units} trajectories: {cell.method}"
        tasks.append(Task(words, (CELL, cell, chunk), runner.key(cell, chunk), cell, chunk))
    return tasks


def recipe_of(request: Request, store: Store) -> Recipe:
    """What workers make the request from.

    Raises:
        DprlError: it has methods or a domain that are in no file.
    """
    from dprl_papers.harness.method import library_methods

    plugin = request.plugin
    own = {} if plugin is None else {method.name: method for method in plugin.methods}
    known = library_methods() | own
    if any(known.get(name) is not method for name, method in request.methods.items()):
        raise DprlError("Methods that are made in Python cannot be sent to workers: put them into a plugin file.")
    return Recipe(
        paper=request.paper,
        figures=request.figures,
        trials=request.trials,
        quick=request.quick,
        plugin=None if plugin is None else plugin.path,
        plugin_units=() if plugin is None else plugin.units,
        folder=store.folder.absolute(),
    )


def _check(same: bool) -> None:
    if not same:
        raise DprlError(
            "A worker has another plugin file or other code of dprl than this process: let them be the same, and run "
            "the same command again."
        )


def _failure(pickled: bytes | None, words: str, traceback: str) -> Exception:
    """A worker's exception, with where it came from."""
    error: Any = None
    with suppress(Exception):
        error = None if pickled is None else pickle.loads(pickled)
    if not isinstance(error, Exception):
        error = RuntimeError(words)
    error.add_note(f"In a worker:\n{traceback}")
    return error
