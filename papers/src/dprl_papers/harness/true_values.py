"""Values of a policy from given states of a simulator, by rollouts: the truth of domains without a closed form."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (returns are added up in float64)
from dprl.environments.rollout import _draw
from dprl.protocols import Environment, Interval, Policy


@functools.partial(jax.jit, static_argnames=("environment", "policy", "steps"))
def _returns(environment: Environment, policy: Any, steps: int, key: Any, state: Any, reward: Any) -> jax.Array:
    low, high = reward
    count = jax.tree.leaves(state)[0].shape[0]

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        state, alive, total, factor = carry
        choice, change = jax.random.split(jax.random.fold_in(key, now))
        probabilities = policy(jax.vmap(environment.observe)(state).astype(jnp.float32))
        action = _draw(probabilities, jax.random.uniform(choice, (count,), dtype=jnp.float64))
        state, earned, terminated = jax.vmap(environment.step)(jax.random.split(change, count), state, action)
        total = total + jnp.where(alive, factor * jnp.clip(earned.astype(jnp.float64), low, high), 0.0)
        return (state, alive & ~terminated, total, factor * environment.discount), None

    start = (state, jnp.ones(count, bool), jnp.zeros(count, jnp.float64), jnp.ones((), jnp.float64))
    return jax.lax.scan(step, start, jnp.arange(steps))[0][2]


def rollout_values(
    environment: Environment,
    policy: Policy,
    state: Any,
    seed: int,
    *,
    steps: int,
    repetitions: int,
    rewards: Interval,
    batch: int = 16_384,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean discounted return from each state, and its standard error, ``(S,)`` each.

    Args:
        environment: a hashable simulator; its horizon does not end a rollout.
        policy: a policy that JAX can trace.
        state: states of the simulator, a pytree of arrays with ``S`` rows.
        seed: of the rollouts.
        steps: transitions after which a rollout is cut; choose them so that ``discount ** steps`` is negligible.
        repetitions: rollouts from each state, at least 2.
        rewards: bounds to which rewards are clipped, as those of a log are.
        batch: rollouts that run side by side.
    """
    states = jax.tree.leaves(state)[0].shape[0]
    width = max(1, min(repetitions, batch // states))
    parts = []
    for i, first in enumerate(range(0, repetitions, width)):
        repeated = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), width, axis=0), state)
        key = jax.random.fold_in(jax.random.key(seed), i)
        returns = _returns(environment, policy, steps, key, repeated, (float(rewards[0]), float(rewards[1])))
        parts.append(np.asarray(returns).reshape(states, width)[:, : repetitions - first])
    returns = np.concatenate(parts, axis=1)
    return returns.mean(axis=1), returns.std(axis=1, ddof=1) / np.sqrt(returns.shape[1])
