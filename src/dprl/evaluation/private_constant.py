"""A private constant: a value function of its own, the baseline for every other, and a start for other algorithms.

Per-decision weights: Precup, Sutton and Singh (2000). LSTD: Bradtke and Barto (1996).
Privacy unit: a trajectory, or a person with all their trajectories; of a start, also a transition. Relation: add or
remove one. Released: one noisy sum of returns, or of rewards; for some starts also sums of weights. The rest is
post-processing. Proofs: docs/proofs/constant.md; of starts, docs/proofs/dptd.md and docs/proofs/td.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.arrays import AnyArray, module_of
from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.columns import TRANSITION
from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig
from dprl.mechanisms.gaussian_sum import GaussianSum

START = "start"
"""Name of the stage that releases a start."""


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


# --- a constant as the start of another algorithm ---------------------------------------------------------------------


@dataclass(frozen=True)
class StartLevel(ABC):
    """Release of a constant to start at, defined by public facts only; equal to another with equal facts."""

    facts: PublicFacts

    columns = ()

    @abstractmethod
    def query(self) -> Query:
        """Return the query for the noisy sum."""

    @abstractmethod
    def vectors(self, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's vector, ``(B, dimension)``."""

    @abstractmethod
    def level(self, noisy: Float[Array, " dim"], mechanism: GaussianSum) -> Float[Array, ""]:
        """Return the constant in public units, in [-1, 1], from the noisy sum ``(dimension,)``."""


def queries_after_start(start: StartLevel | None, share: float, *queries: Query) -> tuple[Query, ...]:
    """Return the query of ``start``, if there is one, then ``queries``, whose shares give up ``share`` to it."""
    if start is None:
        return queries
    rest = (replace(query, share=query.share * (1.0 - share)) for query in queries)
    return (replace(start.query(), share=share), *rest)


