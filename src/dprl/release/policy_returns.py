"""What a learned policy earns in a public simulator, and what its iterates did: of simulators alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.config import filled
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.policies.parametric import Parametric
from dprl.policies.released import ReleasedPolicy

EPISODES, _POINTS = 300, 16


def measure(simulator: Any, policy: ReleasedPolicy, history: np.ndarray, config: DPPG, seed: int) -> dict[str, Any]:
    """Return mean undiscounted returns of an episode.

    Args:
        history: ``(T + 1, d)`` iterates.

    Returns:
        ``returns``: of the released policy as it draws its actions, of its likeliest actions, and of the policy that
        learning began with. ``curve``: of iterates, with the number of users each was learned from.
    """
    parametric = policy.parametric
    key = jax.random.key(seed)

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


def measure_on_host(source: Any, policy: ReleasedPolicy, first: np.ndarray, users: int, seed: int) -> dict[str, Any]:
    """Return the same returns with the true answers of users who can be asked again, which only a simulation may do.

    Args:
        first: ``(d,)`` parameters that learning began with.
        users: places that are asked.
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
    """Return mean undiscounted return of :data:`EPISODES` episodes under the parameters ``theta`` ``(d,)``.

    Args:
        greedy: whether the likeliest actions are taken; may be traced.
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
