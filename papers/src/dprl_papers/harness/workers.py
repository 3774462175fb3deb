"""Engines that compute tasks: this process, processes of this machine (joblib's loky), or a Ray cluster.

The results do not depend on where tasks are computed, nor on the number of workers. Results come back to this process,
which writes each result as soon as it arrives. A worker writes only the results that it keeps within a programmed
figure.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import cloudpickle
import jax
from joblib.externals.loky import get_reusable_executor, process_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from dprl import machine
from dprl.errors import DprlError
from dprl.release.engines import cluster
from dprl_papers.harness.one_thread import one_thread_a_cell
from dprl_papers.harness.runner import Runner, Task
from dprl_papers.harness.versions import machine_facts

ENGINES = ("local", "ray")
Done = tuple[Task, Any, float]
"""A task, its results, and the seconds of the processor that it took."""


def check_engine(engine: str, workers: int | None, address: str | None) -> None:
    """Refuse an unknown engine, an address without a Ray cluster, and an invalid number of workers."""
    if engine not in ENGINES:
        raise DprlError(f"--engine must be one of {', '.join(ENGINES)}.")
    if engine == "local" and address is not None:
        raise DprlError("--address is that of a Ray cluster: add --engine ray, or leave it out.")
    if workers is not None and not 1 <= workers <= 4096:
        raise DprlError("--workers must be from 1 to 4096.")


def compute_tasks(
    runner: Runner, tasks: Sequence[Task], engine: str, workers: int | None, address: str | None
) -> Generator[Done, None, None]:
    """Compute tasks, and yield each with its results as soon as it is finished.

    Args:
        runner: the runner of the request.
        tasks: the tasks to compute.
        engine: one of ENGINES.
        workers: the largest number of workers; by default one per processor.
        address: address of a running Ray cluster; by default one is started on this machine, only for this run.

    Raises:
        DprlError: a task was refused, a worker died, or there is no such cluster.
    """
    if not tasks:
        return
    if engine == "ray":
        yield from _in_cluster(runner, tasks, workers, address)
    elif workers == 1 or len(tasks) == 1:
        # a separate process would have to start, and to compile
        for task in tasks:
            yield _timed(runner, task)
    else:
        yield from _in_processes(runner, tasks, min(workers or len(machine.processors()), len(tasks)))


def _in_processes(runner: Runner, tasks: Sequence[Task], workers: int) -> Generator[Done, None, None]:
    one_thread_a_cell()  # applies to the processes that are started here
    content, facts = _packed(runner), machine_facts()
    options: dict[str, Any] = {"reuse": False, "initializer": _end_with_parent, "initargs": (os.getpid(),)}
    executor = get_reusable_executor(workers, **options)
    waiting, running = list(tasks), set()
    try:
        while waiting or running:
            # one task for each worker, none queued: loky does not end cleanly while tasks are queued
            while waiting and len(running) < workers:
                running.add(executor.submit(compute_in_worker, content, facts, waiting.pop(0)))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in finished)
    except TerminatedWorkerError:
        raise DprlError(
            "A worker has ended, as when memory is short: ask for fewer --workers; what is finished is kept."
        ) from None
    finally:
        executor.shutdown(kill_workers=True)


def _end_with_parent(parent: int) -> None:
    """Make this process end when the process that started it has ended, for whatever reason, and no sooner."""
    # where psutil is installed, loky ends a process that has grown by 300 MB, as a process that compiles does after a
    # few cells, and the next process compiles everything again
    process_executor._USE_PSUTIL = False

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_cluster(
    runner: Runner, tasks: Sequence[Task], workers: int | None, address: str | None
) -> Generator[Done, None, None]:
    ray = cluster.import_ray()
    with cluster.cluster(ray, workers, address):
        from ray.util.multiprocessing import Pool

        there = int(ray.cluster_resources().get("CPU", 0))
        if (workers or 1) > there:
            raise DprlError(f"The Ray cluster has {there} processors: ask for as many --workers at most.")
        content, facts = _packed(runner), machine_facts()
        with Pool(min(workers or there, len(tasks)), initializer=one_thread_a_cell) as pool:
            yield from pool.imap_unordered(partial(compute_in_worker, content, facts), tasks, chunksize=1)


def compute_in_worker(content: bytes, facts: dict[str, Any], task: Task) -> Done:
    """Compute a task in a worker; ``facts`` are the :func:`machine_facts` of the machine that asks."""
    here = machine_facts()
    if facts != here:
        names = sorted(name for name in here if facts.get(name) != here[name])
        raise DprlError(
            f"A worker is another machine than this one, or has other libraries ({', '.join(names)}), so "
            "that its digits may differ: let all be of one kind, and run the same command again."
        )
    return _timed(_opened(content), task)


def _timed(runner: Runner, task: Task) -> Done:
    forget_compiled()
    started = time.process_time()
    return task, runner.compute(task), time.process_time() - started


def forget_compiled(share: float = 0.25) -> None:
    """Forget compiled programs once they take a ``share`` of the memory maps that Linux allows a process.

    Each program takes a few maps. When none are left, the compiler ends the process.
    """
    maps, most = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
    if most.exists() and maps.read_bytes().count(b"\n") > share * int(most.read_text()):
        jax.clear_caches()


def _packed(runner: Runner) -> bytes:
    """Pack a runner for workers.

    A plugin and the modules beside it are packed by value, as workers cannot import them.
    """
    plugin = runner.request.plugin
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if plugin is not None and file is not None and Path(file).resolve().parent == plugin.path.parent:
            cloudpickle.register_pickle_by_value(module)
    return cloudpickle.dumps(runner)


@lru_cache(maxsize=1)
def _opened(content: bytes) -> Runner:
    """Unpack a runner, once for all tasks of a run: it keeps compiled code, domains and the logs of the last cell."""
    return cloudpickle.loads(content)
