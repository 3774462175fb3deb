"""Cart Pole of 500 steps over users and budget

Where: An episode is a user; linear policy
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import (
    Run,
    figure_contents,
    make_chart,
    make_claim,
    make_table,
    mean_text,
    table_over,
)
from dprl_papers.paper_003_dp_pg.returns import (
    EPISODES,
    FEW,
    SOLVED,
    Point,
    lines_of,
    measured,
    name_of,
    over_budgets,
    ppo,
)

VALUES = (500, 1000, 2000, 5000, 100_000)
QUICK = (500, 1000)
EPSILON = (0.5, 1.0, 4.0)
LARGE = 50_000  # users from which few seeds run
PUBLISHED, PPO = "as published, ε = 1", "PPO, no privacy"


def draw(run: Run) -> dict[str, Any]:
    """Draw the return of the greedy policy over users and budget."""
    seeds = lambda n: run.trials if n < LARGE else min(run.trials, FEW)  # noqa: E731
    points = {n: Point(problem="cart-pole", users=n, epsilon=1.0, published=True) for n in run.whole}
    found = over_budgets(run, "cart-pole", seeds)
    found[PUBLISHED] = {n: measured(run, point, seeds(n)) for n, point in points.items()}
    fewer = "".join(f", {seeds(n)} at N = {plain(n)}" for n in run.whole if seeds(n) < run.trials)
    table = table_over(found, "N", "return", run.trials, fewer)
    found[PPO] = {n: ppo(run, "cart-pole", n // 20, 20) for n in run.whole if n <= 5000}
    most, least = max(run.whole), min(run.epsilon)
    solved = found[name_of(least)][most]
    claims = [
        make_claim(
            f"With {plain(most)} users the cart is balanced at every ε.",
            bool(solved.min() >= SOLVED),
            f"least mean return over {EPISODES} episodes at ε = {plain(least)}: {number(float(solved.min()), 1)} of "
            "500.",
            ours=True,
        ),
        make_claim(
            "Algorithm 1 as published learns with as many.",
            float(found[PUBLISHED][most].mean()) >= SOLVED,
            f"mean return {mean_text(found[PUBLISHED][most], 1)}.",
        ),
    ]
    beside = make_table(
        f"PPO without privacy, 10 epochs a batch, to compare with ({min(run.trials, FEW)} seeds).",
        ["", *(f"N = {plain(n)}" for n in found[PPO])],
        [[PPO, *(mean_text(v, 1) for v in found[PPO].values())]],
    )
    chart = make_chart(lines_of(found), "users N", "return of the greedy policy")
    return figure_contents(charts=[chart], tables=[table, beside], claims=claims)
