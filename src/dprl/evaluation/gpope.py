"""GPOPE: gradient-perturbed off-policy evaluation (paper 004, Algorithm 1).

Paper: Xie, Thomas, Miklau, "Privacy Preserving Off-Policy Evaluation" (2019). Equations (2.1)-(2.3), (4.1).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum of clipped gradients, hence every iterate; all averages are post-processing.
Proof: docs/proofs/gpope.md. As published: the distribution dprl-papers, docs/papers/004.md. Symbols: docs/symbols.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.bands import banded_gradients
from dprl.engine.layouts import Block, PaddedUnits, SharedTransitions
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig, run_steps
from dprl.errors import DprlError
from dprl.evaluation import protected
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Attack
from dprl.value_functions.features import Features

# what single precision holds with room for products; and of one update, where the values' range is 2
_LARGEST, _LONGEST_STEP = 1e30, 1e6


@dataclass(frozen=True, kw_only=True)
class GPOPE(ValueFunctionConfig):
    """Options of GPOPE; public facts, all of them. The defaults were chosen on public simulations.

    Values and gradients are in public units: the value range is mapped to [-1, 1] and features are
    orthonormal under the uniform distribution, so that the same numbers fit every log.

    Attributes:
        discount: gamma, in [0, 1].
        calibration: ``verified``, or ``as-published``: that of dprl-papers, which certifies nothing.
        steps: number of updates.
        sampling_rate: probability with which a unit takes part in an update.
        clip_norm: L2 clip h of a unit's joint (primal, dual) gradient, in units of the root mean square norm of the
            features; by default it follows the public horizon, see :func:`clip_norm`.
        step_size: beta of line 7; by default it follows the horizon and the noise, see :func:`resolve`.
        schedule: ``constant``, or ``diminishing``: step_size * offset / (i + offset).
        offset: i0 of the diminishing schedule.
        average: which iterates theta is read from: the mean of the last half (``tail``), of ``all``, or the ``last``.
        start: ``mid-range`` of the public values, or a value function of ``zero``.
        project: project theta onto what the public value range allows, after each update.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
        value_budget_fraction: share of mu^2 (the squared Gaussian privacy parameter) that pays for value and interval;
            the rest pays for the value function.
        confidence: nominal coverage of the intervals.
        weighting: of a transition: ``trajectory``, one over its trajectory's length (Eq. 2.2), or ``transition``.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        checks = {
            "steps must be between 1 and 1000000": 1 <= self.steps <= 10**6,
            "sampling_rate must be above 0 and at most 1": 0.0 < self.sampling_rate <= 1.0,
            "clip_norm must be a positive finite number": self.clip_norm is None or 0.0 < self.clip_norm < math.inf,
            "step_size must be a positive finite number": self.step_size is None or 0.0 < self.step_size < math.inf,
            "noise_multiplier must be a positive finite number": self.noise_multiplier is None
            or 0.0 < self.noise_multiplier < math.inf,
            "offset must be between 1e-6 and 1e12": 1e-6 <= self.offset <= 1e12,
        }
        for sentence, holds in checks.items():
            self._check(sentence, holds)
        protected.check_options(self)

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return one stage: all updates."""
        if self.optimizer is not None:
            return protected.protected_shapes(self, facts)
        size = facts.features.size
        clip = clip_norm(self, size, facts.horizon)
        return (Query("value function", 2 * size, clip, self.steps, self.sampling_rate),)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> GPOPEProgram | protected.Protected:
        """Return the program with everything public filled in."""
        if self.optimizer is not None:
            return protected.protected_program(self, facts, stages)
        (stage,) = stages
        config = resolve(self, stage.mechanism, facts.units, facts.horizon)
        _check_step_size(config, stage.mechanism, facts.units)
        level = 0.0 if self.start == "mid-range" else min(max(-facts.centre / facts.half, -1.0), 1.0)
        projection = Projection(facts.box, facts.ball)
        return GPOPEProgram(config, (stage,), facts.units, projection, facts.features, level)


class State(NamedTuple):
    """Iterates and their running sums. Made of noisy sums alone, so as private as those."""

    theta: jax.Array  # (n,)
    w: jax.Array  # (n,)
    theta_sum: jax.Array  # (n,) sum of the iterates that `average` asks for


class Projection(NamedTuple):
    """Where theta may lie, from the public value range: a box (indicator features) or a ball."""

    box: float
    ball: float


def unit_gradients(theta: jax.Array, w: jax.Array, block: Block) -> jax.Array:
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


def init(config: GPOPE, start: Any) -> State:
    """Return state before the first update; ``start`` ``(n,)`` is a public value function."""
    theta = jnp.asarray(start)
    del config
    return State(theta, jnp.zeros_like(theta), jnp.zeros_like(theta))


def update(config: GPOPE, projection: Projection, divisor: float, state: State, noisy: jax.Array, step: Any) -> State:
    """Take one step of Algorithm 1, lines 6-7, from the noisy sum of clipped gradients.

    Args:
        divisor: the public expected number of units in a batch, never the realised one.
        noised: ``(2n,)`` released sum.
        step: number of the update, from 0.
    """
    n = state.theta.shape[0]
    dtype = state.theta.dtype
    mean = (noisy / divisor).astype(dtype)
    if config.step_size is None:
        raise DprlError("gpope: the step size is not known yet; resolve() the options first.")
    beta = jnp.asarray(config.step_size, dtype=dtype)
    if config.schedule == "diminishing":
        beta = beta * (config.offset / (jnp.asarray(step, dtype=dtype) + config.offset)).astype(dtype)
    theta = state.theta - beta * mean[:n]
    w = state.w - beta * mean[n:]
    if config.project:
        theta = projected(projection, theta)
    keep = {"tail": jnp.asarray(step) >= config.steps // 2, "all": True, "last": jnp.asarray(step) == config.steps - 1}
    return State(theta, w, state.theta_sum + jnp.where(keep[config.average], theta, jnp.zeros_like(theta)))


def projected(projection: Projection, theta: jax.Array) -> jax.Array:
    """Return ``(n,)`` theta where the public value range allows it."""
    theta = jnp.clip(theta, -projection.box, projection.box)
    norm = jnp.sqrt(jnp.sum(theta * theta))
    return theta * jnp.minimum(1.0, projection.ball / jnp.maximum(norm, 1e-30)).astype(theta.dtype)


def answer(config: GPOPE, state: State) -> jax.Array:
    """Return the released ``(n,)`` weights: the asked-for average of the iterates."""
    counted = {"tail": config.steps - config.steps // 2, "all": config.steps, "last": 1}[config.average]
    return state.theta_sum / counted


def clip_norm(config: GPOPE, size: int, horizon: int) -> float:
    """Return the clip h of line 5, from public facts.

    Within a trajectory temporal differences telescope, so that their mean shrinks as the horizon grows; the default
    follows it as 1 / sqrt(horizon). Chosen on simulated chains and one-step logs (benchmarks/defaults.py).
    """
    return (0.25 / math.sqrt(horizon) if config.clip_norm is None else config.clip_norm) * math.sqrt(size)


def resolve(config: GPOPE, mechanism: GaussianSum, units: int, horizon: int) -> GPOPE:
    """Return the same options with the step size filled in, from the public horizon, number of units and noise.

    0.02 sqrt(horizon), but no more than lets the noise of all steps move theta by 0.3 of its range (in L2): beyond
    that the answer would be noise, and the mid-range start a better guess. Chosen on simulated chains and one-step
    logs (benchmarks/defaults.py).
    """
    if config.step_size is not None:
        return config
    walk = mechanism.noise_std * math.sqrt(mechanism.dimension / 2 * config.steps)
    limit = 0.3 * mechanism.expected(units) / walk
    return config.replace(DERIVED, step_size=min(0.02 * math.sqrt(horizon), limit))


def mechanism(config: GPOPE, size: int, horizon: int, noise_multiplier: float) -> GaussianSum:
    """Return the one mechanism through which the trajectories are touched; its event is the algorithm's."""
    return GaussianSum(
        parts=((2 * size, clip_norm(config, size, horizon)),),
        noise_multiplier=noise_multiplier,
        sampling_rate=config.sampling_rate,
        steps=config.steps,
    )


