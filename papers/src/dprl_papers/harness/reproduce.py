"""Run of a reproduction: one paper's figures, from its specification to ``results.json`` and ``report.html``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dprl import machine
from dprl.errors import DprlError
from dprl_papers.harness.method import add_methods, library_methods
from dprl_papers.harness.page import render
from dprl_papers.harness.plugin import Plugin
from dprl_papers.harness.record import made_by, merged
from dprl_papers.harness.results import results_of
from dprl_papers.harness.runner import Request, Runner
from dprl_papers.harness.spec import Log, Measured, Paper
from dprl_papers.harness.store import Store, as_json, read_json
from dprl_papers.harness.versions import commit
from dprl_papers.harness.workers import Done, compute_tasks

RESULTS, REPORT, PROVENANCE = "results.json", "report.html", "provenance.json"
Progress = Callable[[int, int, str], None]
_MODULES = {"atari": "ale_py", "data": "lifelines", "digits": "sklearn"}
"""Module whose presence shows that an optional dependency of the library is installed."""


def make_request(
    paper: Paper,
    figure: str | None = None,
    trials: int | None = None,
    quick: bool = False,
    plugin: Plugin | None = None,
) -> Request:
    """Return the request for a run; refuse figures and methods that the specification or the plugin does not have."""
    own = None if plugin is None else plugin.figure(paper)
    if own is not None:
        if own.name in {f.name for f in paper.figures} | {x.domain for x in paper.logs}:
            raise DprlError(f"The domain of a plugin needs a name of its own: {own.name!r} is taken.")
        log = Log(domain=own.name, units=int(max(own.values)), batch=5)
        paper = dataclasses.replace(paper, figures=(*paper.figures, own), logs=(*paper.logs, log))
    wanted = paper.figures if figure is None else (paper.figure(figure),)
    figures = tuple(f for f in wanted if is_installed(f.extra))
    left_out = tuple(f for f in wanted if f not in figures)
    if figure is not None and left_out:
        raise DprlError(f"Figure {figure} needs an optional dependency: pip install 'dprl[{left_out[0].extra}]'.")
    if trials is None:
        trials = paper.quick_trials if quick else paper.trials
    if trials < 1:
        raise DprlError("--trials must be at least 1.")
    methods = library_methods()
    if plugin is not None:
        methods = add_methods(methods, plugin.methods, plugin.path.name)
    request = Request(
        paper=paper, figures=figures, methods=methods, trials=trials, quick=quick, plugin=plugin, left_out=left_out
    )
    for f in figures:
        if isinstance(f, Measured):
            request.points(f)  # refuses an unknown method before anything runs
    return request


def is_installed(extra: str) -> bool:
    """Return whether an optional dependency of the library is installed; an empty name needs none."""
    return not extra or find_spec(_MODULES.get(extra, extra)) is not None


def reproduce(
    request: Request,
    out: Path,
    progress: Progress | None = None,
    workers: int | None = 1,
    engine: str = "local",
    address: str | None = None,
) -> dict[str, Any]:
    """Compute what is missing in ``out``, and write the results and the page there.

    No digit depends on where it is computed, nor on how many workers compute. For this, workers have one thread each,
    and this process must have one thread too: see :func:`~dprl_papers.harness.one_thread.one_thread_a_cell`.

    Args:
        request: what to compute; see :func:`make_request`.
        out: folder of the results.
        progress: called with the number of tasks that are done, the number of all tasks, and what was done last.
        workers: number of workers that compute side by side; None for one per processor.
        engine: ``local`` for processes of this machine, ``ray`` for those of a Ray cluster; the command checks the
            name.
        address: address of a running Ray cluster; by default one is started on this machine, only for this run.

    Returns:
        the contents of ``results.json``: these figures, and those of earlier runs in the same folder.

    Raises:
        DprlError: ``out`` holds other files or cannot be written, or workers cannot be started.
    """
    tell = progress or (lambda done, total, words: None)
    runner = Runner(request, Store(out, request.paper.number))
    store, tasks, done = runner.store, runner.tasks(), []
    missing = [task for task in tasks if store.read(runner.key(task)) is None]
    tell(len(tasks) - len(missing), len(tasks), "starting")
    try:
        with closing(compute_tasks(runner, missing, engine, workers, address)) as found:
            for task, results, seconds in found:
                store.save(runner.key(task), results, seconds)
                done.append((task, results, seconds))
                tell(len(tasks) - len(missing) + len(done), len(tasks), task.words)
    finally:
        if done:
            store.write(PROVENANCE, json.dumps(provenance(request, done), indent=1) + "\n")
    computed = {t.figure: store.read(runner.key(t)) for t in tasks if t.figure}
    parts = {name: found.pop("cells") for name, found in computed.items()}
    new = as_json(results_of(runner, computed))
    for figure, about in zip(request.figures, new["figures"], strict=True):
        about["made"] = made_by(runner, figure, parts.get(figure.name, ()))
    results = merged(read_json(out / RESULTS), new, request.paper)
    store.write(RESULTS, json.dumps(results, indent=1, allow_nan=False) + "\n")
    store.write(REPORT, render(results, request.paper))
    return results


def provenance(request: Request, done: list[Done]) -> dict[str, Any]:
    """Return the provenance of the last run that computed anything, with the time of each of its tasks."""
    slowest = sorted(done, key=lambda one: -one[2])
    return {
        "paper": request.paper.number,
        "figures": [f.name for f in request.figures],
        "commit": commit(),
        "versions": machine.versions(),
        "machine": machine.device(),
        "seeds": [request.paper.seed, request.paper.seed + request.trials],
        "seconds": [dataclasses.asdict(task) | {"seconds": round(seconds, 3)} for task, _, seconds in slowest],
    }
