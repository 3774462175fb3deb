"""The recommended default: a private value function without anything to tune, chosen by public facts alone.

On-policy it measures unclipped statistics of returns in two stages, designed by water-filling and read by Bayesian
regression, and where the budget allows descends on clipped returns and reconciles both. Off-policy over several steps
it is TD from the mean reward.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noised sum (of statistics, rewards or gradients), hence the answer; all else is post-processing.
Proof: docs/proofs/recommended.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dprl.algorithms.evaluation import recommended_td as td
from dprl.algorithms.evaluation.private_constant import PrivateConstant
from dprl.algorithms.evaluation.program import Facts, Program, Shape, Stage, ValueFunctionConfig
from dprl.algorithms.evaluation.recommended_statistics import FIRST_SHARE, Settings, Statistics

# Strengths n0 = units mu / ratio, one over the noise of the mean return in half-widths of the value range. Chosen on
# public simulations (benchmarks/recommended.py).
DESCENT_FROM = 80.0
SHAPE_OF_ONE_STEP_FROM = 200.0
DESCENT_SHARE = 0.4

Plan = Literal["constant", "statistics", "statistics and descent", "td"]


@dataclass(frozen=True, kw_only=True)
class Recommended(ValueFunctionConfig):
    """Options of the recommended default. It needs none.

    Attributes:
        step_scale: multiplies the step sizes that public facts give; for experiments on how little they matter.
    """

    step_scale: float = 1.0

    algorithm: ClassVar[str] = "recommended"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("step_scale must be between 1e-6 and 1e6", 1e-6 <= self.step_scale <= 1e6)

    def shapes(self, facts: Facts) -> tuple[Shape, ...]:
        """The stages that the public facts ask for."""
        chosen = choose(facts)
        if chosen == "constant":
            return PrivateConstant(discount=facts.discount).shapes(facts)
        if chosen == "td":
            settings = td.settings(facts)
            share = 1.0 - td.REWARD_SHARE if settings.measures_reward else 1.0
            descent = Shape("descent", settings.modes.size, settings.clip, settings.steps, share=share)
            if not settings.measures_reward:
                return (descent,)
            return (Shape("reward", 1, settings.ratio, share=td.REWARD_SHARE), descent)
        settings = statistics_settings(facts)
        share = 1.0 - DESCENT_SHARE if settings.descend else 1.0
        size = settings.statistics_dimension
        stages = (
            Shape("statistics-1", size, 1.0, share=share * FIRST_SHARE),
            Shape("statistics-2", size, 1.0, share=share * (1.0 - FIRST_SHARE)),
        )
        if not settings.descend:
            return stages
        clip, steps = settings.descent_clip, settings.steps
        return (*stages, Shape("descent", settings.modes.size, clip, steps, share=DESCENT_SHARE))

    def program(self, facts: Facts, stages: tuple[Stage, ...]) -> Program:
        chosen = choose(facts)
        if chosen == "constant":
            return PrivateConstant(discount=facts.discount).program(facts, stages)
        if chosen == "td":
            return td.TemporalDifferences(td.settings(facts, self.step_scale), stages)
        return Statistics(statistics_settings(facts, self.step_scale), stages)


def choose(facts: Facts) -> Plan:
    """What to do, from public facts alone."""
    if facts.horizon == 1:
        return "statistics" if facts.strength >= SHAPE_OF_ONE_STEP_FROM else "constant"
    if facts.bounds.max_importance_ratio > 1.0:
        return "td"
    return "statistics and descent" if facts.strength >= DESCENT_FROM else "statistics"


def statistics_settings(facts: Facts, step_scale: float = 1.0) -> Settings:
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
        shape=0.25 if strong else 0.12,
        occupancy=0.6,
        step_size=0.06 * step_scale,
    )
