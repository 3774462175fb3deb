"""Theorem 5.2: how the metric of Eq. (4) falls with n

Where: Section 5.2, Theorem 5.2; ε = 1, d = 5

Statement: E|M(θ̄, ω̄)| ≤ Õ((d log(1/δ))^(1/8)/(nε)^(1/4)).

Note: A chain of five states with a linear value function, where F, ω*, L_F and G are exact; kappa and eta are the
largest that the theorem allows. Noise behind the momentum, as published, gives the paper's exponent. The same budget
before the momentum gives twice that. With the noise at which Theorem 5.1's condition (i) holds, at least 1.67 G
whatever n is, the metric does not fall at all.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_chart, make_table
from dprl_papers.paper_000_dptd.theory import rates

VALUES = (250, 500, 1000, 2000, 4000, 8000)
QUICK = (250, 500)
EPSILON = (1.0,)


def draw(run: Run) -> dict[str, Any]:
    """Draw the metric against n, with the fitted slopes."""
    found = rates(run.whole, run.epsilon[0], run.delta, run.trials, run.seed)
    lines = [
        {"label": one.label, "points": [list(p) for p in zip(map(float, one.units), one.mean, one.spread, strict=True)]}
        for one in found
    ]
    rows = [
        [
            one.label,
            f"{plain(one.steps[0])} to {plain(one.steps[-1])}",
            plain(one.predicted),
            f"{number(one.slope, 3)} ± {number(one.slope_error, 3)}",
        ]
        for one in found
    ]
    caption = "Exponents of n in Eq. (4), by least squares in logarithms; ± standard error over seeds."
    return drawn(
        charts=[make_chart(lines, "number of transitions n", "E|M(θ, ω)|, Eq. (4)", log_y=True)],
        tables=[make_table(caption, ["", "T", "bound", "fitted"], rows)],
    )
