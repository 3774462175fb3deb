"""How the conformance suite runs the algorithms that also learn networks, and which attacks on them are published."""

from __future__ import annotations

from dprl.audits.conformance.evaluation import EvaluationConformance, conformance_of
from dprl.evaluation.dptd import DPTD
from dprl.evaluation.neural_td import NeuralTD
from dprl.protocols import Attack

# beside the values, which every unit pays for, a share for the steps that lets subsampling be seen
_STEPS_ALONE = {"value_share": 0.05}
ATTACKS = (
    Attack(options={"steps": 50, "sampling_rate": 1.0}, trials=200_000),
    Attack(options={"steps": 50, "sampling_rate": 0.1, **_STEPS_ALONE}, trials=200_000),
)
"""On algorithms that share DPTD's steps and mechanism."""

DPTD_CONFORMANCE = conformance_of(
    DPTD,
    {
        "a network": DPTD(steps=3, discount=0.9, sampling_rate=1.0, rows=3),
        "Algorithm 1, Poisson batches": DPTD(
            steps=4,
            discount=0.9,
            direction="gradient",
            schedule="diminishing",
            sampling_rate=0.5,
            average="random",
            start="mid-range",
            rows=None,
        ),
    },
    (
        *ATTACKS,
        # through columns, by each unit: a person has three trajectories
        *(
            Attack(options={"unit": unit, "steps": 20, "sampling_rate": 1.0}, trials=200_000)
            for unit in ("transition", "trajectory", "person")
        ),
    ),
    features={"a network": "mlp:2", "Algorithm 1, Poisson batches": "fourier:2"},
)
NEURAL_TD_CONFORMANCE = conformance_of(
    NeuralTD,
    {
        "a network": NeuralTD(steps=3, discount=0.9, sampling_rate=0.5, rows=3),
        "linear": NeuralTD(steps=3, discount=0.9, sampling_rate=1.0, start="zero"),
    },
    ATTACKS,
    features={"a network": "mlp:2", "linear": "fourier:2"},
)
NEURAL_CONFORMANCE: tuple[EvaluationConformance, ...] = (
    DPTD_CONFORMANCE,
    NEURAL_TD_CONFORMANCE,
)
