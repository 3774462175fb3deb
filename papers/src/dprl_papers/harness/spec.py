"""What a reproduction measures, from ``paper_NUMBER_NAME/figures.toml``: figures, axes, methods, budgets and claims.

A leaf: it reads text and knows nothing of domains or methods but their names. Unknown names are refused.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from dprl.errors import DprlError

Metric = Literal["mspbe", "relative-mspbe", "rmse", "rmse/range", "value/range", "objective", "msbe"]
WITHOUT_METHODS = ("table1", "slope", "published-privacy", "learning")
"""Kinds of figures that follow from formulas, or from an environment, and from no log."""
METRICS = get_args(Metric)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a paper, or of ours, with the comparison of numbers that decides whether it came out.

    Attributes:
        words: the sentence.
        kind: ``ratio`` compares error(``other``) / error(``method``) with ``at_least``, at each x; ``below`` compares
            error(``method``) with ``at_most``; ``spread`` compares the largest over the smallest error of ``method``
            along x with ``at_most``.
        method, other: of this figure; ``other`` may stand in another ``figure``.
        metric: one of METRICS.
        at: values of x that count; all by default.
        epsilon: of the curves that are compared; the figure's first by default.
        other_epsilon: of ``other``, where that is another one.
        ours: true for a sentence that is not the paper's.
    """

    words: str
    kind: Literal["ratio", "below", "spread"]
    method: str
    other: str = ""
    metric: Metric = "mspbe"
    at_least: float | None = None
    at_most: float | None = None
    at: tuple[float, ...] = ()
    epsilon: float | None = None
    other_epsilon: float | None = None
    figure: str = ""
    ours: bool = False


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table.

    Attributes:
        name: as in ``--figure``.
        title: of its section.
        where: where it stands in the paper.
        statement: what the paper says of it, in its words; empty for a figure that is not the paper's.
        kind: ``errors`` is measured, and so are ``curves``, along a run; ``table1``, ``bounds``, ``slope`` and
            ``published-privacy`` are computed; ``learning`` acts in an environment, and has claims of its own.
        domains: names of the domains; none where the figure has none.
        x: ``units``, ``step`` (a factor of the step size), ``epsilon``, ``epoch`` (of ``curves``; a run ends with
            the last), or ``domain``.
        values: of x; of ``domain`` none are given.
        quick: of x in a quick run; the first two values by default.
        units: where x is another; several only where x is ``domain``.
        epsilon: where x is another; several give a curve each.
        metric: of the first chart.
        methods: names; ``NAME xF`` is the method with its step size times F.
        log_x, log_y: axes.
        note: what else must be said of it.
        extra: the library's optional dependencies without which the figure is left out.
        claims: what is decided by the numbers.
    """

    name: str
    title: str
    where: str
    statement: str = ""
    kind: Literal["errors", "curves", "table1", "bounds", "slope", "published-privacy", "learning"] = "errors"
    domains: tuple[str, ...] = ("chain",)
    x: Literal["units", "step", "epsilon", "epoch", "domain"] = "units"
    values: tuple[float, ...] = ()
    quick: tuple[float, ...] = ()
    units: tuple[int, ...] = (1000,)
    epsilon: tuple[float, ...] = (0.1,)
    metric: Metric = "mspbe"
    methods: tuple[str, ...] = ()
    log_x: bool = True
    log_y: bool = True
    note: str = ""
    extra: str = ""
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A number that a method has no rule for, such as its step size: best of a grid on public simulations.

    Attributes:
        method, domain, epsilon: what it is for.
        units, best: number of units, and what is best there; between them it is interpolated (both in logs).
        provenance: how it was found.
        what: what it is.
    """

    method: str
    domain: str
    epsilon: float
    units: tuple[int, ...]
    best: tuple[float, ...]
    provenance: str
    what: str = "step size"


