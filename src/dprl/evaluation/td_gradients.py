"""Temporal differences of a value function that need not be linear: the gradients of a unit, and their objective.

Paper 000, Eq. (2), after Maei et al. (2009): for a transition with ``V = V_theta``, ``Psi = grad_theta V(s)``,
``delta = r + gamma V(s') - V(s)`` (V is zero after a terminal state) and ``q = <Psi, w>``::

    f(theta, w) = delta q - q^2 / 2,        min over theta, max over w.

A unit's rows t count with public weights omega_t. Off policy the importance ratio rho_t multiplies delta only, as in
:mod:`~dprl.evaluation.gpope`; where V is linear, the two are the same. Values are in public units.

No matrix is ever formed: ``q`` is one forward derivative along w, and one pass backwards gives both gradients of all
rows of a unit. The tests' oracles are explicit Jacobians and Hessians, and differences of :func:`objective`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dprl.engine.columns import TRANSITION
from dprl.engine.layouts import Block
from dprl.value_functions.features import Features

COLUMNS = TRANSITION
"""Further columns of the rows that these functions read."""

_SHARED = (None, None, None, 0, 0, 0)


def unit_gradients(
    features: Features, discount: float, theta: Float[Array, " d"], w: Float[Array, " d"], block: Block
) -> Float[Array, "units 2*d"]:
    """Return the joint gradient of each unit; both halves are descended.

    Args:
        features: feature map or network; its ``values`` are V in public units.
        discount: gamma.
        theta, w: ``(d,)`` primal and dual weights.
        block: rows of ``B`` units, with their states.

    Returns:
        ``(B, 2d)``: ``[sum omega (rho q (gamma Psi' - Psi) + (rho delta - q) H w), -sum omega (rho delta - q) Psi]``
        with ``H`` the Hessian of V.
    """
    # weights by layer: the gradient of a slice of a vector would be padded to the vector's length, inside other loops
    weights = features.split(theta), features.split(w)

    def one(*rows: Any) -> jax.Array:
        primal, dual = jax.grad(lambda x, y: _saddle(features, discount, x, y, rows), (0, 1))(*weights)
        return _flat((primal, jax.tree.map(jnp.negative, dual)))

    return _of_units(one, block)


def td_gradients(
    features: Features, discount: float, theta: Float[Array, " d"], block: Block
) -> Float[Array, "units d"]:
    """Return the semi-gradient of TD(0) of each unit, descended: the dual half of :func:`unit_gradients` at ``w = 0``.

    Returns:
        ``(B, d)``: ``-sum omega rho delta Psi``.
    """
    weights = features.split(theta)

    def one(*rows: Any) -> jax.Array:
        values, back = jax.vjp(lambda x: features.values_of(x, rows[0], jnp), weights)
        (semi,) = back(-_errors(features, discount, weights, values, rows))
        return _flat(semi)

    return _of_units(one, block)


def objective(
    features: Features, discount: float, theta: Float[Array, " d"], w: Float[Array, " d"], block: Block
) -> Float[Array, " units"]:
    """Return ``(B,)`` Eq. (2) of each unit, ``sum omega (rho delta q - q^2 / 2)``."""
    weights = features.split(theta), features.split(w)
    return _of_units(lambda *rows: _saddle(features, discount, *weights, rows), block)


def _flat(layers: Any) -> jax.Array:
    """Return several weights by layer as one vector, one after another.

    This is the inverse of :meth:`~dprl.value_functions.features.Features.split`.
    """
    return jnp.concatenate([part.reshape(-1) for part in jax.tree.leaves(layers)])


def _of_units(one: Callable[..., Any], block: Block) -> Any:
    """Return the stacked results of ``one`` for the rows of each unit. Rows that all units share are not copied."""
    rows = (
        block.states,
        block.next_states,
        block.alive,
        block.weight,
        block.weight_rho,
        block.weight_rho_reward,
    )
    if rows[3].shape[-1] == 1 and not block.shared:
        # With one row, a layer's gradient is an outer product. XLA fuses it with the code that flattens it, at the cost
        # of a division per element. With two rows, one of them zero, the gradient is a product of matrices.
        rows = tuple(jnp.concatenate([x, jnp.zeros_like(x)], axis=1) for x in rows)
    return jax.vmap(one, in_axes=_SHARED if block.shared else 0)(*rows)


def _saddle(features: Features, discount: float, weights: Any, w: Any, rows: tuple[Any, ...]) -> Any:
    """Return one unit's objective at weights by layer.

    Every coefficient is linear in a row, so that both layouts of a block give the same.
    """
    values, q = jax.jvp(lambda x: features.values_of(x, rows[0], jnp), (weights,), (w,))
    return jnp.sum(_errors(features, discount, weights, values, rows) * q - 0.5 * rows[3] * q * q)


def _errors(features: Features, discount: float, weights: Any, values: Any, rows: tuple[Any, ...]) -> Any:
    """Return ``(L,)`` omega rho delta."""
    _, next_states, alive, _, weight_rho, weight_rho_reward = rows
    following = discount * alive * features.values_of(weights, next_states, jnp)
    return weight_rho_reward + weight_rho * (following - values)
