"""Paper 003's convergence theorems 2 to 4 where every gradient is exact, on bandits with few states.

Algorithm 1 as printed runs on a tabular bandit whose rewards are +1 or -1. The squared norm of the exact gradient at
each iterate is averaged over the iterates, which gives its expectation at the paper's theta_U. No person's data are
used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.bounds import Interval
from dprl.learning.policy_gradient.estimator import RunShape
from dprl.learning.policy_gradient.people_sources import CompiledPeople
from dprl.learning.policy_gradient.trainer import PolicyGradient, run
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric
from dprl_papers.paper_003_dp_pg import published

SCORE_BOUND = math.sqrt(2.0)  # for a softmax policy: docs/papers/003.md, E1


@dataclass(frozen=True, kw_only=True)
class TabularBandit:
    """Bandit with a random state, and a reward of +1 or -1 whose mean depends on state and action.

    Attributes:
        means: ``(S, A)`` mean rewards.
    """

    means: tuple[tuple[float, ...], ...]

    @property
    def states(self) -> int:
        return len(self.means)

    @property
    def actions(self) -> int:
        return len(self.means[0])

    @property
    def horizon(self) -> int:
        return 1

    @property
    def discount(self) -> float:
        return 1.0

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        return ((0.0, self.states - 1.0),)

    @property
    def reward_bounds(self) -> Interval:
        return (-1.0, 1.0)

    @property
    def policy(self) -> Parametric:
        """The tabular softmax policy of Definition 3."""
        return Parametric("tabular", self.observation_bounds, self.actions)

    def reset(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 0, self.states)

    def observe(self, state: Any) -> jax.Array:
        return jnp.asarray(state, jnp.float32)[None]

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        mean = jnp.asarray(self.means, jnp.float32)[state, action]
        positive = jax.random.uniform(key, (), jnp.float32) < (1.0 + mean) / 2.0
        return state, jnp.where(positive, 1.0, -1.0).astype(jnp.float32), jnp.ones((), bool)

    def value(self, theta: Any) -> jax.Array:
        """Return J at ``(S A,)`` parameters, exactly, in float64."""
        p = jax.nn.softmax(jnp.asarray(theta, jnp.float64).reshape(self.actions, self.states), axis=0)
        return jnp.mean(jnp.sum(p * jnp.asarray(self.means, jnp.float64).T, axis=0))

    @property
    def best(self) -> float:
        """J*, the value of the best policy."""
        return float(np.mean(np.max(self.means, axis=1)))

    @property
    def gap(self) -> float:
        """Gap delta_0 = J* - J of the uniform policy, at which a run begins."""
        return self.best - float(np.mean(self.means))


def bandit_of(states: int, actions: int, seed: int = 1) -> TabularBandit:
    """Return a bandit with mean rewards from the uniform distribution on [-1, 1]."""
    means = np.random.default_rng(seed).uniform(-1.0, 1.0, (states, actions))
    return TabularBandit(means=tuple(tuple(float(x) for x in row) for row in means))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of Algorithm 1.

    Attributes:
        users: number of users N.
        epsilon: epsilon of the budget; None for no noise.
        delta: delta of the budget.
        factor: multiplies Theorem 2's step size.
        batch: batch size m; by default that of Theorem 2, or the cube root of N without noise.
        barrier: weight lambda of the barrier in Eq. (3).
    """

    users: int
    epsilon: float | None
    delta: float
    factor: float
    batch: int | None = None
    barrier: float = 0.0


def settings_of(bandit: TabularBandit, setting: Setting) -> published.Settings:
    """Return Theorem 2's numbers; without noise, sigma is 0 in all of them."""
    policy, users = bandit.policy, setting.users
    if setting.epsilon is None:
        batch = setting.batch or max(1, round(users ** (1.0 / 3.0)))
        std = 0.0
    else:
        batch = setting.batch or published.published_batch(users, policy.size, setting.epsilon)
        std = published.published_std(1.0, SCORE_BOUND, batch, Budget(setting.epsilon, setting.delta))
    steps = users // batch
    eta = published.published_step_size(1.0, SCORE_BOUND, 0.5, bandit.gap, batch, steps, policy.size * std**2)
    return published.Settings(
        users=users,
        batch=batch,
        steps=steps,
        largest_return=1.0,
        score_bound=SCORE_BOUND,
        curvature_bound=0.5,
        std=std,
        step_size=setting.factor * eta,
    )


def measured(
    bandit: TabularBandit, setting: Setting, seed: int, seeds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each seed, a squared gradient norm and two regrets, ``(seeds,)`` each.

    They are the mean squared norm of the exact gradient over the iterates at which a batch answered, the mean regret J*
    - J over the same iterates, and the regret of the last iterate.
    """
    settings = settings_of(bandit, setting)
    noiseless = settings.std == 0.0
    # the mechanism cannot be built without noise; the multiplier below sets the noise that is drawn
    built = dataclasses.replace(settings, std=settings.std or 1.0 / settings.batch)
    shape, rates, mechanism = published.published_run(built, bandit.policy, 1)
    shape = dataclasses.replace(shape, block=min(1024, settings.batch))
    rates = rates._replace(regularisation=np.float32(setting.barrier))
    multiplier = 0.0 if noiseless else mechanism.noise_multiplier
    found = [
        np.asarray(_measured(shape, bandit, mechanism, rates, jnp.float64(multiplier), i))
        for i in range(seed, seed + seeds)
    ]
    squares, regrets, last = np.array(found).T
    return squares, regrets, last


@partial(jax.jit, static_argnums=(0, 1, 2))
def _measured(shape: RunShape, bandit: TabularBandit, mechanism: Any, rates: Any, multiplier: Any, seed: Any) -> Any:
    mechanism = dataclasses.replace(mechanism, noise_multiplier_override=multiplier)
    words = jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)])
    noise = SeededNoise(words).stream("users")
    coins = ActionCoins.from_jax_key(jax.random.fold_in(jax.random.key(3), seed))
    program = PolicyGradient(shape, mechanism)
    state, history = run(program, CompiledPeople(bandit, shape), noise, rates, coins)

    def at(theta: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda t: bandit.value(t))(jnp.asarray(theta, jnp.float64))
        return jnp.stack([jnp.sum(gradient**2), bandit.best - value])

    found = jax.lax.map(at, history[:-1], batch_size=256).mean(axis=0)
    return jnp.append(found, bandit.best - bandit.value(state.theta))


def slope(x: Sequence[float], y: Sequence[float], last: int) -> float:
    """Return the slope of log y over log x, by least squares on the ``last`` points."""
    return float(np.polyfit(np.log(np.asarray(x)[-last:]), np.log(np.asarray(y)[-last:]), 1)[0])
