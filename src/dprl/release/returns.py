"""What policies really earn, with the true rewards: of simulations alone, never of a private release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dprl.environment_spec import EnvironmentSpec
from dprl.environments.interval_walk import is_own
from dprl.learning import planner
from dprl.learning.asking import EnvironmentSession, rewards_at
from dprl.value_functions.q_function import QFunction

_EPISODES, _EPISODES_ON_HOST = 1000, 20

Choice = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""States ``(N, d)`` and coins to actions ``(N,)``."""


def mean_returns(source: Any, asked: Any, facts: EnvironmentSpec, function: QFunction, seed: int) -> dict[str, float]:
    """Return mean undiscounted return of an episode under the learned policy, a random one, and the best known, if any.

    Args:
        asked: ``source`` step by step on the host.
    """
    policies: dict[str, Choice] = {
        "learned": lambda states, _: function.policy(states),
        "random": lambda states, coins: coins.integers(facts.actions, size=len(states)),
    }
    if hasattr(source, "transition_matrix") and facts.dimensions == 1:
        points = planner.POINTS
        rewards = np.nan_to_num(rewards_at(source, points[:, None], facts.actions))
        best = np.asarray(planner.optimal_q(source.transition_matrix(points), rewards, facts.discount), np.float32)
        optimal = QFunction({"V": best}, f"table:{len(points)}", facts.observation, facts.actions, (-1.0, 1.0))
        policies["best known"] = lambda states, _: optimal.policy(states)
    run, played = (_compiled, source) if is_own(source) else (_on_host, EnvironmentSession(asked, facts.dimensions))
    return {name: run(played, facts, choose, np.random.default_rng(seed)) for name, choose in policies.items()}


def _compiled(source: Any, facts: EnvironmentSpec, choose: Choice, coins: np.random.Generator) -> float:
    reset, observe = jax.jit(jax.vmap(source.reset)), jax.jit(jax.vmap(source.observe))
    step = jax.jit(jax.vmap(source.step))
    keys = jax.random.split(jax.random.key(int(coins.integers(2**31))), facts.horizon + 1)
    state = reset(jax.random.split(keys[0], _EPISODES))
    total, running = np.zeros(_EPISODES), np.ones(_EPISODES, bool)
    for key in keys[1:]:
        actions = choose(np.asarray(observe(state)), coins)
        state, reward, over = step(jax.random.split(key, _EPISODES), state, np.asarray(actions, np.int32))
        total += np.where(running, np.asarray(reward), 0.0)
        running &= ~np.asarray(over)
    return float(total.mean())


def _on_host(asked: EnvironmentSession, facts: EnvironmentSpec, choose: Choice, coins: np.random.Generator) -> float:
    low, high = np.array(facts.observation).T
    total = 0.0
    for _ in range(_EPISODES_ON_HOST):
        seen = asked.reset(int(coins.integers(2**31)))
        for _ in range(facts.horizon):
            action = choose((low + seen.unit * (high - low))[None], coins)[0]
            seen, reward, over, cut = asked.step(int(action))
            total += float(np.nan_to_num(reward))
            if over or cut:
                break
    return total / _EPISODES_ON_HOST
