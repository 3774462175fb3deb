"""Tasks of a reproduction: cells, which measure methods on logs, and programmed figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.harness.domain import FOLDER, Domain, load_domain
from dprl_papers.harness.method import Method
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.harness.programmed import Run
from dprl_papers.harness.spec import Log, Measured, Paper, Programmed, split_method
from dprl_papers.harness.store import Store, finite
from dprl_papers.harness.versions import code_of, fingerprint, libraries

if TYPE_CHECKING:
    from dprl_papers.harness.plugin import Plugin

NO_EPSILON = 1.0
"""Stands where a method has no privacy: the same cell serves every budget."""
MEASURED = ("objective", "mspbe", "msbe", "rmse", "value")
"""Metrics of a cell; further ones are these over something."""


@dataclass(frozen=True, order=True)
class Cell:
    """One method at one setting.

    Attributes:
        domain, units, method: names of domain and method, and the number of trajectories.
        factor: multiplies the method's step size.
        epsilon: the budget's epsilon; None for a method without privacy.
        at: epochs at which a curve is measured; empty where the answer is measured.
    """

    domain: str
    units: int
    method: str
    factor: float
    epsilon: float | None
    at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Task:
    """Work of one worker at a time: a cell for the trials from ``first`` until ``last``, or a programmed figure."""

    cell: Cell | None = None
    first: int = 0
    last: int = 0
    figure: str = ""

    @property
    def words(self) -> str:
        """Description of the task for people."""
        if self.cell is None:
            return f"figure {self.figure}"
        return f"{self.cell.domain}, {self.cell.units} trajectories: {self.cell.method}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for a run: what is computed, and how.

    Attributes:
        paper: the paper's specification.
        figures: the figures that are wanted.
        methods: all known methods, by name.
        trials: number of trials of each cell.
        quick: whether the run takes few trials and small logs.
        plugin: methods and a domain from a researcher's file.
        left_out: figures that need an optional dependency which is not installed.
    """

    paper: Paper
    figures: tuple[Measured | Programmed, ...]
    methods: Mapping[str, Method]
    trials: int
    quick: bool = False
    plugin: Plugin | None = None
    left_out: tuple[Measured | Programmed, ...] = ()

    def values(self, figure: Measured | Programmed) -> tuple[float, ...]:
        """Return the values of x of a figure in this run."""
        return (figure.quick or figure.values[:2]) if self.quick else figure.values

    def log(self, domain: str) -> Log:
        """Return the size of a domain's logs in this run."""
        log = next(x for x in self.paper.logs if x.domain == domain)
        return dataclasses.replace(log, units=log.quick) if self.quick else log

    def cell(self, domain: str, units: int, name: str, epsilon: float, factor: float = 1.0) -> Cell:
        """Return the cell of a method that is given by its name in a figure."""
        method, own = split_method(name)
        if method not in self.methods:
            raise DprlError(f"There is no method {method!r}; there are {', '.join(sorted(self.methods))}.")
        known = self.methods[method]
        scale = own * factor if known.scalable else 1.0
        return Cell(domain, units, method, scale, None if known.guarantee == "none" else epsilon)

    def points(self, figure: Measured) -> list[tuple[str, float, dict[str, Any], Cell]]:
        """Return every point of a figure: the method's name, the curve's epsilon, the point's place, and its cell."""
        most = min(self.log(domain).units for domain in figure.domains)
        units = tuple(dict.fromkeys(min(u, most) for u in figure.units)) if self.quick else figure.units
        epsilons = figure.epsilon[:1] if self.quick else figure.epsilon
        values = self.values(figure)
        epochs = tuple(int(x) for x in values) if figure.kind == "curves" else ()
        if figure.x == "domain":
            places = [(i, 0.0, *at) for i, at in enumerate(product(figure.domains, units, epsilons))]
        else:
            domain, m, along_epsilon = figure.domains[0], units[0], figure.x == "epsilon"
            each = product((0.0,) if along_epsilon else epsilons, values)
            places = [
                (x, curve, domain, int(x) if figure.x == "units" else m, x if along_epsilon else curve)
                for curve, x in each
            ]
        out = []
        for name, (x, curve, domain, m, epsilon) in product(self.names(figure), places):
            cell = self.cell(domain, m, name, epsilon, x if figure.x == "step" else 1.0)
            if self.methods[cell.method].curves is not None:
                cell = dataclasses.replace(cell, at=epochs)
            out.append((name, curve, {"x": x, "domain": domain, "units": m, "epsilon": epsilon}, cell))
        return out

    def names(self, figure: Measured) -> tuple[str, ...]:
        """Return the methods of a figure and of a plugin; a quick run leaves out methods with another step size."""
        extra = () if self.plugin is None else tuple(m.name for m in self.plugin.methods)
        own = tuple(name for name in figure.methods if not self.quick or split_method(name)[1] == 1.0)
        return own + tuple(name for name in extra if name not in figure.methods)


