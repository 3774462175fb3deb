"""Queries of the data

Where: D(a)

Statement: In comparison to AGD, the proposed L2P requires fewer times in querying the datasets to obtain the private
model, because that AGD needs to query the dataset at each regret.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.trainings import RUNS, SCHEDULERS, count_of, over_trainings

VALUES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
QUICK = (0.05, 1.6)
METHODS = ("AGD", "SGD", "L2P, public schedule", "L2P, adaptive noise")


def draw(run: Run) -> dict[str, Any]:
    """Draw how often the data are asked."""
    rows, fewer, runs = [], [], min(run.trials, RUNS)
    for epsilon in run.values:
        each = {
            m: over_trainings(run, quadratics.measure, quadratics.OWN, m, epsilon, runs, True, learned=m in SCHEDULERS)
            for m in METHODS
        }
        asked = {method: at["queries"].mean() for method, at in each.items()}
        cells = [f"{number(at['steps'].mean(), 1)} / {number(asked[method], 1)}" for method, at in each.items()]
        rows.append([plain(epsilon), *cells])
        fewer.append(max(asked["L2P, public schedule"], asked["L2P, adaptive noise"]) < asked["AGD"])
    caption = "Steps taken / queries of the data, 60 records. AGD asks for a gradient and for its candidates' losses, "
    caption += "and again after a step that does not help; adaptive L2P for gradient and norm. "
    caption += f"Of L2P means over {count_of(run)}."
    words = "L2P requires fewer times in querying the datasets."
    return figure_contents(
        tables=[make_table(caption, ["ε", *METHODS], rows)],
        claims=[make_claim(words, all(fewer), f"at {sum(fewer)} of {len(fewer)} ε.")],
    )
