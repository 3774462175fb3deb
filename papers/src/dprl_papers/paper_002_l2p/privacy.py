"""Paper 002: noise that Algorithm 3 asks for beside the library's accountant, and what other accountants ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier, noise_multiplier_for
from dprl.accounting.renyi_filter import plan_filter
from dprl.errors import DprlError
from dprl.report.formatting import number, plain
from dprl_papers.baselines import agd, descent
from dprl_papers.harness.figure_parts import make_claim
from dprl_papers.paper_002_l2p import ctcdp
from dprl_papers.paper_002_l2p.returns import DELTA, Points

RATE, STEPS, UNITS = 0.05, 100, 40_000


def noise(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Noise over the clip, for the same sampling rate and number of steps."""
    del points
    rows, ratios = [], []
    for epsilon in key["epsilon"]:
        budget = Budget(epsilon, DELTA)
        rho = ctcdp.rho_a(epsilon, DELTA)
        # rho_0 of Algorithm 3 at this q, over the replace-one sensitivity 2 C
        rho_0 = rho / (STEPS * ctcdp.AMPLIFICATION * RATE**2)
        printed = 2.0 / math.sqrt(2.0 * rho_0)
        lemma = ctcdp.subsampled(rho_0, RATE, math.log(1.0 / DELTA) / epsilon, rho)
        ours = noise_multiplier_for(partial(events.poisson_gaussian, RATE, steps=STEPS), budget)
        filtered = plan_filter(epsilon, DELTA, RATE, STEPS, 4.0).noise_multiplier
        strong = descent.noise_multiplier(
            descent.Descent(steps=STEPS, sampling_rate=RATE, accounting="strong-composition"), budget
        )
        ratios.append(printed / ours)
        rows.append(
            [
                plain(epsilon),
                number(printed, 3),
                "yes" if lemma.holds else "no",
                number(strong, 3),
                number(filtered, 3),
                number(ours, 3),
            ]
        )
    starts = []
    for epsilon in key["epsilon"]:
        try:
            made = ctcdp.initialise(epsilon, DELTA, STEPS, UNITS, 2.0)
            starts.append(
                [plain(epsilon), number(made.q, 3), "yes" if made.re_estimated else "no", number(made.sigma_g, 3),
                 number(made.sigma_min, 3), f"{made.rho_tot:.3g}"]
            )  # fmt: skip
        except DprlError as refused:
            starts.append([plain(epsilon), "–", "–", "–", "–", f"refused: {refused}"])
    return {
        "tables": [
            {
                "caption": f"Noise of a step over the clip at δ = 1e-8, q = {plain(RATE)}, T = {STEPS}: ctCDP with the "
                "replace-one sensitivity, whether Lemma A.6 applies, strong composition (SGD-Adv), the Renyi filter of "
                "adaptive noise (norm query included), and privacy loss distributions.",
                "heads": ["ε", "ctCDP", "A.6 applies", "strong composition", "filter", "PLD"],
                "rows": rows,
            },
            {
                "caption": f"Algorithm 3 with step 6 solved, {UNITS:,} records, T = {STEPS}, sensitivity 2.",
                "heads": ["ε", "q", "step 6", "sigma_g", "sigma_min", "rho_tot"],
                "rows": starts,
            },
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": [
            make_claim(
                "The verified calibration needs less noise than ctCDP at every ε.",
                min(ratios) > 1.0,
                f"{number(min(ratios), 2)} to {number(max(ratios), 2)} times less.",
                ours=True,
            ),
            make_claim(
                "zCDP, which AGD is accounted by, is within the exact Gaussian's budget.",
                all(
                    1.0 / math.sqrt(2.0 * agd.budget_rho(Budget(e, DELTA)))
                    >= gaussian_noise_multiplier(Budget(e, DELTA))
                    for e in key["epsilon"]
                ),
                "one release of everybody needs "
                + "; ".join(
                    f"{number(1.0 / math.sqrt(2.0 * agd.budget_rho(Budget(e, DELTA))), 3)} instead of "
                    f"{number(gaussian_noise_multiplier(Budget(e, DELTA)), 3)} at ε = {plain(e)}"
                    for e in key["epsilon"][:2]
                )
                + ".",
                ours=True,
            ),
        ],
    }
