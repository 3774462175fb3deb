"""A value function that is found by descent, checked against people's returns, and replaced where the check fails.

A unit's clipped vector gives a direction more than a size. That keeps the noise of a descent small, but draws the
answer to a median where returns are skewed. So a mean that clipping hardly touches checks the found function. Where the
check fails, the answer is unclipped statistics around the mean return (AdaSSP). Off policy, and where the budget is
small, it is the mean return only. Where the check passes and the features are a table, TD goes on from the found
function, with the budget that statistics would have had.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum (of returns, gradients, the check, and statistics); all else is post-processing.
Proof: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage
from dprl.evaluation import adassp
from dprl.evaluation.adassp import AdaSSP, AdaSSPProgram
from dprl.evaluation.td import (
    NOISE_TRAVEL_BUDGET,
    REFERENCE_STRENGTH,
    TD,
    DescentState,
    TDProgram,
    default_clip,
    signal_to_noise,
)
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.features import Columns, Tabular, public_states
from dprl.value_functions.modes import make_modes

# Numbers were chosen on the seeds for choosing of benchmarks/families.py, but for those that docs/defaults.md names.
ENOUGH_STRENGTH = 80.0
"""Strength n0 (units mu over the largest ratio, mu that of the value function) from which there is more to find than a
mean return and few modes."""
WEAK_SHARES, SHARES, TABLE_SHARES = (0.5, 0.4, 0.1), (0.25, 0.35, 0.1, 0.3), (0.15, 0.2, 0.1, 0.55)
"""Shares of mu^2 for the mean return, the descent, its check, and what follows.

The first shares serve a strength below :data:`ENOUGH_STRENGTH`, the second one above it, the third a table above it.
"""
OFF_POLICY_SHARES = (0.2, 0.7, 0.1)
"""Shares of mu^2 for the mean return, TD and its check, off policy.

No statistics follow: those of cut returns would add more noise to the mean return than they say.
"""
CONSTANT_SHARE = 0.3
"""Share of mu^2 that the statistics spend on the mean return: of a single decision, or of a table."""
STEPS, TRAVEL, LEAST_TRAVEL = 50, 5.0, 5.0
"""Number of steps of the descent on returns, how far all of them go, and the least sum of all step sizes.

How far they go is said for vectors that are all clipped and point the same way.
"""
TD_STEPS, TD_TRAVEL, MOST_TRAVEL = 200, 0.5, 16.0
"""Number of steps of the TD that follows, how far all of them go, and how far at most.

How far they go is said for each :data:`~dprl.evaluation.td.REFERENCE_STRENGTH` of strength. It is a fifth of what TD
from mid-range goes, so that what few modes say well is left as it is.
"""
NOISE_OF_MOVE = 0.1
"""Mean square of the noise that is left in the way that TD goes, because the data pull theta back.

