"""Indicator features over states whose transitions lie on a few diagonals: GPOPE's gradients without matrix products.

For chains, queues and corridors this is an exact rewriting of :class:`~dprl.engine.layouts.SharedTransitions`. Each
state's phi is one scaled indicator, so that a product with phi is a scaling, and a product with the features of the
next state is a shift. An update costs O(transitions) per unit rather than O(transitions x features).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_static
@dataclass(frozen=True)
class Bands:
    """A public set of transitions: ``states`` slots for each offset ``target - source``, in order of the source.

    A slot whose target is outside of ``0 .. states - 1`` is a transition to the terminal state.
    """

    offsets: tuple[int, ...]
    states: int
    scale: float
    discount: float


def banded_gradients(
    bands: Bands, theta: jax.Array, w: jax.Array, weight: Any, weight_rho: Any, weight_rho_reward: Any
) -> tuple[jax.Array, jax.Array]:
    """Return ``[-A_i' w, A_i theta + C_i w - b_i]`` for each unit: two arrays ``(B, n)``, from weights ``(B, K)``."""
    u, v = bands.scale * w, bands.scale * theta
    primal = dual = jnp.zeros((weight.shape[0], bands.states), dtype=theta.dtype)
    for number, offset in enumerate(bands.offsets):
        band = slice(number * bands.states, (number + 1) * bands.states)
        rho = weight_rho[:, band]
        primal = primal - rho * u + bands.discount * _shift(rho * u, -offset)
        difference = v - bands.discount * _shift(v, offset)
        dual = dual + rho * difference - weight_rho_reward[:, band] + weight[:, band] * u
    return bands.scale * primal, bands.scale * dual


def _shift(x: jax.Array, offset: int) -> jax.Array:
    """Return ``y[..., s] = x[..., s + offset]``, zero where that index is outside of ``x``."""
    size = x.shape[-1]
    if abs(offset) >= size:
        return jnp.zeros_like(x)
    edges = [(0, 0, 0)] * (x.ndim - 1) + [(-offset, offset, 0)]
    return jax.lax.pad(x, jnp.zeros((), x.dtype), edges)
