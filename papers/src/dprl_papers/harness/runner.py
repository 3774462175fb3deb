"""Runs the cells of a reproduction: plans them, shares them between figures, computes what is not on disk yet."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.harness import curves
from dprl_papers.harness.domain import FOLDER, Domain, load_domain
from dprl_papers.harness.method import Method
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.harness.spec import WITHOUT_METHODS, Figure, Log, Paper, split_method
from dprl_papers.harness.store import Store, finite
from dprl_papers.harness.versions import fingerprint, libraries

if TYPE_CHECKING:
    from dprl_papers.harness.plugin import Plugin

WORKERS = 2
NO_EPSILON = 1.0
"""Stands where a method has no privacy: the same cell serves every budget."""


@dataclass(frozen=True, order=True)
class Cell:
    """One method at one setting.

    Attributes:
        domain, units, method: what and where.
        factor: of the method's step size.
        epsilon: None without privacy.
        at: epochs at which a curve is measured; none where the answer is.
    """

    domain: str
    units: int
    method: str
    factor: float
    epsilon: float | None
    at: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for.

    Attributes:
        paper: its specification.
        figures: those that are wanted.
        methods: all that are known, by name.
        trials: of each cell.
        quick: few trials and small logs.
        plugin: methods and a domain from outside.
        left_out: figures that need an optional dependency which is not there.
    """

    paper: Paper
    figures: tuple[Figure, ...]
    methods: Mapping[str, Method]
    trials: int
    quick: bool = False
    plugin: Plugin | None = None
    left_out: tuple[Figure, ...] = ()

    def values(self, figure: Figure) -> tuple[float, ...]:
        """The x of a figure in this run."""
        return (figure.quick or figure.values[:2]) if self.quick else figure.values

    def units(self, figure: Figure) -> tuple[int, ...]:
        """The units of a figure whose x is another: in a quick run no more than are simulated."""
        if not self.quick:
            return figure.units
        limit = min(self.log(domain).units for domain in figure.domains)
        return tuple(dict.fromkeys(min(u, limit) for u in figure.units))

    def epsilons(self, figure: Figure) -> tuple[float, ...]:
        """The budgets of a figure whose x is another; in a quick run the first."""
        return figure.epsilon[:1] if self.quick else figure.epsilon

    def log(self, domain: str) -> Log:
        """How much of a domain is simulated."""
        log = next((x for x in self.paper.logs if x.domain == domain), None)
        if log is None:
            assert self.plugin is not None
            log = Log(domain=domain, units=max(int(v) for v in self.plugin.units), quick=500, batch=5)
        return dataclasses.replace(log, units=log.quick) if self.quick else log

    def cell(self, domain: str, units: int, name: str, epsilon: float, factor: float = 1.0) -> Cell:
        method, own = split_method(name)
        if method not in self.methods:
            raise DprlError(f"There is no method {method!r}; there are {', '.join(sorted(self.methods))}.")
        known = self.methods[method]
        scale = own * factor if known.scalable else 1.0
        return Cell(domain, units, method, scale, None if known.guarantee == "none" else epsilon)

    def points(self, figure: Figure) -> list[tuple[str, float, dict[str, Any], Cell]]:
        """Every point of a figure: name of the method, epsilon of the curve, where it is, and its cell."""
        out: list[tuple[str, float, dict[str, Any], Cell]] = []
        if figure.kind in WITHOUT_METHODS:
            return out
        epochs = tuple(int(x) for x in self.values(figure)) if figure.kind == "curves" else ()
        for name in self.names(figure):
            if figure.x == "domain":
                places = [(d, u, e) for d in figure.domains for u in self.units(figure) for e in self.epsilons(figure)]
                for i, (d, u, e) in enumerate(places):
                    out.append((name, 0.0, {"x": i, "domain": d, "units": u, "epsilon": e}, self.cell(d, u, name, e)))
                continue
            (domain,) = figure.domains
            for epsilon in (0.0,) if figure.x == "epsilon" else self.epsilons(figure):
                for x in self.values(figure):
                    units = int(x) if figure.x == "units" else self.units(figure)[0]
                    budget = x if figure.x == "epsilon" else epsilon
                    cell = self.cell(domain, units, name, budget, x if figure.x == "step" else 1.0)
                    if self.methods[cell.method].curves is not None:
                        cell = dataclasses.replace(cell, at=epochs)
                    out.append((name, epsilon, {"x": x, "domain": domain, "units": units, "epsilon": budget}, cell))
        return out

    def names(self, figure: Figure) -> tuple[str, ...]:
        """The methods of a figure, and those of a plugin; in a quick run without other step sizes."""
        extra = () if self.plugin is None else tuple(m.name for m in self.plugin.methods)
        own = tuple(name for name in figure.methods if not self.quick or split_method(name)[1] == 1.0)
        return own + tuple(name for name in extra if name not in figure.methods)


