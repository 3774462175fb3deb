"""Theorems 3 and 4: average regret

Where: Section 5.2; λ = α/2, and the Fisher matrix's least eigenvalue μ

Statement: Then, for any α > 0, Algorithm 1 enjoys the following average regret guarantee J* − (1/T) Σ E[J(θ_t)] ≤ O(α)
+ O(√α_bias), when the sample size satisfies N ≥ O(1/(α⁴μ⁴) + √d/(α³μ³ε)). [...] N ≥ O(1/α⁶ + √d/(α^(9/2) ε)).

Note: Softmax: Algorithm 1 as printed, 10 times its step size, with the log barrier's gradient (Eq. 8) added to the
noisy gradient. Gaussian: the same with a linear mean of standard deviation 0.15, clipped at 2 standard deviations (its
score has no bound).
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_chart, make_claim, make_line, mean_text, table_over
from dprl_papers.paper_003_dp_pg import fosp
from dprl_papers.paper_003_dp_pg.regret import SPREADS, TargetBandit, gaussian_regret

VALUES = (1000, 10_000, 100_000)
QUICK = (1000, 10_000)
EPSILON = (1.0,)
BARRIERS = (0.4, 0.2, 0.1, 0.05, 0.0)
FACTOR = 10.0  # of Theorem 2's step size
SEEDS = 5


def draw(run: Run) -> dict[str, Any]:
    """Draw the average regret of both theorems."""
    users, (epsilon,), seeds = run.whole, run.epsilon, min(run.trials, SEEDS)
    bandit, softmax, last, within = fosp.bandit_of(2, 3), {}, {}, {}
    plainly = {n: fosp.Setting(users=n, epsilon=epsilon, delta=run.delta, factor=FACTOR) for n in users}
    for barrier in BARRIERS if not run.quick else BARRIERS[2:]:
        name = f"λ = {plain(barrier)}"
        settings = {n: dataclasses.replace(setting, barrier=barrier) for n, setting in plainly.items()}
        found = {n: run.values_of(fosp.measured, bandit, s, run.seed, seeds) for n, s in settings.items()}
        softmax[name], last[name] = ({n: v[part] for n, v in found.items()} for part in (1, 2))
        within[barrier] = float(softmax[name][max(users)].mean())
    gaussian = {
        f"μ = {number(TargetBandit(spread).fisher, 1)}": {
            n: run.values_of(gaussian_regret, spread, setting, run.seed, seeds) for n, setting in plainly.items()
        }
        for spread in SPREADS
    }
    ends = {name: at[max(users)] for name, at in gaussian.items()}
    charts = [
        make_chart(
            [make_line(name, v) for name, v in found.items()], "users N", "average regret", title=title, log_y=True
        )
        for title, found in (("Softmax with log barrier", softmax), ("Gaussian policy", gaussian))
    ]
    tables = [
        table_over(softmax, "N", "tabular softmax, 2 states, 3 actions: average regret", seeds),
        table_over(last, "N", "the same: regret of the last iterate", seeds),
        table_over(gaussian, "N", "Gaussian policy: average regret", seeds),
    ]
    claims = [
        make_claim(
            "With λ = α/2 the average regret is O(α): at most 2λ at the largest N.",
            all(regret <= 2.0 * barrier for barrier, regret in within.items() if barrier > 0.0),
            ", ".join(f"{number(regret, 3)} at λ = {plain(barrier)}" for barrier, regret in within.items())
            + f" (N = {plain(max(users))}, ε = {plain(epsilon)}).",
        ),
        make_claim(
            "The smaller μ, the larger the average regret of a Gaussian policy.",
            all(a.mean() < b.mean() for a, b in itertools.pairwise(ends.values())),
            ", ".join(f"{mean_text(v, 3)} at {name}" for name, v in ends.items()) + ".",
        ),
    ]
    return drawn(charts=charts, tables=tables, claims=claims)
