"""Entries that dprl finds by entry points: baselines, and calibrations as published.

An entry names its module by an import string, so this file loads no algorithm.

A release with any of these algorithms writes a statement and no certificate, whatever its noise.
"""

from __future__ import annotations

from dataclasses import replace

from dprl.registry import Entry, entries, find_audited

ALGORITHMS = entries(
    "unit of the log",
    "dprl_papers.baselines",
    (
        "first-visit",
        "first_visit",
        "noisy first-visit counts and returns (tabular), in place of DP-LSW and DP-LSL",
        "[Balle, Gomrokchi, Precup (2016)](docs/papers/balle-2016.md)",
    ),
    (
        "dp-sgda",
        "primal_dual_sgd",
        "plain primal-dual steps, of networks too",
        "Lin, Jin, Jordan (2020); baseline of 000",
    ),
    (
        "dp-gld",
        "langevin",
        "gradient Langevin dynamics, primal-dual",
        "after Wang, Chen, Xu (2019); baseline of 000",
    ),
    ("dp-srm", "recursive_momentum", "recursive momentum, primal-dual", "after Wang et al. (2019); baseline of 000"),
)

AS_PUBLISHED: dict[str, Entry] = {
    name: replace(find_audited(name), module=f"dprl_papers.{room}.published", calibration="as-published")
    for name, room in (
        ("gpope", "paper_004_gpope"),
        ("dptd", "paper_000_dptd"),
        ("functional-q", "paper_001_functional_q"),
        ("dp-pg", "paper_003_dp_pg"),
    )
}
"""Algorithms of dprl with the mechanisms that their papers print."""
