"""How the conformance suite runs the baselines on small data, and which attacks on them are published."""

from __future__ import annotations

from dprl.audits.conformance.evaluation import EvaluationConformance, conformance_of
from dprl_papers.baselines.first_visit import FirstVisit

FIRST_VISIT = conformance_of(
    FirstVisit,
    {"LSL": FirstVisit(discount=0.9), "LSW": FirstVisit(discount=0.9, estimator="lsw")},
    features={"LSL": "tabular", "LSW": "tabular"},
)

CONFORMANCE: dict[str, EvaluationConformance] = {entry.name: entry for entry in (FIRST_VISIT,)}
"""Of every baseline that dprl finds, by its name."""