@dataclass(frozen=True, kw_only=True)
class Log:
    """How much of a domain is simulated.

    Attributes:
        domain: its name.
        units: trajectories of the one log a trial, of which smaller logs are prefixes.
        quick: the same in a quick run.
        batch: trials that run together and are stored together.
    """

    domain: str
    units: int
    quick: int = 500
    batch: int = 25


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A reproduction.

    Attributes:
        number, title, authors, year: of the paper.
        summary: what it is about, for the head of the page.
        trials, delta, seed: of every figure; trial t has the log and the noise of seed ``seed + t``.
        measured: how it was measured, in sentences, of a paper that has no logs.
        logs, tuned, figures: see there.
    """

    number: str
    title: str
    authors: str
    year: int
    summary: str
    figures: tuple[Figure, ...]
    logs: tuple[Log, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    trials: int = 100
    quick_trials: int = 5
    delta: float = 1e-5
    seed: int = 0
    measured: tuple[str, ...] = ()
    source: str = field(default="", repr=False)

    def figure(self, name: str) -> Figure:
        for figure in self.figures:
            if figure.name == name:
                return figure
        raise DprlError(
            f"Paper {self.number} has no figure {name!r} here; there are {', '.join(f.name for f in self.figures)}."
        )

    def log_of(self, domain: str) -> Log:
        return next(log for log in self.logs if log.domain == domain)

    def tuned_value(self, method: str, domain: str, units: int, epsilon: float) -> float | None:
        """The tuned number of a method, or None where it goes by its own rule."""
        tables = [s for s in self.tuned if s.method == method and s.domain == domain]
        if not tables:
            return None
        table = min(tables, key=lambda s: abs(math.log(s.epsilon / epsilon)))
        return math.exp(_interpolated(math.log(units), table.units, table.best))


def split_method(name: str) -> tuple[str, float]:
    """The method and the factor of its step size.

    >>> split_method("gpope x0.1"), split_method("td")
    (('gpope', 0.1), ('td', 1.0))
    """
    base, _, factor = name.partition(" x")
    return base, float(factor) if factor else 1.0


@cache
def packages() -> dict[str, str]:
    """Packages of the papers that can be reproduced, by number."""
    found = sorted(f.name for f in resources.files("dprl_papers").iterdir() if f.name.startswith("paper_"))
    return {name.split("_")[1]: f"dprl_papers.{name}" for name in found}


def papers() -> tuple[str, ...]:
    """Numbers of the papers that can be reproduced."""
    return tuple(packages())


@cache
def load_paper(number: str) -> Paper:
    """The specification of a paper."""
    if number not in papers():
        raise DprlError(f"There is no reproduction of paper {number!r}; there are {', '.join(papers())}.")
    return parse((resources.files(packages()[number]) / "figures.toml").read_text(), f"figures.toml of paper {number}")


def parse(text: str, source: str) -> Paper:
    """A specification from TOML; ``source`` is what error messages call it."""
    try:
        mapping = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DprlError(f"{source} is not TOML: {error}.") from error
    paper = _build(Paper, mapping, source)
    _check(paper, source)
    return paper


T = TypeVar("T")


def _build(kind: type[T], mapping: Any, where: str) -> T:
    if not isinstance(mapping, Mapping):
        raise DprlError(f"{where} must be a table.")
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind) if f.name != "source"}  # type: ignore[arg-type]
    for name in mapping:
        if name not in known:
            raise DprlError(f"{where}: unknown name {name!r}; known are {', '.join(known)}.")
    for name, f in known.items():
        if name not in mapping and f.default is MISSING and f.default_factory is MISSING:
            raise DprlError(f"{where}: {name} is missing.")
    return kind(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in mapping.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise DprlError(f"{where} must be a list.")
        inner = get_args(hint)[0]
        return tuple(_value(inner, v, f"{where}[{i}]") for i, v in enumerate(value))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise DprlError(f"{where} must be one of {', '.join(get_args(hint))}.")
        return value
    allowed = get_args(hint) or (hint,)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if float in allowed and number and math.isfinite(value):
        return float(value)
    for kind, word in ((str, "text"), (bool, "true or false"), (int, "a whole number")):
        if kind in allowed:
            if isinstance(value, kind) and (kind is bool) == isinstance(value, bool):
                return value
            raise DprlError(f"{where} must be {word}.")
    if float in allowed:
        raise DprlError(f"{where} must be a finite number.")
    return _build(hint, value, where)


def _check(paper: Paper, source: str) -> None:
    """What a specification's parts say of each other."""

    def require(holds: bool, where: str, sentence: str) -> None:
        if not holds:
            raise DprlError(f"{source}: {where}: {sentence}.")

    for name in ("trials", "quick_trials"):
        require(getattr(paper, name) >= 1, name, "must be at least 1")
    require(0.0 < paper.delta < 1.0, "delta", "must be between 0 and 1")
    require(paper.seed >= 0, "seed", "must be at least 0")
    names = [f.name for f in paper.figures]
    require(len(set(names)) == len(names), "figures", "two have the same name")
    limits = {log.domain: log.units for log in paper.logs}
    require(len(limits) == len(paper.logs), "logs", "two are of the same domain")
    for log in paper.logs:
        require(1 <= log.quick <= log.units, f"logs of {log.domain}", "quick must be between 1 and units")
        require(log.batch >= 1, f"logs of {log.domain}", "batch must be at least 1")
    for table in paper.tuned:
        where = f"tuned of {table.method}"
        require(len(table.units) == len(table.best) >= 1, where, "units and best must be lists of the same length")
        require(list(table.units) == sorted(set(table.units)), where, "units must increase")
        require(min(table.best) > 0.0 and table.epsilon > 0.0, where, "best and epsilon must be positive")
    for figure in paper.figures:
        where = f"figure {figure.name}"
        require(all(d in limits for d in figure.domains), where, "a domain has no entry in logs")
        if figure.kind in WITHOUT_METHODS:
            continue
        require(bool(figure.domains), where, "domains must name at least one")
        require(bool(figure.methods), where, "methods must name at least one")
        require(len(set(figure.methods)) == len(figure.methods), where, "methods must be different")
        for name in figure.methods:
            try:
                require(split_method(name)[1] > 0.0, where, f"the factor of {name!r} must be positive")
            except ValueError:
                require(False, where, f"what stands after ' x' in {name!r} must be a number")
        require((figure.x == "domain") == (not figure.values), where, "values are for every x but domain")
        curves = figure.kind == "curves"
        require(curves == (figure.x == "epoch"), where, "x is epoch for curves, and for nothing else")
        good = all(v > 0.0 for v in figure.epsilon) and all(v > 0.0 or (curves and v == 0.0) for v in figure.values)
        require(good, where, "values and epsilon must be positive")
        epochs = figure.values if curves else ()
        require(all(v == int(v) for v in epochs), where, "epochs must be whole numbers")
        require(list(epochs) == sorted(set(epochs)), where, "epochs must increase")
        require(set(figure.quick) <= set(figure.values), where, "quick must be among the values")
        require(bool(figure.units) and bool(figure.epsilon), where, "units and epsilon must not be empty")
        if figure.x != "domain":
            require(len(figure.domains) == 1, where, "several domains only where x is domain")
            require(len(figure.units) == 1 or figure.x == "units", where, "several units only where x is domain")
        sizes = figure.values if figure.x == "units" else figure.units
        require(
            all(v == int(v) and 1 <= v <= limits[d] for v in sizes for d in figure.domains),
            where,
            "units must be whole numbers, at most those of the log",
        )
        small = {log.domain: log.quick for log in paper.logs}
        sizes = (figure.quick or figure.values[:2]) if figure.x == "units" else ()
        fits = all(v <= small[d] for v in sizes for d in figure.domains)
        require(fits, where, "quick is more than the quick log has")
        for claim in figure.claims:
            _check_claim(paper, figure, claim, require)