@dataclass(frozen=True)
class GPOPEProgram:
    """Algorithm 1 with everything that is public filled in.

    Attributes:
        config: resolved options.
        units: declared number of units, for the normaliser.
        projection: public constraint.
        features, level: what the starting value function is made of, the constant ``level`` in public units.
    """

    config: GPOPE
    stages: tuple[Stage, ...]
    units: int
    projection: Projection
    features: Features | None = None
    level: float = 0.0

    columns = ()

    def init(self) -> State:
        """Return the state before the first step."""
        assert self.features is not None
        return init(self.config, jnp.asarray(self.level * self.features.constant(), dtype=jnp.float32))

    def contribution(self, stage: int, state: State, block: Block) -> jax.Array:
        """Return each unit's vector, ``(B, dimension)``."""
        del stage
        return unit_gradients(state.theta, state.w, block)

    def update(self, stage: int, state: State, noisy: jax.Array, step: Any) -> State:
        """Return the state after a step, from its noisy sum."""
        return update(self.config, self.projection, self.normaliser(stage), state, noisy, step)

    def normaliser(self, stage: int) -> float:
        """Return what a noisy sum is divided by: the public expected number of units."""
        return self.stages[stage].mechanism.expected(self.units)

    def parameters_of(self, state: State) -> jax.Array:
        """Return the parameters that a protector moves."""
        return jnp.concatenate([state.theta, state.w])

    def state_at(self, parameters: jax.Array) -> State:
        """Return the state at these parameters."""
        theta, w = jnp.split(parameters, 2)
        return State(theta, w, jnp.zeros_like(theta))

    def project(self, parameters: jax.Array) -> jax.Array:
        """Return the parameters where they may lie."""
        theta, w = jnp.split(parameters, 2)
        return jnp.concatenate([projected(self.projection, theta), w])

    def finish(self, stage: int, state: State) -> State:
        """Return the state after the stage's last step."""
        del stage
        return state

    def answer(self, state: State) -> jax.Array:
        """Return the weights over the features."""
        return answer(self.config, state)


