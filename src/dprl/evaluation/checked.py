"""A value function that is found by descent, checked against what people had, and replaced where the check fails.

A unit's clipped vector is a direction more than a size: that makes the noise of a descent small, and draws it to a
median where returns are skewed. So a mean that few clips touch checks the found function: where it fails, unclipped
statistics around the mean return are the answer (AdaSSP), or the mean return alone: off policy, and if noise leaves no
more.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum (of returns, gradients, the check, and statistics); all else is post-processing.
Proof: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import PublicFacts, PublicProgram, Query
from dprl.evaluation import adassp, descent
from dprl.evaluation.adassp import AdaSSP, AdaSSPProgram
from dprl.evaluation.descent import NOISE_TRAVEL_BUDGET, REFERENCE, default_clip, signal_to_noise
from dprl.evaluation.td import TD
from dprl.value_functions.features import Columns, public_states
from dprl.value_functions.modes import make_modes

# Numbers were chosen on the seeds for choosing of benchmarks/families.py, but for those that docs/defaults.md names.
ENOUGH = 80.0
"""Strength n0 (units mu over the largest ratio, mu that of the value function) from which statistics say more than a
mean return."""
WEAK_SHARES, SHARES = (0.6, 0.3, 0.1), (0.25, 0.35, 0.1, 0.3)
"""Of mu^2, for returns below :data:`ENOUGH` and above: the mean return, the descent, its check, the statistics."""
# the mean return, the descent, its check, and on policy the statistics
TD_SHARES, OFF_POLICY_SHARES = (0.1, 0.6, 0.1, 0.2), (0.2, 0.7, 0.1)
"""For TD; off policy statistics of cut returns add more noise to the mean return than they say."""
CONSTANT_SHARE = 0.3
"""Of mu^2 for the mean return, where a decision is all there is, and statistics follow."""
STEPS, TRAVEL, LEAST_TRAVEL = 50, 5.0, 5.0
"""Of the descent on returns: how many steps, how far all of them go if every vector is clipped and points the same way,
and the least sum of all step sizes."""
DISAGREE, SLACK = 2.0, 0.02
"""The check of returns fails beyond so many standard deviations of its noise and so much of half the value range."""
TD_DISAGREE, TD_SLACK, OFF_POLICY_SLACK, OFF_POLICY_CLIP = 3.0, 0.1, 0.02, 0.5
"""That of TD fails beyond the larger of the two; off policy its slack is smaller, and so is the clip of its parts."""


def statistics(facts: PublicFacts, discount: float, start_weight: float = 0.5) -> AdaSSP:
    """Return options of the statistics: of all columns, which no order ranks, or as many modes as noise allows."""
    modes = make_modes(facts.features).size if isinstance(facts.features, Columns) else None
    return AdaSSP(discount=discount, modes=modes, constant_share=CONSTANT_SHARE, start_weight=start_weight)


def checked_returns(facts: PublicFacts, discount: float) -> tuple[Query, ...]:
    """Return what :class:`CheckedReturns` asks for."""
    size = modes_of_descent(facts)
    steps = Query("descent", size, default_clip(facts) * math.sqrt(size / facts.features.size), STEPS)
    shares = SHARES if facts.strength >= ENOUGH else WEAK_SHARES
    return _with_checks(steps, Query("its mean", 1, 1.0), shares, facts, discount)


def checked_td(facts: PublicFacts, discount: float) -> tuple[Query, ...]:
    """Return what :class:`CheckedTD` asks for."""
    td = TD(discount=discount)
    steps = Query("descent", facts.features.size, td.clip(facts), td.count(facts))
    check, shares = (1.0, TD_SHARES) if on_policy(facts) else (OFF_POLICY_CLIP, OFF_POLICY_SHARES)
    return _with_checks(steps, Query("its residual", 1, check), shares, facts, discount)


def on_policy(facts: PublicFacts) -> bool:
    """Tell whether the public bounds leave every importance ratio at one."""
    return facts.bounds.max_importance_ratio == 1.0


def _with_checks(
    steps: Query, check: Query, shares: tuple[float, ...], facts: PublicFacts, discount: float
) -> tuple[Query, ...]:
    of_statistics = statistics(facts, discount, 0.0).statistics(facts)
    queries = (Query("mean return", 1, 1.0), steps, check, Query("statistics", *of_statistics))
    return tuple(replace(query, share=share) for query, share in zip(queries, shares, strict=False))


def modes_of_descent(facts: PublicFacts) -> int:
    """Return how many modes the descent finds weights of: ``n0^0.4``; of columns, which no order ranks, all."""
    most = make_modes(facts.features).size
    return most if isinstance(facts.features, Columns) else min(most, max(2, round(facts.strength**0.4)))


class State(NamedTuple):
    """Made of noisy sums alone, in public units."""

    level: Float[Array, ""]  # released mean return
    theta: Float[Array, " K"]  # of the descent
    total: Float[Array, " K"]  # sum of the iterates that its answer is the mean of
    agrees: Float[Array, ""]  # 1 where the found function passes the check
    around: Float[Array, " n"]  # what statistics add to the mean return


@dataclass(frozen=True)
class Checked(PublicProgram):
    """What both descents share: the mean return, the check, the statistics and the answer."""

    columns = ("returns", "start")

    @cached_property
    def _statistics(self) -> AdaSSPProgram:
        """The program of which the first and the last stage are ours."""
        config = statistics(self.facts, self.config.discount, 0.0)
        return config.program(self.facts, (self.stages[0], self.stages[-1]))

    def init(self) -> State:
        """Return the state before the first step."""
        theta, zero = jnp.zeros(self.stages[1].mechanism.dimension, jnp.float64), jnp.zeros((), jnp.float64)
        return State(zero, theta, theta, zero, jnp.zeros(self.facts.features.size, jnp.float64))

    def contribution(self, stage: int, state: State, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's mean return, gradient, part of the check, or statistics."""
        if stage == 0:
            return jnp.sum(block.weight_return, axis=-1, keepdims=True)
        if stage == 3:
            return self._statistics.vectors(adassp.State(state.level, state.around), block)
        return self.gradients(state, block) if stage == 1 else self.checks(state, block)[:, None]

    def update(self, stage: int, state: State, noisy: Float[Array, " dim"], step: Any) -> State:
        """Return the state after a step, from its noisy sum."""
        mean, noise = noisy / self.facts.units, self.stages[stage].mechanism.noise_std / self.facts.units
        if stage == 0:
            return state._replace(level=adassp.level_of(mean[0], noise, self.facts.ratio))
        if stage == 3:
            return state._replace(around=self._statistics.solution(state.level, self._shrunken(noisy)))
        if stage == 1:
            return self.stepped(state, noisy, step)
        return state._replace(agrees=self.agrees(state, mean[0], noise).astype(jnp.float64))

    def finish(self, stage: int, state: State) -> State:
        """Return the state as it is, and after the last step of the descent at its answer."""
        return state._replace(theta=self.found(state)) if stage == 1 else state

    def answer(self, state: State) -> Float[Array, " n"]:
        """Return the weights over the features; indicators are kept where the value range allows them."""
        box = self.facts.box
        otherwise = state.level * jnp.asarray(self.facts.features.constant()) + state.around
        return jnp.clip(jnp.where(state.agrees > 0.5, self.to_features(state.theta), otherwise), -box, box)

    def _shrunken(self, noisy: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the statistics with the products of modes and returns shrunk as their noise asks for.

        The positive part of James and Stein (1961): where they are noise the mean return alone remains.
        """
        modes = self._statistics.config.modes
        split, noise = len(noisy) - modes, self.stages[-1].mechanism.noise_std
        products = noisy[split:]
        kept = jnp.maximum(1.0 - modes * noise**2 / jnp.maximum(jnp.sum(products**2), 1e-300), 0.0)
        return jnp.concatenate([noisy[:split], kept * products])

    def gradients(self, state: State, block: Block) -> Float[Array, "units K"]:
        """Return each unit's vector of the descent."""
        raise NotImplementedError

    def stepped(self, state: State, noisy: Float[Array, " K"], step: Any) -> State:
        """Return the state after a step of the descent."""
        raise NotImplementedError

    def found(self, state: State) -> Float[Array, " K"]:
        """Return the answer of the descent after its last step."""
        raise NotImplementedError

    def to_features(self, theta: Float[Array, " K"]) -> Float[Array, " n"]:
        """Return weights over the features."""
        raise NotImplementedError

    def checks(self, state: State, block: Block) -> Float[Array, " units"]:
        """Return each unit's part of the check, which the mechanism clips."""
        raise NotImplementedError

    def agrees(self, state: State, mean: Float[Array, ""], noise: float) -> Bool[Array, ""]:
        """Tell whether the found function passes the check, from the noisy mean of its parts."""
        raise NotImplementedError


@dataclass(frozen=True)
class CheckedReturns(Checked):
    """Descent on returns over few modes; the found function's mean is to be the mean return."""

    @cached_property
    def basis(self) -> Float[np.ndarray, "n K"]:
        """Weights of the modes over the features."""
        return make_modes(self.facts.features).to_features[:, : self.stages[1].mechanism.dimension]

    @cached_property
    def _modes_of_states(self) -> Float[np.ndarray, "points K"]:
        return self.facts.features(public_states(self.facts.features)) @ self.basis

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

    @override
    def finish(self, stage: int, state: State) -> State:
        if stage == 0:
            return state._replace(theta=state.theta.at[0].set(state.level))
        return super().finish(stage, state)

    @override
    def gradients(self, state: State, block: Block) -> Float[Array, "units K"]:
        error = block.weight_return - block.weight * self._values(state, block)
        return project_phi(error, block) @ jnp.asarray(self.basis, block.phi.dtype)

    @override
    def stepped(self, state: State, noisy: Float[Array, " K"], step: Any) -> State:
        mean = noisy / self.facts.units
        theta = state.theta + 2.0 * (1.0 - jnp.asarray(step) / STEPS) * self.step_size * mean
        kept = jnp.asarray(step) >= STEPS - STEPS // 2
        return state._replace(theta=theta, total=state.total + jnp.where(kept, theta, 0.0))

    @override
    def found(self, state: State) -> Float[Array, " K"]:
        return state.total / (STEPS // 2)

    @override
    def to_features(self, theta: Float[Array, " K"]) -> Float[Array, " n"]:
        return jnp.asarray(self.basis) @ theta

    @override
    def checks(self, state: State, block: Block) -> Float[Array, " units"]:
        middle, half = (x.astype(block.phi.dtype) for x in self._range(state.theta))
        inside = jnp.clip((self._values(state, block) - middle) / half, -1.0, 1.0)
        return jnp.sum(block.weight * inside, axis=-1)

    @override
    def agrees(self, state: State, mean: Float[Array, ""], noise: float) -> Bool[Array, ""]:
        middle, half = self._range(state.theta)
        level_noise = self.stages[0].mechanism.noise_std / self.facts.units
        apart = jnp.abs(state.level - (middle + half * mean))
        return apart <= DISAGREE * jnp.hypot(level_noise, half * noise) + SLACK

    def _values(self, state: State, block: Block) -> Float[Array, "units rows"]:
        dtype = block.phi.dtype
        return apply(block.phi, jnp.asarray(self.basis, dtype) @ state.theta.astype(dtype))

    def _range(self, theta: Float[Array, " K"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the middle and half the width of the found function's values on public states, within [-1, 1]."""
        values = jnp.clip(jnp.asarray(self._modes_of_states) @ theta, -1.0, 1.0)
        low, high = jnp.min(values), jnp.max(values)
        return (low + high) / 2.0, jnp.maximum((high - low) / 2.0, 1e-3)


@dataclass(frozen=True)
class CheckedTD(Checked):
    """TD of a table, whose values have no shape that few modes could say.

    The found function's temporal-difference errors are to be zero in the mean. On policy they are discounted to the
    start: their sum over a trajectory is ``G - V(s_0) + gamma^L V(s_L)``, what was earned, against what V said of just
    those steps. Off policy each is weighted by its own step's importance ratio, and a trajectory counts with their
    mean: no product of ratios, no cut.
    """

    columns = ("returns", "start", "discounted")

    @cached_property
    def _td(self) -> Any:
        return TD(discount=self.config.discount).program(self.facts, self.stages[1:2])

    @override
    def gradients(self, state: State, block: Block) -> Float[Array, "units K"]:
        return self._td.vectors(_descent(state), block)

    @override
    def stepped(self, state: State, noisy: Float[Array, " K"], step: Any) -> State:
        after = self._td.advance(0, _descent(state), noisy, step)
        return state._replace(theta=after.theta, total=after.total)

    @override
    def found(self, state: State) -> Float[Array, " K"]:
        return jnp.clip(self._td.answer(_descent(state)), -self.facts.box, self.facts.box)

    @override
    def to_features(self, theta: Float[Array, " K"]) -> Float[Array, " n"]:
        return theta

    @override
    def checks(self, state: State, block: Block) -> Float[Array, " units"]:
        following = apply(block.delta_phi, state.theta.astype(block.phi.dtype))
        if on_policy(self.facts):
            return jnp.sum(block.discounted_reward - block.discounted * following, axis=-1) / 2.0
        return jnp.sum(block.weight_rho_reward - block.weight_rho * following, axis=-1) / 2.0

    @override
    def agrees(self, state: State, mean: Float[Array, ""], noise: float) -> Bool[Array, ""]:
        slack = TD_SLACK if on_policy(self.facts) else OFF_POLICY_SLACK
        return 2.0 * jnp.abs(mean) <= max(TD_DISAGREE * 2.0 * noise, slack)


def _descent(state: State) -> descent.State:
    return descent.State(state.theta, state.total)
