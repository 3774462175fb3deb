"""DP-AGD: gradient descent that spends more budget per step where no candidate step helps (Lee and Kifer, 2018).

It is their Algorithm 2, and a baseline of paper 002. Privacy unit: a record. Relation: add or remove one. Released:
every noisy gradient and every choice of a step. Accountant: zCDP. A Gaussian release of noise s costs ``C^2/(2 s^2)``.
Report noisy min with Laplace noise is epsilon-DP, because the clipped objective is monotone in the records, and costs
``epsilon^2/2`` (Bun and Steinke, 2016). Costs are chosen from released numbers, so a filter bounds their sum *before*
each draw (Feldman and Zrnic, 2021: at every order alpha, the sum is surely at most ``alpha rho``). As printed, the loop
overdraws once. For simulations only: the noise is drawn in floating point from public seeds. Proof: docs/papers/002.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.protectors.simulation import seeded_noise, unit_sum
from dprl_papers.baselines.record_noise import noisy_minimum
from dprl_papers.records.losses import RecordLoss, Records


@dataclass(frozen=True, kw_only=True)
class AGD:
    """Public facts of a run.

    Attributes:
        largest_loss: bound on a record's loss in the objective query; larger losses count as this bound.
        candidates: number of step sizes that are tried besides 0.
        splits: a query costs half of epsilon divided by this number at first.
        growth: gamma; a useless step multiplies the gradient's budget by 1 + gamma.
        widening: eta; every ``period`` steps, the largest candidate becomes 1 + eta times the largest chosen step size
            since.
        period: tau.
    """

    largest_loss: float = 1.0
    candidates: int = 20
    splits: int = 60
    growth: float = 0.1
    widening: float = 0.1
    period: int = 10

    def __post_init__(self) -> None:
        positive = (self.largest_loss, self.growth, self.widening)
        whole = (self.candidates, self.splits, self.period)
        if not all(math.isfinite(v) and v > 0.0 for v in positive) or min(whole) < 1:
            raise DprlError("The numbers of a descent with an adaptive budget must be positive.")


class Run(NamedTuple):
    """Results of a run; everything in it is released or counted."""

    parameters: jax.Array
    """``(d,)`` at the end."""
    visited: jax.Array
    """``(most, d)`` after each round; a round that is not admitted repeats the last."""
    steps: jax.Array
    """() steps that were taken."""
    gradient_queries: jax.Array
    """() noisy gradients that were paid for, refinements included."""
    objective_queries: jax.Array
    """() reports of the noisy min."""
    spent: jax.Array
    """() rho."""


class _State(NamedTuple):
    parameters: jax.Array
    gradient: jax.Array
    price: jax.Array
    left: jax.Array
    widest: jax.Array
    chosen: jax.Array
    fresh: jax.Array
    steps: jax.Array
    gradients: jax.Array
    objectives: jax.Array


def budget_rho(budget: Budget) -> float:
    """Return rho of ``epsilon = rho + 2 sqrt(rho log(1/delta))`` (Bun and Steinke, 2016, Proposition 1.3)."""
    log = math.log(1.0 / budget.delta)
    # the difference of the roots, in a form without cancellation
    return (budget.epsilon / (math.sqrt(log + budget.epsilon) + math.sqrt(log))) ** 2


def query_rho(config: AGD, budget: Budget) -> float:
    """Return the cost rho of the first gradient, and of every objective query."""
    return 0.5 * (0.5 * budget.epsilon / config.splits) ** 2


def most_rounds(config: AGD, budget: Budget) -> int:
    """Return the largest number of rounds that a run can have.

    Each round costs at least an objective query and, for a step or a refinement, a gradient's share.
    """
    least = query_rho(config, budget) * (1.0 + min(config.growth, 1.0))
    # a round number, so that similar budgets share a compiled program
    return -(-(math.ceil(budget_rho(budget) / least) + 1) // 50) * 50


@partial(jax.jit, static_argnums=(0, 1, 2))
def descend(
    config: AGD,
    loss: RecordLoss,
    rounds: int,
    records: Records,
    start: jax.Array,
    rho: Any,
    query: Any,
    clip_norm: Any,
    widest: Any,
    seed: Any,
) -> Run:
    """Return a run of at most ``rounds`` (:func:`most_rounds`) rounds.

    Args:
        rho: total cost, from :func:`budget_rho`.
        query: cost of a query, from :func:`query_rho`.
        clip_norm: clip norm C of a record's gradient.
        widest: the largest candidate at first. Steps are along the normalised gradient, so it is in units of theta.
        seed: () public number of the run.
    """
    mechanism, noise = unit_sum(loss.dimension), seeded_noise(seed)
    laplace = noise.stream("noisy-min")
    units = records.y.shape[0]
    every = jnp.ones(units, bool)
    fractions = jnp.arange(config.candidates + 1, dtype=jnp.float32) / config.candidates

    def measured(parameters: jax.Array, price: Any, step: Any) -> jax.Array:
        """Return the noisy sum of gradients at a cost of ``price``: its noise is ``C / sqrt(2 price)``."""
        total = mechanism.clipped_sum(loss.gradients(parameters, records) / clip_norm, every)
        std = 1.0 / jnp.sqrt(2.0 * price)
        return (clip_norm * mechanism.add_noise(total, std * mechanism.draw(noise, step))).astype(jnp.float32)

    def penalised(parameters: jax.Array) -> jax.Array:
        clipped = jnp.minimum(loss.losses(parameters, records), config.largest_loss)
        return jnp.sum(clipped) + units * loss.penalty(parameters)

    def one(state: _State, step: jax.Array) -> tuple[_State, jax.Array]:
        cost = query + jnp.where(state.fresh, state.price, 0.0)
        admitted = state.left >= cost
        found = measured(state.parameters, state.price, 2 * step)
        gradient = jnp.where(state.fresh, found, state.gradient)
        whole = gradient + units * jax.grad(loss.penalty)(state.parameters)
        direction = whole / jnp.maximum(jnp.linalg.norm(whole), 1e-30)
        tried = state.parameters - (fractions * state.widest)[:, None] * direction
        chosen = noisy_minimum(laplace, step, jax.vmap(penalised)(tried), config.largest_loss, query)
        useful = chosen > 0
        size = fractions[chosen] * state.widest
        # a useless direction: spend more budget, and average with the earlier measurement (GradAvg)
        extra = config.growth * state.price
        dearer = state.left - cost >= extra
        again = measured(state.parameters, extra, 2 * step + 1)
        refined = (state.price * gradient + extra * again) / (state.price + extra)
        steps = state.steps + useful
        largest = jnp.where(useful, jnp.maximum(state.chosen, size), state.chosen)
        full = useful & (steps % config.period == 0)
        after = _State(
            parameters=jnp.where(useful, tried[chosen], state.parameters),
            gradient=jnp.where(useful, gradient, refined),
            price=jnp.where(useful, state.price, state.price + extra),
            # where the budget does not cover a refinement, the run ends: nothing is left to admit a round
            left=jnp.where(useful, state.left - cost, jnp.where(dearer, state.left - cost - extra, 0.0)),
            widest=jnp.where(full, (1.0 + config.widening) * largest, state.widest),
            chosen=jnp.where(full, 0.0, largest),
            fresh=useful,
            steps=steps,
            gradients=state.gradients + state.fresh + (~useful & dearer),
            objectives=state.objectives + 1,
        )
        after = jax.tree.map(lambda new, old: jnp.where(admitted, new, old).astype(old.dtype), after, state)
        # after a round that is not admitted, no later round is
        after = after._replace(left=jnp.where(admitted, after.left, 0.0))
        return after, after.parameters

    zero = jnp.zeros((), jnp.int32)
    first = _State(
        parameters=start.astype(jnp.float32),
        gradient=jnp.zeros(loss.dimension, jnp.float32),
        price=jnp.asarray(query, jnp.float64),
        left=jnp.asarray(rho, jnp.float64),
        widest=jnp.asarray(widest, jnp.float32),
        chosen=jnp.zeros((), jnp.float32),
        fresh=jnp.ones((), bool),
        steps=zero,
        gradients=zero,
        objectives=zero,
    )
    last, visited = jax.lax.scan(one, first, jnp.arange(rounds))
    return Run(
        last.parameters, visited, last.steps, last.gradients, last.objectives, jnp.asarray(rho, jnp.float64) - last.left
    )
