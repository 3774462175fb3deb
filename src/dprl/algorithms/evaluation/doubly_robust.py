"""The value of a policy by the doubly robust estimator, with a private value function inside.

Paper: Jiang and Li (2016), "Doubly robust off-policy value evaluation", Eq. (10), with state values in place of action
values; the value function is learned by AdaSSP on the same units.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: what AdaSSP releases, then one noised vector of the units' estimates and their squares.
Proof, unbiasedness and bias bound: docs/proofs/doubly-robust.md.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dprl.algorithms.evaluation import adassp
from dprl.algorithms.evaluation.adassp import AdaSSP, AdaSSPProgram
from dprl.algorithms.evaluation.importance_sampling import ValueEstimate
from dprl.algorithms.evaluation.program import Facts, Shape, Stage, ValueFunctionConfig
from dprl.algorithms.evaluation.unit_blocks import Block, SharedBlock, apply
from dprl.config import DERIVED

CORRECTION = "correction"


@dataclass(frozen=True, kw_only=True)
class DoublyRobust(ValueFunctionConfig):
    """Options of the doubly robust value; public facts, all of them.

    Attributes:
        value_share: share of mu^2 that pays for the importance-sampling values of the other target policies.
        function_share: share of the rest that pays for the value function; what then remains pays for the value.
        modes: of the value function; see :class:`~dprl.algorithms.evaluation.adassp.AdaSSP`.
        reach: a unit's estimate is cut at this many half-widths from the middle of the value range; by default
            ``2 W - 1`` with W the largest cumulative ratio, which one decision cannot exceed, but at most 2.
        square_scale: weight of a unit's squared estimate, from which the sampling error is told.
        caution: standard errors of its own noise by which the sampling variance is taken larger in the interval.
    """

    value_share: float = 0.1
    function_share: float = 0.3
    modes: int | None = None
    reach: float | None = None
    square_scale: float = 0.6
    caution: float = 0.5

    algorithm: ClassVar[str] = "doubly-robust"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("function_share must be above 0 and below 1", 0.0 < self.function_share < 1.0)
        self._check("modes must be at least 1", self.modes is None or self.modes >= 1)
        self._check("reach must be between 1e-3 and 1e6", self.reach is None or 1e-3 <= self.reach <= 1e6)
        self._check("square_scale must be between 0.05 and 1", 0.05 <= self.square_scale <= 1.0)
        self._check("caution must be between 0 and 5", 0.0 <= self.caution <= 5.0)

    def shapes(self, facts: Facts) -> tuple[Shape, ...]:
        inner, first = self._inner(facts)
        share = self.function_share
        return (
            *(dataclasses.replace(shape, share=shape.share * share) for shape in inner.shapes(first)),
            Shape(CORRECTION, 2, math.hypot(1.0, self.square_scale / 2.0), share=1.0 - share),
        )

    def program(self, facts: Facts, stages: tuple[Stage, ...]) -> DoublyRobustProgram:
        inner, first = self._inner(facts)
        function = inner.program(first, stages[:-1])
        config = self if self.modes is not None else self.replace(DERIVED, modes=function.modes)
        if config.reach is None:
            config = config.replace(DERIVED, reach=min(2.0 * facts.ratio - 1.0, 2.0))
        assert config.reach is not None
        return DoublyRobustProgram(
            config=config,
            stages=stages,
            function=function,
            centre=facts.centre,
            reach=config.reach,
            half=facts.half,
            units=facts.units,
        )

    def _inner(self, facts: Facts) -> tuple[AdaSSP, Facts]:
        """What learns the value function, and what it has for that."""
        config = AdaSSP(discount=self.discount, modes=self.modes)
        return config, dataclasses.replace(facts, mu=facts.mu * math.sqrt(self.function_share))


class State(NamedTuple):
    """Made of noised sums alone."""

    function: adassp.State
    moments: jax.Array  # (2,) noised sums over units of f and of square_scale (f^2 - 1/2), f in units of the reach


@dataclass(frozen=True)
class DoublyRobustProgram:
    """The value function's program, and what comes after it."""

    config: DoublyRobust
    stages: tuple[Stage, ...]
    function: AdaSSPProgram
    centre: float
    reach: float
    half: float
    units: int

    columns = ("returns", "starts", "decisions")

    def init(self) -> State:
        return State(self.function.init(), jnp.zeros(2, jnp.float64))

    def contribution(self, stage: int, state: State, block: Block | SharedBlock) -> jax.Array:
        """Of the last stage ``f = V(s_0) + sum_t gamma^t rho_{0:t} (r_t + gamma V(s_{t+1}) - V(s_t))`` and its square.

        V is kept inside the value range; it is released, so that f is made of the unit's own rows and public facts.
        """
        if stage < len(self.function.stages):
            return self.function.contribution(stage, state.function, block)
        theta = self.function.answer(state.function).astype(block.phi.dtype)
        gamma = self.config.discount
        here = jnp.clip(apply(block.phi, theta), -1.0, 1.0)
        following = jnp.clip(apply(block.phi - block.delta_phi, theta), -gamma, gamma)  # gamma V, and 0 after the end
        terms = block.start * here + block.discounted_ratio_reward + block.discounted_ratio * (following - here)
        f = jnp.clip(jnp.sum(terms, axis=-1) / self.reach, -1.0, 1.0)
        vector = jnp.stack([f, self.config.square_scale * (f * f - 0.5)], axis=-1)
        # the square of nothing, centred, is not zero
        return jnp.where(jnp.sum(block.start, axis=-1, keepdims=True) > 0.0, vector, 0.0)

    def update(self, stage: int, state: State, noised: jax.Array, step: Any) -> State:
        if stage < len(self.function.stages):
            return State(self.function.update(stage, state.function, noised, step), state.moments)
        return State(state.function, noised)

    def finish(self, stage: int, state: State) -> State:
        del stage
        return state

    def answer(self, state: State) -> jax.Array:
        """The value function of the first stages."""
        return self.function.answer(state.function)

    def value(self, state: State) -> jax.Array:
        """The doubly robust value, in the reward's unit."""
        return self.centre + self.half * self.reach * state.moments[0] / self.units

    def expect(self) -> tuple[float, float, float]:
        """Privacy standard error, largest sampling standard error, half-width of the interval at that error."""
        scale, noise = self.half * self.reach, self.stages[-1].mechanism.noise_std / self.units
        z, sampling = NormalDist().inv_cdf(0.5 + self.config.confidence / 2.0), 1.0 / math.sqrt(self.units)
        return scale * noise, scale * sampling, z * scale * math.hypot(sampling, noise)

    def estimate(self, state: State) -> ValueEstimate:
        """Value, interval and standard errors: post-processing, as in importance_sampling.py."""
        scale = self.half * self.reach
        noise = self.stages[-1].mechanism.noise_std / self.units
        mean, second = (float(x) / self.units for x in state.moments)
        # the noise in the mean biases its square; both noises enter the variance, the mean's through 2 |mean|
        variance = max(second / self.config.square_scale + 0.5 - mean**2 + noise**2, 0.0)
        error = math.hypot(noise / self.config.square_scale, 2.0 * min(abs(mean), 1.0) * noise)
        cautious = min(variance + self.config.caution * error, 1.0) / self.units
        z = NormalDist().inv_cdf(0.5 + self.config.confidence / 2.0)
        value, width = float(self.value(state)), z * scale * math.sqrt(cautious + noise**2)
        sampling = scale * math.sqrt(min(variance, 1.0) / self.units)
        return ValueEstimate(value, (value - width, value + width), scale * noise, sampling)
