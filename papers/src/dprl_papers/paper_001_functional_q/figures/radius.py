"""Return against radius and epsilon

Where: What a radius of 1 on rewards in [0, 0.5] costs

Note: Functional, rewards of the state alone. At n = 1 the radius is the whole range and all reward functions are
neighbours: the second table has the bound that holds for every algorithm then, and what came out.
"""

from __future__ import annotations

import math
from dataclasses import replace
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
from dprl_papers.paper_001_functional_q.returns import (
    FUNCTIONAL,
    PEOPLE,
    RETURN,
    measured,
    over_people,
    people_table,
)
from dprl_papers.paper_001_functional_q.theory import largest_success

VALUES = (10, 30, 100, 300, 1000)
QUICK = (30, 100)
EPSILON = (0.1, 0.45, 0.9, 3.0)
OTHERS = (2, 3, 5, 10)


def draw(run: Run) -> dict[str, Any]:
    """Draw functional over people and budget, and what privacy of all reward functions costs anybody."""
    found = {f"ε = {plain(epsilon)}": over_people(run, FUNCTIONAL, epsilon) for epsilon in run.epsilon}
    rows, claims = [], []
    for epsilon in run.epsilon:
        whole = replace(FUNCTIONAL, people=1, epsilon=epsilon, delta=run.delta)
        # good where it is better than half of what the two rewards add up to in every state, 0.5 a step: disjoint sets
        good = [measured(run, replace(whole, ends=ends))["return"] > 12.5 for ends in (False, True)]
        share = np.concatenate(good)
        limits = [largest_success(k, epsilon, run.delta) for k in OTHERS]
        rows.append([plain(epsilon), *(number(limit, 3) for limit in limits), mean_text(share, 2)])
        if epsilon == 0.9:
            spread = 3.0 * math.sqrt(0.25 / len(share))
            claims.append(
                make_claim(
                    "At radius 0.5 no private learner finds the better of two opposite policies more often than 0.711.",
                    float(share.mean()) <= limits[0] + spread,
                    f"functional finds it in {number(100.0 * float(share.mean()), 0)}% of {len(share)} runs.",
                    ours=True,
                )
            )
    success = make_table(
        "Radius of the whole range (n = 1): largest mean probability of a good policy for k reward functions whose "
        "good policies are disjoint, whatever the algorithm; and what the functional variant has on the walk that is "
        "paid in the middle and the one that is paid at its ends (k = 2).",
        ["ε", *(f"k = {k}" for k in OTHERS), "functional, k = 2"],
        rows,
    )
    lines = [make_line(name, values) for name, values in found.items()]
    return figure_contents(
        charts=[make_chart(lines, PEOPLE, RETURN)], tables=[people_table(run, found), success], claims=claims
    )