class Runner:
    """Computation of the tasks of a request."""

    def __init__(self, request: Request, store: Store) -> None:
        self.request, self.store = request, store
        self._code = cache(fingerprint)  # one cache per runner: a plugin may change before the next run
        self._logs = lru_cache(maxsize=1)(self._make_logs)

    def __reduce__(self) -> Any:
        return Runner, (self.request, self.store)

    def tasks(self) -> list[Task]:
        """Return all tasks: programmed figures first, as they take longest; then cells, in order of their logs."""
        figures = [f for f in self.request.figures if isinstance(f, Measured)]
        cells = {cell for figure in figures for *_, cell in self.request.points(figure)}
        order = sorted(cells, key=lambda c: (c.domain, c.units, c.method, c.factor, c.epsilon or 0.0, c.at))
        found = [Task(c, *chunk) for c in order for chunk in self.chunks(c.domain)]
        found.sort(key=lambda t: (t.cell.domain if t.cell else "", t.first))
        return [Task(figure=f.name) for f in self.request.figures if isinstance(f, Programmed)] + found

    def chunks(self, domain: str) -> list[tuple[int, int]]:
        """Return the ranges of trials that run together and are stored together."""
        size, trials = self.request.log(domain).batch, self.request.trials
        return [(a, min(a + size, trials)) for a in range(0, trials, size)]

    def key(self, task: Task) -> dict[str, Any]:
        """Return everything that determines the results of a task."""
        paper, cell = self.request.paper, task.cell
        if cell is None:
            figure = paper.figure(task.figure)
            assert isinstance(figure, Programmed)
            about = {"computed": figure.name, "code": code_of(figure.module), "libraries": libraries()}
            run = self._run(figure)
            names = ("epsilon", "values", "delta", "quick", "trials", "seed")
            return about | {name: getattr(run, name) for name in names}
        method = self.request.methods[cell.method]
        return {
            "domain": cell.domain,
            "domain_code": self._code(frozenset({self.domain_file(cell.domain), *FOLDER.glob("*.safetensors")})),
            "log_units": self.request.log(cell.domain).units,
            "method": cell.method,
            "method_code": self._code(frozenset(method.files())),
            "options": {k: v if isinstance(v, int | float | str | bool) else str(v) for k, v in method.options.items()},
            "units": cell.units,
            "epsilon": cell.epsilon,
            "delta": paper.delta,
            "tuned": self.tuned(cell),
            "factor": cell.factor,
            "seeds": [paper.seed + task.first, paper.seed + task.last],
            "libraries": libraries(),
            **({"at": list(cell.at)} if cell.at else {}),
        }

    def compute(self, task: Task) -> dict[str, Any]:
        """Compute a task, even if the store has its results."""
        cell = task.cell
        if cell is None:
            figure = self.request.paper.figure(task.figure)
            assert isinstance(figure, Programmed)
            self.store.asked.clear()
            return import_module(figure.module).draw(self._run(figure)) | {"cells": [*self.store.asked.values()]}
        logs, metrics = self._logs(cell.domain, task.first, task.last)
        method, setting = self.request.methods[cell.method], self.setting(cell)
        keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in logs.seeds])
        trials = Trials(setting=setting, seeds=logs.seeds, logs=logs)
        if method.curves is not None:
            errors = curves_of(method, trials, keys, cell.at)
        else:
            measured = errors_of(method, setting, method.answer(trials, keys), metrics)
            errors = {name: finite(values) for name, values in measured.items()}
        return errors | {
            "guarantee": dataclasses.asdict(method.guarantees(setting)),
            "range": setting.domain.range,
            "mean_reward": setting.domain.mean_reward,
            "truth_error": setting.domain.truth.standard_error,
        }

    def results(self, cell: Cell) -> dict[str, Any]:
        """Return the results of all trials of a cell from the store.

        Raises:
            DprlError: some results are missing.
        """
        parts = [self.store.read(self.key(Task(cell, *chunk))) for chunk in self.chunks(cell.domain)]
        if None in parts:
            raise DprlError("Some results are missing: run the same command again.")
        measured = [name for name in MEASURED if name in parts[0]]
        return parts[0] | {name: [value for part in parts for value in part[name]] for name in measured}

    def tuned(self, cell: Cell) -> float | None:
        """Return the tuned number of a cell's method, or None where the method has its own rule."""
        paper = self.request.paper
        return None if cell.epsilon is None else paper.tuned_value(cell.method, cell.domain, cell.units, cell.epsilon)

    def setting(self, cell: Cell) -> Setting:
        """Return the public facts of a cell."""
        return Setting(
            domain=self.domain(cell.domain),
            units=cell.units,
            budget=Budget(NO_EPSILON if cell.epsilon is None else cell.epsilon, self.request.paper.delta),
            tuned=self.tuned(cell),
            factor=cell.factor,
            epochs=max(cell.at, default=0),
        )

    def domain(self, name: str) -> Domain:
        """Return a domain by its name: the plugin's domain, or one of this package."""
        return self._of_plugin(name) or load_domain(name)

    def domain_file(self, name: str) -> Path:
        """Return the file that defines a domain."""
        plugin = self.request.plugin
        return plugin.path if plugin is not None and self._of_plugin(name) else FOLDER / f"{name}.py"

    def _of_plugin(self, name: str) -> Domain | None:
        plugin = self.request.plugin
        return plugin.domain if plugin is not None and plugin.domain and plugin.domain.name == name else None

    def _make_logs(self, domain: str, first: int, last: int) -> tuple[Logs, Metrics]:
        place, seed = self.domain(domain), self.request.paper.seed
        return Logs(place, self.request.log(domain).units, tuple(range(seed + first, seed + last))), Metrics(place)

    def _run(self, figure: Programmed) -> Run:
        request = self.request
        return Run(
            values=request.values(figure), epsilon=figure.epsilon, delta=request.paper.delta,
            trials=max(request.trials, 2), quick=request.quick, seed=request.paper.seed, store=self.store,
        )  # fmt: skip


