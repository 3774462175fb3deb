"""How the conformance suite runs the baselines on small data, and which attacks on them are published."""

from __future__ import annotations

from dprl.audits.conformance.evaluation import EvaluationConformance, conformance_of
from dprl.audits.conformance.networks import ATTACKS
from dprl.protocols import Attack
from dprl_papers.baselines.first_visit import FirstVisit
from dprl_papers.baselines.langevin import DPGLD
from dprl_papers.baselines.primal_dual_sgd import DPSGDA
from dprl_papers.baselines.recursive_momentum import DPSRM

FIRST_VISIT_SUITE = conformance_of(
    FirstVisit,
    {"LSL": FirstVisit(discount=0.9), "LSW": FirstVisit(discount=0.9, estimator="lsw")},
    features={"LSL": "tabular", "LSW": "tabular"},
)
DPSGDA_SUITE = conformance_of(
    DPSGDA,
    {
        "linear": DPSGDA(steps=3, discount=0.9, sampling_rate=0.5, start="mid-range"),
        "a network": DPSGDA(steps=3, discount=0.9, sampling_rate=1.0, rows=3, average="all"),
    },
    ATTACKS,
    features={"a network": "mlp:2"},
)
DPGLD_SUITE = conformance_of(
    DPGLD,
    {
        "linear": DPGLD(steps=3, discount=0.9),
        "a network": DPGLD(steps=3, discount=0.9, rows=3, start="random"),
    },
    (Attack(options={"steps": 50}, trials=200_000),),
    features={"a network": "mlp:2"},
)
DPSRM_SUITE = conformance_of(
    DPSRM,
    {
        "linear": DPSRM(steps=4, discount=0.9, sampling_rate=0.5, start="mid-range"),
        "a network": DPSRM(steps=3, discount=0.9, sampling_rate=1.0, rows=3, recursion=0.6, average="tail"),
    },
    ATTACKS,
    features={"a network": "mlp:2"},
)

CONFORMANCE: dict[str, EvaluationConformance] = {
    entry.name: entry for entry in (FIRST_VISIT_SUITE, DPSGDA_SUITE, DPGLD_SUITE, DPSRM_SUITE)
}
"""Of every baseline that dprl finds, by its name."""
