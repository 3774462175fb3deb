"""What the same guarantee costs

Where: Appendix A, Algorithm 3

Statement: A completed pipeline of private learning includes initialization of the parameters based on the given
privacy budget and the protected learning.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier, noise_multiplier_for
from dprl.accounting.renyi_filter import plan_filter
from dprl.errors import DprlError
from dprl.report.formatting import number, plain
from dprl_papers.baselines import agd, descent
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_002_l2p import ctcdp
from dprl_papers.paper_002_l2p.trainings import DELTA

EPSILON = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
RATE, STEPS, UNITS = 0.05, 100, 40_000


def draw(run: Run) -> dict[str, Any]:
    """Draw noise over the clip that Algorithm 3 asks for, and what other accountants ask for."""
    rows, ratios = [], []
    for epsilon in run.epsilon:
        budget = Budget(epsilon, DELTA)
        rho = ctcdp.rho_a(epsilon, DELTA)
        # rho_0 of Algorithm 3 at this q, over the replace-one sensitivity 2 C
        rho_0 = rho / (STEPS * ctcdp.AMPLIFICATION * RATE**2)
        printed = 2.0 / math.sqrt(2.0 * rho_0)
        lemma = ctcdp.subsampled(rho_0, RATE, math.log(1.0 / DELTA) / epsilon, rho)
        ours = noise_multiplier_for(partial(events.poisson_gaussian, RATE, steps=STEPS), budget)
        filtered = plan_filter(epsilon, DELTA, RATE, STEPS, 4.0).noise_multiplier
        config = descent.Descent(steps=STEPS, sampling_rate=RATE, accounting="strong-composition")
        others = (descent.noise_multiplier(config, budget), filtered, ours)
        ratios.append(printed / ours)
        held = "yes" if lemma.holds else "no"
        rows.append([plain(epsilon), number(printed, 3), held, *(number(x, 3) for x in others)])
    tables = [
        make_table(
            f"Noise of a step over the clip at δ = 1e-8, q = {plain(RATE)}, T = {STEPS}: ctCDP with the replace-one "
            "sensitivity, whether Lemma A.6 applies, strong composition (SGD-Adv), the Renyi filter of adaptive noise "
            "(norm query included), and privacy loss distributions.",
            ["ε", "ctCDP", "A.6 applies", "strong composition", "filter", "PLD"],
            rows,
        ),
        make_table(
            f"Algorithm 3 with step 6 solved, {UNITS:,} records, T = {STEPS}, sensitivity 2.",
            ["ε", "q", "step 6", "sigma_g", "sigma_min", "rho_tot"],
            [[plain(epsilon), *_start(epsilon)] for epsilon in run.epsilon],
        ),
    ]
    zcdp = {e: 1.0 / math.sqrt(2.0 * agd.budget_rho(Budget(e, DELTA))) for e in run.epsilon}
    exact = {e: gaussian_noise_multiplier(Budget(e, DELTA)) for e in run.epsilon}
    some = [f"{number(zcdp[e], 3)} instead of {number(exact[e], 3)} at ε = {plain(e)}" for e in run.epsilon[:2]]
    claims = [
        make_claim(
            "The verified calibration needs less noise than ctCDP at every ε.",
            min(ratios) > 1.0,
            f"{number(min(ratios), 2)} to {number(max(ratios), 2)} times less.",
            ours=True,
        ),
        make_claim(
            "zCDP, which AGD is accounted by, is within the exact Gaussian's budget.",
            all(zcdp[e] >= exact[e] for e in run.epsilon),
            f"one release of everybody needs {'; '.join(some)}.",
            ours=True,
        ),
    ]
    return figure_contents(tables=tables, claims=claims)


def _start(epsilon: float) -> list[str]:
    try:
        made = ctcdp.initialise(epsilon, DELTA, STEPS, UNITS, 2.0)
    except DprlError as refused:
        return ["–", "–", "–", "–", f"refused: {refused}"]
    estimated = "yes" if made.re_estimated else "no"
    return [number(made.q, 3), estimated, number(made.sigma_g, 3), number(made.sigma_min, 3), f"{made.rho_tot:.3g}"]
