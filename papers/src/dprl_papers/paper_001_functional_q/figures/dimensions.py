"""On the square

Where: Section 3.3: “it is also possible to [...] high-dimensional spaces”

Statement: For example, the kernel function exp(−β|x − y|) where x and y now belongs to R^n and |·| is the Manhattan
distance. [...] the privacy guarantee in the theorem holds in general for the respective definition of the norm.

Note: The norm of a difference needs its mixed derivatives, of which a Lipschitz constant says nothing; here they are
stated to be bounded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_line, make_table
from dprl_papers.paper_001_functional_q import returns
from dprl_papers.paper_001_functional_q.returns import FUNCTIONAL, OBSERVED, PEOPLE, RETURN, Point

VALUES = (30, 100, 300, 1000)
QUICK = (100,)
EPSILON = (0.9,)


def draw(run: Run) -> dict[str, Any]:
    """Draw the walk on the square: price and return."""
    found = {
        name: _over_people(run, point) for name, point in (("functional", FUNCTIONAL), ("observed-reward", OBSERVED))
    }
    price = make_table(
        "Norm of the difference of two neighbours over the radius, sqrt((1 + L/R)^d), at the best decay.",
        ["L/R", "d = 1", "d = 2", "d = 3"],
        [[plain(r), *(number(math.sqrt((1.0 + r) ** d), 3) for d in (1, 2, 3))] for r in (1, 4, 16)],
    )
    lines = [make_line(name, values) for name, values in found.items()]
    return figure_contents(charts=[make_chart(lines, PEOPLE, RETURN)], tables=[returns.people_table(run, found), price])


def _over_people(run: Run, point: Point) -> dict[float, Any]:
    low, best = returns.extreme_returns(2)
    square = replace(point, epsilon=run.epsilon[0], delta=run.delta, dimensions=2)
    at = {n: returns.measured(run, replace(square, people=n), returns.seeds_of(run, n)) for n in run.values}
    return {n: (values["return"] - low) / (best - low) for n, values in at.items()}
