"""Policies for simulated domains: Sarsa with linear features (Rummery and Niranjan 1994; Sutton and Barto 2018, 10.1).

As :mod:`dprl_papers.harness.q_learning`, but the next state counts with the action that is taken there, so that what is
learned is the value of exploring. Public throughout: it runs on a simulator.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (learning is float64)
from dprl.errors import DprlError
from dprl.protocols import Environment
from dprl.value_functions.features import Features
from dprl_papers.harness.q_learning import choose, epsilon_greedy, step_scale


@functools.partial(jax.jit, static_argnames=("environment", "features", "steps", "parallel"))
def _learn(
    environment: Environment, features: Features, steps: int, parallel: int, key: Any, step_size: Any, exploration: Any
) -> jax.Array:
    scale = jnp.asarray(step_scale(features)) * (step_size / parallel)

    def phi(state: Any) -> jax.Array:
        return features(jax.vmap(environment.observe)(state).astype(jnp.float64), jnp)

    def act(keys: Any, here: Any, weights: Any) -> jax.Array:
        return epsilon_greedy(keys[0], keys[1], here @ weights, exploration)

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        weights, state, here, action, age = carry
        keys = jax.random.split(jax.random.fold_in(key, now), (6, parallel))
        following, reward, terminated = jax.vmap(environment.step)(keys[0], state, action)
        there = phi(following)
        upcoming = act(keys[1:3], there, weights)
        taken, next_taken = (jax.nn.one_hot(a, environment.actions, dtype=jnp.float64) for a in (action, upcoming))
        onward = jnp.where(terminated, 0.0, jnp.sum((there @ weights) * next_taken, axis=1))
        error = reward.astype(jnp.float64) + environment.discount * onward - jnp.sum((here @ weights) * taken, axis=1)
        # the step size falls linearly to a tenth
        rate = scale * (1.0 - 0.9 * now / steps)
        weights = weights + rate[:, None] * (here.T @ (error[:, None] * taken))
        over = terminated | (age + 1 >= environment.horizon)
        fresh = jax.vmap(environment.reset)(keys[3])
        at_fresh = phi(fresh)
        restarted = (fresh, at_fresh, act(keys[4:6], at_fresh, weights), jnp.zeros_like(age))
        return (weights, *choose(over, restarted, (following, there, upcoming, age + 1))), None

    keys = jax.random.split(jax.random.fold_in(key, steps), (3, parallel))
    start = jax.vmap(environment.reset)(keys[0])
    weights = jnp.zeros((features.size, environment.actions), jnp.float64)
    here = phi(start)
    carry = (weights, start, here, act(keys[1:3], here, weights), jnp.zeros(parallel, jnp.int32))
    return jax.lax.scan(step, carry, jnp.arange(steps))[0][0]


def learn_sarsa(
    environment: Environment,
    features: Features,
    seed: int,
    *,
    steps: int,
    step_size: float,
    exploration: float = 0.1,
    parallel: int = 1,
) -> np.ndarray:
    """Return ``(n, A)`` weights of Q after Sarsa(0), in the reward's unit.

    The same arguments give the same bytes on the same machine and versions of JAX and NumPy.

    Args:
        environment: a hashable simulator; its horizon restarts a trajectory, without a terminal value.
        features: features of Q over the environment's observations.
        seed: of starts and exploration.
        steps: updates, each the mean over ``parallel`` trajectories that run side by side.
        step_size: at the start; it falls linearly to a tenth. Times :func:`~dprl_papers.harness.q_learning.step_scale`.
        exploration: probability of a uniformly random action.
        parallel: trajectories that run side by side.

    Raises:
        DprlError: it diverged.
    """
    arguments = (jax.random.key(seed), float(step_size), float(exploration))
    weights = np.asarray(_learn(environment, features, steps, parallel, *arguments))
    if not np.all(np.isfinite(weights)):
        raise DprlError("Sarsa diverged; choose a smaller step size.")
    return weights
