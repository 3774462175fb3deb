"""Theorems 5.2 and A.2: how the metric of Eq. (4) falls with n, and with m

Where: Section 5.2, Theorem 5.2; appendix A.1, Theorems A.1 and A.2; ε = 1

Statement: E|M(θ̄, ω̄)| ≤ Õ((d log(1/δ))^(1/8)/(nε)^(1/4)); under trajectory, ≤ Õ(n^(1/4) (d log(1/δ))^(1/8)/(mε)^(1/4)).

Note: Linear value functions on tables of states, where F, ω*, L_F and G are exact; kappa and eta are the largest that
the theorem allows. A random MDP has 10 states with three random successors each. Noise behind the momentum, as
published, gives the paper's exponent. The same budget before the momentum gives twice that. With the noise at which
Theorem 5.1's condition (i) holds, at least 1.67 G whatever n is, the metric does not fall at all. Theorem A.1 is read
literally: Algorithm 1 draws one transition, and the noise is n times that of Theorem 5.1 with m for n. The ε of p₀ and
d₀ alone is a lower bound on what that noise has where it claims 1: with one transition drawn, as Algorithm 1 has it,
and with sums of whole trajectories, as the proof has it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.first_sum import initial_release_epsilon
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_table
from dprl_papers.paper_000_dptd.privacy import JOINT, multiplier
from dprl_papers.paper_000_dptd.theory import chain, metrics, random_mdp, rates, slope

VALUES = (250, 500, 1000, 2000, 4000, 8000)
QUICK = (250, 500)
EPSILON = (1.0,)
PROBLEMS = {
    "chain of 5": chain(), "chain of 20": chain(20), "MDP 1": random_mdp(10, 1), "MDP 2": random_mdp(10, 2)
}  # fmt: skip
LENGTH, MOST = 10, 32_000
SWEEPS = ("m", (1000, 2000, 4000, 8000, 16_000, MOST), -0.25), ("n", (2, 4, 8, 16, 32, 64), 0.25)
"""Sweeps over m, else the most, and over n, else 10: name, values, and the exponent of Theorem A.2."""


def draw(run: Run) -> dict[str, Any]:
    """Draw the metric against n, with the fitted slopes, and Theorem A.2's slopes."""
    charts, rows = [], []
    for name, problem in list(PROBLEMS.items())[: 1 if run.quick else None]:
        found = rates(run.whole, run.epsilon[0], run.delta, run.trials, run.seed, transitions=problem)
        lines = [
            {"label": a.label, "points": [list(p) for p in zip(map(float, a.units), a.mean, a.spread, strict=True)]}
            for a in found
        ]
        charts.append(make_chart(lines, "number of transitions n", "E|M(θ, ω)|, Eq. (4)", title=name, log_y=True))
        for one in found:
            steps = f"{plain(one.steps[0])} to {plain(one.steps[-1])}"
            fitted = f"{number(one.slope, 3)} ± {number(one.slope_error, 3)}"
            rows.append([f"{name}: {one.label}", steps, plain(one.predicted), fitted])
    error = f"± standard error over {run.trials} seeds."
    caption = f"Exponents of n in Eq. (4), by least squares in logarithms; {error}"
    tables = [make_table(caption, ["", "T", "bound", "fitted"], rows)]
    caption = (
        "Theorem A.2, literally, on the chain of five, with trajectories of 10 transitions or 32,000 of them; and "
    )
    caption += f"the ε of p₀ and d₀ alone; {error}"
    heads = ["varied", "T", "bound", "fitted", "ε, one transition", "ε, whole trajectories"]
    return figure_contents(
        charts=charts, tables=[*tables, make_table(caption, heads, [_swept(run, *one) for one in SWEEPS])]
    )


def _swept(run: Run, varied: str, values: tuple[int, ...], predicted: float) -> list[str]:
    """Return the row of a sweep under trajectory."""
    problem, ((epsilon,), delta) = chain(), (run.epsilon, run.delta)
    root, points, metric, least = math.sqrt(problem.states * -math.log(delta)), [], [], []
    for value in values:
        m, n = (value, LENGTH) if varied == "m" else (MOST, value)
        points.append(max(1, round(m * epsilon / (n * root))))
        sigma = multiplier(m, points[-1], epsilon, delta)
        noise = n * problem.gradient_bound() * sigma
        metric.append(metrics(problem, points[-1], noise, False, run.trials, run.seed))
        least.append([initial_release_epsilon(m, scale * sigma, JOINT, delta) for scale in (n, 1)])
    fitted = slope(values, np.stack(metric, axis=1))
    ends = [f"{number(min(one), 3)} to {number(max(one), 3)}" for one in zip(*least, strict=True)]
    ranges = [f"{plain(a)} to {plain(b)}" for a, b in ((values[0], values[-1]), (points[0], points[-1]))]
    return [f"{varied} = {ranges[0]}", ranges[1], plain(predicted), " ± ".join(number(x, 3) for x in fitted), *ends]
