"""Theorem 2: squared gradients over N

Where: Section 5.1, Theorem 2; rewards of ±1, exact gradients

Statement: There exists a proper parameter choices of m and η, such that E[‖∇J(θ_U)‖²] ≤ O(1/√N + (√d/(Nε))^(2/3)).

Note: Tabular softmax, mean rewards uniform on [−1, 1], Algorithm 1 as printed with G = √2. Theorem 2's step size
min(1/(LB), √(2δ₀)/√(TLC)) is so small that the run is still on its way at these N: the slopes are judged at 10 times
it, the same factor everywhere; at 40 times it the rate is approached from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, make_table
from dprl_papers.paper_003_dp_pg import fosp

VALUES = (3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
QUICK = (3162, 10_000, 31_623, 100_000)
EPSILON = (0.3, 1.0)
FACTORS, SHOWN = (1.0, 10.0, 40.0), 10.0
"""Factors of Theorem 2's step size, and the one by which the slopes are judged."""
PROBLEMS = ((1, 2), (4, 4))
"""States and actions; of the second without the largest constant."""
SEEDS = 5
LAST = 4  # points of a fit


def draw(run: Run) -> dict[str, Any]:
    """Draw E of the squared gradient over N, without and with noise, for constants of the step size."""
    users, seeds = run.whole, min(run.trials, SEEDS)
    charts, rows, judged = [], [], {}
    for states, actions in PROBLEMS if not run.quick else PROBLEMS[:1]:
        bandit, lines, d = fosp.bandit_of(states, actions), [], states * actions
        for epsilon in (None, *run.epsilon):
            for factor in FACTORS if d == 2 else FACTORS[:2]:
                settings = [fosp.Setting(users=n, epsilon=epsilon, delta=run.delta, factor=factor) for n in users]
                squares = [run.values_of(fosp.measured, bandit, s, run.seed, seeds)[0] for s in settings]
                found = dict(zip(users, squares, strict=True))
                name = "no privacy" if epsilon is None else f"ε = {plain(epsilon)}"
                means = [float(v.mean()) for v in squares]
                judged[d, epsilon, factor] = slope = fosp.slope(users, means, LAST)
                cells = [*(f"{mean:.1e}" for mean in means), number(slope, 2)]
                rows.append([f"d = {d}, {name}, × {plain(factor)}", *cells])
                if factor == SHOWN:
                    lines.append(make_line(name, found, look="none" if epsilon is None else "private"))
        title = f"{states} states, {actions} actions, step size × {plain(SHOWN)}"
        charts.append(make_chart(lines, "users N", "E of the squared gradient", title=title, log_y=True))
    caption = f"E‖∇J(θ_U)‖² ({seeds} seeds), and the slope of its logarithm over the last {LAST} N; batch and step "
    caption += "size by Theorem 2, the latter times 1, 10 and 40."
    table = make_table(caption, ["", *(f"N = {plain(n)}" for n in users), "slope"], rows)
    return figure_contents(charts=charts, tables=[table], claims=_claims(run, judged))


def _claims(run: Run, judged: Mapping[tuple[int, Any, float], float]) -> list[dict[str, Any]]:
    small, large = (pick(d for d, _, _ in judged) for pick in (min, max))
    free = judged[small, None, SHOWN]
    private = {epsilon: judged[small, epsilon, SHOWN] for epsilon in run.epsilon}
    printed = {epsilon: judged[large, epsilon, 1.0] for epsilon in run.epsilon}
    at = lambda slopes: ", ".join(f"{number(slope, 2)} at ε = {plain(epsilon)}" for epsilon, slope in slopes.items())  # noqa: E731
    return [
        make_claim(
            "Without privacy the squared gradient falls like N^(−1/2).",
            abs(free + 0.5) <= 0.05,
            f"slope {number(free, 2)} at d = {small}, step size times {plain(SHOWN)} (within 10% is asked for).",
        ),
        make_claim(
            "Where privacy dominates it falls like (Nε/√d)^(−2/3).",
            all(abs(slope + 2.0 / 3.0) <= 2.0 / 30.0 for slope in private.values()),
            f"slope {at(private)}, d = {small}, with the step size times {plain(SHOWN)} (within 10% is asked for).",
        ),
        make_claim(
            "There exist proper choices: Theorem 2's own step size shows the rates.",
            all(abs(slope + 2.0 / 3.0) <= 2.0 / 30.0 for slope in printed.values()),
            f"at d = {large} and as printed the slope is {at(printed)} up to N = {plain(max(run.values))}: where it is "
            "flatter the run is still on its way.",
        ),
    ]
