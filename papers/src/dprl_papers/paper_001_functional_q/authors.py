"""The learner of the authors' own code, which is not the algorithm that paper 001 prints.

Source: https://github.com/wangbx66/differentially-private-q-learning, commit 8e574dcd, ``dpql.py``, which the paper
gives as the code for Figure 1. It has two layers of 16 units, RMSprop, Huber's loss, clamped gradients, replay, a
target network that is renewed every ten episodes, epsilon-greedy actions, and a discount of .999. To every output of
both networks it adds a path with kernel ``sigma^2 exp(-|x - y|)`` that is drawn anew for each episode. The code states
no epsilon, so nobody who runs it is promised one.

Two things differ here. The sampler of the authors' code conditions a state beyond the last one on the value at the
*first*; here, paths are exact, on a grid of 2^-12. And batches are drawn with replacement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from dprl_papers.harness.dqn import q_values
from dprl_papers.paper_001_functional_q.returns import GRID, policy_returns

EPISODES, LENGTH, HIDDEN, BATCH, RENEWED = 100, 50, 16, 128, 10
DISCOUNT, RATE, SMOOTH, TINY = 0.999, 0.01, 0.99, 1e-8  # the last three are RMSprop's, by PyTorch's defaults
EXPLORING, FADING = (0.9, 0.05), 200.0
POINTS = 2**12 + 1  # number of points of a path


def learn(stds: Sequence[float], seed: int, seeds: int) -> dict[str, np.ndarray]:
    """Return ``(stds, seeds, EPISODES)`` ``rewards`` of episodes, and ``(stds, seeds)`` ``greedy`` returns at the end.

    The rewards are what the code logs, from episodes with exploration and noise. The greedy return is that of the final
    network, without noise, with the rewards of figure ``1``.
    """
    keys = jnp.stack([random.key(i) for i in range(seed, seed + seeds)])
    rewards, weights = jax.tree.map(np.asarray, _runs(jnp.asarray(stds, jnp.float32), keys))
    states = np.linspace(0.0, 1.0, GRID, dtype=np.float32)[:, None]
    each = [
        [q_values({name: w[i, j] for name, w in weights.items()}, states) for j in range(seeds)]
        for i in range(len(stds))
    ]
    # action 0 of the authors' code walks up, as action 1 does here
    return {"rewards": rewards, "greedy": policy_returns(np.argmin(each, axis=-1))}


@jax.jit
def _runs(stds: jax.Array, keys: jax.Array) -> Any:
    return jax.vmap(jax.vmap(_run, (None, 0)), (0, None))(stds, keys)


def initial(key: Any) -> dict[str, jax.Array]:
    """Return PyTorch's default weights of linear layers: uniform, at most one over the root of the number of inputs."""
    weights: dict[str, jax.Array] = {}
    for i, (inputs, outputs) in enumerate(((1, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2)), 1):
        most, parts = 1.0 / math.sqrt(inputs), random.split(random.fold_in(key, i))
        weights[f"w{i}"] = random.uniform(parts[0], (inputs, outputs), jnp.float32, -most, most)
        weights[f"b{i}"] = random.uniform(parts[1], (outputs,), jnp.float32, -most, most)
    return weights


def paths(key: Any, std: Any) -> jax.Array:
    """Return ``(2, 2, POINTS)`` paths for each network and action, with covariance ``std^2 exp(-|x - y|)``."""
    kept = math.exp(-1.0 / (POINTS - 1))
    normals = random.normal(key, (POINTS, 2, 2), jnp.float32)

    def onward(value: Any, normal: Any) -> tuple[Any, Any]:
        value = kept * value + math.sqrt(1.0 - kept**2) * normal
        return value, value

    return std * jnp.concatenate([normals[:1], lax.scan(onward, normals[0], normals[1:])[1]]).transpose(1, 2, 0)


