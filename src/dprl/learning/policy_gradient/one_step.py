"""Vectors of users of one step, in the form that ghost clipping needs, so that no user's gradient is computed.

Ghost clipping needs only the derivative of a user's objective with respect to a layer's sums: the user's gradient is
the outer product of this derivative and the layer's input. See :mod:`dprl.mechanisms.ghost_clipping`. The vectors are
those of :func:`estimator.contribution`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.learning.policy_gradient.estimator import Rates, RunShape, Trajectory, advantages
from dprl.mechanisms.ghost_clipping import Layer, ghost_sum, ghost_sum_in_float

BLOCK = 1600
"""Most users of whom :func:`clipped_sum` is asked at once, on the host."""


def layers_of(shape: RunShape, rates: Rates, theta: Any, baseline: Any, rows: Trajectory) -> tuple[list[Layer], Any]:
    """Return the layers of a block of users, and their statistics ``(m, 1)``, or None if there are no statistics.

    Args:
        theta: ``(d,)`` released parameters.
        baseline: () released running mean of the statistic.
        rows: ``(m, 1, ...)``, trajectories of one step.
    """
    weights, statistic = jax.vmap(advantages, (None, None, None, 0))(shape, rates, baseline, rows)
    layers = policy_layers(
        shape.policy, theta, rows.observations[:, 0], rows.actions[:, 0], weights[:, 0] * rates.scale
    )
    statistics = (rates.weight * statistic).astype(jnp.float32)[:, None] if shape.baseline else None
    return layers, statistics


def policy_layers(policy: Any, theta: Any, observations: Any, actions: Any, weights: Any) -> list[Layer]:
    """Return the layers of ``weight_i log pi(a_i | s_i)``, from the first to the last.

    Args:
        policy: a :class:`~dprl.policies.parametric.Parametric`.
        observations: ``(m, d)``.
        actions: ``(m,)``, or ``(m, k)`` scaled ones.
        weights: ``(m,)``.
    """
    x = policy.feature_rows(observations)
    *inner, (last, bias) = policy.layers(theta)
    root = jnp.float32(max(policy.hidden, 1) ** 0.5)
    active = jnp.tanh(x @ inner[0][0].T) / root if inner else x
    out = active @ last.T + (0.0 if bias is None else bias)
    if policy.gaussian:
        deltas = (actions - out) / jnp.float32(policy.std**2)
    else:
        deltas = jax.nn.one_hot(actions, policy.outputs, dtype=out.dtype) - jax.nn.softmax(out, axis=-1)
    deltas = deltas * weights[:, None]
    top = Layer(active, deltas, bias is not None)
    if not inner:
        return [top]
    # here the root divides a few numbers of each user, not one for each hidden unit
    return [Layer(x, ((deltas / root) @ last) * (1.0 - root * root * active * active)), top]


def fits(shape: RunShape, mechanism: Any) -> bool:
    """Tell whether users of one step meet a network. Otherwise it is as quick to form a vector of each user."""
    return (
        shape.horizon == 1
        and shape.interactions == 1
        and not shape.scaled
        and shape.policy.hidden > 0
        and mechanism.participation == "once each"
    )


def clipped_sum(
    shape: RunShape, rates: Rates, mechanism: Any, theta: Any, baseline: Any, rows: Trajectory, included: Any
) -> Any:
    """Return ``(dimension,)``: ``mechanism.clipped_sum`` of the users' vectors, none of which is formed. Private."""
    layers, statistics = layers_of(shape, rates, theta, baseline, rows)
    add = ghost_sum if mechanism.certifies else ghost_sum_in_float
    return add(mechanism, layers, included, statistics)
