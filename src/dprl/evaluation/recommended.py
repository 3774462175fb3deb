"""The recommended default: a private value function with nothing to tune, chosen by public facts only.

On-policy it is a descent on returns, whose result is checked in most cases; for a table TD goes on from there
(:mod:`~dprl.evaluation.checked_descent`). For a table whose rewards are a single number it is statistics where noise is
small. Off-policy over several steps it is TD, which is checked for a table where noise is small. For one decision it is
statistics or a constant.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum of the algorithm that is chosen, hence the answer; all else is post-processing.
Proof: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import Program, PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.evaluation.checked_descent import (
    ENOUGH_STRENGTH,
    CheckedReturns,
    CheckedTD,
    on_policy,
    queries_of_checked_returns,
    queries_of_checked_td,
    statistics_options,
)
from dprl.evaluation.private_constant import PrivateConstant
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import NOISE_TRAVEL_BUDGET, TD, DescentConfig, default_clip, signal_to_noise
from dprl.protocols import Attack
from dprl.value_functions.features import Tabular
from dprl.value_functions.modes import has_modes

# The numbers were chosen on the seeds for choosing of benchmarks/families.py, except those that docs/defaults.md names.
ENOUGH_OF_LENGTHS, ENOUGH_OFF_POLICY = 250.0, 500.0
"""Strength n0 from which statistics of a table where only lengths vary say more than a descent; and that of a ratio of
one, from which TD's errors off policy can be told from noise."""
CAREFUL_CLIP, CAREFUL_TRAVEL, FEW_STEPS = 3.0, 1.2, 50
"""Clip norm of TD over the default clip norm, how far theta goes, and number of steps, where features are no table.

The first two serve rewards that vary. A small clip norm draws theta to the median of skewed rewards; with these two
theta stops before it gets there.
"""

Method = Literal["constant", "statistics", "td", "returns", "returns, checked", "td, checked"]
CHECKED = {
    "returns, checked": (queries_of_checked_returns, CheckedReturns),
    "td, checked": (queries_of_checked_td, CheckedTD),
}


@dataclass(frozen=True, kw_only=True)
class Recommended(ValueFunctionConfig):
    """Options of the recommended default. It needs none.

    Attributes:
        value_budget_fraction: share of mu^2 that pays for value and interval. With 0.45 their noise is at most 1.5
            times, and that of the value function at most 1.35 times, what it would be if each alone had the whole
            budget.
    """

    value_budget_fraction: float = 0.45

    algorithm: ClassVar[str] = "recommended"
    blends_value_function: ClassVar[bool] = True

    def chosen(self, facts: PublicFacts) -> ValueFunctionConfig | None:
        """Return the options of the named algorithm that is chosen; None for a checked descent, which has no name."""
        method = choose_method(facts)
        if method == "constant":
            return PrivateConstant(discount=self.discount)
        if method == "statistics":
            return statistics_options(facts, self.discount)
        if method == "returns":
            return ReturnRegression(discount=self.discount)
        return None if method in CHECKED else careful_td(facts, self.discount)

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        named = self.chosen(facts)
        return CHECKED[choose_method(facts)][0](facts, self.discount) if named is None else named.queries(facts)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Program:
        named = self.chosen(facts)
        if named is None:
            return CHECKED[choose_method(facts)][1](self, stages, facts)
        if isinstance(named, DescentConfig) and named.clip_norm is not None:
            named = with_careful_steps(named, facts, stages)
        return named.program(facts, stages)


def choose_method(facts: PublicFacts) -> Method:
    """Choose the method from public facts only."""
    known, varied = has_modes(facts.features), rewards_vary(facts)
    if facts.horizon == 1:
        return "statistics" if known and facts.strength >= ENOUGH_STRENGTH else "constant"
    table = isinstance(facts.features, Tabular)
    if not on_policy(facts):
        return "td, checked" if table and facts.strength * facts.ratio >= ENOUGH_OFF_POLICY else "td"
    if table and not varied and facts.strength >= ENOUGH_OF_LENGTHS:
        return "statistics"
    return "returns, checked" if known and (table or varied) else "returns"


def rewards_vary(facts: PublicFacts) -> bool:
    """Tell whether the public bounds let rewards vary. Where they do not, only lengths make returns skewed."""
    low, high = facts.bounds.reward
    return low < high


def careful_td(facts: PublicFacts, discount: float) -> TD:
    """Return options of TD, with a larger clip where rewards vary and features are no table.

    A table needs many steps and long travel, because values spread from state to state.
    """
    if isinstance(facts.features, Tabular):
        return TD(discount=discount)
    if not rewards_vary(facts):
        return TD(discount=discount, steps=FEW_STEPS)
    clip = CAREFUL_CLIP * default_clip(facts)
    return TD(discount=discount, steps=FEW_STEPS, clip_norm=clip, cap_step_size=False)


def with_careful_steps(config: DescentConfig, facts: PublicFacts, stages: tuple[Stage, ...]) -> DescentConfig:
    """Return ``config`` with a step size that lets theta travel only a little."""
    clip = stages[-1].mechanism.clip_norm
    walk = NOISE_TRAVEL_BUDGET * signal_to_noise(stages[-1], facts.units) / math.sqrt(facts.features.size)
    return config.replace(step_size=min(CAREFUL_TRAVEL, walk) / (clip * FEW_STEPS))


_ON_POLICY = {"max_importance_ratio": 1.0, "max_cumulative_ratio": 1.0}
_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    Recommended,
    settings={
        "mean and descent": Setting(Recommended(discount=0.9), facts=_ON_POLICY),
        "with statistics": Setting(Recommended(discount=0.9), facts={**_ON_POLICY, "units": 2_000}),
        "of a table": Setting(Recommended(discount=0.9), features="tabular", facts={**_ON_POLICY, "units": 4_000}),
        "lengths of a table": Setting(
            Recommended(discount=0.9), features="tabular", facts={**_ON_POLICY, "units": 4_000, "reward": (1.0, 1.0)}
        ),
        "off-policy": Setting(Recommended(discount=0.9)),
        "TD of a table, off-policy": Setting(Recommended(discount=0.9), features="tabular", facts={"units": 8_000}),
        "one decision, a constant": Setting(Recommended(discount=0.9), facts=_ONE_STEP),
        "one decision, its shape": Setting(Recommended(discount=0.9), facts={**_ONE_STEP, "units": 5_000}),
    },
    attacks=(Attack(trials=20_000), Attack(units=5_000, trials=20_000)),
)
