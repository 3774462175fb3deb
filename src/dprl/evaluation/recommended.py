"""The recommended default: a private value function without anything to tune, chosen by public facts alone.

On-policy it descends on clipped returns, which says much with little noise, and is drawn to a median where returns are
skewed. So it also releases the mean return, and the mean that the found function has on the same rows: where the two
agree the function is the answer. Where they do not, unclipped statistics around the mean return are (AdaSSP), or the
mean return alone if noise leaves no more. Off-policy over several steps it is TD.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum (of returns, gradients, values or statistics), hence the answer; all else is post-processing.
Proof: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import Program, PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig
from dprl.evaluation import adassp
from dprl.evaluation.adassp import AdaSSP, AdaSSPProgram
from dprl.evaluation.descent import (
    NOISE_TRAVEL_BUDGET,
    REFERENCE,
    DescentConfig,
    default_clip,
    signal_to_noise,
)
from dprl.evaluation.private_constant import PrivateConstant
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import TD
from dprl.protocols import Attack, Bounds
from dprl.value_functions.features import Columns, Tabular, public_states
from dprl.value_functions.modes import has_modes, make_modes

# All numbers were chosen on the seeds for choosing of benchmarks/families.py.
ENOUGH = 80.0
"""Strength n0 (units mu over the largest ratio, mu that of the value function) from which statistics say more than a
mean return."""
WEAK_SHARES, SHARES = (0.6, 0.3, 0.1), (0.25, 0.35, 0.1, 0.3)
"""Of mu^2, below :data:`ENOUGH` and above: the mean return, the descent, its mean, the statistics."""
VALUE_SHARE = (0.5, 0.85)
"""Of mu^2 for value and interval: over several steps, where the value function needs as much, and of one decision."""
CONSTANT_SHARE = 0.3
"""Of mu^2 for the mean return, where a decision is all there is, and statistics follow."""
STEPS, TRAVEL, LEAST_TRAVEL = 50, 5.0, 5.0
"""Of the descent: how many steps, how far all of them go if every vector is clipped and points the same way, and the
least sum of all step sizes."""
DISAGREE, SLACK = 2.0, 0.02
"""Two means disagree if they differ by more than so many standard deviations of their noise, and so much of half the
value range."""
CAREFUL_CLIP, CAREFUL_TRAVEL, FEW_STEPS = 3.0, 1.2, 50
"""Of TD, where rewards vary and features are no table: times the default clip, how far theta goes, and steps. A small
clip is drawn to the median of skewed rewards; with this one theta stops before it is."""

Plan = Literal["constant", "statistics", "td", "returns", "returns, checked"]


@dataclass(frozen=True, kw_only=True)
class Recommended(ValueFunctionConfig):
    """Options of the recommended default. It needs none.

    Attributes:
        value_budget_fraction: share of mu^2 that pays for value and interval; by default .5, and .85 of one decision.
    """

    value_budget_fraction: float | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    algorithm: ClassVar[str] = "recommended"
    anchored: ClassVar[bool] = True

    @override
    def for_bounds(self, bounds: Bounds) -> Self:
        if self.value_budget_fraction is not None:
            return self
        return self.replace(DERIVED, value_budget_fraction=VALUE_SHARE[bounds.horizon == 1])

    def chosen(self, facts: PublicFacts) -> ValueFunctionConfig | None:
        """Return options of the named algorithm that it is; None where it is checked descent, which is its own."""
        plan = choose(facts)
        if plan == "returns, checked":
            return None
        if plan == "constant":
            return PrivateConstant(discount=self.discount)
        if plan == "statistics":
            return statistics(facts, self.discount)
        return ReturnRegression(discount=self.discount) if plan == "returns" else careful_td(facts, self.discount)

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        named = self.chosen(facts)
        if named is not None:
            return named.queries(facts)
        shares: tuple[float, ...] = SHARES if facts.strength >= ENOUGH else WEAK_SHARES
        size = modes_of_descent(facts)
        clip = default_clip(facts) * math.sqrt(size / facts.features.size)
        stages = (
            Query("mean return", 1, 1.0, share=shares[0]),
            Query("descent", size, clip, STEPS, share=shares[1]),
            Query("its mean", 1, 1.0, share=shares[2]),
        )
        of_statistics = statistics(facts, self.discount, 0.0).statistics(facts)
        return (*stages, *(Query("statistics", *of_statistics, share=share) for share in shares[3:]))

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Program:
        named = self.chosen(facts)
        if named is None:
            return CheckedDescent(self, stages, facts)
        if isinstance(named, DescentConfig) and named.clip_norm is not None:
            named = with_careful_steps(named, facts, stages)
        return named.program(facts, stages)


def choose(facts: PublicFacts) -> Plan:
    """Return what to do, from public facts alone."""
    known = has_modes(facts.features)
    if facts.horizon == 1:
        return "statistics" if known and facts.strength >= ENOUGH else "constant"
    if facts.bounds.max_importance_ratio > 1.0:
        return "td"
    return "returns, checked" if known and rewards_vary(facts) else "returns"


def rewards_vary(facts: PublicFacts) -> bool:
    """Tell whether the public bounds leave rewards any room; where they do not, only lengths make returns skewed."""
    low, high = facts.bounds.reward
    return low < high


def statistics(facts: PublicFacts, discount: float, start_weight: float = 0.5) -> AdaSSP:
    """Return options of the statistics: of all columns, which no order ranks, or as many modes as noise allows."""
    modes = make_modes(facts.features).size if isinstance(facts.features, Columns) else None
    return AdaSSP(discount=discount, modes=modes, constant_share=CONSTANT_SHARE, start_weight=start_weight)


def careful_td(facts: PublicFacts, discount: float) -> TD:
    """Return options of TD, with a larger clip where rewards vary and features are no table.

    A table needs many steps and long travel, for values go from state to state.
    """
    if isinstance(facts.features, Tabular):
        return TD(discount=discount)
    if not rewards_vary(facts):
        return TD(discount=discount, steps=FEW_STEPS)
    clip = CAREFUL_CLIP * default_clip(facts)
    return TD(discount=discount, steps=FEW_STEPS, clip_norm=clip, cap_step_size=False)


def with_careful_steps(config: DescentConfig, facts: PublicFacts, stages: tuple[Stage, ...]) -> DescentConfig:
    """Return ``config`` with a step size by which theta travels little."""
    clip = stages[-1].mechanism.clip_norm
    walk = NOISE_TRAVEL_BUDGET * signal_to_noise(stages[-1], facts.units) / math.sqrt(facts.features.size)
    return config.replace(step_size=min(CAREFUL_TRAVEL, walk) / (clip * FEW_STEPS))


def modes_of_descent(facts: PublicFacts) -> int:
    """Return how many modes the descent finds weights of: ``n0^0.4``; of columns, which no order ranks, all."""
    most = make_modes(facts.features).size
    return most if isinstance(facts.features, Columns) else min(most, max(2, round(facts.strength**0.4)))


class State(NamedTuple):
    """Made of noisy sums alone, in public units."""

    level: Float[Array, ""]  # released mean return
    theta: Float[Array, " K"]  # of the descent
    total: Float[Array, " K"]  # sum of the iterates of its last half
    agrees: Float[Array, ""]  # 1 where the found function has the mean that was released
    around: Float[Array, " n"]  # what statistics add to the mean return


@dataclass(frozen=True)
class CheckedDescent(PublicProgram):
    """Descent on returns over few modes, the check of its mean, and what to say where it fails."""

    columns = ("returns", "start")

    @cached_property
    def basis(self) -> Float[np.ndarray, "n K"]:
        """Weights of the modes over the features."""
        return make_modes(self.facts.features).to_features[:, : self.stages[1].mechanism.dimension]

    @cached_property
    def _modes_of_states(self) -> Float[np.ndarray, "points K"]:
        return self.facts.features(public_states(self.facts.features)) @ self.basis

    @cached_property
    def _statistics(self) -> AdaSSPProgram:
        """The program of which the first and the last stage are ours."""
        config = statistics(self.facts, self.config.discount, 0.0)
        return config.program(self.facts, (self.stages[0], self.stages[-1]))

    @cached_property
    def step_size(self) -> float:
        """Mean over the steps, by which it falls to zero, of the factor of a mean noisy vector.

        It is as large as is useful, but no larger than lets the noise move theta by :data:`NOISE_TRAVEL_BUDGET`.
        """
        stage = self.stages[1]
        strength, clip = signal_to_noise(stage, self.facts.units), stage.mechanism.clip_norm
        travel = TRAVEL * max(strength / REFERENCE, 1.0) ** 0.15 / clip
        walk = NOISE_TRAVEL_BUDGET * strength / (math.sqrt(stage.mechanism.dimension) * clip)
        return min(max(travel, LEAST_TRAVEL), walk) / STEPS

    def init(self) -> State:
        """Return the state before the first step."""
        theta, zero = jnp.zeros(self.stages[1].mechanism.dimension, jnp.float64), jnp.zeros((), jnp.float64)
        return State(zero, theta, theta, zero, jnp.zeros(self.facts.features.size, jnp.float64))

    def contribution(self, stage: int, state: State, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's mean return, gradient, mean of the found function, or statistics."""
        if stage == 0:
            return jnp.sum(block.weight_return, axis=-1, keepdims=True)
        if stage == 3:
            return self._statistics.vectors(adassp.State(state.level, state.around), block)
        values = apply(block.phi, jnp.asarray(self.basis, block.phi.dtype) @ state.theta.astype(block.phi.dtype))
        if stage == 1:
            error = block.weight_return - block.weight * values
            return project_phi(error, block) @ jnp.asarray(self.basis, block.phi.dtype)
        middle, half = (x.astype(block.phi.dtype) for x in self._range(state.theta))
        inside = jnp.clip((values - middle) / half, -1.0, 1.0)
        return jnp.sum(block.weight * inside, axis=-1, keepdims=True)

    def update(self, stage: int, state: State, noisy: Float[Array, " dim"], step: Any) -> State:
        """Return the state after a step, from its noisy sum."""
        mean, noise = noisy / self.facts.units, self.stages[stage].mechanism.noise_std / self.facts.units
        if stage == 0:
            return state._replace(level=adassp.level_of(mean[0], noise, 1.0))
        if stage == 1:
            theta = state.theta + 2.0 * (1.0 - jnp.asarray(step) / STEPS) * self.step_size * mean
            kept = jnp.asarray(step) >= STEPS - STEPS // 2
            return state._replace(theta=theta, total=state.total + jnp.where(kept, theta, 0.0))
        if stage == 3:
            return state._replace(around=self._statistics.solution(state.level, self._shrunken(noisy)))
        middle, half = self._range(state.theta)
        level_noise = self.stages[0].mechanism.noise_std / self.facts.units
        apart = jnp.abs(state.level - (middle + half * mean[0]))
        agrees = apart <= DISAGREE * jnp.hypot(level_noise, half * noise) + SLACK
        return state._replace(agrees=agrees.astype(jnp.float64))

    def finish(self, stage: int, state: State) -> State:
        """Return the state at the mean return after its release, and at the descent's answer after its last step."""
        if stage == 0:
            return state._replace(theta=state.theta.at[0].set(state.level))
        return state._replace(theta=state.total / (STEPS // 2)) if stage == 1 else state

    def answer(self, state: State) -> Float[Array, " n"]:
        """Return the weights over the features; indicators are kept where the value range allows them."""
        features, box = self.facts.features, self.facts.box
        otherwise = state.level * jnp.asarray(features.constant()) + state.around
        return jnp.clip(jnp.where(state.agrees > 0.5, jnp.asarray(self.basis) @ state.theta, otherwise), -box, box)

    def _shrunken(self, noisy: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the statistics with the products of modes and returns shrunk as their noise asks for.

        The positive part of James and Stein (1961): where they are noise the mean return alone remains.
        """
        modes = self._statistics.config.modes
        split, noise = len(noisy) - modes, self.stages[-1].mechanism.noise_std
        products = noisy[split:]
        kept = jnp.maximum(1.0 - modes * noise**2 / jnp.maximum(jnp.sum(products**2), 1e-300), 0.0)
        return jnp.concatenate([noisy[:split], kept * products])

    def _range(self, theta: Float[Array, " K"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the middle and half the width of the found function's values on public states, within [-1, 1]."""
        values = jnp.clip(jnp.asarray(self._modes_of_states) @ theta, -1.0, 1.0)
        low, high = jnp.min(values), jnp.max(values)
        return (low + high) / 2.0, jnp.maximum((high - low) / 2.0, 1e-3)


_ON_POLICY = {"max_importance_ratio": 1.0, "max_cumulative_ratio": 1.0}
_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    Recommended,
    settings={
        "mean and descent": Setting(Recommended(discount=0.9), facts=_ON_POLICY),
        "with statistics": Setting(Recommended(discount=0.9), facts={**_ON_POLICY, "units": 2_000}),
        "off-policy": Setting(Recommended(discount=0.9)),
        "one decision, a constant": Setting(Recommended(discount=0.9), facts=_ONE_STEP),
        "one decision, its shape": Setting(Recommended(discount=0.9), facts={**_ONE_STEP, "units": 5_000}),
    },
    attacks=(Attack(trials=20_000), Attack(units=5_000, trials=20_000)),
)
