"""Kinds of noise at equal guarantee

Where: Correlated noise; ε = 0.5

Note: Every kind at its best of six step sizes. At T = 1,000 a batch of 10,000 users has 10 of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.step_noise import Correlation
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table, mean_text
from dprl_papers.paper_003_dp_pg.returns import measured, point

EPSILON = (0.5,)
KINDS = ("independent", "square-root", "banded:16")
PRODUCTS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""Step size times number of steps: the best of them for each kind of noise."""
LEAST = {100: 0.1, 1000: 0.3}
"""Least share of the gap that correlated noise is to gain, by number of steps."""


def draw(run: Run) -> dict[str, Any]:
    """Draw the error of prefix sums, and the bandit at T = 100 and 1,000."""
    (epsilon,) = run.epsilon
    cases = ((100, 10_000), (1000, 10_000), (1000, 20_000)) if not run.quick else ((100, 2_000),)
    seeds = max(2, min(run.trials, 8))
    ratios = {(steps, kind): prefix_ratio(kind, steps, seeds) for steps in {s: 0 for s, _ in cases} for kind in KINDS}
    rows, spread, best, claims = [], [], {}, []
    for steps, users in cases:
        for kind in KINDS:
            tried = {
                p: measured(run, point("bandit", users, epsilon, steps=steps, noise=kind, step_size=p / steps))
                for p in PRODUCTS
            }
            at = max(tried, key=lambda product: float(tried[product].mean()))
            best[steps, users, kind] = tried[at]
            name = f"T = {plain(steps)}, N = {plain(users)}, {kind}"
            rows.append([name, number(ratios[steps, kind], 3), mean_text(tried[at], 3), plain(at)])
            spread.append([name, *(mean_text(v, 2) for v in tried.values())])
    for steps, most in ((100, 0.35), (1000, 0.15)):
        if (ratio := ratios.get((steps, "square-root"))) is not None:
            words = f"Prefix sums err by at most {plain(most)} of independent noise's error at T = {plain(steps)}."
            claims.append(make_claim(words, ratio <= most, f"{number(ratio, 3)} as drawn.", ours=True))
    for steps, users in cases:
        ours, theirs = best[steps, users, "square-root"], best[steps, users, "independent"]
        reach = [1.96 * v.std(ddof=1) / math.sqrt(len(v)) for v in (ours, theirs)]
        gain = float(ours.mean() - theirs.mean())
        claims.append(
            make_claim(
                f"Correlated noise gains at least {plain(LEAST[steps])} of the gap on the bandit at T = "
                f"{plain(steps)}, N = {plain(users)}.",
                gain >= LEAST[steps] and gain > sum(reach),
                f"{mean_text(ours, 3)} against {mean_text(theirs, 3)}, each at its own best step size; 95% intervals "
                f"of ± {number(reach[0], 3)} and ± {number(reach[1], 3)}.",
                ours=True,
            )
        )
    caption = f"At ε = {plain(epsilon)}: RMS error of prefix sums over independent noise's, as drawn; share of the gap "
    caption += f"between acting at random and acting best, greedy, {run.trials} seeds, at the best step size of the "
    caption += "next table."
    tables = [
        make_table(caption, ["", "prefix error", "share of the gap", "steps × step size"], rows),
        make_table(
            f"Share of the gap by steps × step size ({run.trials} seeds).", ["", *(plain(x) for x in PRODUCTS)], spread
        ),
    ]
    return figure_contents(tables=tables, claims=claims)


def prefix_ratio(kind: str, steps: int, seeds: int, dimension: int = 64) -> float:
    """Return the RMS error of sums of the first 1, ..., T rounds over independent noise's, at equal guarantee."""

    def error(kind: str) -> float:
        mechanism = GaussianSum(
            parts=((dimension, 1.0),),
            steps=steps,
            batch=100,
            noise_multiplier=1.0,
            relation="zero-out",
            correlation=Correlation(kind),
        )
        squares = []
        for i in range(seeds):
            bound = mechanism.bind(SeededNoise.from_seed(i).stream("users"))
            draws = np.stack([bound.draw(step) for step in range(steps)]).astype(np.float64) * mechanism.grid_step
            squares.append(np.mean(np.cumsum(draws, axis=0) ** 2))
        return math.sqrt(np.mean(squares))

    return error(kind) / error("independent")
