"""Proposition 10 against simulation

Where: Proposition 10; finite processes, J = 1

Statement: In the case J = 1, |S| = n < ∞, and γ < 1, the utility loss of the algorithm satisfies E[(1/n)‖v′ − v*‖₁] ≤
2 sqrt(2) σ/(sqrt(nπ)(1 − γ)). [...] the upper bound of the utility loss, which has a limit of zero as the number of
states approaches infinity.
"""

from __future__ import annotations

import math
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_table
from dprl_papers.paper_001_functional_q.theory import noise_loss, printed_bound, right_bound

VALUES = (2, 5, 10, 30, 100, 300, 1000)
QUICK = (2, 30)
STD, DISCOUNT = 1.0, 0.9
KINDS = (
    ("random, 2 actions", "garnet", 2),
    ("random, 10 actions", "garnet", 10),
    ("every state stays, 1 action", "identity", 1),
    ("absorbing, 100 actions", "absorbing", 100),
)


def draw(run: Run) -> dict[str, Any]:
    """Draw E|v' - v*| on finite processes against the printed bound and the right one."""
    states, seeds = run.whole, min(run.trials, 20)
    lines, rows, failing = [], [], []
    for label, kind, actions in KINDS:
        means = {n: noise_loss(n, actions, STD, DISCOUNT, seeds, kind, run.seed) for n in states}
        lines.append({"label": label, "points": [[float(n), m, e * math.sqrt(seeds)] for n, (m, e) in means.items()]})
        rows.append([label, *(f"{number(m, 2)} ± {number(e, 2)}" for m, e in means.values())])
        above = [n for n, (m, e) in means.items() if m - 2.0 * e > printed_bound(n, STD, DISCOUNT)]
        failing += [f"{label} at n = {n}" for n in above]
    bounds = {
        "Proposition 10": [printed_bound(n, STD, DISCOUNT) for n in states],
        "σ sqrt(2 ln(2nm))/(1 − γ), m = 2": [right_bound(n, 2, STD, DISCOUNT) for n in states],
    }
    for label, values in bounds.items():
        points = [[float(n), v, 0.0] for n, v in zip(states, values, strict=True)]
        lines.append({"label": label, "points": points, "look": "bound"})
        rows.append([label, *(number(v, 2) for v in values)])
    caption = f"E of the mean over states of |v′ − v*|, σ = 1, γ = 0.9, {seeds} processes each (± standard error)."
    claim = make_claim(
        "The utility loss is at most 2 sqrt(2) σ/(sqrt(n π)(1 − γ)).",
        not failing,
        f"exceeded by two standard errors at {len(failing)} of {len(states) * len(KINDS)} points"
        + (f", first {failing[0]}." if failing else "."),
    )
    return figure_contents(
        charts=[make_chart(lines, "number of states n", "E of mean |v′ − v*|", log_y=True)],
        tables=[make_table(caption, ["", *(f"n = {plain(n)}" for n in states)], rows)],
        claims=[claim],
    )
