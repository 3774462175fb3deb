"""What dprl finds by entry points: baselines, and calibrations as published; import strings, that load nothing.

A release with one of these writes a statement and no certificate, whatever its noise.
"""

from __future__ import annotations

from dprl.registry import Entry, entries, find_audited

ALGORITHMS = entries(
    "unit of the log",
    "dprl_papers.baselines",
    (
        "first-visit",
        "first_visit",
        "first-visit returns from noised counts and sums (tabular; Balle, Gomrokchi and Precup 2016)",
    ),
    ("dp-sgda", "primal_dual_sgd", "plain primal-dual steps, of networks too: a baseline of paper 000"),
    (
        "dp-gld",
        "langevin",
        "gradient Langevin dynamics, primal-dual (Wang, Chen and Xu 2019): a baseline of paper 000",
    ),
    (
        "dp-srm",
        "recursive_momentum",
        "stochastic recursive momentum, primal-dual (Wang et al. 2019): a baseline of paper 000",
    ),
)


def _published(name: str, room: str) -> Entry:
    known = find_audited(name)
    return Entry(name, f"dprl_papers.{room}.published", known.summary, known.unit, "as-published")


AS_PUBLISHED: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _published("gpope", "paper_004_gpope"),
        _published("dptd", "paper_000_dptd"),
        _published("functional-q", "paper_001_functional_q"),
        _published("dp-pg", "paper_003_dp_pg"),
    )
}
"""Algorithms of dprl with the mechanisms that their papers print."""
