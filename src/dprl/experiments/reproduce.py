"""One paper's figures, from its specification to ``results.json`` and ``report.html``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dprl.errors import DprlError
from dprl.experiments.crews import check_engine, open_crew
from dprl.experiments.figures import results_of
from dprl.experiments.method import add_methods, library_methods
from dprl.experiments.page import render
from dprl.experiments.plugin import Plugin
from dprl.experiments.runner import WORKERS, Request, Runner
from dprl.experiments.spec import WITHOUT_METHODS, Figure, Paper
from dprl.experiments.store import Store, finite
from dprl.experiments.versions import fingerprint, libraries, module_file
from dprl.report.formatting import number, plain

RESULTS, REPORT, SECONDS = "results.json", "report.html", "seconds.json"
QUICK = ("table1",)
"""Kinds of figures that no worker is started for."""
Progress = Callable[[int, int, str], None]
_MODULES = {"atari": "ale_py", "data": "lifelines", "digits": "sklearn"}
"""What must be importable for an optional dependency of the library to be there."""


def make_request(
    paper: Paper,
    figure: str | None = None,
    trials: int | None = None,
    quick: bool = False,
    plugin: Plugin | None = None,
) -> Request:
    """What is to be computed; refuses what the specification or the plugin does not have."""
    own = None if plugin is None else plugin.figure(paper)
    known = paper.figures + (() if own is None else (own,))
    if own is not None and own.name in {f.name for f in paper.figures} | {x.domain for x in paper.logs}:
        raise DprlError(f"The domain of a plugin needs a name of its own: {own.name!r} is taken.")
    left_out: tuple[Figure, ...] = ()
    if figure is None:
        figures = tuple(f for f in known if is_installed(f.extra))
        left_out = tuple(f for f in known if f not in figures)
    elif any(f.name == figure for f in known):
        figures = tuple(f for f in known if f.name == figure)
    else:
        raise DprlError(f"Paper {paper.number} has no figure {figure!r}; there are {', '.join(f.name for f in known)}.")
    for f in figures:
        if not is_installed(f.extra):
            raise DprlError(f"Figure {f.name} needs an optional dependency: pip install 'dprl[{f.extra}]'.")
    if trials is None:
        trials = paper.quick_trials if quick else paper.trials
    if trials < 1:
        raise DprlError("The number of trials must be at least 1.")
    methods = library_methods()
    if plugin is not None:
        methods = add_methods(methods, plugin.methods, plugin.path.name)
    request = Request(
        paper=paper, figures=figures, methods=methods, trials=trials, quick=quick, plugin=plugin, left_out=left_out
    )
    for f in figures:
        request.points(f)  # refuses the name of a method that is not there, before anything runs
    return request


def is_installed(extra: str) -> bool:
    """Whether an optional dependency of the library is there; none always is."""
    return not extra or find_spec(_MODULES.get(extra, extra)) is not None


def reproduce(
    request: Request,
    out: Path,
    progress: Progress | None = None,
    workers: int | None = None,
    engine: str | None = None,
    address: str | None = None,
) -> dict[str, Any]:
    """Compute what ``out`` does not have yet, and write the results and the page there.

    No digit depends on where it is computed, nor on how many compute: workers have one thread each, and so must this
    process have, see :func:`~dprl.experiments.one_thread.one_thread_a_cell`.

    Args:
        request: see :func:`make_request`.
        out: folder of the results.
        progress: told how many cells are done, of how many, and what is being done.
        workers: that compute side by side; by default two threads, or one worker for each processor.
        engine: ``local`` are processes of this machine, ``ray`` actors of a Ray cluster; by default threads.
        address: of a Ray cluster that runs; by default one is started on this machine, for this run alone.

    Returns:
        what ``results.json`` holds.

    Raises:
        DprlError: ``out`` holds something else, or cannot be written; or workers cannot be started.
    """
    if engine is not None:
        check_engine(engine, workers, address)
    store = Store(out, request.paper.number)
    runner = Runner(request, store)
    try:
        if engine is None or not _sweep(runner, progress, workers, engine, address):
            _here(runner, progress, workers or WORKERS if engine is None else 1)
    finally:
        if runner.seconds:
            taken = sorted(runner.seconds.items(), key=lambda item: -item[1])
            lines = [dataclasses.asdict(cell) | {"seconds": round(s, 3)} for cell, s in taken]
            store.write(SECONDS, json.dumps(lines, indent=1) + "\n")
    found = {f.name: computed(f, runner) for f in request.figures if f.kind in (*WITHOUT_METHODS, "bounds")}
    results = results_of(runner, found)
    store.write(RESULTS, json.dumps(results, indent=1, allow_nan=False) + "\n")
    store.write(REPORT, render(results, request.paper))
    return results


def _sweep(runner: Runner, progress: Progress | None, workers: int | None, engine: str, address: str | None) -> bool:
    """Compute what is missing with an engine's workers; False where this process does as well, and nothing is done.

    It does where there is one worker or one thing to compute: a process of its own has to start, and to compile.
    """
    from dprl.experiments.sweep import Sweep, tasks_of

    formulas = [f for f in runner.request.figures if f.kind in WITHOUT_METHODS and f.kind not in QUICK]
    keys = {f.name: _asked(f, runner)[0] for f in formulas}
    tasks = tasks_of(runner, {name: key for name, key in keys.items() if runner.store.read(key) is None})
    if not tasks:
        return True
    if engine == "local" and (workers == 1 or len(tasks) == 1):
        return False
    with open_crew(engine, workers, address) as crew:
        Sweep(runner, tasks, crew, progress).run()
    return True


def _here(runner: Runner, progress: Progress | None, workers: int) -> None:
    """Compute what is missing in this process."""
    formulas = [f for f in runner.request.figures if f.kind in WITHOUT_METHODS]
    # formulas take no core for long, but would be alone at the end; without cells there is nothing else
    alone = len(formulas) == len(runner.request.figures)
    if workers == 1:
        runner.run(progress, workers)
        for done, figure in enumerate(formulas):
            if progress is not None:
                progress(done, len(formulas), figure.name)
            computed(figure, runner)
        return
    with ThreadPoolExecutor(workers if alone else 1) as beside:
        found = {beside.submit(computed, f, runner): f.name for f in formulas}
        try:
            if alone:
                _wait(found, progress)
            else:
                runner.run(progress, workers)
            for one in found:
                one.result()
        except BaseException:
            beside.shutdown(wait=False, cancel_futures=True)
            raise


def computed(figure: Figure, runner: Runner) -> Any:
    """A figure that follows from formulas, or is learned; kept in the store like a cell."""
    key, compute = _asked(figure, runner)
    found = _kept(runner.store, key, compute)
    return found["versions"] if figure.kind == "table1" else found


def _asked(figure: Figure, runner: Runner) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    """What determines such a figure, and what computes it."""
    request = runner.request
    if figure.kind == "learning":
        return _learning(figure, runner)
    if figure.kind in ("slope", "published-privacy"):
        return _computed_000(figure, runner)
    file = module_file("dprl.experiments.theory_004" if figure.kind == "bounds" else "dprl.experiments.privacy_004")
    assert file is not None
    key: dict[str, Any] = {
        "computed": figure.kind,
        "code": fingerprint([file]),
        "epsilon": figure.epsilon[0],
        "delta": request.paper.delta,
    }
    if figure.kind == "table1":
        key["units"] = figure.units[0]
        return key, lambda: {"versions": _table_1(key)}
    (domain,) = figure.domains
    units = [int(x) for x in request.values(figure)]
    method = figure.methods[0]
    steps = [request.paper.tuned_value(method, domain, m, figure.epsilon[0]) for m in units]
    if None in steps:
        raise DprlError(f"Figure {figure.name} needs a tuned step size of {method!r} on {domain!r}.")
    key |= {"domain": domain, "units": units, "step_sizes": steps, "method": method}
    return key, lambda: _bounds(runner, key)


def _computed_000(figure: Figure, runner: Runner) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    from dprl.experiments import computed_000

    request = runner.request
    file = module_file("dprl.experiments.computed_000")
    assert file is not None
    key = {
        "computed": figure.kind,
        "code": fingerprint([file]),
        "epsilon": figure.epsilon[0],
        "delta": request.paper.delta,
        "quick": request.quick,
        "units": [int(x) for x in request.values(figure)],
        "trials": max(request.trials, 2),
        "seed": request.paper.seed,
    }
    compute = computed_000.rate if figure.kind == "slope" else computed_000.published_privacy
    return key, lambda: compute(key)


def _learning(figure: Figure, runner: Runner) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    request = runner.request
    # both have the same parts: figures by name, and points
    computed = import_module(f"dprl.experiments.computed_{request.paper.number}")
    returns = import_module(f"dprl.experiments.returns_{request.paper.number}")
    file = module_file(computed.__name__)
    assert file is not None
    key = {
        "computed": figure.name,
        "code": fingerprint([file]),
        "libraries": libraries(),
        "epsilon": list(figure.epsilon),
        "values": list(request.values(figure)),
        "delta": request.paper.delta,
        "quick": request.quick,
        "trials": max(request.trials, 2),
        "seed": request.paper.seed,
    }
    points = returns.Points(runner.store, request.paper.seed)
    return key, lambda: computed.FIGURES[figure.name](key, points)


def _wait(names: Mapping[Future[Any], str], progress: Progress | None) -> None:
    """Until all of them are there, or one has failed."""
    for done, found in enumerate(as_completed(names), 1):
        found.result()
        if progress is not None:
            progress(done, len(names), names[found])


def _kept(store: Store, key: Mapping[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    found = store.read(key)
    if found is None:
        found = compute()
        store.save(key, found)
    return found


def _table_1(key: Mapping[str, Any]) -> list[dict[str, Any]]:
    from dprl.experiments.privacy_004 import NAMES, table_1

    symbols = {"epsilon": "ε", "delta": "δ", "N": "N", "sigma": "σ", "m": "m"}

    def cell(value: float | None, sign: str, diagonal: bool) -> dict[str, str]:
        if value is None or not sign:
            return {"kind": "empty", "text": "" if diagonal else "none"}
        kind = {"+": "plus", "-": "minus"}.get(sign, "empty")
        return {"kind": kind, "text": "0" if value == 0.0 else number(value, 2 if abs(value) >= 0.1 else 3)}

    return [
        {
            "source": version.source,
            "names": [symbols[name] for name in NAMES],
            "setting_text": "At "
            + ", ".join(f"{symbols[k]} = {plain(float(f'{v:.4g}'))}" for k, v in version.setting.items())
            + ".",
            "rows": [
                {
                    "name": symbols[name],
                    "cells": [cell(v, s, i == j) for j, (v, s) in enumerate(zip(values, signs, strict=True))],
                }
                for i, (name, values, signs) in enumerate(zip(NAMES, version.elasticities, version.signs, strict=True))
            ],
        }
        for version in table_1(units=key["units"], epsilon=key["epsilon"], delta=key["delta"])
    ]


def _bounds(runner: Runner, key: Mapping[str, Any]) -> dict[str, Any]:
    from dprl.evaluation.gpope import GPOPE, clip_norm
    from dprl.experiments.theory_004 import theory_of
    from dprl.value_functions.features import make_features

    domain = runner.domain(key["domain"])
    bounds = domain.bounds(max(key["units"]))
    size = make_features(domain.features, bounds.observation).size
    options = runner.request.methods[key["method"]].options
    config = GPOPE(clip_norm=options.get("clip_norm"), start=options.get("start", "zero"))
    theory = theory_of(
        domain,
        trajectories=key["units"],
        step_sizes=key["step_sizes"],
        clip_norm=clip_norm(config, size, bounds.horizon),
        epsilon=key["epsilon"],
        delta=key["delta"],
        start=config.start,
        seed=runner.request.paper.seed,
    )
    return {
        "trajectories": theory.trajectories,
        "curves": [{"name": c.name, "label": c.label, "mspbe": finite(c.mspbe)} for c in theory.curves],
        "constants": [[name, number(v) if math.isfinite(v) else "infinite"] for name, v in theory.constants.items()],
    }
