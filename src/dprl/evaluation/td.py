"""Private TD(0), and the noisy steps of a linear value function that it shares with private regression on returns.

A unit's vector is ``g_i(theta) = a * sum_t c_t(theta) phi_t``, with a coefficient ``c_t`` for each of its rows and a
public scale ``a`` of the features, and is clipped as a whole. Each step adds ``step_size * a * (noisy sum / (q m))``,
over full or Poisson batches, on and off policy. For TD, ``c_t`` is the weighted temporal difference.

Method: Sutton (1988); with an importance ratio per step, Precup, Sutton and Singh (2000). Noise and clip are ours.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: the noisy sums of rewards that the start may be made of, and every noisy sum of clipped vectors, hence every
iterate; averages and projections are post-processing.
Proofs: docs/proofs/td.md, docs/proofs/return-regression.md. Symbols: docs/symbols.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.evaluation.private_constant import MeanReward, StartedProgram, StartLevel, queries_after_start
from dprl.protocols import Attack
from dprl.value_functions.features import CoupledFourier, Features, Fourier, Tabular

FUNCTION = "value function"
# n0 of 1,000 units at epsilon 0.1 and delta 1e-5, where the defaults were chosen first
REFERENCE_STRENGTH = 33.0
# how far the noise of all steps may move theta in L2 by default, in half-widths of the value range
NOISE_TRAVEL_BUDGET = 0.4
# how far the norm of theta may exceed the largest root mean square of a V within the value range, under the uniform
# distribution: trajectories visit a small part of the states, and the best weights there may leave the range elsewhere
NORM_MARGIN = 1.5
# a clip norm above this times the square root of the number of features clips few vectors near the end
BINDING_CLIP = 0.05
_LONGEST_STEP = 1e6


@dataclass(frozen=True, kw_only=True)
class DescentConfig(ValueFunctionConfig):
    """Options of private TD(0) and private regression on returns; all of them are public facts.

    Values and vectors are in public units: the value range is mapped to [-1, 1] and features are orthonormal under the
    uniform distribution, so that the same numbers fit every log.

    The defaults were chosen on simulated chains and Mountain Cars at 1,000 and 5,000 trajectories, epsilon 0.1 and 1.
    Where trajectories have several steps, the clip norm is far below a typical vector's norm at the start: each unit
    gives a direction more than a size. That keeps the noise small, but draws the answer towards a median. With rewards
    that are random and skewed given the state, such as a rare success at the end, the answer is wrong at every budget,
    and worse than a private constant. A clip norm of ``sqrt(n)`` undoes that, but its noise cost more than it gained in
    all simulations.

    Attributes:
        steps: number of updates; 50 by default, more where values travel from state to state (:meth:`step_count`).
        sampling_rate: probability with which a unit takes part in an update.
        clip_norm: L2 clip C of a unit's whole vector; by default it follows from the features and the horizon.
        step_size: factor of a mean noisy vector; by default it follows from the clip and the noise, see :meth:`travel`.
        cap_step_size: keep the step size within a factor of two of the default, so that a value that is ten times off
            costs little.
        average: which iterates the answer is read from: the mean of the last half (``tail``), of ``all``, or the
            ``last``.
        project: project theta onto what the public value range allows, after each update.
        decay: exponent of the public scale ``(1 + order)^-decay`` of Fourier features; other features are not scaled.
        weighting: weight of a transition: ``trajectory``, one over its trajectory's length, or ``transition``, one over
            the public horizon.
    """

    steps: int | None = None
    sampling_rate: float = 1.0
    clip_norm: float | None = None
    step_size: float | None = None
    cap_step_size: bool = True
    average: Literal["tail", "all", "last"] = "tail"
    project: bool = True
    decay: float = 0.0
    weighting: Literal["trajectory", "transition"] = "trajectory"

    ranges: ClassVar[Mapping[str, str]] = {
        "steps": "[1, 1000000]",
        "sampling_rate": "(0, 1]",
        "decay": "[0, 10]",
        "clip_norm": "(0, inf)",
        "step_size": "(0, inf)",
    }

    def clip(self, facts: PublicFacts) -> float:
        """Return the clip C in force: by default ``0.25 sqrt(n) / horizon^(3/4)``."""
        return default_clip(facts) if self.clip_norm is None else self.clip_norm

    def step_count(self, facts: PublicFacts) -> int:
        """Return the number of updates in force.

        The noise in the answer is the same with few updates as with many, apart from the effect of clipping.
        """
        del facts
        return 50 if self.steps is None else self.steps

    def travel(self, facts: PublicFacts, strength: float) -> float:
        """Return how far theta can go in all steps together by default; ``strength`` as in :func:`signal_to_noise`."""
        raise NotImplementedError

    def released_start(self, facts: PublicFacts) -> StartLevel | None:
        """Return the release of the start; None where the start is public."""
        del facts
        return None

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        return (Query(FUNCTION, facts.features.size, self.clip(facts), self.step_count(facts), self.sampling_rate),)

    @override
    def resolve(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Self:
        """Return the same options with clip and step size filled in, from the public facts and the noise.

        The default step size lets theta go as far as :meth:`travel` says if every unit pulls the same way with a
        clipped vector. It is smaller where the noise of all steps would move theta by more than 0.4 in L2: beyond that
        the answer would be noise, and the start a better guess. A clip norm that is raised beyond what binds makes the
        steps smaller only because of their noise.
        """
        mechanism = stages[-1].mechanism
        strength, root = signal_to_noise(stages[-1], facts.units), math.sqrt(facts.features.size)
        pull = min(mechanism.clip_norm, max(default_clip(facts), BINDING_CLIP * root))
        walk = NOISE_TRAVEL_BUDGET * strength / (root * mechanism.clip_norm)
        default = min(self.travel(facts, strength) / pull, walk) / mechanism.steps
        step_size = default if self.step_size is None else self.step_size
        if self.cap_step_size:
            step_size = min(max(step_size, default / 2.0), default * 2.0)
        longest = step_size * (mechanism.clip_norm + 10.0 * mechanism.noise_std / (self.sampling_rate * facts.units))
        self._check(
            f"updates with step_size = {step_size:g} leave the range of values at this clip_norm; choose a smaller "
            "one, or leave it out",
            longest <= _LONGEST_STEP and step_size > 0.0,
        )
        out = self
        if self.clip_norm is None:
            out = out.replace(DERIVED, clip_norm=mechanism.clip_norm)
        return out if step_size == self.step_size else out.replace(DERIVED, step_size=step_size)


def default_clip(facts: PublicFacts) -> float:
    """Return the clip norm that follows from the features and the horizon."""
    return 0.25 * math.sqrt(facts.features.size) * facts.horizon**-0.75


def signal_to_noise(stage: Stage, units: int) -> float:
    """Return ``n0``: the clip norm over the noise in a mean after all steps. For full batches it is units times mu.

    A travel of s ends with noise of ``s / n0`` in each coordinate, unless the data pull theta back.
    """
    mechanism = stage.mechanism
    return math.sqrt(mechanism.steps) * mechanism.sampling_rate * units / mechanism.noise_multiplier


def feature_scale(features: Features, decay: float) -> Float[np.ndarray, " n"]:
    """Return the ``(n,)`` public scale of each feature: ``(1 + order)^-decay`` for Fourier features, 1 for others.

    The order is summed over components. A smooth value function has small weights on high orders. Scaled down, these
    features take little of a unit's clipped norm and of the noise, and are learned last. The constant's scale is 1.
    """
    if not isinstance(features, Fourier | CoupledFourier):
        return np.ones(features.size)
    orders = np.indices((features.order + 1,) * len(features.bounds)).sum(axis=0).ravel()
    return (1.0 + orders) ** -decay


class DescentState(NamedTuple):
    """State of the program. It is made of noisy sums and public facts only, so it is as private as the noisy sums."""

    theta: Float[Array, " n"]  # float64
    total: Float[Array, " n"]  # sum of the iterates that `average` asks for


@dataclass(frozen=True)
class Descent(StartedProgram):
    """Program of noisy steps of a linear value function, without the units' vectors, which subclasses define.

    Attributes:
        stages: the last one makes the updates.
        config: options, with clip and step size filled in.
        facts: public facts.
    """

    @cached_property
    def scale(self) -> Float[np.ndarray, " n"]:
        """``(n,)`` public scale of the features."""
        return feature_scale(self.facts.features, self.config.decay)

    @override
    def start_at(self, level: Float[Array, ""]) -> DescentState:
        theta = level * jnp.asarray(self.facts.features.constant(), dtype=jnp.float64)
        return DescentState(theta, jnp.zeros_like(theta))

    @override
    def advance(self, stage: int, state: DescentState, noisy: Float[Array, " n"], step: Any) -> DescentState:
        config, facts, mechanism = self.config, self.facts, self.stages[stage].mechanism
        theta = state.theta + config.step_size * self.scale * noisy / self.normaliser(stage)
        if config.project:
            theta = jnp.clip(theta, -facts.box, facts.box)
            theta = theta * jnp.minimum(1.0, NORM_MARGIN * facts.ball / jnp.maximum(jnp.linalg.norm(theta), 1e-30))
        kept = jnp.asarray(step) >= mechanism.steps - self._counted
        return DescentState(theta, state.total + jnp.where(kept, theta, jnp.zeros_like(theta)))

    @property
    def _counted(self) -> int:
        """Number of iterates that the answer is the mean of."""
        steps = self.stages[-1].mechanism.steps
        return {"tail": steps - steps // 2, "all": steps, "last": 1}[self.config.average]

    def answer(self, state: DescentState) -> Float[Array, " n"]:
        """Return the released ``(n,)`` weights: the asked-for average of the iterates."""
        return state.total / self._counted


# --- TD(0) ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TD(DescentConfig):
    """Options of private TD(0): those of :class:`DescentConfig`, and the start.

    A unit's vector is ``a * sum_t weight_t rho_t phi_t (r_t + gamma theta'phi_{t+1} - theta'phi_t)``. Off policy the
    expected update can diverge (Baird 1995): the projection keeps theta bounded, but nothing makes it right.

    Attributes:
        start: ``mid-range`` of the public values, or ``mean-reward``: the constant ``rbar / (1 - gamma)``, where
            ``rbar`` is the importance-weighted mean reward. It is a noisy ratio, but known without any release where
            the public rewards are a single number. Only there ``mean-reward`` is the default, off policy and unless
            features are a table. For a table this start is far off where trajectories end, and many steps are needed to
            come back.
        start_budget_fraction: share of the mu^2 of the value function that pays for the noisy ratio of the start.
    """

    start: Literal["mid-range", "mean-reward"] | None = None
    start_budget_fraction: float = 0.1

    algorithm: ClassVar[str] = "td"
    ranges: ClassVar[Mapping[str, str]] = {"start_budget_fraction": "(0, 1)"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("start = 'mean-reward' needs a discount below 1", self.start != "mean-reward" or self.discount < 1)

    @override
    def step_count(self, facts: PublicFacts) -> int:
        """Return the number of updates; by default 400 for a table and 100 otherwise."""
        if self.steps is not None:
            return self.steps
        return 400 if isinstance(facts.features, Tabular) else 100

    @override
    def travel(self, facts: PublicFacts, strength: float) -> float:
        """Return how far theta can go by default.

        For a table this is in proportion to n0, because values spread from state to state; otherwise it is 2, growing
        slowly with n0.
        """
        if isinstance(facts.features, Tabular):
            return min(max(2.5 * strength / REFERENCE_STRENGTH, 2.0), 25.0)
        return 2.0 * max(strength / REFERENCE_STRENGTH, 1.0) ** 0.25

    def starts_at_mean_reward(self, facts: PublicFacts) -> bool:
        """Tell whether the start is the constant made of the mean reward."""
        if self.start is not None:
            return self.start == "mean-reward"
        (low, high), table = facts.bounds.reward, isinstance(facts.features, Tabular)
        return low == high and self.discount < 1.0 and facts.horizon > 1 and facts.ratio > 1.0 and not table

    @override
    def released_start(self, facts: PublicFacts) -> StartLevel | None:
        low, high = facts.bounds.reward
        return MeanReward(facts) if self.starts_at_mean_reward(facts) and low < high else None

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        return queries_after_start(self.released_start(facts), self.start_budget_fraction, *super().queries(facts))

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> TDProgram:
        return TDProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class TDProgram(Descent):
    """Program of private TD(0), with all public numbers filled in. Of two stages the first releases the mean reward."""

    @property
    def public_level(self) -> float | jax.Array:
        """Level of the middle of the value range, or that of the mean reward where all rewards are a single number."""
        # then the smallest reward is also the largest
        known = self.config.starts_at_mean_reward(self.facts)
        return MeanReward(self.facts).of_mean(-1.0) if known else 0.0

    @override
    def vectors(self, state: Any, block: Block) -> Float[Array, "units n"]:
        theta = state.theta.astype(block.phi.dtype)
        error = block.weight_rho_reward - block.weight_rho * apply(block.delta_phi, theta)
        return project_phi(error, block) * jnp.asarray(self.scale, dtype=block.phi.dtype)


STANDARD_ATTACKS = (
    Attack(options={"steps": 50}, trials=400_000),
    # every unit pays for the values; this share for the steps is large enough for subsampling to be seen
    Attack(options={"steps": 50, "sampling_rate": 0.1, "value_budget_fraction": 0.05}, trials=400_000),
)
"""Attacks that audit both algorithms."""
ALGORITHM = Algorithm(
    TD,
    settings={
        "full batches": Setting(TD(steps=3, discount=0.9)),
        "from the mean reward": Setting(TD(steps=3, discount=0.9, start="mean-reward")),
        "Poisson batches": Setting(TD(steps=4, discount=0.9, sampling_rate=0.5)),
    },
    attacks=STANDARD_ATTACKS,
)
