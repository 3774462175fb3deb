"""The budget in meta-training of an adaptive scheduler: weighted losses and augmented Lagrangians.

Paper 002, appendices B.2, B.5 and B.6. Costs are shares of the whole budget, so that ``rho_tot`` is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp


def budget_weighted(losses: jax.Array, costs: jax.Array) -> jax.Array:
    """F^ = ``sum I_t f_t / sum I_t`` with ``I_t = max(0, 1 - |h_t|)`` and h_t what was spent, less the budget.

    Args:
        losses: ``(T,)`` after each step.
        costs: ``(T,)`` of each step.
    """
    inside = jnp.maximum(0.0, 1.0 - jnp.abs(jnp.cumsum(costs) - 1.0))
    return jnp.sum(inside * losses) / jnp.maximum(jnp.sum(inside), 1e-9)


def augmented(excess: jax.Array, multiplier: jax.Array, penalty: jax.Array) -> jax.Array:
    """What B.2 adds to the objective: ``- z h + h^2 / (2 mu)``, of the excess h over the budget."""
    return -multiplier * excess + excess * excess / (2.0 * penalty)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Of the penalty: ``mu`` starts here, is multiplied by ``shrink`` at every update and stays above ``least``."""

    start: float = 1.0
    shrink: float = 0.95
    least: float = 1e-3


def tighten(
    schedule: Schedule, multiplier: jax.Array, penalty: jax.Array, excess: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Steps 3 and 4 of B.2: ``z - h / mu``, and a smaller mu."""
    return multiplier - excess / penalty, jnp.maximum(schedule.shrink * penalty, schedule.least)


class Batches(NamedTuple):
    """Variables of the batch form (B.5), for B batches of steps.

    Attributes:
        budgets: ``(B,)`` r_b.
        multipliers, penalties: ``(B,)`` z_b and mu_b.
        multiplier, penalty: () z_r and mu_r, of the whole budget.
    """

    budgets: jax.Array
    multipliers: jax.Array
    penalties: jax.Array
    multiplier: jax.Array
    penalty: jax.Array


def start_batches(schedule: Schedule, batches: int) -> Batches:
    """Even shares of the budget."""
    one = jnp.ones((), dtype=jnp.float32)
    each = jnp.ones(batches, dtype=jnp.float32)
    return Batches(each / batches, 0.0 * each, schedule.start * each, 0.0 * one, schedule.start * one)


def second_pass(schedule: Schedule, state: Batches, costs: jax.Array) -> Batches:
    """The second pass of B.5: new budgets of the batches from what they cost with the protector held fixed.

    The budgets minimise ``sum_b (rho^_b - r_b)^2 / (2 mu_b) - z_r h_r + h_r^2 / (2 mu_r)`` with
    ``rho^_b = cost_b - z_b mu_b`` and ``h_r = sum r_b - 1``. That is a quadratic with a closed form: its gradient is
    zero where ``r_b = rho^_b + mu_b (z_r - h_r / mu_r)``, and summed over the batches this is linear in h_r.

    Args:
        costs: ``(B,)`` of the batches.
    """
    supplemented = costs - state.multipliers * state.penalties
    total = jnp.sum(state.penalties)
    excess = (jnp.sum(supplemented) - 1.0 + total * state.multiplier) / (1.0 + total / state.penalty)
    budgets = supplemented + state.penalties * (state.multiplier - excess / state.penalty)
    multipliers, penalties = tighten(schedule, state.multipliers, state.penalties, costs - budgets)
    multiplier, penalty = tighten(schedule, state.multiplier, state.penalty, jnp.sum(budgets) - 1.0)
    return Batches(budgets, multipliers, penalties, multiplier, penalty)