@dataclass(frozen=True)
class StartedProgram(PublicProgram):
    """Program that may release its start, a constant, before the algorithm's own stages.

    The method ``released_start`` of its options tells which constant is released, if any. ``own_columns`` names the
    columns that :meth:`vectors` reads.
    """

    own_columns = ()

    @cached_property
    def start(self) -> StartLevel | None:
        """Release of the start; None where the start is public."""
        return self.config.released_start(self.facts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the start and the algorithm's own stages need."""
        return tuple(dict.fromkeys((*self.own_columns, *(() if self.start is None else self.start.columns))))

    @property
    def public_level(self) -> float | jax.Array:
        """Level of the constant at the start, in public units, where it is not released."""
        return 0.0

    def init(self) -> Any:
        """Return the state before the first step: a zero where the start is released, otherwise the public start."""
        zero = jnp.zeros((), jnp.float64)
        return self.start_at(jnp.asarray(self.public_level, jnp.float64)) if self.start is None else zero

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's vector, for the start or for one of the algorithm's own stages."""
        released = self._at_start(stage)
        return self.vectors(state, block) if released is None else released.vectors(block)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        """Return the level of the start, or the algorithm's next state."""
        released = self._at_start(stage)
        if released is None:
            return self.advance(stage, state, noisy, step)
        return released.level(noisy, self.stages[stage].mechanism)

    def finish(self, stage: int, state: Any) -> Any:
        """Return the algorithm's first state after the start; after other stages the state is unchanged."""
        return state if self._at_start(stage) is None else self.start_at(state)

    def _at_start(self, stage: int) -> StartLevel | None:
        return self.start if stage == 0 else None

    def start_at(self, level: Float[Array, ""]) -> Any:
        """Return the state before the algorithm's own steps, at the constant value function ``level``."""
        raise NotImplementedError

    def vectors(self, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's vector in the algorithm's own stages, before it is clipped."""
        raise NotImplementedError

    def advance(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        """Return the next state from the noisy sum of one of the algorithm's own steps."""
        raise NotImplementedError


# --- the constants that a start can be --------------------------------------------------------------------------------


def constant_start(facts: PublicFacts) -> StartLevel:
    """Return the start at a private constant; for transitions, whose returns are unknown, LSTD on the constant."""
    return ConstantLSTD(facts) if facts.unit == "transition" else MeanReturn(facts)


@dataclass(frozen=True)
class MeanReturn(StartLevel):
    """Start at the constant that :class:`PrivateConstant` releases."""

    @cached_property
    def _constant(self) -> Any:
        return PrivateConstant(discount=self.facts.discount).program(self.facts, ())

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that the program reads."""
        return self._constant.columns

    def query(self) -> Query:
        """Return the query for the noisy sum."""
        (query,) = PrivateConstant(discount=self.facts.discount).queries(self.facts)
        return replace(query, name=START)

    def vectors(self, block: Block) -> Float[Array, "units 1"]:
        """Return each unit's vector."""
        return self._constant.contribution(0, None, block)

    def level(self, noisy: Float[Array, " 1"], mechanism: GaussianSum) -> Float[Array, ""]:
        """Return the constant, from the noisy sum."""
        del mechanism
        return self._constant.update(0, None, noisy, 0)


@dataclass(frozen=True)
class ConstantLSTD(StartLevel):
    """LSTD (Bradtke and Barto 1996) with the constant as only feature: ``V = sum rho r / sum rho (1 - gamma alive)``.

    It uses one row at a time and needs no returns. It is right whether trajectories end or go on for ever.
    """

    columns = (*TRANSITION, "raw_reward")

    def query(self) -> Query:
        """Return the query for the noisy sums."""
        # rows are in single precision
        return Query(START, 3, math.sqrt(3.0) * self.facts.bounds.max_importance_ratio * (1.0 + 1e-6))

    def vectors(self, block: Block) -> Float[Array, "units 3"]:
        """Return ``(B, 3)``: sums of ``omega rho`` times the reward in [-1, 1], times ``1 - gamma alive``, and times 1.

        rho is at most the largest importance ratio, so the norm is at most ``sqrt 3`` times that ratio.
        """
        going = block.weight_rho * (1.0 - self.facts.discount * block.alive)
        return jnp.stack([jnp.sum(x, axis=-1) for x in (block.weight_raw_reward, going, block.weight_rho)], axis=-1)

    def level(self, noisy: Float[Array, " 3"], mechanism: GaussianSum) -> Float[Array, ""]:
        """Return the constant, from the noisy sums."""
        del mechanism
        low, high = self.facts.bounds.reward
        reward, going, weight = noisy
        # a smaller weight is noise
        weight = jnp.maximum(weight, 0.5 * self.facts.units)
        total = (low + high) / 2.0 * weight + (high - low) / 2.0 * jnp.clip(reward, -weight, weight)
        least = max(1.0 - self.facts.discount, 1e-3) * 0.5 * self.facts.units
        value = total / jnp.maximum(going, least)
        return jnp.clip((value - self.facts.centre) / self.facts.half, -1.0, 1.0)


@dataclass(frozen=True)
class MeanReward(StartLevel):
    """Start at the importance-weighted mean reward over ``1 - gamma``: a ratio of two noisy sums."""

    columns = ("raw_reward",)

    def query(self) -> Query:
        """Return the query for the two noisy sums."""
        return Query("mean reward", 2, math.sqrt(2.0))

    def vectors(self, block: Block) -> Float[Array, "units 2"]:
        """Return sums of ``omega rho`` times the reward in [-1, 1], and of ``omega rho``."""
        return jnp.stack([jnp.sum(x, axis=-1) for x in (block.weight_raw_reward, block.weight_rho)], axis=-1)

    def level(self, noisy: Float[Array, " 2"], mechanism: GaussianSum) -> Float[Array, ""]:
        """Return the constant from the ratio of the noisy sums."""
        del mechanism
        # a smaller weight is noise; the bound keeps the ratio near the middle when there are few units
        weight = jnp.maximum(noisy[1], 0.5 * self.facts.units)
        return self.of_mean(noisy[0] / weight)

    def of_mean(self, mean: Any) -> jax.Array:
        """Return the constant ``rbar / (1 - gamma)`` in public units; ``mean`` is rbar with rewards in [-1, 1]."""
        low, high = self.facts.bounds.reward
        reward = (low + high) / 2.0 + (high - low) / 2.0 * jnp.clip(mean, -1.0, 1.0)
        return jnp.clip((reward / (1.0 - self.facts.discount) - self.facts.centre) / self.facts.half, -1.0, 1.0)


ALGORITHM = Algorithm(
    PrivateConstant,
    settings={
        "returns": Setting(PrivateConstant(discount=0.9, estimator="returns")),
        "rewards": Setting(PrivateConstant(discount=0.9, estimator="rewards")),
    },
)