# --- errors of a method's answers -------------------------------------------------------------------------------------


def errors_of(method: Method, setting: Setting, answers: np.ndarray, metrics: Metrics) -> Mapping[str, np.ndarray]:
    """Return the ``(T,)`` errors of a method's weights, values or policy values."""
    if method.value is not None:
        if answers.ndim != 1:
            raise DprlError(f"Method {method.name!r} must give one number a trial.")
        return metrics.value_errors(answers, method.clamp)
    size = setting.features.size if method.values is None else len(setting.domain.truth.values)
    if answers.shape[1:] != (size,):
        raise DprlError(
            f"Method {method.name!r} must give {size} numbers a trial on the domain {setting.domain.name!r}."
        )
    return metrics.errors(answers, method.values is not None, method.clamp)


def curves_of(method: Method, trials: Trials, keys: Any, at: tuple[int, ...]) -> dict[str, Any]:
    """Return the errors of a method with curves at the epochs ``at``, or of its answer where ``at`` is empty.

    Raises:
        DprlError: the method gives an unknown metric, no metric, or errors of another shape.
    """
    assert method.curves is not None
    found = method.curves(trials, keys, at)
    if not found or not set(found) <= set(MEASURED):
        raise DprlError(f"Method {method.name!r} must measure some of {', '.join(MEASURED)}.")
    shape = (len(trials), max(len(at), 1))
    if any(np.shape(errors) != shape for errors in found.values()):
        raise DprlError(f"Method {method.name!r} must give one number a trial and epoch.")
    return {name: [finite(row) for row in np.asarray(errors, dtype=np.float64)] for name, errors in found.items()}


def column(errors: Sequence[Any], at: Sequence[int], epoch: float | None) -> list[float | None]:
    """Return one number per trial: at ``epoch``, or at the end. Errors without curves are the same at every epoch."""
    if not errors or not isinstance(errors[0], list):
        return list(errors)
    place = -1 if epoch is None or not at else list(at).index(int(epoch))
    return [trial[place] for trial in errors]
