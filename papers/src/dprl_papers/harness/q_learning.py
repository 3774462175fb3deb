"""Policies for simulated domains: Q-learning and Sarsa with linear features, and soft policies from the learned Q.

The rules are Watkins' Q-learning, and Sarsa (Rummery and Niranjan 1994; Sutton and Barto 2018, 10.1). In Sarsa the
target uses the action that is taken in the next state, so the learned value is that of the exploring policy. Both have
the step sizes of Konidaris, Osentoski and Thomas (2011): a feature cos(pi c . x) learns with the base step size over
the norm of c. Everything is public, because it runs on a simulator.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (learning is float64)
from dprl.errors import DprlError
from dprl.protocols import Environment
from dprl.value_functions.features import CoupledFourier, Features


@dataclass(frozen=True, eq=False)
class SoftPolicy:
    """``(1 - epsilon) softmax(Q(s, .) / temperature) + epsilon / A``: no action has a probability below epsilon / A.

    The policy maps NumPy or JAX arrays to arrays of the same kind, row by row.

    Attributes:
        weights: ``(n, A)``; Q(s, a) is the product of the features of s and column a.
        features: feature map of Q.
        temperature: above 0, in the unit of Q.
        epsilon: in [0, 1]; 1 is the uniform policy.
    """

    weights: np.ndarray
    features: Features
    temperature: float
    epsilon: float

    def __post_init__(self) -> None:
        if self.temperature <= 0 or not 0 <= self.epsilon <= 1:
            raise DprlError("A soft policy needs a temperature above 0 and an epsilon in [0, 1].")

    def values(self, states: Any) -> Any:
        """Return the ``(N, A)`` values Q of ``(N, d)`` states."""
        xp = states.__array_namespace__()
        phi = self.features(xp.asarray(states, dtype=xp.float64), xp)
        table = xp.asarray(self.weights)
        # one feature at a time: a matrix product may round a row differently beside other rows
        return sum(phi[:, i : i + 1] * table[i] for i in range(phi.shape[1]))

    def __call__(self, states: Any, /) -> Any:
        return soften(self.values(states), self.temperature, self.epsilon)


def soften(values: Any, temperature: float, epsilon: float) -> Any:
    """Return ``(N, A)`` probabilities of a soft policy from ``(N, A)`` values.

    They are ``(1 - epsilon) softmax(values / temperature) + epsilon / A``.
    """
    xp = values.__array_namespace__()
    preferences = values / temperature
    weights = xp.exp(preferences - xp.max(preferences, axis=1, keepdims=True))
    softmax = weights / xp.sum(weights, axis=1, keepdims=True)
    return (1.0 - epsilon) * softmax + epsilon / softmax.shape[1]


def step_scale(features: Features) -> np.ndarray:
    """Return the ``(n,)`` factors of the step sizes: one over the norm of a feature's frequencies, or 1 without any."""
    if not isinstance(features, CoupledFourier):
        return np.ones(features.size)
    return 1.0 / np.maximum(np.linalg.norm(features.coefficients(), axis=1), 1.0)


def epsilon_greedy(explore_keys: Any, action_keys: Any, values: Any, exploration: Any) -> jax.Array:
    """Return ``(N,)`` actions: the best of ``(N, A)`` values, or, with probability ``exploration``, a uniform one."""
    explore = jax.vmap(lambda k: jax.random.uniform(k, dtype=jnp.float64))(explore_keys) < exploration
    chance = jax.vmap(lambda k: jax.random.randint(k, (), 0, values.shape[1]))(action_keys)
    return jnp.where(explore, chance, jnp.argmax(values, axis=1))


def choose(which: Any, these: Any, others: Any) -> Any:
    """Return a pytree of arrays with N rows: rows of ``these`` where ``which`` ``(N,)`` is true, else of ``others``."""
    return jax.tree.map(lambda a, b: jnp.where(which.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), these, others)


