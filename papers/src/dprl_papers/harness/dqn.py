"""Policies for simulated games: a small double DQN (Mnih et al. 2015; van Hasselt, Guez and Silver 2016).

It has a network of two hidden layers, replay, a target network and Adam. The games run on the host, several side by
side. Everything is public, because it runs on a simulator.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import DprlError

Weights = dict[str, Any]
"""``w1 (k, h)``, ``b1 (h,)``, ``w2 (h, h)``, ``b2 (h,)``, ``w3 (h, A)``, ``b3 (A,)``, float32."""


class Game(Protocol):
    """A game that can be played again and again; the network sees a state as a ``(k,)`` float32 array."""

    def begin(self) -> np.ndarray:
        """Begin a new game, and return its first state."""
        ...

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """Return the next state, the reward, and whether the game is over."""
        ...


class Batch(NamedTuple):
    """Transitions of the replay memory; every field has shape ``(B, ...)``."""

    state: Any
    action: Any
    reward: Any
    following: Any
    over: Any


def initial_weights(inputs: int, hidden: int, actions: int, seed: int) -> Weights:
    """Return He's initialisation. The last layer is 0, so that no action is preferred."""
    rng = np.random.default_rng(seed)
    sizes = {"1": (inputs, hidden), "2": (hidden, hidden), "3": (hidden, actions)}
    weights: Weights = {}
    for layer, shape in sizes.items():
        scale = 0.0 if layer == "3" else np.sqrt(2.0 / shape[0])
        weights[f"w{layer}"] = (scale * rng.standard_normal(shape)).astype(np.float32)
        weights[f"b{layer}"] = np.zeros(shape[1], np.float32)
    return weights


def q_values(weights: Weights, states: Any, xp: Any = np) -> Any:
    """Return the ``(N, A)`` values Q of ``(N, k)`` states; ``xp`` is numpy or jax.numpy."""

    # no matrix product: starting NumPy's threads takes far longer than these few numbers need
    def layer(inputs: Any, i: str) -> Any:
        return xp.einsum("nk,kh->nh", inputs, weights[f"w{i}"]) + weights[f"b{i}"]

    hidden = xp.maximum(layer(states, "1"), 0.0)
    return layer(xp.maximum(layer(hidden, "2"), 0.0), "3")


def _loss(weights: Weights, target: Weights, batch: Batch, discount: float) -> jax.Array:
    best = jnp.argmax(q_values(weights, batch.following, jnp), axis=1)
    onward = jnp.take_along_axis(q_values(target, batch.following, jnp), best[:, None], axis=1)[:, 0]
    aim = jax.lax.stop_gradient(batch.reward + discount * jnp.where(batch.over, 0.0, onward))
    taken = jnp.take_along_axis(q_values(weights, batch.state, jnp), batch.action[:, None], axis=1)[:, 0]
    error = jnp.abs(aim - taken)
    return jnp.mean(jnp.where(error < 1.0, 0.5 * error**2, error - 0.5))  # Huber's


@functools.partial(jax.jit, static_argnames="discount")
def _update(
    weights: Weights, target: Weights, moments: tuple[Any, Any], batches: Batch, number: Any, rate: Any, discount: float
) -> tuple[Weights, tuple[Any, Any]]:
    """Return the weights and moments after one Adam update on each of ``(K, B, ...)`` batches in turn.

    ``number`` updates came before.
    """

    def one(carry: Any, now: Any) -> tuple[Any, None]:
        weights, (first, second), count = carry
        gradient = jax.grad(_loss)(weights, target, now, discount)
        count = count + 1.0
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda m, g: 0.999 * m + 0.001 * g**2, second, gradient)
        length = rate * jnp.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        weights = jax.tree.map(lambda w, m, v: w - length * m / (jnp.sqrt(v) + 1e-6), weights, first, second)
        return (weights, (first, second), count), None

    (weights, moments, _), _ = jax.lax.scan(one, (weights, moments, number), batches)
    return weights, moments


def learn_dqn(
    games: Sequence[Game],
    actions: int,
    seed: int,
    *,
    steps: int,
    discount: float = 0.99,
    hidden: int = 64,
    step_size: float = 5e-4,
    batch: int = 64,
    memory: int = 200_000,
    warm_up: int = 5_000,
    updates_per_step: float = 1.0,
    target_every: int = 2_000,
    exploration: float = 0.02,
    explore_steps: int = 50_000,
) -> Weights:
    """Return the weights of Q after ``steps`` decisions in all games together.

    Args:
        games: played side by side; when a game is over, a new one begins.
        actions: number of actions.
        seed: of the initial weights, the exploration and the replay; the games have seeds of their own.
        steps: decisions in all games together.
        discount: discount factor of the learned values.
        hidden: units of each of the two hidden layers.
        step_size: Adam's step size at the start; it falls linearly to a tenth.
        batch: transitions in one update.
        memory: transitions that the replay memory keeps.
        warm_up: decisions before the first update.
        updates_per_step: updates per decision.
        target_every: number of updates after which the target network is renewed.
        exploration: final probability of a random action; it falls linearly from 1.
        explore_steps: decisions after which the final probability is reached.

    Raises:
        DprlError: the network diverged.
    """
    rng = np.random.default_rng(seed)
    states = np.stack([game.begin() for game in games])
    weights = initial_weights(states.shape[1], hidden, actions, seed)
    target, zeros = weights, jax.tree.map(np.zeros_like, weights)
    moments: tuple[Any, Any] = (zeros, zeros)
    size = min(memory, steps)
    kept = Batch(
        np.zeros((size, states.shape[1]), np.float32),
        np.zeros(size, np.int64),
        np.zeros(size, np.float32),
        np.zeros((size, states.shape[1]), np.float32),
        np.zeros(size, bool),
    )
    ready, updates, due = jax.tree.map(np.asarray, weights), 0, 0.0
    burst = 16  # updates in one call
    for now in range(0, steps, len(games)):
        chance = max(exploration, 1.0 - (1.0 - exploration) * now / explore_steps)
        chosen = np.argmax(q_values(ready, states), axis=1)
        chosen = np.where(rng.random(len(games)) < chance, rng.integers(0, actions, len(games)), chosen)
        for i, game in enumerate(games):
            following, reward, over = game.step(int(chosen[i]))
            row = (now + i) % size
            for column, value in zip(kept, (states[i], chosen[i], reward, following, over), strict=True):
                column[row] = value
            states[i] = game.begin() if over else following
        if now < warm_up:
            continue
        due += updates_per_step * len(games)
        while due >= burst:
            rows = rng.integers(0, min(now + len(games), size), (burst, batch))
            rate = step_size * (1.0 - 0.9 * now / steps)
            batches = Batch(*(column[rows] for column in kept))
            weights, moments = _update(weights, target, moments, batches, float(updates), rate, discount)
            if updates // target_every != (updates + burst) // target_every:
                target = weights
            updates, due = updates + burst, due - burst
            ready = jax.tree.map(np.asarray, weights)
    if not all(np.all(np.isfinite(part)) for part in ready.values()):
        raise DprlError("The network diverged; choose a smaller step size.")
    return ready
