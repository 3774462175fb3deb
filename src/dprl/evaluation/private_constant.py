"""A private constant as value function: the baseline for every other private value function.

Per-decision weights: Precup, Sutton and Singh (2000).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: one noisy sum of returns, or of rewards; the rest is post-processing.
Proof: docs/proofs/constant.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from dprl.arrays import AnyArray, module_of
from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig


@dataclass(frozen=True, kw_only=True)
class PrivateConstant(ValueFunctionConfig):
    """Options of the private constant; all are public facts.

    Attributes:
        estimator: ``returns``: the mean (per-decision importance-weighted) return of the trajectories. ``rewards``: the
            mean importance-weighted reward over ``1 - discount``, for processes that do not end. ``auto``: ``rewards``
            off-policy over a horizon of at least ``1 / (1 - discount)``, where products of importance ratios may be
            cut, and ``returns`` otherwise.
    """

    estimator: Literal["auto", "returns", "rewards"] = "auto"

    algorithm: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            "estimator = 'rewards' needs a discount below 1", self.estimator != "rewards" or self.discount < 1.0
        )

    @override
    def resolve(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Self:
        if self.estimator != "auto":
            return self
        long = facts.horizon > 1 and facts.horizon * (1.0 - self.discount) >= 1.0
        rewards = long and facts.bounds.max_importance_ratio > 1.0
        return self.replace(DERIVED, estimator="rewards" if rewards else "returns")

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        rewards = self.resolve(facts, ()).estimator == "rewards"
        return (Query("constant", 1, float(facts.bounds.max_importance_ratio if rewards else 1.0)),)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> PrivateConstantProgram:
        return PrivateConstantProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class PrivateConstantProgram(PublicProgram):
    """Program with one noisy sum.

    The value in public units is ``offset + scale`` times the noisy mean, clipped to the value range.
    """

    compiled: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that the program reads."""
        return ("returns", "start") if self.config.estimator == "returns" else ("raw_reward",)

    def init(self) -> Float[AnyArray, ""]:
        """Return the state before the first step."""
        return np.zeros((), np.float64)

    def contribution(self, stage: int, state: Any, block: Block) -> Float[AnyArray, "units 1"]:
        """Return ``(B, 1)``: at most 1 in size (returns), or at most the largest importance ratio (rewards)."""
        del stage, state
        rows = block.start_return if self.config.estimator == "returns" else block.weight_raw_reward
        return rows.sum(axis=-1, keepdims=True)

    def update(self, stage: int, state: Any, noisy: Float[AnyArray, " 1"], step: Any) -> Float[AnyArray, ""]:
        """Return the state after a step, from its noisy sum."""
        del stage, state, step
        facts = self.facts
        offset, scale = 0.0, facts.ratio
        if self.config.estimator == "rewards":
            low, high = facts.bounds.reward
            gain = 1.0 / ((1.0 - self.config.discount) * facts.half)
            offset, scale = (low + high) / 2.0 * gain - facts.centre / facts.half, (high - low) / 2.0 * gain
        return module_of(noisy).clip(offset + scale * noisy[0] / facts.units, -1.0, 1.0)

    def answer(self, state: Float[AnyArray, ""]) -> Float[AnyArray, " n"]:
        """Return the ``(n,)`` weights by which the features make the constant."""
        return state * np.asarray(self.facts.features.constant(), np.float64)


ALGORITHM = Algorithm(
    PrivateConstant,
    settings={
        "returns": Setting(PrivateConstant(discount=0.9, estimator="returns")),
        "rewards": Setting(PrivateConstant(discount=0.9, estimator="rewards")),
    },
)
