"""A coordinate-wise LSTM: all coordinates of the parameters share the weights, and each has a hidden state.

Andrychowicz et al., "Learning to learn by gradient descent by gradient descent" (2016), Section 2.1; paper 002, B.7.
Coordinates lie on the minor axis of every array, so that one vectorised loop computes a gate of all coordinates.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dprl import x64 as x64

Weights = dict[str, jax.Array]
"""Float32 arrays by name; names of several networks differ in what stands before the first dot."""

FORGET = 1.0
"""Bias of the forget gates at the start: what was seen is remembered until training says otherwise."""


def init(key: jax.Array, name: str, inputs: int, outputs: int, hidden: int = 20, layers: int = 2) -> Weights:
    """Return random weights of the layers, and zeros for the outputs: at the start the network answers 0 to everything.

    Args:
        key: a key, as :func:`jax.random.key` makes it.
        name: name of the network, with which the names of all its weights begin.
        inputs, outputs: number of inputs and of outputs for each coordinate.
    """
    weights: Weights = {}
    for layer, one in enumerate(jax.random.split(key, layers)):
        width = (inputs if layer == 0 else hidden) + hidden
        scale = 1.0 / math.sqrt(width)
        weights[f"{name}.{layer}.w"] = scale * jax.random.normal(one, (4 * hidden, width), dtype=jnp.float32)
        weights[f"{name}.{layer}.b"] = jnp.repeat(jnp.asarray([0.0, FORGET, 0.0, 0.0], dtype=jnp.float32), hidden)
    weights[f"{name}.out.w"] = jnp.zeros((outputs, hidden), dtype=jnp.float32)
    weights[f"{name}.out.b"] = jnp.zeros(outputs, dtype=jnp.float32)
    return weights


def start(hidden: int, layers: int, coordinates: int) -> jax.Array:
    """Return ``(layers, 2, hidden, coordinates)`` float32 zeros: outputs and cells before the first step."""
    return jnp.zeros((layers, 2, hidden, coordinates), dtype=jnp.float32)


def step(weights: Weights, name: str, state: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Take one step of all coordinates.

    Args:
        state: ``(layers, 2, hidden, d)`` as from :func:`start`.
        inputs: ``(k, d)`` float32.

    Returns:
        The next state, and the ``(outputs, d)`` outputs.
    """
    x, kept = inputs, []
    for layer in range(state.shape[0]):
        h, c = state[layer, 0], state[layer, 1]
        gates = weights[f"{name}.{layer}.w"] @ jnp.concatenate([x, h]) + weights[f"{name}.{layer}.b"][:, None]
        i, f, g, o = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        x = jax.nn.sigmoid(o) * jnp.tanh(c)
        kept.append(jnp.stack([x, c]))
    return jnp.stack(kept), weights[f"{name}.out.w"] @ x + weights[f"{name}.out.b"][:, None]
