"""Where the workers of a sweep run: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import Any, Protocol

from dprl import cluster
from dprl.errors import DprlError
from dprl_papers.harness.sweep_worker import Actor, Message

ENGINES = ("local", "ray")
_START = "import sys; sys.path[:] = sys.argv[3:]; from dprl_papers.harness.sweep_worker import main; "
_START += "main(int(sys.argv[1]), int(sys.argv[2]))"


class Crew(Protocol):
    """Workers by number. Each is asked one thing at a time, and answers it or dies of it."""

    size: int

    def start(self) -> int:
        """A further worker; returns at once."""
        ...

    def send(self, worker: int, message: Message) -> None: ...

    def wait(self, seconds: float | None) -> list[tuple[int, Message | None]]:
        """Answers that have come, at least one if there is time; None from a worker that has died."""
        ...

    def end(self, worker: int) -> None:
        """At once, whatever it does."""
        ...


def check_engine(engine: str | None, workers: int | None, address: str | None) -> str:
    """The engine's name. Refuses one that there is not, and an address where there is none."""
    engine = "local" if engine is None else engine
    if engine not in ENGINES:
        raise DprlError(f"--engine must be one of {', '.join(ENGINES)}.")
    if engine == "local" and address is not None:
        raise DprlError("--address is that of a Ray cluster: add --engine ray, or leave it out.")
    if workers is not None and not 1 <= workers <= 4096:
        raise DprlError("--workers must be from 1 to 4096.")
    return engine


@contextmanager
def open_crew(engine: str, workers: int | None, address: str | None) -> Iterator[Crew]:
    """No worker is started yet; all are ended at the end.

    Args:
        engine: what :func:`check_engine` gave.
        workers: as many at most; by default one for each processor.
        address: of a Ray cluster that runs; by default one is started on this machine, for this run alone.

    Raises:
        DprlError: there is no Ray, no such cluster, or it has fewer processors.
    """
    if engine == "local":
        processes = Processes(len(cluster.processors()) if workers is None else workers)
        try:
            yield processes
        finally:
            processes.close()
        return
    ray = cluster.import_ray()
    with cluster.cluster(ray, workers, address):
        there = int(ray.cluster_resources().get("CPU", 0))
        if (workers or 1) > there:
            raise DprlError(f"The Ray cluster has {there} processors: ask for as many --workers at most.")
        actors = Actors(ray, workers or there)
        try:
            yield actors
        finally:
            actors.close()


class Processes:
    """Python processes of their own, as :class:`~dprl_papers.harness.sweep_worker.PipeLine` serves them.

    They belong to another session than the terminal, so that Ctrl-C comes to this process alone; which ends them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._workers: dict[int, tuple[subprocess.Popen[bytes], Any]] = {}
        self._asked: set[int] = set()
        self._started = 0

    def start(self) -> int:
        ours, theirs = connection.Pipe()
        descriptor = theirs.fileno()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(descriptor), str(os.getpid()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a plugin prints is not the command's answer
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        self._started += 1
        self._workers[self._started] = (process, ours)
        return self._started

    def send(self, worker: int, message: Message) -> None:
        self._asked.add(worker)
        with suppress(OSError):  # it has died, as the next answer says
            self._workers[worker][1].send_bytes(pickle.dumps(message))

    def wait(self, seconds: float | None) -> list[tuple[int, Message | None]]:
        pipes = {self._workers[worker][1]: worker for worker in self._asked}
        found: list[tuple[int, Message | None]] = []
        ready: Any = connection.wait(list(pipes), seconds)
        for pipe in ready:
            self._asked.discard(pipes[pipe])
            try:
                found.append((pipes[pipe], pickle.loads(pipe.recv_bytes())))
            except (EOFError, OSError):
                found.append((pipes[pipe], None))
        return found

    def end(self, worker: int) -> None:
        process, pipe = self._workers.pop(worker)
        self._asked.discard(worker)
        process.kill()
        pipe.close()
        process.wait()

    def close(self) -> None:
        """End the workers."""
        for process, _ in self._workers.values():
            process.kill()
        for worker in list(self._workers):
            self.end(worker)


class Actors:
    """Actors of a Ray cluster, of one processor each."""

    def __init__(self, ray: Any, size: int) -> None:
        self.size, self._ray = size, ray
        self._actor = ray.remote(Actor).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self._workers: dict[int, Any] = {}
        self._asked: dict[Any, int] = {}
        self._started = 0

    def start(self) -> int:
        self._started += 1
        self._workers[self._started] = self._actor.remote()
        return self._started

    def send(self, worker: int, message: Message) -> None:
        self._asked[self._workers[worker].exchange.remote(pickle.dumps(message))] = worker

    def wait(self, seconds: float | None) -> list[tuple[int, Message | None]]:
        done, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=seconds)
        found: list[tuple[int, Message | None]] = []
        for one in done:
            worker = self._asked.pop(one)
            try:
                found.append((worker, pickle.loads(self._ray.get(one))))
            except self._ray.exceptions.RayError:  # not ours: what is raised there comes as a message
                found.append((worker, None))
        return found

    def end(self, worker: int) -> None:
        actor = self._workers.pop(worker)
        self._asked = {one: other for one, other in self._asked.items() if other != worker}
        with suppress(Exception):
            self._ray.kill(actor)

    def close(self) -> None:
        """End the workers."""
        for worker in list(self._workers):
            self.end(worker)
