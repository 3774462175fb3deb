"""The recommended default: a private value function without anything to tune, chosen by public facts alone.

Where rewards may be random it measures, on-policy, unclipped statistics of returns in two stages, designed by
water-filling and read by Bayesian regression, and where the budget allows descends on clipped returns and reconciles
both. Where the public reward is a single number nothing can be skewed but lengths, and descent on clipped returns does
better. Off-policy over several steps it is TD.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum (of statistics, rewards or gradients), hence the answer; all else is post-processing.
Proof: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import Program, PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.evaluation.descent import NOISE_TRAVEL_BUDGET, default_clip, signal_to_noise
from dprl.evaluation.private_constant import PrivateConstant
from dprl.evaluation.recommended_modes import MOST_COLUMNS
from dprl.evaluation.recommended_statistics import FIRST_SHARE, Settings, Statistics
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import TD
from dprl.protocols import Attack
from dprl.value_functions.features import Columns, Tabular

# Strengths n0 = units mu / ratio, one over the noise of the mean return in half-widths of the value range. Chosen on
# public simulations (benchmarks/recommended.py).
DESCENT_FROM = 80.0
SHAPE_OF_ONE_STEP_FROM = 200.0
DESCENT_SHARE = 0.4
# Off-policy, where rewards vary: times the default clip, and how far theta goes. A small clip is drawn to the median of
# skewed rewards; with this one theta stops before it is.
CAREFUL_CLIP, CAREFUL_TRAVEL = 3.0, 1.2
FEW_STEPS = 50

Plan = Literal["constant", "statistics", "statistics and descent", "td", "returns"]


@dataclass(frozen=True, kw_only=True)
class Recommended(ValueFunctionConfig):
    """Options of the recommended default. It needs none.

    Attributes:
        step_scale: multiplies the step sizes that public facts give; for experiments on how little they matter.
    """

    step_scale: float = 1.0

    algorithm: ClassVar[str] = "recommended"

    ranges: ClassVar[Mapping[str, str]] = {"step_scale": "[1e-6, 1e6]"}

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the stages that the public facts ask for."""
        chosen = choose(facts)
        if chosen == "constant":
            return PrivateConstant(discount=facts.discount).queries(facts)
        if chosen in ("td", "returns"):
            return descent_config(facts).queries(facts)
        settings = statistics_settings(facts)
        share = 1.0 - DESCENT_SHARE if settings.descend else 1.0
        size = settings.statistics_dimension
        stages = (
            Query("statistics-1", size, 1.0, share=share * FIRST_SHARE),
            Query("statistics-2", size, 1.0, share=share * (1.0 - FIRST_SHARE)),
        )
        if not settings.descend:
            return stages
        clip, steps = settings.descent_clip, settings.steps
        return (*stages, Query("descent", settings.modes.size, clip, steps, share=DESCENT_SHARE))

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Program:
        """Return the program with everything public filled in."""
        chosen = choose(facts)
        if chosen == "constant":
            return PrivateConstant(discount=facts.discount).program(facts, stages)
        if chosen in ("td", "returns"):
            return descent_config(facts, stages, self.step_scale).program(facts, stages)
        return Statistics(statistics_settings(facts, self.step_scale), stages)


def choose(facts: PublicFacts) -> Plan:
    """Return what to do, from public facts alone."""
    wide = isinstance(facts.features, Columns) and facts.features.size > MOST_COLUMNS + 1
    if facts.horizon == 1:
        return "statistics" if facts.strength >= SHAPE_OF_ONE_STEP_FROM and not wide else "constant"
    if facts.bounds.max_importance_ratio > 1.0 or (wide and rewards_vary(facts)):
        return "td"
    if wide or not rewards_vary(facts):
        return "returns"
    return "statistics and descent" if facts.strength >= DESCENT_FROM else "statistics"


def descent_config(
    facts: PublicFacts, stages: tuple[Stage, ...] = (), step_scale: float = 1.0
) -> TD | ReturnRegression:
    """Descent with its own defaults where rewards are a single number, and TD with a larger clip where they vary.

    Given calibrated ``stages`` the step size is filled in; ``step_scale`` changes it by no more than a factor of two.
    """
    on_policy = facts.bounds.max_importance_ratio == 1.0
    # a table needs many steps and long travel, for values go from state to state
    table = isinstance(facts.features, Tabular)
    few = TD(discount=facts.discount) if table else TD(discount=facts.discount, steps=FEW_STEPS)
    config = ReturnRegression(discount=facts.discount) if on_policy else few
    careful = rewards_vary(facts) and not table
    if careful:
        config = config.replace(clip_norm=CAREFUL_CLIP * default_clip(facts), cap_step_size=False)
    if not stages:
        return config
    if careful:
        root, clip = math.sqrt(facts.features.size), stages[-1].mechanism.clip_norm
        walk = NOISE_TRAVEL_BUDGET * signal_to_noise(stages[-1], facts.units) / root
        step_size = min(CAREFUL_TRAVEL, walk) / (clip * FEW_STEPS)
    else:
        step_size = config.resolve(facts, stages).step_size
        assert step_size is not None
    return config.replace(step_size=step_size * min(max(step_scale, 0.5), 2.0))


def rewards_vary(facts: PublicFacts) -> bool:
    """Tell whether the public bounds leave rewards any room."""
    low, high = facts.bounds.reward
    return low < high


def statistics_settings(facts: PublicFacts, step_scale: float = 1.0) -> Settings:
    """Return the settings of the statistics, from public facts."""
    one_step = facts.horizon == 1
    strong = facts.strength >= DESCENT_FROM and not one_step
    line = sum(high > low for low, high in facts.bounds.observation) <= 1
    return Settings(
        features=facts.features,
        units=facts.units,
        discount=facts.discount,
        ratio=facts.ratio,
        start=line or one_step,
        choose=strong,
        descend=strong,
        shape=0.25 if strong else 0.12 if one_step else 0.14,
        nothing=-facts.centre / facts.half,
        ends=0.0 if one_step else 0.25 if strong else 0.4,
        early=0.15 if strong else 0.2,
        occupancy=0.6 if strong or one_step else 0.7,
        step_size=0.06 * step_scale,
    )


_ON_POLICY = {"max_importance_ratio": 1.0, "max_cumulative_ratio": 1.0}
_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    Recommended,
    settings={
        "statistics": Setting(Recommended(discount=0.9), facts=_ON_POLICY),
        "statistics and descent": Setting(Recommended(discount=0.9), facts={**_ON_POLICY, "units": 2_000}),
        "off-policy": Setting(Recommended(discount=0.9)),
        "one decision, a constant": Setting(Recommended(discount=0.9), facts=_ONE_STEP),
        "one decision, its shape": Setting(Recommended(discount=0.9), facts={**_ONE_STEP, "units": 5_000}),
    },
    attacks=(Attack(trials=20_000), Attack(units=5_000, trials=20_000)),
)
