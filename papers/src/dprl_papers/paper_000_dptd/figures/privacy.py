"""Theorem 5.1: the epsilon that its noise has

Where: Section 5.1, Theorem 5.1; δ = 1e-5

Statement: Under Assumption 3.3, 3.4, 3.6, given the total number of iterations T, for any δ > 0 and the privacy budget
ε, Algorithm 1 satisfies (ε, δ)-DP under state-action-state with the variance σ² = 14 G² T α′/(n² β′ ε).

Note: Everything here follows from formulas: nothing is simulated. Where “all releases” is above the claim, the theorem
fails. Where it is below, nothing follows. The last row is the regime of the paper's experiments.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table
from dprl_papers.paper_000_dptd.privacy import SETTINGS, PublishedEpsilon, conditions, published_epsilons

HEADS = ["n", "T", "claimed ε", "σ/G"]


def draw(run: Run) -> dict[str, Any]:
    """Draw what the theorem's conditions say, and the epsilon that its noise has."""
    found = published_epsilons(SETTINGS[1:2] if run.quick else SETTINGS, run.delta)
    epsilons = make_table(
        "Epsilon of all releases together: at least the first number, and the pair of data sets behind it has at most "
        "the second. G bounds the joint gradient (Assumption 3.3), or each of its halves (Lemma C.5, Theorem A.1).",
        [*HEADS, "p₀ and d₀ alone", "all releases", "halves: p₀ and d₀", "halves: all"],
        [
            [
                *_setting(row),
                _small(row.initial),
                f"{_small(row.at_least)} to {_small(row.pair_at_most)}",
                _small(row.initial_halves),
                f"{_small(row.at_least_halves)} to {_small(row.pair_at_most_halves)}",
            ]
            for row in found
        ],
    )
    held = make_table(
        "The theorem's conditions at the β′ with the least noise, and the least σ/G at which both hold for some β′. "
        "(ii) is printed with σ, which depends on the reward's unit, and can only mean σ′.",
        [*HEADS, "(i)", "(ii) as printed", "(ii) with σ′", "σ/G, both as printed", "σ/G, with σ′"],
        [
            [*_setting(row), *_conditions(row), _feasible(row.feasible), _feasible(row.feasible_scale_free)]
            for row in found
        ],
    )
    return figure_contents(tables=[epsilons, held])


def _setting(row: PublishedEpsilon) -> list[str]:
    return [plain(row.units), plain(row.steps), plain(row.claimed), number(row.sigma)]


def _conditions(row: PublishedEpsilon) -> list[str]:
    held = conditions(row.units, row.steps, row.claimed, row.delta)
    return ["holds" if x else "fails" for x in (held.noise, held.order_as_printed, held.order_scale_free)]


def _small(value: float) -> str:
    return "0" if value < 5e-4 else number(value)


def _feasible(value: float | None) -> str:
    return "none" if value is None else number(value)
