"""Computations of a protector: the update from a noisy gradient, and the spread of noise over steps.

Paper: 002, "Learning to protect" (L2P): the scheduler sigma and the projector pi of appendix B, both coordinate-wise
LSTMs. The protector here is a *correction of a hand schedule*: its step is
``gate * (the hand schedule's step) + free term``. Training starts from the hand schedule. Everything here is
post-processing of noisy sums, or public (docs/proofs/scheduled-noise.md, docs/proofs/renyi-filter.md). Symbols:
docs/symbols.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dprl import x64 as x64
from dprl.config import check_ranges
from dprl.errors import require
from dprl.protectors import lstm

Weights = lstm.Weights

LEAST_NOISE = 1e-3
"""Least L2 norm of a mean's noise that counts, in units of the clip."""
LARGEST_INPUT = 10.0
LARGEST_LOG_GATE = 2.0
"""Logarithm of the largest gate."""
LEVELS = 8
"""Most noise levels of a public schedule; the time of calibration is proportional to their number."""
KNOTS = 8
"""Number of knots, over the steps, of the weights of dense matrices and of iterates."""
SIGNAL_VALUES, LARGEST_SIGNAL = 7, 3.0
"""Values of the signal, from 0 to the largest, at which what follows it is learned."""

Scheduler = Literal["uniform", "public", "adaptive"]
_ARCHITECTURE_RANGES = {
    "hidden": "1..1000",
    "layers": "0..10",
    "dense": "0..16",
    "knots": "0..64",
    "free": "[0, 100]",
    "embedding": "0..100",
    "least": "(0, 1]",
    "norm": "[0.1, 1000]",
    "dimension": "1..1000000",
}
_HAND_RANGES = {
    "steps": "1..1000000",
    "sampling_rate": "(0, 1]",
    "clip_norm": "[1e-12, 1e12]",
    "decay": "[0, 10]",
    "offset": "[1e-6, 1e12]",
    "tail": "[0, 1]",
    "walk": "[1e-12, 1e12]",
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Parts that a protector is made of, besides its weights.

    Attributes:
        hidden, layers: width and number of layers of every LSTM; 0 layers for no LSTM.
        scheduler: ``uniform`` noise, a learned ``public`` profile over the steps, or ``adaptive`` noise that follows
            the released norms.
        free: scale of the free term; 0.05 in the paper (B.7).
        embedding: how many learned numbers the projector gets for each coordinate.
        dense: number of learned matrices that are added to the identity in front of the gradient. Each has a learned
            weight that varies over the steps.
        knots: number of knots, over the steps, of a learned factor of each block's step sizes; 0 for no factor.
        signal: whether the step sizes of each block, and the weights of the iterates where these are learned, depend on
            how far the mean of all noisy gradients so far lies above its noise.
        learned_start: whether there is a learned addition to the first parameters.
        learned_clip: whether there is a learned factor of the clip norm.
        learned_average: whether the iterates that the hand schedule averages get learned weights over the steps.
        dimension: number of parameters, where weights belong to single parameters; None serves any number.
        least: smallest noise of the adaptive scheduler over the uniform schedule's; the largest is ``2 - least``.
        norm: noise multiplier of the norm query over that of the uniform schedule.
    """

    hidden: int = 20
    layers: int = 2
    scheduler: Scheduler = "uniform"
    free: float = 0.05
    embedding: int = 0
    dense: int = 0
    knots: int = 0
    signal: bool = False
    learned_start: bool = False
    learned_clip: bool = False
    learned_average: bool = False
    dimension: int | None = None
    least: float = 0.5
    norm: float = 4.0

    def __post_init__(self) -> None:
        check_ranges(self, _ARCHITECTURE_RANGES, "protector")
        seen = self.layers > 0 or not (self.embedding or self.scheduler == "adaptive")
        require(seen, "protector: an adaptive scheduler and an embedding need layers.")
        known = self.scheduler in get_args(Scheduler)
        require(known, "protector: scheduler must be uniform, public or adaptive.")
        served = self.dimension is not None or not (self.embedding or self.dense or self.learned_start)
        require(served, "protector: an embedding, a dense matrix and a learned start need the dimension.")


@dataclass(frozen=True, kw_only=True)
class HandSchedule:
    """A hand schedule: plain steps against the noisy mean gradient.

    In step t the parameters of block b move by ``-step_sizes[b] (1 - t/T)^decay offset / (t + offset)`` times the
    noisy mean gradient.

    Attributes:
        steps: T, the number of steps.
        sampling_rate: q, the rate of the Poisson batches.
        clip_norm: clip norm, in the unit of the option of that name of the algorithm that is served.
        step_sizes: step size of each block of parameters.
        decay: exponent of ``1 - t/T``, the share of the steps that is left.
        offset: offset of a diminishing schedule; None for a schedule that does not diminish.
        tail: share of the iterates, counted from the last, whose mean is the answer; 0 for only the last iterate.
        walk: largest L2 move of the parameters by the noise of all steps; longer steps are shortened. None: no limit.
    """

    steps: int
    sampling_rate: float
    clip_norm: float
    step_sizes: tuple[float, ...]
    decay: float = 0.0
    offset: float | None = None
    tail: float = 0.5
    walk: float | None = None

    def __post_init__(self) -> None:
        check_ranges(self, _HAND_RANGES, "protector: of its hand schedule")
        fine = 1 <= len(self.step_sizes) <= 2 and all(0.0 <= size <= 1e6 for size in self.step_sizes)
        require(fine, "protector: of its hand schedule step_sizes must be one or two numbers between 0 and 1e6.")

    @property
    def averaged_iterates(self) -> int:
        """Number of iterates whose mean is the answer."""
        return max(1, round(self.tail * self.steps))


class ProtectorState(NamedTuple):
    """State of a protector between two steps; made only of noisy sums and public facts, so as private as those."""

    hidden: jax.Array  # (layers, 2, hidden, d) LSTM state of the projector
    kept: jax.Array  # (d,) the answer, if this step were the last
    scheduler: jax.Array  # (layers, 2, hidden, 1) LSTM state of the adaptive scheduler
    norm: jax.Array  # () released norm of the last step, in units of the clip
    spent: jax.Array  # () share of the budget that the steps so far have cost
    mean_so_far: jax.Array  # (d,) mean of the noisy gradients so far, in units of the clip; (0,) where it is not used
    weight_sum: jax.Array  # () sum of the weights of the iterates so far, where these are learned


# --- weights ----------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def init_weights(architecture: Architecture, key: jax.Array) -> Weights:
    """Return weights before training: with them the protector is its hand schedule, with uniform noise."""
    projector, scheduler = jax.random.split(key)
    a = architecture
    weights: Weights = {}
    if a.layers:
        weights |= lstm.init(projector, "projector", 6 + a.embedding, 2, a.hidden, a.layers)
    if a.scheduler == "adaptive":
        weights |= lstm.init(scheduler, "scheduler", 5, 1, a.hidden, a.layers)
    if a.scheduler == "public":
        weights["profile"] = jnp.zeros(LEVELS, dtype=jnp.float32)
    if a.embedding:
        # random numbers, because with zeros all coordinates would stay equal
        draw = jax.random.normal(jax.random.fold_in(key, 1), (a.embedding, a.dimension), dtype=jnp.float32)  # type: ignore[arg-type]
        weights["embedding"] = draw
    if a.dense:
        weights["dense"] = jnp.zeros((a.dense, a.dimension, a.dimension), dtype=jnp.float32)  # type: ignore[arg-type]
        # different cosines, because with equal weights all matrices would stay equal
        time = jnp.arange(KNOTS, dtype=jnp.float32)[:, None] / (KNOTS - 1)
        weights["dense.time"] = jnp.cos(jnp.pi * time * jnp.arange(a.dense, dtype=jnp.float32)).astype(jnp.float32)
    if a.knots:
        weights["log_step"] = jnp.zeros((a.knots, 2), dtype=jnp.float32)
    if a.signal:
        weights["signal"] = jnp.zeros((KNOTS, SIGNAL_VALUES, 3), dtype=jnp.float32)
    if a.learned_clip:
        weights["log_clip"] = jnp.zeros((), dtype=jnp.float32)
    if a.learned_average:
        weights["log_average"] = jnp.zeros(KNOTS, dtype=jnp.float32)
    if a.learned_start:
        weights["start"] = jnp.zeros(a.dimension, dtype=jnp.float32)  # type: ignore[arg-type]
    return weights


def profile_of(weights: Mapping[str, Any], steps: int) -> jax.Array:
    """Return ``(steps,)`` noise of each step over a common scale; the mean of ``1 / profile^2`` is 1.

    There are at most 8 levels, each for consecutive steps. To first order the privacy cost does not depend on the
    profile; the accountant finds the scale.
    """
    if "profile" not in weights:
        return jnp.ones(steps, dtype=jnp.float32)
    level = jnp.arange(steps) * LEVELS // steps
    logs = jnp.asarray(weights["profile"], dtype=jnp.float32)[level]
    return jnp.exp(logs) * jnp.sqrt(jnp.mean(jnp.exp(-2.0 * logs)))


def interpolate_knots(knots: jax.Array, progress: jax.Array) -> jax.Array:
    """Return the value at ``progress``, interpolated linearly between ``(k, ...)`` values at even times from 0 to 1."""
    last = knots.shape[0] - 1
    place = progress * last
    below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, max(last - 1, 0))
    share = (place - below).astype(knots.dtype)
    return (1.0 - share) * knots[below] + share * knots[jnp.minimum(below + 1, last)]


# --- one step ---------------------------------------------------------------------------------------------------------


def levels_of(architecture: Architecture) -> tuple[float, ...]:
    """Return the 31 noise levels of the adaptive scheduler over the uniform schedule's, smallest first.

    The level in the middle is 1.
    """
    below, above = (np.geomspace(end, 1.0, 16) for end in (architecture.least, 2.0 - architecture.least))
    return tuple(sorted({*below.tolist(), *above.tolist()}))


def nearest_level(levels: jax.Array, ratio: jax.Array) -> jax.Array:
    """Return () int32, the number of the level that is nearest to ``ratio`` in logarithms."""
    return jnp.argmin(jnp.abs(jnp.log(ratio) - jnp.log(levels))).astype(jnp.int32)


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """Update rule of a protector, or of its hand schedule: how parameters move with noisy gradients.

    Attributes:
        architecture: parts that the protector is made of.
        hand: the hand schedule that the protector corrects.
        weights: weights by name, float32.
        learned: whether the protector corrects the hand schedule; False for the hand schedule itself.
    """

    architecture: Architecture
    hand: HandSchedule
    weights: Mapping[str, Any] = field(repr=False)
    learned: bool = True

    @property
    def adaptive(self) -> bool:
        """Whether the noise of each step is chosen during the run."""
        return self.learned and self.architecture.scheduler == "adaptive"

    @property
    def clip_factor(self) -> Any:
        """Factor of the hand schedule's clip norm."""
        return jnp.exp(self.weights["log_clip"]) if self.learned and "log_clip" in self.weights else 1.0

    def start(self, parameters: Float[Array, " d"]) -> tuple[ProtectorState, Float[Array, " d"]]:
        """Return the state before the first step, and the first parameters, from those the algorithm starts with."""
        a, zero, size = self.architecture, jnp.zeros((), dtype=jnp.float32), parameters.shape[0]
        parameters = parameters.astype(jnp.float32)
        if self.learned and a.learned_start:
            parameters = parameters + self._arrays["start"]
        hidden = lstm.start(a.hidden, a.layers, size)
        scheduler = lstm.start(a.hidden, a.layers if a.scheduler == "adaptive" else 0, 1)
        running = jnp.zeros(size if a.signal else 0, dtype=jnp.float32)
        return ProtectorState(hidden, parameters, scheduler, zero, zero, running, zero), parameters

    def propose_noise(self, state: ProtectorState, noise: Any, progress: Any) -> tuple[ProtectorState, jax.Array]:
        """Return () noise of the coming step over that of the uniform schedule, in ``(least, 2 - least)``.

        This is the adaptive scheduler of B.7, ``sigma_min + 2 (sigma_g - sigma_min) y`` with the sigmoid y. It reads
        the norm that was released with the step *before*: the noise has to be known before the step's draw
        (docs/papers/002.md).

        Args:
            state: state after the step before; the next state is returned first.
            noise: () standard deviation of a coordinate of a mean under the uniform schedule, in units of the clip.
            progress: () t / T.
        """
        size = state.kept.shape[0]
        floor = jnp.maximum(jnp.asarray(noise, dtype=jnp.float32) * math.sqrt(size), LEAST_NOISE)
        seen = jnp.stack(
            [
                jnp.clip(state.norm / floor, -LARGEST_INPUT, LARGEST_INPUT),
                jnp.clip(state.norm, -LARGEST_INPUT, LARGEST_INPUT),
                state.spent,
                jnp.asarray(progress, dtype=jnp.float32),
                jnp.log(floor),
            ]
        )
        hidden, out = lstm.step(self._arrays, "scheduler", state.scheduler, seen[:, None])
        least = self.architecture.least
        return state._replace(scheduler=hidden), least + 2.0 * (1.0 - least) * jax.nn.sigmoid(out[0, 0])

    def update(
        self,
        state: ProtectorState,
        parameters: Float[Array, " d"],
        mean: Float[Array, " d"],
        noise: Any,
        step: Any,
        blocks: Any,
        clip: Any,
        project: Callable[[jax.Array], jax.Array] = lambda parameters: parameters,
    ) -> tuple[ProtectorState, Float[Array, " d"]]:
        """Take one step, from the noisy mean gradient.

        Args:
            state: state after the step before.
            parameters: parameters before the step, float32.
            mean: noisy sum of clipped gradients over ``q m C``, and so in units of the clip norm.
            noise: () standard deviation of the noise in each coordinate of ``mean``.
            step: () number of the step, from 0.
            blocks: ``(d,)`` integers, the block of each parameter.
            clip: () the clip norm, in the unit of the gradient.
            project: projection onto the public constraint.

        Returns:
            The next state, whose ``kept`` is the answer if this was the last step, and the next parameters.
        """
        architecture, hand, learned, weights = self.architecture, self.hand, self.learned, self._arrays
        f32, size = jnp.float32, parameters.shape[0]
        mean, noise = mean.astype(f32), jnp.asarray(noise, dtype=f32)
        time = jnp.asarray(step, dtype=f32)
        progress = jnp.minimum(time / hand.steps, 1.0)
        blocks = np.asarray(blocks)
        sizes = jnp.asarray(np.asarray(hand.step_sizes)[np.minimum(blocks, len(hand.step_sizes) - 1)], dtype=f32) * clip
        if hand.walk is not None:
            walk = jnp.sqrt(jnp.sum(sizes * sizes) * hand.steps) * noise
            sizes = sizes * jnp.minimum(1.0, hand.walk / jnp.maximum(walk, 1e-30))
        if hand.decay:
            sizes = sizes * jnp.maximum(1.0 - progress, 1e-6) ** hand.decay
        if hand.offset is not None:
            sizes = sizes * (hand.offset / (time + hand.offset))
        direction = mean
        if learned and architecture.dense:
            direction = mean + jnp.einsum(
                "k,kij,j->i", interpolate_knots(weights["dense.time"], progress), weights["dense"], mean
            )
        if learned and architecture.knots:
            sizes = sizes * jnp.exp(interpolate_knots(weights["log_step"], progress))[blocks]
        running, above = state.mean_so_far, jnp.zeros(3, dtype=f32)
        if architecture.signal:
            running = running + (mean - running) / (time + 1.0)
        if architecture.signal and learned:
            signal = signal_of(running, noise, time + 1.0) / LARGEST_SIGNAL
            above = interpolate_knots(interpolate_knots(weights["signal"], progress), signal)
            sizes = sizes * jnp.exp(above[:2])[blocks]
        hidden, move = state.hidden, -sizes * direction
        if learned and architecture.layers:
            root = math.sqrt(size)
            floor = jnp.maximum(noise * root, LEAST_NOISE)
            whole = jnp.ones(size, dtype=f32)
            rows = [
                jnp.clip(mean * root / floor, -LARGEST_INPUT, LARGEST_INPUT),
                jnp.clip(mean * root, -LARGEST_INPUT, LARGEST_INPUT),
                jnp.clip(parameters, -LARGEST_INPUT, LARGEST_INPUT),
                jnp.asarray(2.0 * blocks - 1.0, dtype=f32),
                progress * whole,
                jnp.log(floor) * whole,
            ]
            inputs = jnp.stack(rows)
            if architecture.embedding:
                inputs = jnp.concatenate([inputs, weights["embedding"]])
            hidden, out = lstm.step(weights, "projector", state.hidden, inputs)
            # outputs of 0 do not change the hand schedule's step
            move = jnp.exp(LARGEST_LOG_GATE * jnp.tanh(out[0] / LARGEST_LOG_GATE)) * move + architecture.free * out[1]
        moved = project(parameters + move)
        counted = jnp.asarray(step, dtype=jnp.int32) + 1 - (hand.steps - hand.averaged_iterates)
        weight = jnp.where(counted > 0, 1.0 / jnp.maximum(counted, 1), 1.0).astype(f32)
        total = state.weight_sum
        if learned and architecture.learned_average:
            each = jnp.exp(interpolate_knots(weights["log_average"], progress) + above[2])
            each = jnp.where(counted > 0, each, 0.0)
            total = total + each
            weight = jnp.where(counted > 0, each / jnp.maximum(total, 1e-30), 1.0)
        kept = (1.0 - weight) * state.kept + weight * moved
        return state._replace(hidden=hidden, kept=kept, mean_so_far=running, weight_sum=total), moved

    @property
    def _arrays(self) -> dict[str, jax.Array]:
        return {name: jnp.asarray(value) for name, value in self.weights.items()}


def signal_of(running: jax.Array, noise: Any, count: Any) -> jax.Array:
    """Return () logarithm of a mean gradient's norm over the norm of its noise, from 0 to ``LARGEST_SIGNAL``.

    ``running`` ``(d,)`` is the mean of ``count`` noisy gradients, each with the standard deviation ``noise``.
    """
    alone = jnp.maximum(jnp.asarray(noise, jnp.float32) * jnp.sqrt(running.shape[0] / count), LEAST_NOISE)
    norm = 0.5 * jnp.log(jnp.sum(running * running) + 1e-12)
    return jnp.clip(norm - jnp.log(alone), 0.0, LARGEST_SIGNAL)
