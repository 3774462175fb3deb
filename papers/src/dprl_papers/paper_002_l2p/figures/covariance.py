"""Theorem B.2: the covariance of noise and gradient along training

Where: B.6, Theorem B.2 and Eq. (32)

Statement: To improve the utility, the projector training have to denoise the protected updates which reduces the
covariance between the ν_t and the g_t. [...] As a result, we will see C approaching zero.
"""

from __future__ import annotations

from typing import Any

from dprl_papers.harness.programmed import Run, drawn, make_chart, make_claim, make_table
from dprl_papers.paper_002_l2p import quadratics

EPSILON = (0.05,)


def draw(run: Run) -> dict[str, Any]:
    """Draw Theorem B.2's covariance of accumulated noise and last gradient, along meta-training."""
    lines, rows, claims = [], [], []
    for problem in (quadratics.PRINTED, quadratics.MANY):
        for method in ("L2P-Proj", "L2P, public schedule"):
            _, protector = quadratics.protector_of(run, problem, method, quadratics.LONGEST, run.epsilon[0])
            log, name = protector.log, f"{method}, {problem.units:,} records"
            first, last = log[0]["noise_covariance"], log[-1]["noise_covariance"]
            lines.append({"label": name, "points": [[r["epoch"], abs(r["noise_covariance"]), 0.0] for r in log]})
            rows.append([name, f"{first:.2e}", f"{last:.2e}", f"{log[-1]['validation']:.3g}"])
            claims.append(
                make_claim(
                    f"{name}: training brings the covariance towards zero.",
                    abs(last) < abs(first),
                    f"from {first:.2e} at epoch {log[0]['epoch']:.0f} to {last:.2e}.",
                    ours=problem is quadratics.MANY,
                )
            )
    caption = "Theorem B.2's covariance (Eq. 32), measured at the first and the last validation."
    heads = ["", "first", "last", "validation loss at the end"]
    return drawn(
        charts=[make_chart(lines, "epoch", "|covariance|", log_x=False, log_y=True)],
        tables=[make_table(caption, heads, rows)],
        claims=claims,
    )
