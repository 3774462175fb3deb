"""Common parts of the primal-dual methods: noisy joint gradients, a start, a box, and the choice of the final iterate.

A unit's vector is the joint gradient of :mod:`~dprl.evaluation.td_gradients`; it is clipped as a whole. Methods differ
in how they step along the noisy means: each one's program overrides :meth:`PrimalDualProgram.direction`.

Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, and every noisy sum, hence every iterate; momentum, projection, averages and the choice of an iterate
are post-processing. Proof: docs/proofs/dptd.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.evaluation.private_constant import StartedProgram, StartLevel, constant_start, queries_after_start
from dprl.evaluation.td_gradients import COLUMNS, unit_gradients
from dprl.mechanisms.arithmetic import grid_step
from dprl.protocols import Attack

FUNCTION = "value function"
# Default clip norm in units of B, and default steps in units of 1 / B^2. B is the root mean square norm of Psi at the
# start, under the uniform distribution on the bounds.
CLIP, PRIMAL, DUAL = 0.021, 22.0, 0.4
# Clip where the unit is a single transition, whose errors are not averaged over a trajectory. A small clip would all
# but remove rare transitions, such as an end; and with so many units the noise of a large clip is small.
TRANSITION_CLIP = 1.0
# How far the noise of all steps may move theta times B in L2 by default, for a network and for a linear function. The B
# of a network is larger on the bounds than on the states of a log, which are a small part of the bounds.
NOISE_TRAVEL_BUDGET, LINEAR_NOISE_TRAVEL_BUDGET = 0.4, 0.2
# BATCH: expected units of a batch; larger batches cost time and save little noise. LEAST_RATE: least sampling rate.
BATCH, LEAST_RATE = 256, 0.05


@dataclass(frozen=True, kw_only=True)
class PrimalDualConfig(ValueFunctionConfig):
    """Options that every primal-dual method has; all are public facts.

    Values and gradients are in public units: the value range is mapped to [-1, 1]. ``B`` is the root mean square norm
    of the gradient of V by theta at the start, under the uniform distribution on the bounds.

    Attributes:
        steps: number of noisy sums in all stages but the start's; 100 by default.
        sampling_rate: probability with which a unit takes part in a step; by default 256 units are expected, and at
            least one in twenty.
        clip_norm: L2 clip C of a unit's whole vector; by default in proportion to B.
        primal_step: factor of the noisy mean gradient by theta; by default in proportion to ``1 / B^2``, or smaller
            where the noise asks for that.
        dual_step: factor of the noisy mean gradient by w, with the same default rule.
        step_scale: multiplies both step sizes.
        start: the value function before the first step: a private ``constant``, the ``mid-range`` of the public values,
            ``zero``, or ``random`` weights of a network. ``constant`` by default.
        start_budget_fraction: share of the mu^2 of the value function that pays for a private constant.
        average: which iterate is the answer: the mean of the last half (``tail``), the mean of ``all``, the ``last``,
            or a uniformly ``random`` one.
        project: keep theta and w in the box, after each step.
        parameter_bound: largest size of a coordinate of theta and of w; theta has a smaller bound where the value range
            implies one.
        max_rows_per_unit: number of transitions per unit that are used, evenly spaced; ``none`` for all.
        weighting: weight of a transition: ``trajectory``, one over its trajectory's length, or ``transition``, one over
            the public horizon.
        seed: seed of random starting weights; public.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
    """

    steps: int | None = None
    sampling_rate: float | None = None
    clip_norm: float | None = None
    primal_step: float | None = None
    dual_step: float | None = None
    step_scale: float = 1.0
    start: Literal["constant", "mid-range", "zero", "random"] | None = None
    start_budget_fraction: float = 0.1
    average: Literal["tail", "all", "last", "random"] | None = None
    project: bool = True
    parameter_bound: float = 1.0
    max_rows_per_unit: int | None = 32
    weighting: Literal["trajectory", "transition"] = "trajectory"
    seed: int = 0
    noise_multiplier: float | None = None

    neural: ClassVar[bool] = True
    units_served: ClassVar[tuple[str, ...]] = ("transition", "trajectory", "person")

    ranges: ClassVar[Mapping[str, str]] = {
        "steps": "[1, 1000000]",
        "sampling_rate": "(0, 1]",
        "start_budget_fraction": "(0, 1)",
        "parameter_bound": "[1e-6, 1e6]",
        "step_scale": "[1e-6, 1e6]",
        "max_rows_per_unit": "[1, inf)",
        "seed": "[0, 2147483647]",
        **dict.fromkeys(("clip_norm", "primal_step", "dual_step", "noise_multiplier"), "[1e-12, 1e12]"),
    }

    # --- defaults, from public facts ------------------------------------------------------------------------------

    def step_count(self, facts: PublicFacts) -> int:
        """Return the number of noisy sums in all stages but the start's."""
        del facts
        return 100 if self.steps is None else self.steps

    def rate(self, facts: PublicFacts) -> float:
        """Return the sampling rate of the steps."""
        if self.sampling_rate is not None:
            return self.sampling_rate
        return min(1.0, max(round(BATCH / facts.units, 4), LEAST_RATE))

    def clip(self, facts: PublicFacts) -> float:
        """Return the clip norm in force."""
        if self.clip_norm is not None:
            return self.clip_norm
        factor = TRANSITION_CLIP if facts.unit == "transition" else CLIP
        return factor * math.sqrt(facts.features.mean_gradient_square())

    def starts_at(self, facts: PublicFacts) -> Literal["constant", "mid-range", "zero", "random"]:
        """Return the kind of start: a released constant, or public numbers."""
        del facts
        return "constant" if self.start is None else self.start

    def dimension(self, facts: PublicFacts) -> int:
        """Return the length of a unit's vector."""
        return 2 * facts.features.size

    def step_sizes(self, facts: PublicFacts, stage: Stage) -> tuple[float, float]:
        """Return the default primal and dual step; ``stage`` is the last stage, with its noise."""
        return noise_limited_steps(facts, stage, PRIMAL, DUAL)

    def released_start(self, facts: PublicFacts) -> StartLevel | None:
        """Return the release of the start; None where the start is public."""
        return constant_start(facts) if self.starts_at(facts) == "constant" else None

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        steps = Query(FUNCTION, self.dimension(facts), self.clip(facts), self.step_count(facts), self.rate(facts))
        return self.with_start(facts, (steps,))

    def with_start(self, facts: PublicFacts, queries: tuple[Query, ...]) -> tuple[Query, ...]:
        """Return the query of the start, if the start is released, then ``queries``, which give up its share."""
        self._check(
            "weighting = 'transition' means nothing where the unit is a transition: leave it out",
            facts.unit != "transition" or self.weighting == "trajectory",
        )
        random = self.starts_at(facts) == "random"
        self._check("start = 'random' is for networks, such as mlp:50", not random or not facts.features.linear)
        return queries_after_start(self.released_start(facts), self.start_budget_fraction, *queries)

    @override
    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        primal, dual = self.step_sizes(facts, stages[-1])
        return {
            "steps": self.step_count(facts),
            "sampling_rate": self.rate(facts),
            "clip_norm": self.clip(facts),
            "primal_step": primal,
            "dual_step": dual,
            "start": self.starts_at(facts),
            "average": "tail",
        }

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> PrimalDualProgram:
        return PrimalDualProgram(self.resolve(facts, stages), stages, facts)


