"""Theorem 4: average regret with a log barrier

Where: Section 5.2; λ = α/2

Statement: Then, for any α > 0, Algorithm 1 enjoys the following average regret guarantee J* − (1/T) Σ E[J(θ_t)] ≤ O(α)
[...] when the sample size satisfies [...] N ≥ O(1/α⁶ + √d/(α^(9/2) ε)).

Note: Algorithm 1 as printed, 10 times its step size, with the log barrier's gradient (Eq. 8) added to the noisy
gradient.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, table_over
from dprl_papers.paper_003_dp_pg import fosp

VALUES = (1000, 10_000, 100_000)
QUICK = (1000, 10_000)
EPSILON = (1.0,)
BARRIERS = (0.4, 0.2, 0.1, 0.05, 0.0)
FACTOR = 10.0  # of Theorem 2's step size
SEEDS = 5


def draw(run: Run) -> dict[str, Any]:
    """Draw the average regret, and that of the last iterate."""
    users, (epsilon,), seeds = run.whole, run.epsilon, min(run.trials, SEEDS)
    bandit, softmax, last, within = fosp.bandit_of(2, 3), {}, {}, {}
    for barrier in BARRIERS if not run.quick else BARRIERS[2:]:
        name = f"λ = {plain(barrier)}"
        settings = {
            n: fosp.Setting(users=n, epsilon=epsilon, delta=run.delta, factor=FACTOR, barrier=barrier) for n in users
        }
        found = {n: run.values_of(fosp.measured, bandit, s, run.seed, seeds) for n, s in settings.items()}
        softmax[name], last[name] = ({n: v[part] for n, v in found.items()} for part in (1, 2))
        within[barrier] = float(softmax[name][max(users)].mean())
    lines = [make_line(name, v) for name, v in softmax.items()]
    claim = make_claim(
        "With λ = α/2 the average regret is O(α): at most 2λ at the largest N.",
        all(regret <= 2.0 * barrier for barrier, regret in within.items() if barrier > 0.0),
        ", ".join(f"{number(regret, 3)} at λ = {plain(barrier)}" for barrier, regret in within.items())
        + f" (N = {plain(max(users))}, ε = {plain(epsilon)}).",
    )
    return figure_contents(
        charts=[make_chart(lines, "users N", "average regret", log_y=True)],
        tables=[
            table_over(softmax, "N", "tabular softmax, 2 states, 3 actions: average regret", seeds),
            table_over(last, "N", "the same: regret of the last iterate", seeds),
        ],
        claims=[claim],
    )
