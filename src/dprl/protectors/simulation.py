"""Simulated runs of a protector on public tasks: all steps of a run, differentiable, with its losses and its costs.

Paper 002, Algorithms 1 and 2 and appendix B. Noise and coins are reproducible as in an experiment, with the scale and
the rate of a release. Gradients through all steps are exact. An outer scan runs over segments, which are computed again
on the way back; an inner scan runs over the steps of a segment. So a gradient costs one further forward run and the
memory of one segment (benchmarks/l2p.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.mechanisms import threefry
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protectors.projector import (
    Architecture,
    HandSchedule,
    ProtectorState,
    UpdateRule,
    Weights,
    nearest_level,
    profile_of,
)


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Public facts of a simulation, hashable.

    Attributes:
        family: a :class:`~dprl.protectors.tasks.TaskFamily`.
        architecture: architecture of the protector.
        std: standard deviation of the noise in a coordinate of the mean gradient under the uniform schedule, in units
            of the clip norm: noise multiplier over expected batch, ``z / (q m)``.
        norm_std: the same for the norm that an adaptive scheduler reads.
        ratios, costs: noise levels of an adaptive scheduler over the uniform schedule's, increasing, and the cost of a
            step at each level, norm included, as a share of the whole budget. Costs between two levels are interpolated
            in logarithms.
        every: whether the loss after each step is computed.
        segment: number of steps that are differentiated at once; by default :func:`segment_of` the number of all steps.
    """

    family: Any
    architecture: Architecture
    std: float
    norm_std: float = 0.0
    ratios: tuple[float, ...] = ()
    costs: tuple[float, ...] = ()
    every: bool = False
    segment: int | None = None

    @property
    def hand(self) -> HandSchedule:
        """The hand schedule."""
        return self.family.hand

    def update_rule(self, weights: Weights, learned: bool = True) -> UpdateRule:
        """Return the protector with these weights, or its hand schedule."""
        return UpdateRule(architecture=self.architecture, hand=self.hand, weights=weights, learned=learned)

    @property
    def adaptive(self) -> bool:
        """Whether the noise of each step is chosen during the run."""
        return self.architecture.scheduler == "adaptive"

    def cost(self, ratio: jax.Array) -> jax.Array:
        """Return () share of the budget that a step costs with ``ratio`` times the noise of the uniform schedule."""
        ratios, costs = (jnp.asarray(np.log(x), dtype=jnp.float32) for x in (self.ratios, self.costs))
        return jnp.exp(jnp.interp(jnp.log(ratio), ratios, costs))


class Run(NamedTuple):
    """One simulated run.

    Attributes:
        final: () loss of the answer over the task's reference.
        losses: ``(T,)`` loss of the parameters after each step over the task's reference; zeros where the simulation
            does not compute these losses.
        costs: ``(T,)`` share of the budget that each step costs.
        answer: ``(d,)`` parameters that the run returns.
    """

    final: jax.Array
    losses: jax.Array
    costs: jax.Array
    answer: jax.Array


def unroll(
    simulation: Simulation,
    weights: Weights,
    task: Any,
    key: jax.Array,
    factor: Any = 1.0,
    learned: bool = True,
    deployed: bool = False,
) -> Run:
    """Run all steps on one task. The result is differentiable in ``weights``.

    Args:
        task: a task of the simulation's family.
        key: key of coins and noise.
        factor: factor of every noise; 0 for no noise.
        learned: whether the protector corrects the hand schedule; False for the hand schedule itself.
        deployed: whether adaptive noise is as in a release: it takes one of the levels, and the filter ends the run.
            Such a run has no gradient.
    """
    family, steps = simulation.family, simulation.hand.steps
    carry = first_carry(simulation, weights, task, learned)
    body = step_body(simulation, weights, task, key, factor, learned, deployed=deployed)
    carry, (losses, costs) = segmented_scan(body, carry, steps, simulation.segment)
    answer = carry[0].kept
    final = (family.loss(task, answer) / family.reference(task)).astype(jnp.float32)
    return Run(final, losses, costs, answer)


Carry = tuple[ProtectorState, jax.Array]

STOPPED = 1e3
"""Amount that a run counts as spent once its filter has ended it."""


def first_carry(simulation: Simulation, weights: Weights, task: Any, learned: bool = True) -> Carry:
    """Return the state and the parameters before the first step."""
    return simulation.update_rule(weights, learned).start(simulation.family.initial(task))


