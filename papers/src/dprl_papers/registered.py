"""What dprl finds by entry points: baselines, and calibrations as published; import strings, that load nothing.

A release with one of these writes a statement and no certificate, whatever its noise.
"""

from __future__ import annotations

from dprl.registry import Entry, find_audited


def _baseline(name: str, config: str, summary: str) -> Entry:
    return Entry(name, f"dprl_papers.baselines.{config}", "dprl_papers.baselines.conformance:CONFORMANCE", summary)


ALGORITHMS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _baseline(
            "first-visit",
            "first_visit:FirstVisit",
            "first-visit returns from noised counts and sums (tabular; Balle, Gomrokchi and Precup 2016)",
        ),
        _baseline(
            "dp-sgda",
            "primal_dual_sgd:DPSGDA",
            "plain primal-dual steps, of networks too: a baseline of paper 000",
        ),
        _baseline(
            "dp-gld",
            "langevin:DPGLD",
            "gradient Langevin dynamics, primal-dual (Wang, Chen and Xu 2019): a baseline of paper 000",
        ),
        _baseline(
            "dp-srm",
            "recursive_momentum:DPSRM",
            "stochastic recursive momentum, primal-dual (Wang et al. 2019): a baseline of paper 000",
        ),
    )
}


def _published(name: str, room: str, config: str) -> Entry:
    known = find_audited(name)
    conformance = f"dprl_papers.{room}.attack:CONFORMANCE"
    config = f"dprl_papers.{room}.published:{config}"
    return Entry(name, config, conformance, known.summary, known.unit, "as-published")


AS_PUBLISHED: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _published("gpope", "paper_004_gpope", "PublishedGPOPE"),
        _published("dptd", "paper_000_dptd", "PublishedDPTD"),
        _published("functional-q", "paper_001_functional_q", "PublishedQ"),
        _published("dp-pg", "paper_003_dp_pg", "PublishedPG"),
    )
}
"""Algorithms of dprl with the mechanisms that their papers print."""