def noise_limited_steps(
    facts: PublicFacts, stage: Stage, primal: float, dual: float, gain: float = 1.0
) -> tuple[float, float]:
    """Return ``primal / B^2`` and ``dual / B^2``, or less where the noise asks for smaller steps.

    The noise of all steps may move V by at most 0.4 of its half-range in root mean square (0.2 if V is linear). Beyond
    that the answer would be noise, and the start a better guess.

    Args:
        facts: public facts.
        stage: the last stage, with its noise.
        primal, dual: steps in units of ``1 / B^2``.
        gain: noise that one noisy mean brings into the iterates over many steps, relative to what it brings in one.
    """
    square, mechanism = facts.features.mean_gradient_square(), stage.mechanism
    noise = gain * mechanism.noise_std / mechanism.expected(facts.units)
    walk = (LINEAR_NOISE_TRAVEL_BUDGET if facts.features.linear else NOISE_TRAVEL_BUDGET) / (
        noise * math.sqrt(square * mechanism.steps)
    )
    return min(primal / square, walk), min(dual / square, walk)


class State(NamedTuple):
    """State between steps, computed from noisy sums and public facts only. A method may have further fields."""

    theta: Float[Array, " d"]  # float32
    w: Float[Array, " d"]
    p: Float[Array, " d"]  # running gradient by theta
    d: Float[Array, " d"]  # running gradient by w, with the sign by which it is descended
    kept: Float[Array, " d"]  # the answer if this step were the last
    step: Int[Array, ""]  # int32, noisy sums so far