def _check_claim(paper: Paper, figure: Figure, claim: Claim, require: Any) -> None:
    where = f"figure {figure.name}, claim {claim.words[:40]!r}"
    require(claim.method in figure.methods, where, "its method is not in the figure")
    if claim.kind == "ratio":
        there = figure if not claim.figure else next((f for f in paper.figures if f.name == claim.figure), None)
        require(there is not None and claim.other in there.methods, where, "its other method is not in the figure")
        require(claim.at_least is not None or claim.at_most is not None, where, "at_least or at_most is missing")
    else:
        require(claim.at_most is not None and claim.at_least is None, where, "at_most, and not at_least, is needed")
        require(not claim.other and not claim.figure, where, "other and figure are for a ratio")
    known = figure.units if figure.x == "domain" else figure.values
    require(set(claim.at) <= set(known), where, "at must be among the figure's values")
    budgets = (None, *figure.epsilon)
    require(claim.epsilon in budgets, where, "epsilon must be one of the figure's")
    require(claim.other_epsilon is None or claim.kind == "ratio", where, "other_epsilon is for a ratio")
    require(claim.other_epsilon in budgets or bool(claim.figure), where, "other_epsilon must be one of the figure's")


def _interpolated(at: float, units: Sequence[int], best: Sequence[float]) -> float:
    x, y = [math.log(u) for u in units], [math.log(b) for b in best]
    if at <= x[0]:
        return y[0]
    for (a, b), (c, d) in zip(zip(x, y, strict=True), zip(x[1:], y[1:], strict=True), strict=False):
        if at <= c:
            return b + (d - b) * (at - a) / (c - a)
    return y[-1]
