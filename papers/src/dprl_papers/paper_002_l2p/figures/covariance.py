"""Theorem B.2: the covariance of noise and gradient along training

Where: B.6, Theorem B.2 and Eq. (32)

Statement: To improve the utility, the projector training have to denoise the protected updates which reduces the
covariance between the ν_t and the g_t. [...] As a result, we will see C approaching zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, make_table
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.trainings import SCHEDULERS, count_of, seeds_of, standard_error

EPSILON = (0.05,)


def draw(run: Run) -> dict[str, Any]:
    """Draw Theorem B.2's covariance of accumulated noise and last gradient, along meta-training."""
    lines, rows, claims = [], [], []
    for problem in (quadratics.PRINTED, quadratics.MANY):
        for method in SCHEDULERS:
            given = problem, method, quadratics.LONGEST, run.epsilon[0]
            logs = [quadratics.protector_of(run, *given, seed)[1].log for seed in seeds_of(run)]
            found, name = _by_epoch(logs, "noise_covariance"), f"{method}, {problem.units:,} records"
            ends = list(found.values())[:: len(found) - 1]
            first, last = (float(np.abs(values).mean()) for values in ends)
            lines.append(make_line(name, {epoch: np.abs(values) for epoch, values in found.items()}))
            lost = [log[-1]["validation"] for log in logs]
            rows.append([name, *(f"{v.mean():.2e} ± {standard_error(v):.0e}" for v in ends), f"{np.mean(lost):.3g}"])
            claims.append(
                make_claim(
                    f"{name}: training brings the covariance towards zero.",
                    last < first,
                    f"from {first:.2e} at epoch {min(found):.0f} to {last:.2e}, means of |covariance|.",
                    ours=problem is quadratics.MANY,
                )
            )
    caption = "Theorem B.2's covariance (Eq. 32), measured at the first and the last validation, mean ± standard error "
    caption += f"over {count_of(run)}. Adaptive noise is measured over all steps, as it is trained, without its filter."
    heads = ["", "first", "last", "validation loss at the end"]
    return figure_contents(
        charts=[make_chart(lines, "epoch", "|covariance|", log_x=False, log_y=True)],
        tables=[make_table(caption, heads, rows)],
        claims=claims,
    )


def _by_epoch(logs: list[list[dict[str, float]]], name: str) -> dict[float, np.ndarray]:
    """Return ``(trainings, 1)`` values at each validation."""
    return {at[0]["epoch"]: np.array([[one[name]] for one in at]) for at in zip(*logs, strict=True)}
