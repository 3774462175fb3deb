"""Functional against observed-reward noise as the Lipschitz constant grows

Where: The functional sensitivity is R sqrt(1 + L/R)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dprl.report.formatting import plain
from dprl_papers.harness.programmed import (
    Run,
    figure_contents,
    make_chart,
    make_claim,
    make_line,
    mean_text,
    table_over,
)
from dprl_papers.paper_001_functional_q.returns import FUNCTIONAL, OBSERVED, RETURN, measured, normalised, seeds_of

VALUES = (1, 4, 16, 64, 256)
QUICK = (4, 64)
EPSILON = (0.9,)


def draw(run: Run) -> dict[str, Any]:
    """Draw where functional noise stops winning as the Lipschitz constant grows."""
    (epsilon,), ratios = run.epsilon, run.values
    found, claims = {}, []
    for n in (30, 100) if not run.quick else (30,):
        at = {"people": n, "epsilon": epsilon, "delta": run.delta}
        points = {r: replace(FUNCTIONAL, lipschitz=r, **at) for r in ratios}
        mine = {r: normalised(measured(run, point, seeds_of(run, n))["return"]) for r, point in points.items()}
        theirs = normalised(measured(run, replace(OBSERVED, **at), seeds_of(run, n))["return"])
        found |= {f"functional, n = {n}": mine, f"observed-reward, n = {n}": dict.fromkeys(ratios, theirs)}
        ahead = [r for r in ratios if mine[r].mean() >= theirs.mean()]
        behind = [r for r in ratios if r > max(ahead, default=0.0)]
        text = f"ahead up to L/R = {plain(max(ahead))}" if ahead else "never ahead"
        text += f", behind from {plain(min(behind))} on" if behind else ""
        claims.append(
            make_claim(
                f"At n = {n} functional is ahead for small L/R, and behind for large.",
                bool(ahead) and bool(behind),
                f"{text}; observed-reward has {mean_text(theirs, 2)}.",
                ours=True,
            )
        )
    lines = [make_line(name, v, look="private" if "functional" in name else "bound") for name, v in found.items()]
    axis = "L/R: Lipschitz constant of the difference of two neighbours over the radius"
    table = table_over(found, "L/R", RETURN, run.trials, "" if run.quick else ", twice as many at n = 30")
    return figure_contents(charts=[make_chart(lines, axis, RETURN)], tables=[table], claims=claims)
