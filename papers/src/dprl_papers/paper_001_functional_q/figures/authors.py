"""Figure 1 by the authors' own code, whose learner is another

Where: Section 4, Figure 1; the repository wangbx66/differentially-private-q-learning, commit 8e574dcd

Statement: With the increase of the noise level, the algorithm requires more samples to achieve the same return than
the non-private version.

Note: A port of dpql.py (replay, a target network, epsilon-greedy actions, RMSprop, a discount of 0.999, a kernel with
beta = 1 whose paths are drawn anew for each episode), beside figure “1”, which is the pseudo-code. Noise is no
exploration here, as the learner explores by itself. The code promises no epsilon: kernel and noise do not follow
Theorem 5. A return counts the rewards of the states that are reached, of 50 steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
from dprl_papers.paper_001_functional_q import authors

VALUES = (0.0, 0.2, 0.4, 0.8)
QUICK = (0.0, 0.8)
LAST = 10


def draw(run: Run) -> dict[str, Any]:
    """Draw the returns of the episodes, and what the last ones and the greedy policy have, for noise levels."""
    found = run.cached(authors.learn, run.values, run.seed, run.trials)
    rewards, greedy = np.array(found["rewards"]), np.array(found["greedy"])
    blocks = rewards.reshape(*rewards.shape[:2], -1, LAST).mean(-1)
    lines = [
        make_line(f"σ = {plain(std)}", {authors.LENGTH * LAST * (i + 1): v for i, v in enumerate(blocks[j].T)}, dash=j)
        for j, std in enumerate(run.values)
    ]
    last = blocks[:, :, -1]
    rows = [
        [f"last {LAST} episodes, as the code counts", *(mean_text(v) for v in last)],
        ["greedy policy of the last network, without noise", *(mean_text(v) for v in greedy)],
    ]
    caption = f"Return after {authors.EPISODES} episodes of {authors.LENGTH} steps (mean ± standard error over "
    caption += f"{run.trials} seeds)."
    means = last.mean(-1)
    text = f"the last {LAST} of {authors.EPISODES} episodes have {number(float(means[0]), 1)} without noise and "
    text += f"{number(float(means[-1]), 1)} at σ = {plain(run.values[-1])}."
    words = "With the increase of the noise level, the algorithm requires more samples."
    return figure_contents(
        charts=[make_chart(lines, "samples", "return of an episode", log_x=False, band=True)],
        tables=[make_table(caption, ["", *(f"σ = {plain(std)}" for std in run.values)], rows)],
        claims=[make_claim(words, bool(np.all(np.diff(means) < 0.0)), text)],
    )
