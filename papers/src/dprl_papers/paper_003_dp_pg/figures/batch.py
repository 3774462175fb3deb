"""Theorem 2's batch against a grid

Where: Appendix A.2: m = (1/ε)^(2/3) (Nd)^(1/3)
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, make_table
from dprl_papers.paper_003_dp_pg import fosp
from dprl_papers.paper_003_dp_pg.published import published_batch

VALUES = (0.125, 0.25, 0.5, 1, 2, 4, 8)
QUICK = (0.5, 1, 2)
EPSILON = (0.3, 1.0)
FACTOR = 10.0  # of Theorem 2's step size
SEEDS = 5


def draw(run: Run) -> dict[str, Any]:
    """Draw Theorem 2's batch against a grid around it."""
    users, (states, actions) = (2_000, (1, 2)) if run.quick else (100_000, (2, 2))
    bandit, seeds, found = fosp.bandit_of(states, actions), min(run.trials, SEEDS), {}
    for epsilon in run.epsilon:
        rule, at = published_batch(users, states * actions, epsilon), {}
        for share in run.values:
            setting = fosp.Setting(
                users=users, epsilon=epsilon, delta=run.delta, factor=FACTOR, batch=max(1, round(rule * share))
            )
            at[share] = run.values_of(fosp.measured, bandit, setting, run.seed, seeds)[0]
        found[f"ε = {plain(epsilon)}, m = {rule} by the rule"] = at
    worst = max(float(at[1.0].mean() / min(v.mean() for v in at.values())) for at in found.values())
    caption = f"E‖∇J(θ_U)‖² at N = {plain(users)}, {states} states and {actions} actions, step size × {plain(FACTOR)} "
    caption += f"({seeds} seeds)."
    rows = [[name, *(f"{float(v.mean()):.1e}" for v in at.values())] for name, at in found.items()]
    lines = [make_line(name, at) for name, at in found.items()]
    claim = make_claim(
        "m = (1/ε)^(2/3) (Nd)^(1/3) is a proper choice: at most twice the squared gradient of the grid's best.",
        worst <= 2.0,
        f"at most {number(worst, 2)} times the best of the grid.",
        ours=True,
    )
    return figure_contents(
        charts=[make_chart(lines, "batch over Theorem 2's", "E of the squared gradient", log_y=True)],
        tables=[make_table(caption, ["", *(f"m × {plain(share)}" for share in run.values)], rows)],
        claims=[claim],
    )
