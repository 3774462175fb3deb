"""Acrobot, and Pendulum with continuous actions

Where: Where Cart Pole saturates
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, mean_text, table_over
from dprl_papers.paper_003_dp_pg.returns import FEW, Problem, lines_of, over_budgets

VALUES = (5000, 20_000)
QUICK = (500, 1000)
EPSILON = (0.5, 1.0, 4.0)
CONTROL: tuple[tuple[str, Problem, dict[str, Any]], ...] = (
    ("Acrobot, all options default", "acrobot", {"likeliest": False}),
    ("Acrobot, softmax:fourier:3", "acrobot", {"likeliest": False, "policy": "softmax:fourier:3"}),
    ("Pendulum, gaussian:fourier:3, step size 4", "pendulum",
     {"policy": "gaussian:fourier:3", "discount": 0.95, "steps": 100, "step_size": 4.0}),
)  # fmt: skip


def draw(run: Run) -> dict[str, Any]:
    """Draw what is learned on Acrobot and Pendulum."""
    charts, tables, seeds, shown = [], [], min(run.trials, FEW), []
    for title, problem, options in CONTROL:
        shown.append(found := over_budgets(run, problem, lambda n: seeds, **options))
        what = "return of the greedy policy" if options.get("likeliest", True) else "return of the released policy"
        charts.append(make_chart(lines_of(found), "users N", what, title=title))
        tables.append(table_over(found, "N", f"{title}: {what}", seeds))
    most = max(run.whole)
    claims = [
        make_claim(
            f"With {plain(most)} users and default options Acrobot swings up in 110 steps on average at {name}.",
            float(of[most].mean()) >= -110.0,
            f"mean return {mean_text(of[most], 1)}.",
            ours=True,
        )
        for name, of in shown[0].items()
    ]
    return figure_contents(charts=charts, tables=tables, claims=claims)