def program_of(config: GPOPE, mechanism: GaussianSum, units: int, projection: Projection) -> GPOPEProgram:
    """Return the updates of resolved options, for a start of one's own: see :func:`run`."""
    stage = Stage("value function", mechanism)
    return GPOPEProgram(config, (stage,), units, projection)


def run(
    config: GPOPE,
    mechanism: GaussianSum,
    noise: Any,
    data: SharedTransitions | PaddedUnits,
    start: Any,
    *,
    units: int,
    projection: Projection,
    batch: int = 32,
) -> tuple[State, jax.Array]:
    """Run all updates from ``start``: a pure function to ``jit`` and to ``vmap`` over noise keys and logs.

    Args:
        config: public options.
        mechanism: a :class:`GaussianSum`, for the noiseless limit a plain one.
        noise: a :class:`~dprl.mechanisms.noise.SeededNoise`.
        data: the log.
        start: ``(n,)`` public starting weights.
        units: declared number of units, for the normaliser.
        projection: public constraint.
        batch: units in one block of a Poisson batch; a batch takes as many blocks as it needs.

    Returns:
        Final state, and the released weights ``(n,)``.
    """
    program = program_of(config, mechanism, units, projection)
    state, _ = run_steps(program, 0, mechanism, noise, data, init(config, start), batch=batch)
    return state, answer(config, state)


def _check_step_size(config: GPOPE, mechanism: GaussianSum, units: int) -> None:
    """Refuse steps that single precision cannot hold: the value function would be not a number, or never move."""
    assert config.step_size is not None
    largest = mechanism.clip_norm * mechanism.most(units) + 10.0 * mechanism.noise_std
    mean = largest / mechanism.expected(units)
    representable = all(1.0 / _LARGEST <= x <= _LARGEST for x in (mean, config.step_size))
    if not representable or config.step_size * mean > _LONGEST_STEP:
        raise DprlError(
            f"gpope: updates with step_size = {config.step_size:g} leave single precision or the range of values at "
            "this clip_norm: choose both nearer to 1, or leave them out."
        )


# beside the values, which every unit pays for, a share for the steps that lets subsampling be seen
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
