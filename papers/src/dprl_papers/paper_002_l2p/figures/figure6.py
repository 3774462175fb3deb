"""Figure 6: quadratics over epsilon

Where: C.1

Statement: SGD-Adv rarely find the proper directions to go. In contrast, adaptive DP algorithms perform better.
L2P-Proj behaves similarly to the L2P. However, when ε gets smaller, L2P is capable to use the budget more efficiently
such that it can converge to a better position.

Note: Each protector serves all ε, trained on noise of the whole range. The paper's noise follows the gradient's norm:
“adaptive noise” does, by the norm of the step before and under a Renyi filter. “Public schedule” is ours, and fixes
the noise of every step beforehand. As published, with ctCDP and the norm of the same batch, no row has a guarantee.
"""

from __future__ import annotations

from typing import Any

from dprl_papers.harness.programmed import Run, figure_contents, make_claim
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.over_epsilon import OWN, chart_over, table_over
from dprl_papers.paper_002_l2p.trainings import RUNS, SCHEDULERS, over_trainings

VALUES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
QUICK = (0.05, 1.6)
EXCESS = "loss above the minimum"


def draw(run: Run) -> dict[str, Any]:
    """Draw quadratics over epsilon."""
    runs, problem = min(run.trials, RUNS), quadratics.OWN
    found = {
        method: {
            epsilon: over_trainings(
                run, quadratics.measure, problem, method, epsilon, runs, True, learned=method in SCHEDULERS
            )["losses"].mean(axis=1)
            for epsilon in run.values
        }
        for method in quadratics.METHODS
    }
    claims = []
    for own, method in ((own, method) for own in OWN for method in ("SGD-Adv", "AGD", "L2P-Proj")):
        below = [e for e in run.values if found[own][e].mean() < found[method][e].mean()]
        words = f"{problem.label}: {own} ends below {method} at every ε."
        text = f"at {len(below)} of {len(run.values)}."
        claims.append(make_claim(words, len(below) == len(run.values), text, ours=own != OWN[0]))
    table = table_over(found, f"{problem.label}: {EXCESS}", run, runs)
    return figure_contents(charts=[chart_over(found, problem.label, EXCESS)], tables=[table], claims=claims)
