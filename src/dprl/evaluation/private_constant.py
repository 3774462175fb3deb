"""A private constant as value function: what every other private value function is to be compared with.

Per-decision weights: Precup, Sutton and Singh (2000).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: one noisy sum of returns, or of rewards; the rest is post-processing.
Proof: docs/proofs/constant.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.value_functions.features import Features


@dataclass(frozen=True, kw_only=True)
class PrivateConstant(ValueFunctionConfig):
    """Options of the private constant; public facts, all of them.

    Attributes:
        estimator: ``returns``: the mean (per-decision importance-weighted) return of the trajectories. ``rewards``: the
            mean importance-weighted reward over ``1 - discount``, for processes that do not end. ``auto``: ``rewards``
            off-policy over a horizon of at least ``1 / (1 - discount)``, where products of ratios are cut, and
            ``returns`` otherwise.
    """

    estimator: Literal["auto", "returns", "rewards"] = "auto"

    algorithm: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            "estimator = 'rewards' needs a discount below 1", self.estimator != "rewards" or self.discount < 1.0
        )

    def resolve(self, facts: PublicFacts) -> Literal["returns", "rewards"]:
        """Return the estimator, from public facts."""
        if self.estimator != "auto":
            return self.estimator
        long = facts.horizon > 1 and facts.horizon * (1.0 - self.discount) >= 1.0
        return "rewards" if long and facts.bounds.max_importance_ratio > 1.0 else "returns"

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        ratio = facts.bounds.max_importance_ratio if self.resolve(facts) == "rewards" else 1.0
        return (Query("constant", 1, float(ratio)),)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> PrivateConstantProgram:
        """Return the program with everything public filled in."""
        kind = self.resolve(facts)
        config = self if self.estimator == kind else self.replace(DERIVED, estimator=kind)
        offset, scale = 0.0, facts.ratio
        if kind == "rewards":
            low, high = facts.bounds.reward
            gain = 1.0 / ((1.0 - self.discount) * facts.half)
            offset, scale = (low + high) / 2.0 * gain - facts.centre / facts.half, (high - low) / 2.0 * gain
        return PrivateConstantProgram(config, stages, kind, facts.features, facts.units, offset, scale)


@dataclass(frozen=True)
class PrivateConstantProgram:
    """One release; the value in public units is ``offset + scale`` times the noisy mean, kept in the value range."""

    config: PrivateConstant
    stages: tuple[Stage, ...]
    estimator: Literal["returns", "rewards"]
    features: Features
    units: int
    offset: float
    scale: float

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that are needed."""
        return ("returns", "start") if self.estimator == "returns" else ("raw_reward",)

    def init(self) -> jax.Array:
        """Return the state before the first step."""
        return jnp.zeros((), jnp.float64)

    def contribution(self, stage: int, state: jax.Array, block: Block) -> jax.Array:
        """Return ``(B, 1)``: at most 1 (returns) or the largest ratio of a step (rewards)."""
        del stage, state
        rows = block.start_return if self.estimator == "returns" else block.weight_raw_reward
        return jnp.sum(rows, axis=-1, keepdims=True)

    def update(self, stage: int, state: jax.Array, noisy: jax.Array, step: Any) -> jax.Array:
        """Return the state after a step, from its noisy sum."""
        del stage, state, step
        return jnp.clip(self.offset + self.scale * noisy[0] / self.units, -1.0, 1.0)

    def finish(self, stage: int, state: jax.Array) -> jax.Array:
        """Return the state after the stage's last step."""
        del stage
        return state

    def answer(self, state: jax.Array) -> jax.Array:
        """Return the weights of the constant."""
        return state * jnp.asarray(self.features.constant(), jnp.float64)


ALGORITHM = Algorithm(
    PrivateConstant,
    settings={
        "returns": Setting(PrivateConstant(discount=0.9, estimator="returns")),
        "rewards": Setting(PrivateConstant(discount=0.9, estimator="rewards")),
    },
)