def step_body(
    simulation: Simulation,
    weights: Weights,
    task: Any,
    key: jax.Array,
    factor: Any = 1.0,
    learned: bool = True,
    draws: Any = 1.0,
    deployed: bool = False,
) -> Callable[[Carry, Any], tuple[Carry, tuple[jax.Array, jax.Array]]]:
    """Return one step as the body of a scan, from ``(carry, step)`` to the next carry, the loss and the cost.

    The protector knows that its noise is multiplied by ``factor``. It does not know of ``draws``, which multiplies only
    the numbers that are drawn.
    """
    s, family, hand = simulation, simulation.family, simulation.hand
    f32, size = jnp.float32, simulation.family.dimension
    rule = s.update_rule(weights, learned)
    std = jnp.asarray(s.std, dtype=f32) * jnp.asarray(factor, dtype=f32)
    profile = profile_of(weights, hand.steps) if learned else jnp.ones(hand.steps, dtype=f32)
    clip = jnp.asarray(family.natural_clip(hand.clip_norm), dtype=f32) * rule.clip_factor
    coins, noise = jax.random.split(key)
    words = jax.random.key_data(noise)
    blocks = np.asarray(family.blocks)

    def body(carry: Carry, step: Any) -> tuple[Carry, tuple[jax.Array, jax.Array]]:
        state, parameters = carry
        ratio, cost = profile[step], jnp.asarray(1.0 / hand.steps, dtype=f32)
        if rule.adaptive:
            state, ratio = rule.propose_noise(state, std, step / hand.steps)
            if deployed:
                levels = jnp.asarray(s.ratios, dtype=f32)
                ratio = levels[nearest_level(levels, ratio)]
            cost = s.cost(ratio)
        mean = family.mean_gradient(task, parameters, jax.random.fold_in(coins, step), clip).astype(f32)
        draw = draws * threefry.normal(words, step.astype(jnp.uint32), size + 1)
        level = std * ratio
        noisy = mean + level * draw[:size]
        state, moved = rule.update(state, parameters, noisy, level, step, blocks, clip, family.project)
        spent = state.spent + cost
        if rule.adaptive:
            norm = safe_norm(mean) + jnp.asarray(s.norm_std, dtype=f32) * factor * draw[size]
            state = state._replace(norm=norm, spent=spent)
        loss = jnp.zeros((), dtype=f32)
        if s.every:
            loss = (family.loss(task, moved) / family.reference(task)).astype(f32)
        if rule.adaptive and deployed:  # a step that the filter does not admit is not taken, and ends the run
            live = (spent <= 1.0 + 1e-6) & (carry[0].spent < STOPPED)
            stopped = (carry[0]._replace(spent=jnp.maximum(carry[0].spent, STOPPED)), carry[1])
            kept = jax.tree.map(lambda new, old: jnp.where(live, new, old), (state, moved), stopped)
            return kept, (loss, jnp.where(live, cost, 0.0))
        return (state, moved), (loss, cost)

    return body


def unit_sum(dimension: int, sampling_rate: float = 1.0) -> GaussianSum:
    """Return the mechanism whose clip, coins and noise a simulation uses, with clip norm and noise multiplier 1.

    Simulations divide vectors by a clip norm and multiply the noise, so that one compiled program serves all numbers.
    """
    return GaussianSum(parts=((dimension, 1.0),), noise_multiplier=1.0, sampling_rate=sampling_rate, arithmetic="float")


def seeded_noise(seed: Any) -> SeededNoise:
    """Return the reproducible noise of run ``seed``, which may be traced."""
    return SeededNoise(jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)]))


def safe_norm(vector: jax.Array) -> jax.Array:
    """Return the L2 norm, with a gradient of 0 at 0."""
    square = jnp.sum(vector * vector)
    return jnp.where(square > 0.0, jnp.sqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)


def segmented_scan(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: int, segment: int | None = None, first: Any = 0
) -> tuple[Any, Any]:
    """Return ``lax.scan`` over the numbers of the steps, which keeps only every ``segment``-th carry for the way back.

    The numbers start at ``first``.
    """
    length = segment_of(steps) if segment is None else max(1, min(steps, segment))

    @jax.checkpoint
    def inner(carry: Any, numbers: jax.Array) -> tuple[Any, Any]:
        return jax.lax.scan(body, carry, numbers)

    whole, rest = divmod(steps, length)
    numbers = first + jnp.arange(steps, dtype=jnp.int32)
    carry, out = jax.lax.scan(inner, carry, numbers[: whole * length].reshape(whole, length))
    out = jax.tree.map(lambda x: x.reshape(whole * length, *x.shape[2:]), out)
    if rest:
        carry, more = inner(carry, numbers[whole * length :])
        out = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), out, more)
    return carry, out


def segment_of(steps: int) -> int:
    """Return a number near 0.4 times the square root of ``steps``: a divisor of ``steps``, if there is one near.

    Otherwise the remainder is compiled as another segment. What is kept of a step inside of a segment is some six times
    as large as the carry that is kept of a segment.
    """
    root = max(0.4 * math.sqrt(steps), 1.0)
    divisors = [n for n in range(1, steps + 1) if steps % n == 0 and root / 2.0 <= n <= root * 2.0]
    return min(divisors, key=lambda n: abs(math.log(n / root)), default=round(root))


def noise_covariance(simulation: Simulation, weights: Weights, tasks: Any, keys: jax.Array) -> jax.Array:
    """Return () measured ``C_T`` of Theorem B.2 (Eq. 32), the covariance of accumulated noise and last gradient.

    ``C_T = E[sum_t nu_t' d(-g_t)/d(noisy gradient_t) grad f(theta_T)]``, with unit noise nu_t and the update g_t. The
    schedule is taken to be uniform, where ``d sigma_t / d sigma`` is 1. As in the paper, only the direct effect of a
    step's noise on its update counts. A projector that denoises brings ``C_T`` towards zero.

    Args:
        tasks: stacked tasks, along the first axis of ``keys``.
    """

    def one(task: Any, key: jax.Array) -> jax.Array:
        s, family, hand = simulation, simulation.family, simulation.hand
        body = step_body(s, weights, task, key)

        def both(carry: Any, step: Any) -> tuple[Any, None]:
            inner, total = carry
            # only the direct effect: how the step would change with a little more of the same noise
            one = jnp.ones((), dtype=jnp.float32)
            moved = jax.jvp(
                lambda draws: step_body(s, weights, task, key, draws=draws)(inner, step)[0][1], (one,), (one,)
            )[1]
            return (body(inner, step)[0], total - moved / s.std), None

        start = (first_carry(s, weights, task), jnp.zeros(family.dimension, dtype=jnp.float32))
        (inner, total), _ = jax.lax.scan(both, start, jnp.arange(hand.steps, dtype=jnp.int32))
        slope = jax.grad(lambda x: (family.loss(task, x) / family.reference(task)).astype(jnp.float32))(inner[1])
        return jnp.sum(total * slope)

    return jnp.mean(jax.vmap(one)(tasks, keys))
