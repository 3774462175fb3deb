"""Measure what policies really earn, in simulations and in public simulators without people; never on private data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from dprl.config import filled
from dprl.environments.interval_walk import is_unchanged_walk
from dprl.learning import planned_q
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.q_learner import EnvironmentSession, rewards_at
from dprl.policies.parametric import Parametric, ReleasedPolicy
from dprl.protocols import EnvironmentSpec
from dprl.value_functions.q_function import QFunction

_Q_EPISODES, _Q_EPISODES_ON_HOST = 1000, 20
"""Number of episodes for a Q-function's mean return, in a compiled environment and in one on the host."""
EPISODES, _POINTS = 300, 16
"""Number of episodes for a policy's mean return, and largest number of iterates on its learning curve."""

Choice = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""A policy in a simulation: it maps states ``(N, d)`` and a random generator to actions ``(N,)``."""


def q_function_returns(
    source: Any, host_source: Any, facts: EnvironmentSpec, function: QFunction, seed: int
) -> dict[str, float]:
    """Return the mean undiscounted return of an episode under the learned, a random and, if known, the best policy.

    The best policy is known where the environment has a transition matrix and one state component: it is planned there
    with the true rewards.

    Args:
        host_source: the same environment as ``source``, which runs step by step on the host.
    """
    policies: dict[str, Choice] = {
        "learned": lambda states, _: function.policy(states),
        "random": lambda states, coins: coins.integers(facts.actions, size=len(states)),
    }
    if hasattr(source, "transition_matrix") and facts.dimensions == 1:
        points = planned_q.POINTS
        rewards = np.nan_to_num(rewards_at(source, points[:, None], facts.actions))
        best = np.asarray(planned_q.optimal_q(source.transition_matrix(points), rewards, facts.discount), np.float32)
        optimal = QFunction({"V": best}, f"table:{len(points)}", facts.observation, facts.actions, (-1.0, 1.0))
        policies["best known"] = lambda states, _: optimal.policy(states)
    run, played = (
        (_compiled, source)
        if is_unchanged_walk(source)
        else (_on_host, EnvironmentSession(host_source, facts.dimensions))
    )
    return {name: run(played, facts, choose, np.random.default_rng(seed)) for name, choose in policies.items()}


def _compiled(source: Any, facts: EnvironmentSpec, choose: Choice, coins: np.random.Generator) -> float:
    reset, observe = jax.jit(jax.vmap(source.reset)), jax.jit(jax.vmap(source.observe))
    step = jax.jit(jax.vmap(source.step))
    keys = jax.random.split(jax.random.key(int(coins.integers(2**31))), facts.horizon + 1)
    state = reset(jax.random.split(keys[0], _Q_EPISODES))
    total, running = np.zeros(_Q_EPISODES), np.ones(_Q_EPISODES, bool)
    for key in keys[1:]:
        actions = choose(np.asarray(observe(state)), coins)
        state, reward, over = step(jax.random.split(key, _Q_EPISODES), state, np.asarray(actions, np.int32))
        total += np.where(running, np.asarray(reward), 0.0)
        running &= ~np.asarray(over)
    return float(total.mean())


def _on_host(session: EnvironmentSession, facts: EnvironmentSpec, choose: Choice, coins: np.random.Generator) -> float:
    low, high = np.array(facts.observation).T
    total = 0.0
    for _ in range(_Q_EPISODES_ON_HOST):
        seen = session.reset(int(coins.integers(2**31)))
        for _ in range(facts.horizon):
            action = choose((low + seen.unit * (high - low))[None], coins)[0]
            seen, reward, over, cut = session.step(int(action))
            total += float(np.nan_to_num(reward))
            if over or cut:
                break
    return total / _Q_EPISODES_ON_HOST


def is_own_simulator(environment: Any) -> bool:
    """Tell whether an environment is one of dprl's own simulators, where equal objects behave alike.

    JAX caches a compiled program by its environment and compares environments by equality. A user's class may call two
    environments equal whose rewards differ, so programs compiled for such a class are not kept.
    """
    return type(environment).__module__.startswith("dprl.environments.")


def policy_returns(
    simulator: Any, policy: ReleasedPolicy, history: np.ndarray, config: DPPG, seed: int
) -> dict[str, Any]:
    """Return the mean undiscounted returns of an episode in a simulator, and the learning curve.

    Args:
        history: ``(T + 1, d)`` iterates.

    Returns:
        ``returns``: mean return of the released policy as it draws its actions, of its likeliest actions, and of the
        policy that learning began with. ``curve``: mean return of some iterates, with the number of users that each was
        learned from.
    """
    parametric = policy.parametric
    key = jax.random.key(seed)
    if not is_own_simulator(simulator):
        cast(Any, mean_return).clear_cache()  # it may hold another environment that claims to be equal

    def of(theta: Any, greedy: bool = False) -> float:
        return float(mean_return(parametric, simulator, jnp.asarray(theta), key, greedy))

    shown = np.unique(np.linspace(0, len(history) - 1, min(len(history), _POINTS)).round().astype(int))
    batch, users = filled(config.batch), filled(config.users)
    return {
        "returns": {
            "learned": of(policy.theta),
            "learned, likeliest actions": of(policy.theta, greedy=True),
            "before learning": of(history[0]),
        },
        "curve": {
            "users": [int(min(t * batch, users)) for t in shown],
            "returns": [of(history[t]) for t in shown],
        },
    }


def policy_returns_on_host(
    source: Any, policy: ReleasedPolicy, first: np.ndarray, users: int, seed: int
) -> dict[str, Any]:
    """Return the same as :func:`policy_returns`, from the true answers of users who can be asked again; no curve.

    Only a simulation may ask users again.

    Args:
        first: ``(d,)``, the parameters that learning began with.
        users: number of places whose users are asked.
    """
    before = ReleasedPolicy(policy.parametric, first)
    draws = np.random.default_rng(seed)

    def of(act: Any) -> float:
        answers = source.batch(0, users, act)
        answered = np.asarray(answers.length) > 0
        return float(np.asarray(answers.rewards).sum(axis=1)[answered].mean()) if answered.any() else 0.0

    return {
        "returns": {
            "learned": of(lambda seen, *_: policy.sample(seen, int(draws.integers(2**31)))),
            "learned, likeliest actions": of(lambda seen, *_: policy.greedy(seen)),
            "before learning": of(lambda seen, *_: before.sample(seen, int(draws.integers(2**31)))),
        },
        "curve": None,
    }


@partial(jax.jit, static_argnums=(0, 1))
def mean_return(policy: Parametric, simulator: Any, theta: Any, key: Any, greedy: Any) -> Any:
    """Return the mean undiscounted return of :data:`EPISODES` episodes under the parameters ``theta`` ``(d,)``.

    Args:
        greedy: whether the policy takes its likeliest actions instead of drawing them; may be a traced value.
    """
    start, play = jax.random.split(key)
    state = jax.vmap(simulator.reset)(jax.random.split(start, EPISODES))

    def step(carry: Any, t: Any) -> tuple[Any, None]:
        state, running, total = carry
        coins, moves = jax.random.split(jax.random.fold_in(play, t))
        seen = jax.vmap(simulator.observe)(state).astype(jnp.float32).reshape(EPISODES, -1)
        drawn = policy.draw(theta, seen, policy.coins(coins, (EPISODES,)))
        actions = jnp.where(greedy, policy.greedy(theta, seen), drawn)
        keys = jax.random.split(moves, EPISODES)
        state, reward, over = jax.vmap(simulator.step)(keys, state, policy.to_environment(actions))
        return (state, running & ~over, total + jnp.where(running, reward, 0.0)), None

    carry = (state, jnp.ones(EPISODES, bool), jnp.zeros(EPISODES, jnp.float64))
    (_, _, total), _ = jax.lax.scan(step, carry, jnp.arange(simulator.horizon))
    return total.mean()
