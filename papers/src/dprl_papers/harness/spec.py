"""Specifications of reproductions: each paper has a folder with ``paper.toml``, and a file per figure in ``figures/``.

A figure that compares methods on logs is declared: ``figures/NAME.toml`` is a :class:`Measured`. Any other figure is
programmed: ``figures/NAME.py`` describes the page in its docstring, and has a function ``draw``
(:mod:`dprl_papers.harness.programmed`). To add a figure, add its file.
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dprl.errors import DprlError

Metric = Literal["mspbe", "relative-mspbe", "rmse", "rmse/range", "value/range", "objective", "msbe"]
METRICS = get_args(Metric)
EXACT = ConfigDict(extra="forbid", allow_inf_nan=False)
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) != len(values):
        raise ValueError("entries must be different")
    return values


@dataclass(frozen=True, kw_only=True, config=EXACT)
class FigureClaim:
    """A sentence of a paper, or of ours, with the comparison of numbers that decides whether it holds.

    Attributes:
        words: the sentence.
        kind: ``ratio`` compares error(``other``) / error(``method``) with ``at_least``, at each x; ``below`` compares
            error(``method``) with ``at_most``; ``spread`` compares the largest over the smallest error of ``method``
            along x with ``at_most``.
        method, other: methods of this figure; ``other`` may be a method of another figure, named by ``figure``.
        metric: one of METRICS.
        at: values of x that count; by default all.
        epsilon: epsilon of the compared curves; by default the figure's first.
        other_epsilon: epsilon of the curve of ``other``, if it differs.
        ours: whether the sentence is ours and not the paper's.
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


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Figure:
    """Facts that every figure or table has.

    Attributes:
        name: its name in ``--figure``.
        title: title of its section.
        where: its place in the paper.
        statement: what the paper says about it, in the paper's words; empty for a figure that is not the paper's.
        note: a remark.
        extra: the library's optional dependency without which the figure is left out.
        values: values of x.
        quick: values of x in a quick run; by default the first two values.
        epsilon: epsilons of the budgets; with several, each gives a curve.
    """

    name: str
    title: str
    where: str
    statement: str = ""
    note: str = ""
    extra: str = ""
    values: tuple[float, ...] = ()
    quick: tuple[float, ...] = ()
    epsilon: tuple[Positive, ...] = Field(default=(0.1,), min_length=1)


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Programmed(Figure):
    """A figure that is a Python file: its numbers follow from formulas, or from learning in an environment.

    Attributes:
        module: name of the file's module, which has a function ``draw`` of a
            :class:`~dprl_papers.harness.programmed.Run`.
    """

    module: str


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Measured(Figure):
    """A figure of methods that are measured on logs.

    Attributes:
        kind: ``errors`` of answers, or ``curves`` of errors along a run.
        domains: names of the domains.
        x: ``units``, ``step`` (a factor of the step size), ``epsilon``, ``epoch`` (only for ``curves``; a run ends with
            the last value), or ``domain``, which has no values.
        units: numbers of units where x is something else; several only where x is ``domain``.
        metric: metric of the first chart.
        methods: names of methods; ``NAME xF`` is the method with its step size times F.
        log_x, log_y: whether an axis is logarithmic.
        claims: claims that the numbers decide.
        beside: ``module:function`` that adds computed contents to the measured ones.
    """

    kind: Literal["errors", "curves"] = "errors"
    domains: tuple[str, ...] = ("chain",)
    x: Literal["units", "step", "epsilon", "epoch", "domain"] = "units"
    units: tuple[Count, ...] = Field(default=(1000,), min_length=1)
    metric: Metric = "mspbe"
    methods: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_different)]
    log_x: bool = True
    log_y: bool = True
    claims: tuple[FigureClaim, ...] = ()
    beside: str = ""


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Tuned:
    """A number for which a method has no rule, such as its step size: the best of a grid on public simulations.

    Attributes:
        method, domain, epsilon: the method, domain and budget for which it is tuned.
        units, best: numbers of units, and the best value at each; between them, values are interpolated (both in logs).
        provenance: how it was found.
        what: name of the number.
    """

    method: str
    domain: str
    epsilon: Positive
    units: tuple[Count, ...] = Field(min_length=1)
    best: tuple[Positive, ...] = Field(min_length=1)
    provenance: str
    what: str = "step size"


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Log:
    """Size of a domain's simulated logs.

    Attributes:
        domain: name of the domain.
        units: number of trajectories in each trial's one log, of which smaller logs are prefixes.
        quick: number of trajectories in a quick run.
        batch: number of trials that run together and are stored together.
    """

    domain: str
    units: Count
    quick: Count = 500
    batch: Count = 25


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Paper:
    """Specification of the reproduction of one paper.

    Attributes:
        number, title, authors, year: of the paper.
        summary: subject of the paper, for the head of the page.
        trials, delta, seed: number of trials, delta and first seed of every figure; trial t has the log and the noise
            of seed ``seed + t``.
        measured: sentences on how the numbers were measured, for a paper that has no logs.
        ours: words by which claims are known that are about a method of ours in place of the paper's.
        logs, tuned, figures: see :class:`Log`, :class:`Tuned` and :class:`Figure`.
    """

    number: str
    title: str
    authors: str
    year: int
    summary: str
    figures: tuple[Measured | Programmed, ...]
    logs: tuple[Log, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    trials: Count = 100
    quick_trials: Count = 5
    delta: float = Field(default=1e-5, gt=0.0, lt=1.0)
    seed: int = Field(default=0, ge=0)
    measured: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()

    def figure(self, name: str) -> Measured | Programmed:
        """Return the figure of this name; for an unknown name, raise an error that lists the known names."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        names = ", ".join(f.name for f in self.figures)
        raise DprlError(f"Paper {self.number} has no figure {name!r}; there are {names}.")

    def tuned_value(self, method: str, domain: str, units: int, epsilon: float) -> float | None:
        """Return the tuned number of a method, or None where the method has its own rule."""
        tables = [s for s in self.tuned if s.method == method and s.domain == domain]
        if not tables:
            return None
        table = min(tables, key=lambda s: abs(math.log(s.epsilon / epsilon)))
        return float(np.exp(np.interp(math.log(units), np.log(table.units), np.log(table.best))))


def split_method(name: str) -> tuple[str, float]:
    """Return the method's name and the factor of its step size.

    >>> split_method("gpope x0.1"), split_method("td")
    (('gpope', 0.1), ('td', 1.0))
    """
    base, _, factor = name.partition(" x")
    return base, float(factor) if factor else 1.0


# --- files ------------------------------------------------------------------------------------------------------------


def papers() -> dict[str, Path]:
    """Return the folders of the papers that can be reproduced, by number."""
    return {path.name.split("_")[1]: path for path in sorted(Path(__file__).parents[1].glob("paper_*"))}


@cache
def load_paper(number: str) -> Paper:
    """Return the specification of a paper, with the paper's own figures first, then added ones."""
    folder = papers().get(number)
    if folder is None:
        raise DprlError(f"There is no reproduction of paper {number!r}; there are {', '.join(papers())}.")
    figures = [_figure_of(f) for f in (folder / "figures").iterdir() if f.name[0] not in "_."]
    figures.sort(
        key=lambda f: (not f.get("statement"), [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", f["name"])])
    )
    text = (folder / "paper.toml").read_text(encoding="utf-8")
    return parse(text, f"paper.toml of paper {number}", figures)


def parse(text: str, source: str, figures: list[dict[str, Any]] | None = None) -> Paper:
    """Return a specification from TOML and from tables of figures.

    Args:
        text: contents of ``paper.toml``, which may have ``[[figures]]`` itself.
        source: name of the text in error messages.
        figures: tables of figures that have files of their own.
    """
    try:
        mapping = tomllib.loads(text)
        paper = TypeAdapter(Paper).validate_python(mapping if figures is None else mapping | {"figures": figures})
    except tomllib.TOMLDecodeError as error:
        raise DprlError(f"{source} is not TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DprlError(f"{source}: {place}: {first['msg']}.") from None
    _check(paper, source)
    return paper


def _figure_of(path: Path) -> dict[str, Any]:
    """Return the table of a figure from its file. The figure has the file's name, without ``figure_``."""
    name = path.stem.removeprefix("figure_").replace("_", "-")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return {"name": name, **tomllib.loads(text)}
    return {"name": name, "module": f"dprl_papers.{path.parents[1].name}.figures.{path.stem}", **programmed_text(text)}


def programmed_text(source: str) -> dict[str, Any]:
    '''Return the facts in the file of a programmed figure, without importing it.

    The docstring has the title, and paragraphs that begin with ``Where:``, ``Statement:``, ``Note:`` or ``Extra:``;
    ``VALUES``, ``QUICK`` and ``EPSILON`` are constants.

    >>> programmed_text('"""Return\\n\\nWhere: Section 2,\\nend."""\\nVALUES = (1, 2)')
    {'title': 'Return', 'where': 'Section 2, end.', 'values': (1, 2)}
    '''
    tree = ast.parse(source)
    title, *paragraphs = [" ".join(part.split()) for part in (ast.get_docstring(tree) or "").split("\n\n")]
    labels = (part.partition(": ") for part in paragraphs)
    found: dict[str, Any] = {"title": title} | {label.lower(): text for label, _, text in labels}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("VALUES", "QUICK", "EPSILON"):
                found[name.lower()] = ast.literal_eval(node.value)
    return found


# --- checks across the parts of a specification -----------------------------------------------------------------------


def _check(paper: Paper, source: str) -> None:
    """Refuse a specification with a claim that nobody measures, or a cell that cannot be computed."""

    def require(holds: bool, where: str, sentence: str) -> None:
        if not holds:
            raise DprlError(f"{source}: {where}: {sentence}.")

    logs = {log.domain: log for log in paper.logs}
    require(len({f.name for f in paper.figures}) == len(paper.figures), "figures", "two have the same name")
    for table in paper.tuned:
        increasing = list(table.units) == sorted(set(table.units))
        require(increasing and len(table.units) == len(table.best), f"tuned of {table.method}", "units must increase")
    for figure in paper.figures:
        where = f"figure {figure.name}"
        if isinstance(figure, Programmed):
            continue
        require(set(figure.quick) <= set(figure.values), where, "quick must be among the values")
        require(bool(figure.domains) and set(figure.domains) <= set(logs), where, "a domain has no entry in logs")
        along = figure.kind == "curves"
        require((figure.x == "domain") == (not figure.values), where, "values are for every x but domain")
        require(along == (figure.x == "epoch"), where, "x is epoch for curves, and for nothing else")
        increasing = list(figure.values) == sorted({int(v) for v in figure.values})
        require(not along or increasing, where, "epochs must increase, and be whole numbers")
        require(along or all(v > 0.0 for v in figure.values), where, "values must be positive")
        sizes = figure.values if figure.x == "units" else figure.units
        most = min(logs[d].units for d in figure.domains)
        require(all(v == int(v) and v <= most for v in sizes), where, "units must be at most those of the log")
        for claim in figure.claims:
            _check_claim(paper, figure, claim, require)


def _check_claim(paper: Paper, figure: Measured, claim: FigureClaim, require: Callable[[bool, str, str], None]) -> None:
    where = f"figure {figure.name}, claim {claim.words[:40]!r}"
    require(claim.method in figure.methods, where, "its method is not in the figure")
    there = next((f for f in paper.figures if f.name == (claim.figure or figure.name)), None)
    known = there.methods if isinstance(there, Measured) else ()
    require((claim.kind != "ratio") or claim.other in known, where, "its other method is not in the figure")
    limits = (claim.at_least, claim.at_most) if claim.kind == "ratio" else (claim.at_most,)
    require(any(limit is not None for limit in limits), where, "what is asked for is missing")
    places = figure.units if figure.x == "domain" else figure.values
    require(set(claim.at) <= set(places), where, "at must be among the figure's values")
    require(claim.epsilon in (None, *figure.epsilon), where, "epsilon must be one of the figure's")
    budgets = there.epsilon if there else ()
    require(claim.other_epsilon in (None, *budgets), where, "other_epsilon must be one of the figure's")