def _noisy(weights: Any, path: jax.Array, states: jax.Array) -> jax.Array:
    """Return a network's ``(N, 2)`` outputs plus the noise of its own path."""
    at = jnp.round(states * (POINTS - 1)).astype(jnp.int32)
    return q_values(weights, states[:, None], jnp) + path[:, at].T


def _loss(weights: Any, target: Any, path: jax.Array, batch: Any) -> jax.Array:
    state, action, reward, following, over = batch
    onward = jnp.where(over, 0.0, _noisy(target, path[1], following).max(-1))
    taken = jnp.take_along_axis(_noisy(weights, path[0], state), action[:, None], axis=1)[:, 0]
    error = jnp.abs(reward + DISCOUNT * onward - taken)
    return jnp.mean(jnp.where(error < 1.0, 0.5 * error**2, error - 0.5))


def _step(key: Any, path: jax.Array, target: Any, carry: Any, t: Any) -> tuple[Any, Any]:
    """Act once, store the transition, and learn from a batch of stored transitions; ``t`` counts all steps."""
    weights, squares, memory, state = carry
    coin, chance, move, drawn = random.split(random.fold_in(key, t), 4)
    exploring = EXPLORING[1] + (EXPLORING[0] - EXPLORING[1]) * jnp.exp(-t / FADING)
    greedy = jnp.argmax(_noisy(weights, path[0], state[None])[0])
    action = jnp.where(random.uniform(coin) > exploring, greedy, random.randint(chance, (), 0, 2)).astype(jnp.int32)
    length = random.uniform(move, (), jnp.float32, 0.0, 0.25)
    following = jnp.clip(state + jnp.where(action == 0, length, -length), 0.0, 1.0)
    reward = 0.5 - jnp.abs(following - 0.5)
    seen = (state, action, reward, following, (t + 1) % LENGTH == 0)
    memory = jax.tree.map(lambda kept, new: kept.at[t].set(new), memory, seen)
    batch = jax.tree.map(lambda kept: kept[random.randint(drawn, (BATCH,), 0, t + 1)], memory)
    gradient = jax.tree.map(lambda g: jnp.clip(g, -1.0, 1.0), jax.grad(_loss)(weights, target, path, batch))
    learned = jax.tree.map(lambda s, g: SMOOTH * s + (1.0 - SMOOTH) * g**2, squares, gradient)
    moved = jax.tree.map(lambda w, g, s: w - RATE * g / (jnp.sqrt(s) + TINY), weights, gradient, learned)
    keep = partial(jnp.where, t + 1 >= BATCH)  # nothing is learned before there is a batch
    weights, squares = (jax.tree.map(keep, new, old) for new, old in ((moved, weights), (learned, squares)))
    return (weights, squares, memory, following), reward


def _run(std: Any, key: Any) -> Any:
    """Return the rewards of the episodes, and the final weights."""
    begin, noise, act, start = random.split(key, 4)
    weights, most = initial(begin), EPISODES * LENGTH
    blank = jnp.zeros(most, jnp.float32)
    memory = (blank, blank.astype(jnp.int32), blank, blank, blank.astype(bool))

    def episode(carry: Any, i: Any) -> tuple[Any, Any]:
        weights, squares, memory, target = carry
        path = paths(random.fold_in(noise, i), std)
        state = random.uniform(random.fold_in(start, i), (), jnp.float32)
        one = partial(_step, act, path, target)
        (weights, squares, memory, _), rewards = lax.scan(
            one, (weights, squares, memory, state), i * LENGTH + jnp.arange(LENGTH)
        )
        target = jax.tree.map(lambda new, old: jnp.where(i % RENEWED == 0, new, old), weights, target)
        return (weights, squares, memory, target), rewards.sum()

    squares = jax.tree.map(jnp.zeros_like, weights)
    (weights, *_), rewards = lax.scan(episode, (weights, squares, memory, weights), jnp.arange(EPISODES))
    return rewards, weights
