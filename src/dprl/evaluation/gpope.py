"""GPOPE: gradient-perturbed off-policy evaluation (paper 004, Algorithm 1).

Paper: Xie, Thomas, Miklau, "Privacy Preserving Off-Policy Evaluation" (2019). Equations (2.1)-(2.3), (4.1).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum of clipped gradients, hence every iterate; all averages are post-processing.
Proof: docs/proofs/gpope.md. As published: the distribution dprl-papers, docs/papers/004.md. Symbols: docs/symbols.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, banded_gradients
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig
from dprl.evaluation import protected
from dprl.protocols import Attack

# largest number in single precision that leaves room for products; and largest update, where the value range is 2 wide
_LARGEST, _LONGEST_STEP = 1e30, 1e6


@dataclass(frozen=True, kw_only=True)
class GPOPE(ValueFunctionConfig):
    """Options of GPOPE; all of them are public facts. The defaults were chosen on public simulations.

    Values and gradients are in public units: the value range is mapped to [-1, 1] and features are orthonormal under
    the uniform distribution, so that the same numbers fit every log.

    Attributes:
        discount: gamma, in [0, 1].
        calibration: ``verified``, or ``as-published``: that of dprl-papers, which certifies nothing.
        steps: number of updates.
        sampling_rate: probability with which a unit takes part in an update.
        clip_norm: L2 clip h of a unit's joint (primal, dual) gradient, in units of the root mean square norm of the
            features; by default it follows the public horizon.
        step_size: beta of line 7; by default it follows the horizon and the noise.
        schedule: ``constant``, or ``diminishing``: step_size * offset / (i + offset).
        offset: i0 of the diminishing schedule.
        average: which iterates theta is read from: the mean of the last half (``tail``), of ``all``, or the ``last``.
        start: ``mid-range`` of the public values, or a value function of ``zero``.
        project: project theta onto what the public value range allows, after each update.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
        value_budget_fraction: share of mu^2 (the squared Gaussian privacy parameter) that pays for value and interval;
            the rest pays for the value function.
        confidence: nominal coverage of the intervals.
        weighting: weight of a transition: ``trajectory``, one over its trajectory's length (Eq. 2.2), or
            ``transition``.
        optimizer: folder of a protector of ``dprl learn-protector`` (paper 002), which then decides steps, rate, clip,
            noise schedule and updates.
    """

    calibration: Literal["verified", "as-published"] = "verified"
    steps: int = 400
    sampling_rate: float = 1.0
    clip_norm: float | None = None
    step_size: float | None = None
    schedule: Literal["constant", "diminishing"] = "constant"
    offset: float = 100.0
    average: Literal["tail", "all", "last"] = "tail"
    start: Literal["mid-range", "zero"] = "mid-range"
    project: bool = True
    noise_multiplier: float | None = None
    weighting: Literal["trajectory", "transition"] = "trajectory"
    optimizer: str | None = None

    algorithm: ClassVar[str] = "gpope"

    ranges: ClassVar[Mapping[str, str]] = {
        "steps": "[1, 1000000]",
        "sampling_rate": "(0, 1]",
        "offset": "[1e-6, 1e12]",
        **dict.fromkeys(("clip_norm", "step_size", "noise_multiplier"), "(0, inf)"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        protected.check_options(self)

    def clip(self, facts: PublicFacts) -> float:
        """Return the clip h of line 5, from public facts.

        Within a trajectory temporal differences telescope, so that their mean shrinks as the horizon grows. The default
        follows the mean as 1 / sqrt(horizon). It was chosen on simulated chains and one-step logs
        (benchmarks/defaults.py).
        """
        relative = 0.25 / math.sqrt(facts.horizon) if self.clip_norm is None else self.clip_norm
        return relative * math.sqrt(facts.features.size)

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        if self.optimizer is not None:
            return protected.protected_queries(self, facts)
        return (Query("value function", 2 * facts.features.size, self.clip(facts), self.steps, self.sampling_rate),)

    @override
    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        """Return the step size that follows from the public horizon, number of units and noise.

        It is 0.02 sqrt(horizon), or less: so small that the noise of all steps moves theta by at most 0.3 of its range
        (in L2). Beyond that the answer would be noise, and the mid-range start a better guess. The numbers were chosen
        on simulated chains and one-step logs (benchmarks/defaults.py).
        """
        mechanism = stages[-1].mechanism
        walk = mechanism.noise_std * math.sqrt(mechanism.dimension / 2 * self.steps)
        limit = 0.3 * mechanism.expected(facts.units) / walk
        return {"step_size": min(0.02 * math.sqrt(facts.horizon), limit)}

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> GPOPEProgram | protected.Protected:
        """Return the program with everything public filled in."""
        if self.optimizer is not None:
            return protected.protected_program(self, facts, stages)
        config = self.resolve(facts, stages)
        mechanism, step_size = stages[-1].mechanism, config.step_size or 0.0
        mean = (
            mechanism.clip_norm * mechanism.most_members(facts.units) + 10.0 * mechanism.noise_std
        ) / mechanism.expected(facts.units)
        self._check(
            f"updates with step_size = {step_size:g} leave single precision or the range of values at this clip_norm: "
            "choose both nearer to 1, or leave them out",
            all(1.0 / _LARGEST <= x <= _LARGEST for x in (mean, step_size)) and step_size * mean <= _LONGEST_STEP,
        )
        return GPOPEProgram(config, stages, facts)


class State(NamedTuple):
    """Iterates and the running sum of theta. They are made of noisy sums only, so they are as private as these."""

    theta: Float[Array, " n"]
    w: Float[Array, " n"]
    theta_sum: Float[Array, " n"]  # sum of the iterates that `average` asks for


def unit_gradients(theta: Float[Array, " n"], w: Float[Array, " n"], block: Block) -> Float[Array, "units 2*n"]:
    """Return the joint (primal, negative dual) gradient of each unit, Eq. (4.1) summed over the unit's transitions.

    Two products with phi and two with delta_phi; no matrix per trajectory is ever formed.

    Returns:
        ``(B, 2n)``: ``[-A_i' w, A_i theta + C_i w - b_i]``.
    """
    if block.bands is not None:
        primal, dual = banded_gradients(block.bands, theta, w, block.weight, block.weight_rho, block.weight_rho_reward)
    elif block.shared:
        u, d = block.phi @ w, block.delta_phi @ theta  # (K,)
        primal = -(block.weight_rho * u) @ block.delta_phi
        dual = (block.weight_rho * d - block.weight_rho_reward + block.weight * u) @ block.phi
    else:
        u = jnp.einsum("bln,n->bl", block.phi, w)
        error = jnp.einsum("bln,n->bl", block.delta_phi, theta) - block.reward
        primal = -jnp.einsum("bl,bln->bn", block.weight * block.rho * u, block.delta_phi)
        dual = jnp.einsum("bl,bln->bn", block.weight * (block.rho * error + u), block.phi)
    return jnp.concatenate([primal, dual], axis=-1)


@dataclass(frozen=True)
class GPOPEProgram(PublicProgram):
    """Algorithm 1 with everything that is public filled in."""

    def init(self) -> State:
        """Return the state before the first step."""
        facts = self.facts
        level = 0.0 if self.config.start == "mid-range" else min(max(-facts.centre / facts.half, -1.0), 1.0)
        return self.start_at(jnp.asarray(level * facts.features.constant(), dtype=jnp.float32))

    def start_at(self, theta: Float[Array, " n"]) -> State:
        """Return the state before the first update, at a public value function."""
        return State(theta, jnp.zeros_like(theta), jnp.zeros_like(theta))

    def contribution(self, stage: int, state: State, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's vector, ``(B, dimension)``."""
        del stage
        return unit_gradients(state.theta, state.w, block)

    def update(self, stage: int, state: State, noisy: Float[Array, " dim"], step: Any) -> State:
        """Return the state after a step, from its noisy sum."""
        config, dtype = self.config, state.theta.dtype
        primal, dual = jnp.split((noisy / self.normaliser(stage)).astype(dtype), 2)
        beta = jnp.asarray(config.step_size, dtype=dtype)
        if config.schedule == "diminishing":
            beta = beta * (config.offset / (jnp.asarray(step, dtype=dtype) + config.offset)).astype(dtype)
        theta, w = state.theta - beta * primal, state.w - beta * dual
        if config.project:
            theta = self._in_range(theta)
        kept = jnp.asarray(step) >= config.steps - self._counted
        return State(theta, w, state.theta_sum + jnp.where(kept, theta, jnp.zeros_like(theta)))

    def _in_range(self, theta: jax.Array) -> jax.Array:
        """Return theta projected onto what the public value range allows: a box (indicator features) or a ball."""
        theta = jnp.clip(theta, -self.facts.box, self.facts.box)
        norm = jnp.sqrt(jnp.sum(theta * theta))
        return theta * jnp.minimum(1.0, self.facts.ball / jnp.maximum(norm, 1e-30)).astype(theta.dtype)

    @property
    def _counted(self) -> int:
        """Number of iterates that the answer is the mean of."""
        steps = self.config.steps
        return {"tail": steps - steps // 2, "all": steps, "last": 1}[self.config.average]

    def parameters_of(self, state: State) -> Float[Array, " dim"]:
        """Return the parameters that a protector moves."""
        return jnp.concatenate([state.theta, state.w])

    def state_at(self, parameters: Float[Array, " dim"]) -> State:
        """Return the state at these parameters."""
        theta, w = jnp.split(parameters, 2)
        return State(theta, w, jnp.zeros_like(theta))

    def project(self, parameters: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the parameters, with theta projected onto what the public value range allows."""
        theta, w = jnp.split(parameters, 2)
        return jnp.concatenate([self._in_range(theta), w])

    def answer(self, state: State) -> Float[Array, " n"]:
        """Return the weights over the features."""
        return state.theta_sum / self._counted


# every unit pays for the values; this share for the steps is large enough for subsampling to be seen
_STEPS_ALONE = {"value_budget_fraction": 0.05}
ALGORITHM = Algorithm(
    GPOPE,
    settings={
        "full batches": Setting(GPOPE(steps=4, discount=0.9)),
        "Poisson batches": Setting(
            GPOPE(steps=5, discount=0.9, sampling_rate=0.5, schedule="diminishing", average="all")
        ),
        "many features": Setting(GPOPE(steps=3, discount=0.9, average="last"), features="fourier:11"),
    },
    attacks=(
        Attack(options={"steps": 200}),
        Attack(options={"steps": 200}, trials=100_000),
        Attack(options={"steps": 200}, epsilon=4.0, trials=100_000),
        Attack(options={"steps": 200, "sampling_rate": 0.1}, trials=200_000),
        Attack(options={"steps": 200, "sampling_rate": 0.1, **_STEPS_ALONE}),
        Attack(options={"steps": 500, "sampling_rate": 0.02, **_STEPS_ALONE}),
    ),
    canary="dprl.audits.attacks.evaluation:gpope_canary",
)
