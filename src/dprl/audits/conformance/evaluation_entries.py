"""The entries of the conformance suite: every algorithm's settings, and which attacks on it are published."""

from __future__ import annotations

from dprl.audits.attacks.evaluation import gpope_canary, importance_canary
from dprl.audits.conformance.evaluation import EvaluationConformance, conformance_of
from dprl.audits.conformance.networks import NEURAL_CONFORMANCE
from dprl.evaluation.adassp import AdaSSP
from dprl.evaluation.doubly_robust import DoublyRobust
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.noisy_counts import NoisyCounts
from dprl.evaluation.private_constant import PrivateConstant
from dprl.evaluation.private_lstd import PrivateLSTD
from dprl.evaluation.recommended import Recommended
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import TD
from dprl.protocols import Attack

# beside the values, which every unit pays for, a share for the steps that lets subsampling be seen
_STEPS_ALONE = {"value_share": 0.05}

GPOPE_CONFORMANCE = EvaluationConformance(
    "gpope",
    {
        "full batches": GPOPE(steps=4, discount=0.9),
        "Poisson batches": GPOPE(steps=5, discount=0.9, sampling_rate=0.5, schedule="diminishing", average="all"),
        "many features": GPOPE(steps=3, discount=0.9, average="last"),
    },
    gpope_canary,
    (
        Attack(options={"steps": 200}),
        Attack(options={"steps": 200}, trials=100_000),
        Attack(options={"steps": 200}, epsilon=4.0, trials=100_000),
        Attack(options={"steps": 200, "sampling_rate": 0.1}, trials=200_000),
        Attack(options={"steps": 200, "sampling_rate": 0.1, **_STEPS_ALONE}),
        Attack(options={"steps": 500, "sampling_rate": 0.02, **_STEPS_ALONE}),
    ),
    features={"many features": "fourier:11"},
)
_ON_POLICY = {"max_importance_ratio": 1.0, "max_cumulative_ratio": 1.0}
_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
IMPORTANCE_CONFORMANCE = EvaluationConformance(
    "importance-sampling",
    {
        "trajectory": ImportanceSampling(discount=0.9, estimator="trajectory"),
        "per decision": ImportanceSampling(discount=0.9, estimator="per-decision"),
        "self-normalised": ImportanceSampling(discount=0.9, estimator="self-normalised"),
        "one decision": ImportanceSampling(discount=0.9),
    },
    importance_canary,
    (Attack(), Attack(epsilon=4.0, trials=100_000)),
    facts={"one decision": _ONE_STEP},
)

_DESCENT_ATTACKS = (
    Attack(options={"steps": 50}, trials=400_000),
    Attack(options={"steps": 50, "sampling_rate": 0.1, **_STEPS_ALONE}, trials=400_000),
)

TD_CONFORMANCE = conformance_of(
    TD,
    {
        "full batches": TD(steps=3, discount=0.9),
        "from the mean reward": TD(steps=3, discount=0.9, start="mean-reward"),
        "Poisson batches": TD(steps=4, discount=0.9, sampling_rate=0.5),
    },
    _DESCENT_ATTACKS,
)
RETURN_REGRESSION_CONFORMANCE = conformance_of(
    ReturnRegression,
    {
        "full batches": ReturnRegression(steps=3, discount=0.9),
        "Poisson batches": ReturnRegression(steps=4, discount=0.9, sampling_rate=0.5),
    },
    _DESCENT_ATTACKS,
)
ADASSP_CONFORMANCE = conformance_of(
    AdaSSP,
    {
        "around a constant": AdaSSP(discount=0.9, modes=2),
        "without a constant": AdaSSP(discount=0.9, constant_share=0.0),
        "Fourier features": AdaSSP(discount=0.9, modes=3),
    },
    features={"Fourier features": "fourier:3"},
)
LSTD_CONFORMANCE = conformance_of(
    PrivateLSTD,
    {
        "around a constant": PrivateLSTD(discount=0.9, modes=2),
        "on a support": PrivateLSTD(discount=0.9, support="-1,0,1"),
        "without a constant": PrivateLSTD(discount=0.9, constant_share=0.0),
    },
    features={"on a support": "tabular"},
)
NOISY_COUNTS_CONFORMANCE = conformance_of(
    NoisyCounts,
    {
        "full support": NoisyCounts(discount=0.9),
        "on a support": NoisyCounts(discount=0.9, support="-1,0,1", rewards="terminal"),
    },
    features={"full support": "tabular", "on a support": "tabular"},
)
CONSTANT_CONFORMANCE = conformance_of(
    PrivateConstant,
    {
        "returns": PrivateConstant(discount=0.9, estimator="returns"),
        "rewards": PrivateConstant(discount=0.9, estimator="rewards"),
    },
)
DOUBLY_ROBUST_CONFORMANCE = conformance_of(
    DoublyRobust,
    {
        "off-policy": DoublyRobust(discount=0.9),
        "one decision": DoublyRobust(discount=0.9),
    },
    facts={"one decision": _ONE_STEP},
)
RECOMMENDED_CONFORMANCE = conformance_of(
    Recommended,
    {
        "statistics": Recommended(discount=0.9),
        "statistics and descent": Recommended(discount=0.9),
        "off-policy": Recommended(discount=0.9),
        "one decision, a constant": Recommended(discount=0.9),
        "one decision, its shape": Recommended(discount=0.9),
    },
    (Attack(trials=20_000), Attack(units=5_000, trials=20_000)),
    facts={
        "statistics": _ON_POLICY,
        "statistics and descent": {**_ON_POLICY, "units": 2_000},
        "one decision, a constant": _ONE_STEP,
        "one decision, its shape": {**_ONE_STEP, "units": 5_000},
    },
)

CONFORMANCE: dict[str, EvaluationConformance] = {
    entry.name: entry
    for entry in (
        GPOPE_CONFORMANCE,
        IMPORTANCE_CONFORMANCE,
        TD_CONFORMANCE,
        RETURN_REGRESSION_CONFORMANCE,
        ADASSP_CONFORMANCE,
        LSTD_CONFORMANCE,
        NOISY_COUNTS_CONFORMANCE,
        CONSTANT_CONFORMANCE,
        DOUBLY_ROBUST_CONFORMANCE,
        RECOMMENDED_CONFORMANCE,
        *NEURAL_CONFORMANCE,
    )
}
"""Of every registered algorithm, by its name."""
