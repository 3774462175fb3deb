"""Figure 1. Algorithm 1 as published: noise and resets

Where: Section 4, Figure 1; σ from 0 to 0.8, J = 1, 10, 78, learning rate 0.0003

Statement: With the increase of the noise level, the algorithm requires more samples to achieve the same return than
the non-private version. [...] We observe that with the noise being reset every round (J = T/B), the algorithm is
likely to converge with limited sub-optimality as desired, especially when σ < 0.4.

Note: Repaired only so far that it runs: exact paths instead of Eq. (2), whose variance is negative, and descent. At
the paper's learning rate 78 updates hardly move the network: its greedy policy is the initial one, whose return
depends on the seed alone. The last three charts have a learning rate of 3, at which it learns where there is noise:
actions are greedy, and the noise is all the exploration there is. The kernel follows the learning rate (β = B/(4α(k +
1))).
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import (
    Run,
    figure_contents,
    make_chart,
    make_claim,
    make_line,
    make_table,
    mean_text,
)
from dprl_papers.paper_001_functional_q import returns
from dprl_papers.paper_001_functional_q.returns import PAPERS_STEP

STDS, RESETS, LEARNING_STEP = (0.0, 0.1, 0.2, 0.4, 0.8), (1, 10, 78), 3.0


def draw(run: Run) -> dict[str, Any]:
    """Draw Algorithm 1 along its 78 updates, for noise levels and numbers of resets."""
    charts, rows, final = [], [], {}
    for step in (PAPERS_STEP, LEARNING_STEP):
        found = returns.published_curves(STDS, RESETS, step, run.seed, run.trials)
        for j, resets in enumerate(RESETS):
            lines = [
                make_line(f"σ = {plain(std)}", {64 * (t + 1): v for t, v in enumerate(found[i, j].T)}, dash=i)
                for i, std in enumerate(STDS)
            ]
            title = f"Learning rate {plain(step)}, J = {resets}"
            charts.append(make_chart(lines, "samples", "return", title=title, log_x=False, band=True))
            rows.append([title, *(mean_text(found[i, j, :, -1]) for i in range(len(STDS)))])
            final[step, resets] = found[:, j, :, -1].mean(-1)
    caption = f"Return after {run.trials} runs of 78 updates (mean ± standard error); chance has {returns.RANDOM}, the "
    caption += f"best policy {returns.BEST}."
    quiet, middle = float(returns.normalised(final[PAPERS_STEP, 78][0])), final[LEARNING_STEP, 78]
    claims = [
        make_claim(
            "The algorithm is likely to converge with limited sub-optimality.",
            quiet >= 0.8,
            f"without any noise the paper's 78 updates at {plain(PAPERS_STEP)} end at a normalised return of "
            f"{number(quiet, 2)} (0.8 is asked for).",
        ),
        make_claim(
            "With the increase of the noise level, the algorithm requires more samples.",
            bool(middle[0] > middle[-1]),
            f"at a learning rate of {plain(LEARNING_STEP)} (with the paper's it does not learn), J = 78: return "
            f"{number(float(middle[0]), 1)} without noise and {number(float(middle[-1]), 1)} at σ = {plain(STDS[-1])}. "
            "Its noise is all the exploration that it has.",
        ),
    ]
    heads = ["", *(f"σ = {plain(std)}" for std in STDS)]
    return figure_contents(charts=charts, tables=[make_table(caption, heads, rows)], claims=claims)