@functools.partial(jax.jit, static_argnames=("environment", "features", "steps", "parallel"))
def _q_learning(
    environment: Environment,
    features: Features,
    steps: int,
    parallel: int,
    key: Any,
    step_size: Any,
    exploration: Any,
    reward_scale: Any,
) -> jax.Array:
    actions, discount = environment.actions, environment.discount
    scale = jnp.asarray(step_scale(features)) * (step_size / parallel)

    def phi(state: Any) -> jax.Array:
        return features(jax.vmap(environment.observe)(state).astype(jnp.float64), jnp)

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        weights, state, age = carry
        keys = jax.random.split(jax.random.fold_in(key, now), (4, parallel))
        here = phi(state)
        action = epsilon_greedy(keys[0], keys[1], here @ weights, exploration)
        following, reward, terminated = jax.vmap(environment.step)(keys[2], state, action)
        onward = jnp.where(terminated, 0.0, jnp.max(phi(following) @ weights, axis=1))
        value = jnp.take_along_axis(here @ weights, action[:, None], axis=1)[:, 0]
        error = reward.astype(jnp.float64) * reward_scale + discount * onward - value
        # the step size falls linearly to a tenth
        rate = scale * (1.0 - 0.9 * now / steps)
        taken = jax.nn.one_hot(action, actions, dtype=jnp.float64)
        weights = weights + rate[:, None] * (here.T @ (error[:, None] * taken))
        over = terminated | (age + 1 >= environment.horizon)
        fresh = jax.vmap(environment.reset)(keys[3])
        return (weights, choose(over, fresh, following), jnp.where(over, 0, age + 1)), None

    start = jax.vmap(environment.reset)(jax.random.split(jax.random.fold_in(key, steps), parallel))
    weights = jnp.zeros((features.size, actions), jnp.float64)
    carry = (weights, start, jnp.zeros(parallel, jnp.int32))
    return jax.lax.scan(step, carry, jnp.arange(steps))[0][0]


@functools.partial(jax.jit, static_argnames=("environment", "features", "steps", "parallel"))
def _sarsa(
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


_RULES: dict[str, Any] = {"Q-learning": _q_learning, "Sarsa": _sarsa}


def learn(
    environment: Environment,
    features: Features,
    seed: int,
    *,
    steps: int,
    step_size: float,
    exploration: float = 0.1,
    parallel: int = 1,
    rule: Literal["Q-learning", "Sarsa"] = "Q-learning",
) -> np.ndarray:
    """Return the ``(n, A)`` weights of Q, in the reward's unit.

    The same arguments give the same bytes on the same machine and versions of JAX and NumPy.

    Args:
        environment: a hashable simulator; a trajectory restarts at its horizon, without a terminal value.
        features: features of Q over the environment's observations.
        seed: seed of starts and exploration.
        steps: number of updates, each the mean over ``parallel`` trajectories that run side by side.
        step_size: step size at the start, which is multiplied by :func:`step_scale`; it falls linearly to a tenth.
        exploration: probability of a uniformly random action.
        parallel: number of trajectories that run side by side.
        rule: Q-learning, or Sarsa(0).

    Raises:
        DprlError: the weights diverged.
    """
    arguments: tuple[Any, ...] = (jax.random.key(seed), float(step_size), float(exploration))
    if rule == "Q-learning":
        arguments += (1.0,)  # a factor of rewards; without it, the last digits of stored weights differ
    weights = np.asarray(_RULES[rule](environment, features, steps, parallel, *arguments))
    if not np.all(np.isfinite(weights)):
        raise DprlError(f"{rule} diverged; choose a smaller step size.")
    return weights


def fitted_q(
    features: np.ndarray,
    next_features: np.ndarray,
    actions: np.ndarray,
    rewards: np.ndarray,
    terminated: np.ndarray,
    discount: float,
    *,
    iterations: int = 300,
    ridge: float = 1e-6,
) -> np.ndarray:
    """Return the ``(n, A)`` weights of Q by fitted Q iteration (Ernst, Geurts and Wehenkel 2005) with ridge regression.

    Args:
        features, next_features: ``(N, n)`` features of the states before and after each transition.
        actions: ``(N,)`` whole numbers from 0; each action must occur.
        rewards, terminated: ``(N,)`` reward of each transition, and whether it ended the trajectory.
        discount: discount factor.
        iterations: number of regressions, each on the targets from the regression before.
        ridge: added to the diagonal of the mean outer product of the features.
    """
    size = features.shape[1]
    groups = [np.flatnonzero(actions == a) for a in range(int(actions.max()) + 1)]
    inverses = [np.linalg.inv(features[rows].T @ features[rows] / len(rows) + ridge * np.eye(size)) for rows in groups]
    weights = np.zeros((size, len(groups)))
    for _ in range(iterations):
        targets = rewards + discount * np.where(terminated, 0.0, (next_features @ weights).max(axis=1))
        columns = [
            inverse @ (features[rows].T @ targets[rows] / len(rows))
            for inverse, rows in zip(inverses, groups, strict=True)
        ]
        weights = np.stack(columns, axis=1)
    if not np.all(np.isfinite(weights)):
        raise DprlError("Fitted Q iteration diverged; choose a larger ridge.")
    return weights
