"""Inverse reinforcement learning from a released Q

Where: Abstract: “This protects the reward information from being exploited by methods such as inverse reinforcement
learning.”

Statement: This protects the reward information from being exploited by methods such as inverse reinforcement learning.

Note: The attacker knows the transitions and solves the Bellman equation for the reward. 1 is what the mean reward
alone has. Of a Q that was learned from noisy rewards it finds reward plus noise; the mean of many people's rewards is
no secret here, one person's part of it is.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, mean_text
from dprl_papers.paper_001_functional_q import returns
from dprl_papers.paper_001_functional_q.returns import FUNCTIONAL, NO_NOISE, OBSERVED, PAPERS_STEP, PEOPLE

VALUES = (10, 30, 100, 300, 1000)
QUICK = (30, 100)
EPSILON = (0.45, 0.9, 3.0)


def draw(run: Run) -> dict[str, Any]:
    """Draw the error of the reward that is recovered from a released Q, where the transitions are known."""
    found = {
        f"{name}, ε = {plain(epsilon)}": returns.over_people(run, point, epsilon, "recovered")
        for epsilon in run.epsilon
        for name, point in (("functional", FUNCTIONAL), ("observed-reward", OBSERVED))
    }
    exact = returns.measured(run, NO_NOISE)["recovered"]
    weights = returns.published_weights([0.32], [78], PAPERS_STEP, run.seed, run.trials)
    published = returns.recovered_of(returns.outputs_of("mlp:32", weights)[0, 0, :, -1], 0.9)
    lines = [make_line(name, values, dash=i % 2) for i, (name, values) in enumerate(found.items())]
    lines.append(make_line("no privacy", dict.fromkeys(run.values, exact), look="none"))
    lines.append(make_line("as published, σ = 0.32", dict.fromkeys(run.values, published), look="bound"))
    few, many, top = min(run.values), max(run.values), plain(max(run.epsilon))
    least = found[f"functional, ε = {top}"]
    claim = make_claim(
        "The private Q protects the reward from inverse reinforcement learning: the fewer people, the better.",
        bool(least[few].mean() > 2.0 * least[many].mean() > 0.0),
        f"functional at ε = {top}: {mean_text(least[few], 2)} at n = {plain(few)}, {mean_text(least[many], 2)} at n = "
        f"{plain(many)}; without privacy {mean_text(exact, 2)}.",
    )
    shown = found | {
        name: dict.fromkeys(run.values, v) for name, v in (("no privacy", exact), ("as published", published))
    }
    what = "RMSE of the recovered reward over the reward's standard deviation"
    return figure_contents(
        charts=[make_chart(lines, PEOPLE, "error of the recovered reward", log_y=True)],
        tables=[returns.people_table(run, shown, what)],
        claims=[claim],
    )