@dataclass(frozen=True)
class PrimalDualProgram(StartedProgram):
    """Program of plain simultaneous steps, with all public numbers filled in; a method overrides :meth:`direction`.

    Attributes:
        config: resolved options.
        stages: calibrated stages; the first one may release the start.
        facts: public facts.
    """

    own_columns = COLUMNS

    @property
    def steps(self) -> int:
        """Noisy sums in all stages but the start's."""
        return sum(stage.mechanism.steps for stage in self.stages[self.start is not None :])

    @property
    def public_level(self) -> float:
        """Level at which a public start stands: the middle of the value range, or the value zero."""
        facts = self.facts
        return min(max(-facts.centre / facts.half, -1.0), 1.0) if self.config.start == "zero" else 0.0

    @override
    def start_at(self, level: Float[Array, ""]) -> Any:
        features = self.facts.features
        if self.config.start == "random":
            theta = features.random_start(self.config.seed)  # type: ignore[attr-defined]  # only networks have it
            w = np.random.default_rng((self.config.seed, 1)).uniform(-1.0, 1.0, features.size)  # noqa: TID251 (public)
        else:
            theta = features.start() + level * jnp.asarray(features.constant(), jnp.float64)
            w = np.zeros(features.size)
        return self.state_at(self.project(jnp.concatenate([jnp.asarray(x, jnp.float32) for x in (theta, w)])))

    @override
    def vectors(self, state: Any, block: Block) -> Float[Array, "units dim"]:
        return unit_gradients(self.facts.features, self.facts.discount, state.theta, state.w, block)

    @override
    def advance(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        del step
        mean = (noisy / self.normaliser(stage)).astype(jnp.float32)
        moved = self.direction(state, mean)
        return moved._replace(kept=self.keep(stage, state, moved.theta, noisy), step=state.step + 1)

    def direction(self, state: Any, ghat: Float[Array, " dim"]) -> Any:
        """Return the state with new theta and w (and p, d), from the noisy mean gradient ``(2d,)``."""
        primal, dual = jnp.split(ghat, 2)
        return state._replace(
            theta=self.in_box(state.theta - self.primal_step * primal, self.theta_box),
            w=self.in_box(state.w - self.dual_step * dual, self.config.parameter_bound),
            p=primal,
            d=dual,
        )

    @property
    def primal_step(self) -> float:
        """Step size of theta."""
        return self.config.step_scale * self.config.primal_step

    @property
    def dual_step(self) -> float:
        """Step size of w."""
        return self.config.step_scale * self.config.dual_step

    @property
    def theta_box(self) -> float:
        """Largest size of a coordinate of theta."""
        return min(self.config.parameter_bound, self.facts.box)

    def parameters_of(self, state: Any) -> Float[Array, " dim"]:
        """Return the parameters that a protector moves."""
        return jnp.concatenate([state.theta, state.w])

    def state_at(self, parameters: Float[Array, " dim"]) -> Any:
        """Return the state at these parameters."""
        theta, w = jnp.split(parameters, 2)
        return State(theta, w, jnp.zeros_like(theta), jnp.zeros_like(w), theta, jnp.zeros((), jnp.int32))

    def project(self, parameters: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the parameters projected into their boxes."""
        theta, w = jnp.split(parameters, 2)
        return jnp.concatenate([self.in_box(theta, self.theta_box), self.in_box(w, self.config.parameter_bound)])

    def in_box(self, weights: Float[Array, " d"], box: float) -> Float[Array, " d"]:
        """Return ``weights`` with each coordinate at most ``box`` in size, where they are projected."""
        return jnp.clip(weights, -box, box) if self.config.project else weights

    def keep(self, stage: int, state: Any, theta: Float[Array, " d"], noisy: Float[Array, " dim"]) -> jax.Array:
        """Return the average that is asked for: a running mean, or a reservoir of one iterate.

        The reservoir keeps iterate number t, counted from 1, with probability 1/t. Its coin is made of low digits of
        the noisy sum, so it is post-processing. The coin is uniform up to 2^-19, because the noise spreads over many
        times the range of these digits.
        """
        number, average = state.step + 1, self.config.average
        if average == "random":
            weight = (_low_digits(noisy, self.stages[stage].mechanism.clip_norm) * number < 1.0).astype(theta.dtype)
        elif average == "last":
            weight = jnp.ones((), theta.dtype)
        else:
            counted = number - (self.steps // 2 if average == "tail" else 0)
            weight = jnp.where(counted > 0, 1.0 / jnp.maximum(counted, 1), 1.0).astype(theta.dtype)
        # with a weight of 1 the iterate itself, to the last bit
        return (1.0 - weight) * state.kept + weight * theta

    def answer(self, state: Any) -> Float[Array, " d"]:
        """Return the released ``(d,)`` weights."""
        return state.kept.astype(jnp.float64)


def _low_digits(noisy: jax.Array, clip_norm: float) -> jax.Array:
    """Return a number in [0, 1) from digits 8 to 27 of the first and of the last noisy grid point.

    Lower digits may be lost in double precision, and the noise does not spread evenly over higher digits.
    """
    ends = jnp.stack([noisy[0], noisy[-1]]) * (1.0 / (grid_step(clip_norm) * 2.0**8))
    return jnp.sum(jnp.mod(jnp.floor(ends), 2.0**20) * jnp.asarray([2.0**-20, 2.0**-40]))


STANDARD_ATTACKS = (
    Attack(options={"steps": 50, "sampling_rate": 1.0}, trials=200_000),
    # every unit pays for the values; with a small share for them, the effect of subsampling the steps can be seen
    Attack(options={"steps": 50, "sampling_rate": 0.1, "value_budget_fraction": 0.05}, trials=200_000),
)
"""Attacks that audit every primal-dual method."""
