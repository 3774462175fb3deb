"""Private policy gradient with default options on families of problems, and the share of the possible gain it gets.

``python -m benchmarks learning_families`` prints the table of the problems that the defaults were judged on, and keeps
it. Every problem is a finite process, so that the value of each policy is known exactly. The gain is that from the
policy that learning begins with to the best policy of the same class, found by exact gradient ascent from many starts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.coverage.domains import Process
from benchmarks.families import CHOOSING, JUDGING, member
from benchmarks.harness import goal, table
from dprl.accounting.budget import Budget
from dprl.environments.cart_pole import CartPole
from dprl.environments.user_source import facts_of
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.pg_plan import make_pg_plan, program_of
from dprl.learning.policy_gradient.trainer import PolicyGradient, run
from dprl.learning.policy_gradient.users import Simulated
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric
from dprl.protocols import Interval
from dprl.release.policy_returns import mean_return

USERS, BUDGET, SEEDS = 20_000, Budget(1.0, 1e-6), 3
CART_POLE_USERS, CART_POLE_SEEDS, SOLVED = 500, 10, 475.0
CHOSEN_ON = ("inventory", "grid", "bandit")
JUDGED_ON = ("random-mdp", "clinic", "boyan", "chain", "queue")


@dataclass(frozen=True, eq=False)
class Finite:
    """A finite process as an environment of JAX; its rewards may be scaled.

    Attributes:
        process: the law.
        codes: ``(S, d)`` observation of each state.
        bounds: smallest and largest reward before scaling.
        scale: what every reward is multiplied by.
    """

    process: Process
    codes: np.ndarray
    bounds: Interval
    scale: float = 1.0

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        low, high = self.codes.min(axis=0).tolist(), self.codes.max(axis=0).tolist()
        return tuple(zip(low, high, strict=True))

    @property
    def reward_bounds(self) -> Interval:
        return self.bounds[0] * self.scale, self.bounds[1] * self.scale

    @property
    def actions(self) -> int:
        return self.process.following.shape[1]

    @property
    def horizon(self) -> int:
        return self.process.horizon

    @property
    def discount(self) -> float:
        return self.process.discount

    def reset(self, key: Any) -> Any:
        return _pick(key, self.process.start)

    def observe(self, state: Any) -> Any:
        return jnp.asarray(self.codes, jnp.float32)[state]

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        p, states = self.process, len(self.codes)
        first, second = jax.random.split(key)
        values = jnp.asarray(np.broadcast_to(p.rewards, p.outcomes.shape) * self.scale, jnp.float32)
        reward = values[state, action, _pick(first, jnp.asarray(p.outcomes, jnp.float32)[state, action])]
        following = _pick(second, jnp.asarray(p.following, jnp.float32)[state, action])
        return jnp.minimum(following, states - 1), reward, following == states

    def value(self, probabilities: Any) -> Any:
        """Return the expected discounted return, up to the horizon, of a policy ``(S, A)``."""
        p = self.process
        reward = jnp.asarray(np.sum(p.outcomes * p.rewards, axis=-1))
        following = jnp.asarray(p.following[..., :-1])

        def back(ahead: Any, _: Any) -> tuple[Any, None]:
            return jnp.sum(probabilities * (reward + p.discount * following @ ahead), axis=1), None

        ahead, _ = jax.lax.scan(back, jnp.zeros(len(p.start)), None, length=p.horizon)
        return jnp.asarray(p.start) @ ahead


def _pick(key: Any, law: Any) -> Any:
    edges = jnp.cumsum(jnp.asarray(law, jnp.float32))[:-1]
    return jnp.sum(jax.random.uniform(key, dtype=jnp.float32) >= edges).astype(jnp.int32)


def of_family(family: str, seed: int, scale: float = 1.0) -> Finite:
    """Return the problem of a family's member."""
    found = member(family, seed, True)
    return Finite(found.process, found.codes, found.reward, scale)


@partial(jax.jit, static_argnums=(0, 1))
def best_values(policy: Parametric, problem: Finite, starts: Any) -> Any:
    """Return the values of what exact gradient ascent makes of parameters ``(n, d)``; 3,000 steps of Adam."""
    codes = jnp.asarray(problem.codes, jnp.float32)
    value = lambda theta: problem.value(policy.probabilities(theta, codes))  # noqa: E731

    def climb(carry: Any, t: Any) -> tuple[Any, Any]:
        theta, mean, square = carry
        found, slope = jax.value_and_grad(value)(theta)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        move = mean / (1.0 - 0.9**t) / (jnp.sqrt(square / (1.0 - 0.999**t)) + 1e-12)
        return (theta + 0.1 * move, mean, square), found

    def one(theta: Any) -> Any:
        zero = jnp.zeros_like(theta)
        return jnp.max(jax.lax.scan(climb, (theta, zero, zero), jnp.arange(1.0, 3001.0))[1])

    return jax.vmap(one)(starts)


def best_value(policy: Parametric, problem: Finite) -> float:
    """Return the largest value found in the class of the policy, from eight starts."""
    starts = np.random.default_rng(0).normal(size=(8, policy.size)) * np.array([[0.0]] + [[3.0]] * 7)
    return float(np.max(best_values(policy, problem, jnp.asarray(starts))))