class Runner:
    """Computes the cells of a request that a store does not have."""

    def __init__(self, request: Request, store: Store) -> None:
        self.request, self.store = request, store
        self._domains: dict[str, Domain] = {}
        self._versions: dict[str, str] = {}
        self._method_versions: dict[str, str] = {}
        self.seconds: dict[Cell, float] = {}

    def chunks(self, domain: str) -> list[tuple[int, int]]:
        """Trials that run and are stored together."""
        size, trials = self.request.log(domain).batch, self.request.trials
        return [(a, min(a + size, trials)) for a in range(0, trials, size)]

    def domain(self, name: str) -> Domain:
        if name not in self._domains:
            plugin = self.request.plugin
            own = plugin is not None and plugin.domain is not None and plugin.domain.name == name
            self._domains[name] = plugin.domain if own else load_domain(name)  # type: ignore[union-attr, assignment]
        return self._domains[name]

    def key(self, cell: Cell, trials: tuple[int, int]) -> dict[str, Any]:
        """Everything that determines the results of a cell."""
        paper, method = self.request.paper, self.request.methods[cell.method]
        if cell.domain not in self._versions:
            plugin = self.request.plugin
            own = plugin is not None and plugin.domain is not None and plugin.domain.name == cell.domain
            file = plugin.path if own else FOLDER / f"{cell.domain}.py"  # type: ignore[union-attr]
            self._versions[cell.domain] = fingerprint([file, *FOLDER.glob("*.safetensors")])
        if cell.method not in self._method_versions:
            self._method_versions[cell.method] = method.version()
        return {
            "domain": cell.domain,
            "domain_code": self._versions[cell.domain],
            "log_units": self.request.log(cell.domain).units,
            "method": cell.method,
            "method_code": self._method_versions[cell.method],
            "options": {k: v if isinstance(v, int | float | str | bool) else str(v) for k, v in method.options.items()},
            "units": cell.units,
            "epsilon": cell.epsilon,
            "delta": paper.delta,
            "tuned": self._tuned(cell),
            "factor": cell.factor,
            "seeds": [paper.seed + trials[0], paper.seed + trials[1]],
            "libraries": libraries(),
            **({"at": list(cell.at)} if cell.at else {}),
        }

    def _tuned(self, cell: Cell) -> float | None:
        paper = self.request.paper
        return None if cell.epsilon is None else paper.tuned_value(cell.method, cell.domain, cell.units, cell.epsilon)

    def setting(self, cell: Cell) -> Setting:
        budget = Budget(NO_EPSILON if cell.epsilon is None else cell.epsilon, self.request.paper.delta)
        return Setting(
            domain=self.domain(cell.domain),
            units=cell.units,
            budget=budget,
            tuned=self._tuned(cell),
            factor=cell.factor,
            epochs=max(cell.at, default=0),
        )

    def parts(self) -> Iterator[tuple[Cell, tuple[int, int]]]:
        """Every cell of the request, for the trials that run together."""
        cells = sorted(
            {cell for figure in self.request.figures for *_, cell in self.request.points(figure)}, key=_order
        )
        for cell in cells:
            for chunk in self.chunks(cell.domain):
                yield cell, chunk

    def missing(self) -> list[tuple[Cell, tuple[int, int]]]:
        """Those that the store does not have."""
        return [(cell, chunk) for cell, chunk in self.parts() if self.store.read(self.key(cell, chunk)) is None]

    def on_logs(self, domain: str, chunk: tuple[int, int]) -> Callable[[Cell], dict[str, Any]]:
        """Computes cells of a domain for these trials, on logs that they share."""
        logs = Logs(self.domain(domain), self.request.log(domain).units, self._seeds(chunk))
        metrics = self._metrics(domain)
        return lambda cell: self._compute(cell, chunk, logs, metrics)

    def run(self, progress: Callable[[int, int, str], None] | None = None, workers: int = WORKERS) -> None:
        """Compute what is missing in threads, cell after cell; each is on disk as soon as it is finished."""
        todo: dict[tuple[str, tuple[int, int]], list[Cell]] = {}
        for cell, chunk in self.missing():
            todo.setdefault((cell.domain, chunk), []).append(cell)
        total = sum(1 for _ in self.parts())
        done = total - sum(len(c) for c in todo.values())
        for (domain, chunk), missing in todo.items():
            if progress is not None:
                progress(done, total, f"{domain}: simulating trials {chunk[0] + 1}-{chunk[1]}")
            for cell, results in _in_threads(missing, self.on_logs(domain, chunk), workers):
                self.store.save(self.key(cell, chunk), results)
                done += 1
                if progress is not None:
                    progress(done, total, f"{domain}, {cell.units} trajectories: {cell.method}")

    def _metrics(self, domain: str) -> Metrics:
        return Metrics(self.domain(domain))

    def _seeds(self, chunk: tuple[int, int]) -> tuple[int, ...]:
        return tuple(self.request.paper.seed + t for t in range(*chunk))

    def _compute(self, cell: Cell, chunk: tuple[int, int], logs: Logs, metrics: Metrics) -> dict[str, Any]:
        started = time.perf_counter()
        method, setting, seeds = self.request.methods[cell.method], self.setting(cell), self._seeds(chunk)
        keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in seeds])
        trials = Trials(setting=setting, seeds=seeds, logs=logs)
        errors: Mapping[str, Any]
        if method.curves is not None:
            errors = curves.measure(method, trials, keys, cell.at)
        else:
            errors = self._errors(method, cell, method.answer(trials, keys), metrics)
        taken = time.perf_counter() - started
        self.seconds[cell] = self.seconds.get(cell, 0.0) + taken
        return {name: values if method.curves else finite(values) for name, values in errors.items()} | {
            "guarantee": method.guarantees(setting).as_dict(),
            "range": setting.domain.range,
            "mean_reward": setting.domain.mean_reward,
            "truth_error": setting.domain.truth.standard_error,
        }

    def _errors(self, method: Method, cell: Cell, answers: np.ndarray, metrics: Metrics) -> Mapping[str, np.ndarray]:
        """Errors ``(T,)`` of a method's weights, values or policy values."""
        setting, trials = self.setting(cell), len(answers)
        if method.value is not None:
            if answers.shape != (trials,):
                raise DprlError(f"Method {method.name!r} must give one number a trial.")
            return metrics.value_errors(answers, method.clamp)
        size = setting.features.size if method.values is None else len(setting.domain.truth.values)
        if answers.shape != (trials, size):
            raise DprlError(f"Method {method.name!r} must give {size} numbers a trial on the domain {cell.domain!r}.")
        return metrics.errors(answers, method.values is not None, method.clamp)

    def results(self, cell: Cell) -> dict[str, Any]:
        """All trials of a cell, from the store.

        Raises:
            DprlError: some of it is not there.
        """
        parts = [self.store.read(self.key(cell, chunk)) for chunk in self.chunks(cell.domain)]
        whole = [part for part in parts if part is not None]
        if len(whole) != len(parts):
            raise DprlError("Some results are missing: run the same command again.")
        measured = [name for name in curves.MEASURED if name in whole[0]]
        joined = {name: [value for part in whole for value in part[name]] for name in measured}
        return whole[0] | joined


def _order(cell: Cell) -> tuple[Any, ...]:
    return (cell.domain, cell.units, cell.method, cell.factor, cell.epsilon or 0.0, cell.at)


def _in_threads(cells: Sequence[Cell], compute: Callable[[Cell], Any], workers: int) -> Any:
    """Cells with their results, as they are finished; compiled code runs outside of Python's lock."""
    if workers == 1:
        for cell in cells:
            yield cell, compute(cell)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        waiting = list(cells)
        running: dict[Future[Any], Cell] = {}
        while waiting or running:
            while waiting and len(running) < workers:
                cell = waiting.pop(0)
                running[pool.submit(compute, cell)] = cell
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield running.pop(future), future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def statistics(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Mean, standard deviation and standard error of the finite values, and how many others there were."""
    good = np.array([v for v in values if v is not None and math.isfinite(v)], dtype=np.float64)
    if not len(good):
        return {"mean": None, "sd": None, "se": None, "not_finite": len(values)}
    sd = float(good.std(ddof=1)) if len(good) > 1 else 0.0
    return {
        "mean": float(good.mean()),
        "sd": sd,
        "se": sd / math.sqrt(len(good)),
        "not_finite": len(values) - len(good),
    }
