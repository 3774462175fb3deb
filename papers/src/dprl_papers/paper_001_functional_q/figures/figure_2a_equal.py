"""The variants at equal guarantee, (0.9, 1e-4)

Where: Figure 2(a) with certificates; the radius is that of n people's mean

Note: “Functional” is with one path for all actions, because on this walk the reward ignores the action: without that
fact, see “a path an action”. The gradient variant takes 20 steps of 250 samples with 4 cosines an action; “output”
plans with the known transitions and does not learn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, mean_text
from dprl_papers.paper_001_functional_q.returns import (
    FUNCTIONAL,
    NO_NOISE,
    OBSERVED,
    PEOPLE,
    RETURN,
    Point,
    measured,
    normalised,
    over_people,
    people_table,
)

VALUES = (10, 30, 100, 300, 1000)
QUICK = (30, 100)
EPSILON = (0.9,)
VARIANTS = {
    "functional": FUNCTIONAL,
    "functional, a path an action": replace(FUNCTIONAL, shared=False),
    "observed-reward": OBSERVED,
    "observed-reward, 1 update in 8": replace(OBSERVED, updates=0.125),
    "observed-reward, 4 cosines": replace(OBSERVED, network="fourier:3"),
    "gradient": Point(method="gradient", batch=250, step_size=10.0),
    "output": Point(method="output"),
}
ASKED = (
    ("functional", 30, 0.75),
    ("functional", 100, 0.9),
    ("observed-reward", 100, 0.9),
    ("functional", 1000, 0.98),
    ("observed-reward", 1000, 0.98),
    ("functional, a path an action", 30, 0.75),
)
"""Variants, numbers of people, and the normalised return that is asked for at epsilon 0.9."""


def draw(run: Run) -> dict[str, Any]:
    """Draw all variants over the number of people."""
    (epsilon,) = run.epsilon
    found = {name: over_people(run, point, epsilon) for name, point in VARIANTS.items()}
    lines = [make_line(name, values) for name, values in found.items()]
    found["no privacy"] = dict.fromkeys(run.values, normalised(measured(run, NO_NOISE)["return"]))
    lines.append(make_line("no privacy", found["no privacy"], look="none"))
    claims = [
        make_claim(
            f"{name[:1].upper()}{name[1:]} reaches {plain(least)} at n = {n}.",
            float(found[name][n].mean()) >= least,
            f"{mean_text(found[name][n], 3)} over {len(found[name][n])} seeds.",
            ours=True,
        )
        for name, n, least in ASKED
        if epsilon == 0.9 and n in run.values
    ]
    ahead = {n: float(found["functional"][n].mean() - found["observed-reward"][n].mean()) for n in run.values}
    claims.append(
        make_claim(
            "Our algorithm outperforms input perturbation.",
            all(difference >= -0.02 for difference in ahead.values()),
            "normalised return of functional less that of observed-reward: "
            + ", ".join(f"{number(difference, 2)} at n = {plain(n)}" for n, difference in ahead.items())
            + " (at least −0.02 everywhere is asked for).",
        )
    )
    return figure_contents(charts=[make_chart(lines, PEOPLE, RETURN)], tables=[people_table(run, found)], claims=claims)
