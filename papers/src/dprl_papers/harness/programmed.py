"""Programmed figures, which are Python files: the input of their ``draw``, and the parts that ``draw`` puts together.

``draw(run)`` returns the contents of the page as plain data: ``charts``, ``tables`` and ``claims``, each a list.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.store import Store
from dprl_papers.harness.versions import code_of, libraries


@dataclass(frozen=True, kw_only=True)
class Run:
    """Input of a programmed figure.

    Attributes:
        values, epsilon: values of x and budgets of the figure.
        delta: delta of every budget.
        trials: number of seeds of each point, at least two.
        quick: whether the run only has to show that the figure works.
        seed: the first seed.
        store: keeps computed results.
    """

    values: tuple[float, ...] = field(default=(), compare=False)
    epsilon: tuple[float, ...] = field(default=(), compare=False)
    delta: float = field(default=1e-5, compare=False)
    trials: int = field(default=2, compare=False)
    quick: bool = False
    seed: int = 0
    store: Store = field(compare=False)

    @property
    def whole(self) -> tuple[int, ...]:
        """The values of x as whole numbers."""
        return tuple(int(v) for v in self.values)

    def cached(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return what ``function`` gives for these arguments, or gave before with the same code, in JSON's types.

        A kept result is found by the function's name, the code of its module and of what it imports, the libraries and
        the arguments. If a run is among the arguments, only its seed and whether it is quick count.
        """
        key = {
            "function": f"{function.__module__}.{function.__qualname__}",
            "given": given,
            "code": code_of(function.__module__),
            "libraries": libraries(),
        }
        return self.store.kept(key, functools.partial(function, *given))

    def values_of(self, function: Callable[..., Any], *given: Any) -> np.ndarray:
        """Return the result of :meth:`cached` as an array."""
        return np.array(self.cached(function, *given))


# --- parts ------------------------------------------------------------------------------------------------------------


def make_claim(words: str, holds: bool, text: str, ours: bool = False) -> dict[str, Any]:
    """Return a sentence with its verdict and the numbers behind it."""
    verdict = "holds" if holds else "does not hold"
    return {"words": words, "ours": ours, "metric": "", "verdict": verdict, "text": text}


def make_line(label: str, values: Mapping[Any, np.ndarray], look: str = "private", dash: int = 0) -> dict[str, Any]:
    """Return a line of means and standard deviations over seeds, by x."""
    drawn = [[float(x), float(np.mean(v)), float(np.std(v))] for x, v in values.items()]
    return {"label": label, "points": drawn, "look": look, "dash": dash}


def make_chart(
    lines: Sequence[dict[str, Any]], x: str, y: str, *,
    title: str = "", log_x: bool = True, log_y: bool = False, band: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return a chart of lines, with one standard deviation as bars or as a shaded band."""
    return {"title": title, "lines": list(lines), "x": x, "y": y, "log_x": log_x, "log_y": log_y, "band": band}


def make_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return a table. A cell is a text, or a mapping with ``text`` and a ``class``."""
    return {"caption": caption, "heads": list(heads), "rows": [list(row) for row in rows]}


def mean_text(values: Any, places: int = 2) -> str:
    """Return a mean with its standard error over seeds as text."""
    values = np.asarray(values, np.float64)
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return f"{number(float(values.mean()), places)} ± {number(error, places)}"


def table_over(
    found: Mapping[str, Mapping[Any, np.ndarray]], head: str, what: str, seeds: int, more: str = ""
) -> dict[str, Any]:
    """Return a table of means over seeds with standard errors, with one column per x; ``what`` begins its caption."""
    at = list(next(iter(found.values())))
    rows = [[name, *(mean_text(by[x], 3) for x in at)] for name, by in found.items()]
    caption = f"{what[:1].upper()}{what[1:]} (mean ± standard error over {seeds} seeds{more})."
    return make_table(caption, ["", *(f"{head} = {plain(x)}" for x in at)], rows)


def figure_contents(
    *, charts: Sequence[Any] = (), tables: Sequence[Any] = (), claims: Sequence[Any] = ()
) -> dict[str, list[Any]]:
    """Return charts, tables and claims in the form in which ``draw`` returns them."""
    return {"charts": list(charts), "tables": list(tables), "claims": list(claims)}
