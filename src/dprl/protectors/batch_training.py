"""Meta-training in batches of steps, with two passes over a run: gradients through one batch at a time.

Paper 002, B.5. The first pass updates the weights after each batch of steps, whose constraint is the batch's own share
of the budget; the second one, with the weights held fixed, finds what each batch costs, and from that the shares.
Memory does not grow with the number of steps; what a batch does to later ones has no gradient.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from dprl.errors import DprlError
from dprl.protectors import lagrangian
from dprl.protectors.lagrangian import Batches
from dprl.protectors.objective import Training, adam, batch_of
from dprl.protectors.projector import Weights
from dprl.protectors.simulation import Simulation, begin, step_of


def number_of_batches(simulation: Simulation, training: Training) -> int:
    """B; refuses a batch length that does not divide the steps."""
    count, rest = divmod(simulation.hand.steps, training.batch)
    if rest or not count:
        raise DprlError("meta-training: batch must divide the number of steps.")
    return count


@functools.partial(jax.jit, static_argnames=("simulation", "training"))
def two_passes(
    simulation: Simulation,
    training: Training,
    weights: Weights,
    moments: tuple[Weights, Weights],
    batches: Batches,
    key: jax.Array,
    factor: Any,
    epoch: Any,
    rate: Any,
) -> tuple[Weights, tuple[Weights, Weights], Batches, dict[str, jax.Array]]:
    """One epoch on fresh tasks: an update after each batch of steps, then new shares of the budget.

    Args:
        batches: shares and multipliers of the batches.
        epoch: () from 0.

    Returns:
        Weights, moments, shares and multipliers, and the record.
    """
    count, length = number_of_batches(simulation, training), training.batch
    tasks, keys, factors = batch_of(simulation, training, key, training.tasks)

    def over_runs(one: Any, *carries: Any) -> Any:
        inner = jax.vmap(one, (None, 0, None, *[0] * len(carries)))
        return jax.vmap(inner, (0, 0, 0, *[0] * len(carries)))(tasks, keys, factors * factor, *carries)

    def part(weights: Weights, carries: Any, batch: Any) -> tuple[Any, jax.Array, jax.Array]:
        """The runs after a batch of steps, its mean loss and its mean cost."""

        def one(task: Any, key: Any, factor: Any, carry: Any) -> Any:
            steps = batch * length + jnp.arange(length, dtype=jnp.int32)
            return jax.lax.scan(step_of(simulation, weights, task, key, factor), carry, steps)

        carries, (losses, costs) = over_runs(one, carries)
        return carries, jnp.mean(losses), jnp.mean(jnp.sum(costs, axis=-1))

    def update(state: Any, batch: Any) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        weights, moments, carries = state

        def of(weights: Weights) -> tuple[jax.Array, Any]:
            following, loss, cost = part(weights, carries, batch)
            total = loss
            if simulation.adaptive:
                excess = cost - batches.budgets[batch]
                total = total + lagrangian.augmented(excess, batches.multipliers[batch], batches.penalties[batch])
            return total, (following, loss)

        gradient, (following, loss) = jax.grad(of, has_aux=True)(weights)
        number = epoch * count + batch + 1
        weights, moments, norm = adam(training, weights, moments, gradient, number, rate)
        return (weights, moments, jax.lax.stop_gradient(following)), (loss, norm)

    def start(weights: Weights) -> Any:
        return over_runs(lambda task, key, factor: begin(simulation, weights, task))

    numbers = jnp.arange(count, dtype=jnp.int32)
    (weights, moments, _), (losses, norms) = jax.lax.scan(update, (weights, moments, start(weights)), numbers)
    record = {"loss": losses[-1], "gradient_norm": jnp.max(norms)}
    if simulation.adaptive:

        def spend(carries: Any, batch: Any) -> tuple[Any, jax.Array]:
            carries, _, cost = part(weights, carries, batch)
            return carries, cost

        costs = jax.lax.scan(spend, start(weights), numbers)[1]
        batches = lagrangian.second_pass(training.schedule, batches, costs)
        record["excess"] = jnp.sum(costs) - 1.0
    return weights, moments, batches, record
