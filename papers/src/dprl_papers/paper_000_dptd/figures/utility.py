"""Theorems 5.2 and A.2: the metric of Eq. (4) on larger problems, and under trajectory

Where: Section 5.2, Theorem 5.2; appendix A.1, Theorems A.1 and A.2; ε = 1

Statement: E|M(θ̄, ω̄)| ≤ Õ(n^(1/4) (d log(1/δ))^(1/8)/(mε)^(1/4)).

Note: Linear value functions on tables of states, where F, ω*, L_F and G are exact. Random MDPs have 10 states with
three random successors each. Theorem A.1 is read literally: Algorithm 1 draws one transition, and the noise is n times
that of Theorem 5.1 with m for n, T = mε/(n (d log(1/δ))^(1/2)). The ε of p₀ and d₀ alone is a lower bound on what
A.1's noise has where it claims 1: with one transition drawn, as Algorithm 1 has it, and with sums of whole
trajectories, as its proof has it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.first_sum import initial_release_epsilon
from dprl_papers.harness.programmed import Run, drawn, make_table
from dprl_papers.paper_000_dptd.privacy import JOINT, multiplier
from dprl_papers.paper_000_dptd.theory import chain, metrics, random_mdp, rates, slope

VALUES = (250, 500, 1000, 2000, 4000, 8000)
QUICK = (250, 500)
EPSILON = (1.0,)
PROBLEMS = {"chain of 20 states": chain(20), "random MDP 1": random_mdp(10, 1), "random MDP 2": random_mdp(10, 2)}
SWEEPS = ("m", (1000, 2000, 4000, 8000, 16_000, 32_000), (10,), -0.25), ("n", (32_000,), (2, 4, 8, 16, 32, 64), 0.25)
"""What is varied, numbers of trajectories, their lengths, and the exponent of Theorem A.2."""


def draw(run: Run) -> dict[str, Any]:
    """Draw the fitted exponents beside the bounds'."""
    (epsilon,) = run.epsilon
    rows = []
    for name, problem in PROBLEMS.items():
        for one in rates(run.whole, epsilon, run.delta, run.trials, run.seed, 20_000, problem):
            steps = f"{plain(one.steps[0])} to {plain(one.steps[-1])}"
            rows.append([f"{name}: {one.label}", "n", steps, plain(one.predicted), _fitted(one.slope, one.slope_error)])
    caption = "Exponents in Eq. (4), by least squares in logarithms; ± standard error over seeds."
    tables = [make_table(caption, ["", "varied", "T", "bound", "fitted"], rows)]
    rows = []
    for varied, trajectories, lengths, predicted in SWEEPS[:1] if run.quick else SWEEPS:
        points = [(m, n, _steps(m, n, epsilon, run.delta)) for m in trajectories for n in lengths]
        noise = [multiplier(m, steps, epsilon, run.delta) for m, n, steps in points]
        bound = chain().gradient_bound()
        found = [
            metrics(chain(), steps, n * bound * sigma, False, run.trials, run.seed)
            for (_, n, steps), sigma in zip(points, noise, strict=True)
        ]
        xs = trajectories if varied == "m" else lengths
        alone = [
            [initial_release_epsilon(m, scale * sigma, JOINT, run.delta) for scale in (n, 1)]
            for (m, n, _), sigma in zip(points, noise, strict=True)
        ]
        rows.append(
            [
                f"{varied} = {plain(xs[0])} to {plain(xs[-1])}",
                f"{plain(points[0][2])} to {plain(points[-1][2])}",
                plain(predicted),
                _fitted(*slope(xs, np.stack(found, axis=1))),
                *(f"{number(min(e), 3)} to {number(max(e), 3)}" for e in zip(*alone, strict=True)),
            ]
        )
    caption = (
        "Theorem A.2, literally, on the chain of five states: exponents in Eq. (4) with n = 10 or m = 32,000, and "
    )
    caption += "the ε of p₀ and d₀ alone."
    heads = ["varied", "T", "bound", "fitted", "ε, one transition", "ε, whole trajectories"]
    return drawn(tables=[*tables, make_table(caption, heads, rows)])


def _steps(trajectories: int, length: int, epsilon: float, delta: float) -> int:
    return max(1, round(trajectories * epsilon / (length * math.sqrt(chain().states * -math.log(delta)))))


def _fitted(value: float, error: float) -> str:
    return f"{number(value, 3)} ± {number(error, 3)}"
