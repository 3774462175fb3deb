"""Paper 000's computed figures as plain data for the page: tables of texts, and the lines of a chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl.report.formatting import number, plain


def published_privacy(key: Mapping[str, Any]) -> dict[str, Any]:
    """Theorem 5.1's noise: what its conditions say, and the epsilon that it has."""
    from dprl_papers.paper_000_dptd.privacy import SETTINGS, PublishedEpsilon, conditions, published_epsilons

    rows = published_epsilons(SETTINGS[1:2] if key["quick"] else SETTINGS, key["delta"])

    def setting(row: PublishedEpsilon) -> list[str]:
        return [plain(row.units), plain(row.steps), plain(row.claimed), number(row.sigma)]

    def less_than(value: float) -> str:
        return "0" if value < 5e-4 else number(value)

    def feasible(value: float | None) -> str:
        return "none" if value is None else number(value)

    def at(row: PublishedEpsilon) -> list[str]:
        held = conditions(row.units, row.steps, row.claimed, row.delta)
        return ["holds" if x else "fails" for x in (held.noise, held.order_as_printed, held.order_scale_free)]

    heads = ["n", "T", "claimed ε", "σ/G"]
    return {
        "tables": [
            {
                "caption": "Epsilon of all releases together: at least the first number, and the pair of data sets "
                "behind it has at most the second. G bounds the joint gradient (Assumption 3.3), or each of its halves "
                "(Lemma C.5, Theorem A.1).",
                "heads": [*heads, "p₀ and d₀ alone", "all releases", "halves: p₀ and d₀", "halves: all"],
                "rows": [
                    [
                        *setting(row), less_than(row.initial),
                        f"{less_than(row.at_least)} to {less_than(row.pair_at_most)}", less_than(row.initial_halves),
                        f"{less_than(row.at_least_halves)} to {less_than(row.pair_at_most_halves)}",
                    ]
                    for row in rows
                ],
            },
            {
                "caption": "The theorem's conditions at the β′ with the least noise, and the least σ/G at which both "
                "hold for some β′. (ii) is printed with σ, which depends on the reward's unit, and can only mean σ′.",
                "heads": [*heads, "(i)", "(ii) as printed", "(ii) with σ′", "σ/G, both as printed", "σ/G, with σ′"],
                "rows": [
                    [*setting(row), *at(row), feasible(row.feasible), feasible(row.feasible_scale_free)]
                    for row in rows
                ],
            },
        ],
        "lines": [],
    }  # fmt: skip


def rate(key: Mapping[str, Any]) -> dict[str, Any]:
    """The metric of Eq. (4) against n, with the fitted slopes."""
    from dprl_papers.paper_000_dptd.theory import rates

    found = rates(key["units"], key["epsilon"], key["delta"], key["trials"], key["seed"])
    return {
        "tables": [
            {
                "caption": "Exponents of n in Eq. (4), by least squares in logarithms; ± standard error over seeds.",
                "heads": ["", "T", "bound", "fitted"],
                "rows": [
                    [
                        one.label, f"{plain(one.steps[0])} to {plain(one.steps[-1])}", plain(one.predicted),
                        f"{number(one.slope, 3)} ± {number(one.slope_error, 3)}",
                    ]
                    for one in found
                ],
            }
        ],
        "lines": [
            {
                "label": one.label,
                "points": [
                    [float(n), mean, sd] for n, mean, sd in zip(one.units, one.mean, one.spread, strict=True)
                ],
            }
            for one in found
        ],
        "x": "number of transitions n",
        "y": "E|M(θ, ω)|, Eq. (4)",
    }  # fmt: skip