It is relative to the mean square of the noise in as many numbers, each a noisy mean of all units that has the stage's
whole budget.
"""
DISAGREE, SLACK = 2.0, 0.02
"""Difference beyond which the check of returns fails: deviations of its noise, plus half-widths of the value range."""
TABLE_DISAGREE, TABLE_SLACK, OFF_POLICY_SLACK, OFF_POLICY_CLIP = 3.0, 0.1, 0.02, 0.5
"""The same where TD follows, and off policy, where the larger of the two counts; and the clip of a unit's part of the
check off policy."""


def statistics_options(facts: PublicFacts, discount: float, start_weight: float = 0.5) -> AdaSSP:
    """Return options of the statistics: all columns, which no order ranks, or as many modes as the noise allows."""
    modes = make_modes(facts.features).size if isinstance(facts.features, Columns) else None
    return AdaSSP(discount=discount, modes=modes, constant_share=CONSTANT_SHARE, start_weight=start_weight)


def queries_of_checked_returns(facts: PublicFacts, discount: float) -> tuple[Query, ...]:
    """Return the queries of :class:`CheckedReturns`."""
    size, (length, norm) = modes_of_descent(facts), statistics_options(facts, discount, 0.0).statistics(facts)
    last, shares = Query("statistics", length, norm), SHARES
    if isinstance(facts.features, Tabular):
        clip = TD(discount=discount).clip(facts)
        last, shares = Query("TD or statistics", max(facts.features.size, length), clip, TD_STEPS), TABLE_SHARES
    queries = (
        Query("mean return", 1, 1.0),
        Query("descent", size, default_clip(facts) * math.sqrt(size / facts.features.size), STEPS),
        Query("its mean", 1, 1.0),
        last,
    )
    return _shared(queries, shares if facts.strength >= ENOUGH_STRENGTH else WEAK_SHARES)


def queries_of_checked_td(facts: PublicFacts, discount: float) -> tuple[Query, ...]:
    """Return the queries of :class:`CheckedTD`."""
    td = TD(discount=discount)
    steps = Query("descent", facts.features.size, td.clip(facts), td.step_count(facts))
    return _shared((Query("mean return", 1, 1.0), steps, Query("its residual", 1, OFF_POLICY_CLIP)), OFF_POLICY_SHARES)


def _shared(queries: tuple[Query, ...], shares: tuple[float, ...]) -> tuple[Query, ...]:
    return tuple(replace(query, share=share) for query, share in zip(queries, shares, strict=False))


def on_policy(facts: PublicFacts) -> bool:
    """Tell whether the public bounds leave every importance ratio at one."""
    return facts.bounds.max_importance_ratio == 1.0


def modes_of_descent(facts: PublicFacts) -> int:
    """Return how many modes the descent fits: ``n0^0.4``, but all of them for columns, which no order ranks."""
    most = make_modes(facts.features).size
    return most if isinstance(facts.features, Columns) else min(most, max(2, round(facts.strength**0.4)))


@dataclass(frozen=True)
class CheckedDescent(PublicProgram):
    """Base of both programs, which release first the mean return, then the descent, then its check."""

    columns = ("returns", "start")

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's mean return, vector of the descent, or part of the check, by stage."""
        if stage == 0:
            return jnp.sum(block.weight_return, axis=-1, keepdims=True)
        return self.gradients(state, block) if stage == 1 else self.checks(state, block)[:, None]

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        """Return the state after a step, from its noisy sum."""
        if stage == 1:
            return self.stepped(state, noisy, step)
        mean, noise = noisy[0] / self.facts.units, self.stages[stage].mechanism.noise_std / self.facts.units
        if stage == 0:
            return state._replace(level=adassp.shrunken_level(mean, noise, self.facts.ratio))
        return state._replace(agrees=self.agrees(state, mean, noise).astype(jnp.float64))

    def _within(self, theta: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return weights over the features, with weights of indicators clipped to the value range."""
        return jnp.clip(theta, -self.facts.box, self.facts.box)

    def _constant(self, state: Any) -> Float[Array, " n"]:
        return state.level * jnp.asarray(self.facts.features.constant())

    def gradients(self, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's vector of the descent."""
        raise NotImplementedError

    def stepped(self, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        """Return the state after a step of the descent."""
        raise NotImplementedError

    def checks(self, state: Any, block: Block) -> Float[Array, " units"]:
        """Return each unit's part of the check, which the mechanism clips."""
        raise NotImplementedError

    def agrees(self, state: Any, mean: Float[Array, ""], noise: float) -> Bool[Array, ""]:
        """Tell whether the found function passes the check, from the noisy mean of the units' parts."""
        raise NotImplementedError


class ReturnsState(NamedTuple):
    """State of :class:`CheckedReturns`, made of noisy sums only, in public units."""

    level: Float[Array, ""]  # released mean return
    theta: Float[Array, " K"]  # of the descent on returns
    total: Float[Array, " K"]  # sum of the iterates that its answer is the mean of
    agrees: Float[Array, ""]  # 1 where the found function passes the check
    td: DescentState
    released: Float[Array, " dim"]  # sum of all that the last stage released


@dataclass(frozen=True)
class CheckedReturns(CheckedDescent):
    """Descent on returns over few modes; the check is whether the found function's mean is the mean return.

    With a fourth stage, statistics follow where the check fails. For a table, TD follows where the check passes.
    """

    def __post_init__(self) -> None:
        if len(self.stages) > 3:  # both are made now, so that impossible options are refused before any charge
            _ = self._statistics, self._refines and self._td

    @property
    def _refines(self) -> bool:
        """Whether TD may go on from the found function: for a table, where there is budget for a fourth stage."""
        return len(self.stages) > 3 and isinstance(self.facts.features, Tabular)

    @cached_property
    def basis(self) -> Float[np.ndarray, "n K"]:
        """Weights of the modes over the features."""
        return make_modes(self.facts.features).to_features[:, : self.stages[1].mechanism.dimension]

    @cached_property
    def _modes_of_states(self) -> Float[np.ndarray, "points K"]:
        return self.facts.features(public_states(self.facts.features)) @ self.basis

    @cached_property
    def step_size(self) -> float:
        """Mean over the steps of the factor of a mean noisy vector, which falls to zero.

        It is as large as is useful, but so small that the noise moves theta by at most :data:`NOISE_TRAVEL_BUDGET`.
        """
        stage = self.stages[1]
        strength, clip = signal_to_noise(stage, self.facts.units), stage.mechanism.clip_norm
        travel = TRAVEL * max(strength / REFERENCE_STRENGTH, 1.0) ** 0.15 / clip
        walk = NOISE_TRAVEL_BUDGET * strength / (math.sqrt(stage.mechanism.dimension) * clip)
        return min(max(travel, LEAST_TRAVEL), walk) / STEPS

    @cached_property
    def _td(self) -> TDProgram:
        """TD in the last stage, with steps so small that TD ends near its start."""
        stage = self.stages[3]
        strength, clip = signal_to_noise(stage, self.facts.units), stage.mechanism.clip_norm
        walk = NOISE_TRAVEL_BUDGET * strength / math.sqrt(self.facts.features.size)
        step_size = min(TD_TRAVEL * strength / REFERENCE_STRENGTH, MOST_TRAVEL, walk) / (clip * TD_STEPS)
        config = TD(discount=self.config.discount, start="mid-range", step_size=step_size, cap_step_size=False)
        return config.program(self.facts, (stage,))

    @cached_property
    def _statistics(self) -> AdaSSPProgram:
        """Statistics in the last stage: all its steps ask for one sum, and their mean has less noise."""
        config, mechanism = statistics_options(self.facts, self.config.discount, 0.0), self.stages[3].mechanism
        multiplier = mechanism.noise_multiplier / math.sqrt(mechanism.steps)
        mean = GaussianSum(parts=(config.statistics(self.facts),), noise_multiplier=multiplier)
        return config.program(self.facts, (self.stages[0], Stage("statistics", mean)))

    def init(self) -> ReturnsState:
        """Return the state before the first step."""
        theta, n = jnp.zeros(self.stages[1].mechanism.dimension, jnp.float64), self.facts.features.size
        zero, last = jnp.zeros((), jnp.float64), self.stages[-1].mechanism.dimension
        td = DescentState(jnp.zeros(n, jnp.float64), jnp.zeros(n, jnp.float64))
        return ReturnsState(zero, theta, theta, zero, td, jnp.zeros(last, jnp.float64))

    @override
    def contribution(self, stage: int, state: ReturnsState, block: Block) -> Float[Array, "units dim"]:
        if stage < 3:
            return super().contribution(stage, state, block)

        def padded(vectors: Float[Array, "units _"]) -> Float[Array, "units dim"]:
            return jnp.pad(vectors, ((0, 0), (0, len(state.released) - vectors.shape[1])))

        around = adassp.State(state.level, jnp.zeros_like(state.td.theta))
        asked = lambda: padded(self._scale * self._statistics.vectors(around, block))  # noqa: E731
        if not self._refines:
            return asked()
        return jax.lax.cond(state.agrees > 0.5, lambda: padded(self._td.vectors(state.td, block)), asked)

    @property
    def _scale(self) -> float:
        """Factor that gives statistics the clip norm of the last stage, which for a table is TD's."""
        return self.stages[3].mechanism.clip_norm / self._statistics.stages[1].mechanism.clip_norm

    @override
    def update(self, stage: int, state: ReturnsState, noisy: Float[Array, " dim"], step: Any) -> ReturnsState:
        if stage < 3:
            return super().update(stage, state, noisy, step)
        state = state._replace(released=state.released + noisy)
        if not self._refines:
            return state
        return state._replace(td=self._td.advance(0, state.td, noisy[: len(state.td.theta)], step))

    def finish(self, stage: int, state: ReturnsState) -> ReturnsState:
        """Return the state from which the next stage starts.

        The descent starts at the mean return. After the descent theta is its answer, and TD starts there.
        """
        if stage == 0:
            return state._replace(theta=state.theta.at[0].set(state.level))
        if stage == 1:
            theta = state.total / (STEPS // 2)
            td = state.td._replace(theta=self._within(jnp.asarray(self.basis) @ theta))
            return state._replace(theta=theta, td=td)
        return state

    def answer(self, state: ReturnsState) -> Float[Array, " n"]:
        """Return the weights over the features."""
        found = self._refined(state) if self._refines else state.td.theta
        otherwise = self._constant(state) + (self._around(state) if len(self.stages) > 3 else 0.0)
        return self._within(jnp.where(state.agrees > 0.5, found, otherwise))

    def _refined(self, state: ReturnsState) -> Float[Array, " n"]:
        """Return TD's answer, drawn back towards TD's start by more, the more of the way between may be noise."""
        start = self._within(jnp.asarray(self.basis) @ state.theta)
        move = self._td.answer(state.td) - start
        noise = NOISE_OF_MOVE * len(move) / signal_to_noise(self.stages[3], self.facts.units) ** 2
        return start + move / (1.0 + noise / jnp.maximum(jnp.sum(move**2), 1e-300))

    def _around(self, state: ReturnsState) -> Float[Array, " n"]:
        """Return what statistics add to the mean return, with the products of modes and returns shrunk.

        The positive-part estimator of James and Stein (1961) shrinks the products as far as their noise requires. Where
        they are all noise, only the mean return remains.
        """
        mean, modes = self._statistics.stages[1].mechanism, self._statistics.config.modes
        noisy = state.released[: mean.dimension] / (self._scale * self.stages[3].mechanism.steps)
        products = noisy[-modes:]
        kept = jnp.maximum(1.0 - modes * mean.noise_std**2 / jnp.maximum(jnp.sum(products**2), 1e-300), 0.0)
        return self._statistics.solution(state.level, jnp.concatenate([noisy[:-modes], kept * products]))

    @override
    def gradients(self, state: ReturnsState, block: Block) -> Float[Array, "units K"]:
        error = block.weight_return - block.weight * self._values(state, block)
        return project_phi(error, block) @ jnp.asarray(self.basis, block.phi.dtype)

    @override
    def stepped(self, state: ReturnsState, noisy: Float[Array, " K"], step: Any) -> ReturnsState:
        mean = noisy / self.facts.units
        theta = state.theta + 2.0 * (1.0 - jnp.asarray(step) / STEPS) * self.step_size * mean
        kept = jnp.asarray(step) >= STEPS - STEPS // 2
        return state._replace(theta=theta, total=state.total + jnp.where(kept, theta, 0.0))

    @override
    def checks(self, state: ReturnsState, block: Block) -> Float[Array, " units"]:
        middle, half = (x.astype(block.phi.dtype) for x in self._range(state.theta))
        inside = jnp.clip((self._values(state, block) - middle) / half, -1.0, 1.0)
        return jnp.sum(block.weight * inside, axis=-1)

    @override
    def agrees(self, state: ReturnsState, mean: Float[Array, ""], noise: float) -> Bool[Array, ""]:
        middle, half = self._range(state.theta)
        level_noise = self.stages[0].mechanism.noise_std / self.facts.units
        apart, std = jnp.abs(state.level - (middle + half * mean)), jnp.hypot(level_noise, half * noise)
        if self._refines:
            return apart <= jnp.maximum(TABLE_DISAGREE * std, TABLE_SLACK)
        return apart <= DISAGREE * std + SLACK

    def _values(self, state: ReturnsState, block: Block) -> Float[Array, "units rows"]:
        dtype = block.phi.dtype
        return apply(block.phi, jnp.asarray(self.basis, dtype) @ state.theta.astype(dtype))

    def _range(self, theta: Float[Array, " K"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the middle and half the width of the found function's values on public states, within [-1, 1]."""
        values = jnp.clip(jnp.asarray(self._modes_of_states) @ theta, -1.0, 1.0)
        low, high = jnp.min(values), jnp.max(values)
        return (low + high) / 2.0, jnp.maximum((high - low) / 2.0, 1e-3)


class TDState(NamedTuple):
    """State of :class:`CheckedTD`, made of noisy sums only, in public units."""

    level: Float[Array, ""]  # released mean return
    td: DescentState
    agrees: Float[Array, ""]  # 1 where the found function passes the check


@dataclass(frozen=True)
class CheckedTD(CheckedDescent):
    """TD of a table off policy; the check is whether its temporal-difference errors are zero in the mean.

    Each error is weighted by its own step's importance ratio, and a trajectory counts with the mean of its errors. So
    there is no product of ratios that could be cut.
    """

    @cached_property
    def _td(self) -> TDProgram:
        return TD(discount=self.config.discount).program(self.facts, self.stages[1:2])

    def init(self) -> TDState:
        """Return the state before the first step."""
        zero = jnp.zeros((), jnp.float64)
        return TDState(zero, self._td.init(), zero)

    @override
    def gradients(self, state: TDState, block: Block) -> Float[Array, "units n"]:
        return self._td.vectors(state.td, block)

    @override
    def stepped(self, state: TDState, noisy: Float[Array, " n"], step: Any) -> TDState:
        return state._replace(td=self._td.advance(0, state.td, noisy, step))

    def finish(self, stage: int, state: TDState) -> TDState:
        """Return the state; after the last step of TD its theta is TD's answer."""
        if stage != 1:
            return state
        return state._replace(td=state.td._replace(theta=self._within(self._td.answer(state.td))))

    @override
    def checks(self, state: TDState, block: Block) -> Float[Array, " units"]:
        following = apply(block.delta_phi, state.td.theta.astype(block.phi.dtype))
        return jnp.sum(block.weight_rho_reward - block.weight_rho * following, axis=-1) / 2.0

    @override
    def agrees(self, state: TDState, mean: Float[Array, ""], noise: float) -> Bool[Array, ""]:
        return 2.0 * jnp.abs(mean) <= max(TABLE_DISAGREE * 2.0 * noise, OFF_POLICY_SLACK)

    def answer(self, state: TDState) -> Float[Array, " n"]:
        """Return the weights over the features."""
        return self._within(jnp.where(state.agrees > 0.5, state.td.theta, self._constant(state)))
