"""Acrobot, and Pendulum with continuous actions

Where: Where Cart Pole saturates
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, drawn, make_chart, make_claim, mean_text, table_over
from dprl_papers.paper_003_dp_pg.returns import FEW, Problem, lines_of, name_of, over_budgets

VALUES = (5000, 20_000)
QUICK = (500, 1000)
EPSILON = (0.5, 1.0, 4.0)
CONTROL: tuple[tuple[Problem, dict[str, Any]], ...] = (
    ("acrobot", {"policy": "softmax:fourier:3"}),
    ("acrobot", {"policy": "softmax:fourier:3", "step_size": 1.0}),
    ("pendulum", {"policy": "gaussian:fourier:3", "discount": 0.95, "steps": 100, "step_size": 4.0}),
)


def draw(run: Run) -> dict[str, Any]:
    """Draw what is learned on Acrobot and Pendulum."""
    charts, tables, seeds, shown = [], [], min(run.trials, FEW), []
    for problem, options in CONTROL:
        shown.append(found := over_budgets(run, problem, lambda n: seeds, **options))
        size = f"step size {plain(options['step_size'])}" if "step_size" in options else "default step sizes"
        title = f"{problem.capitalize()}, {options['policy']}, {size}"
        charts.append(make_chart(lines_of(found), "users N", "return of the greedy policy", title=title))
        tables.append(table_over(found, "N", f"{title}: return", seeds))
    least, most = name_of(min(run.epsilon)), max(run.whole)
    claims = [
        make_claim(
            f"With {plain(most)} users and {steps} Acrobot swings up in 100 steps on average at {least}.",
            float(found[least][most].mean()) >= -100.0,
            f"mean return {mean_text(found[least][most], 1)}.",
            ours=True,
        )
        for steps, found in zip(("default steps", "steps of size 1"), shown, strict=False)
    ]
    return drawn(charts=charts, tables=tables, claims=claims)
