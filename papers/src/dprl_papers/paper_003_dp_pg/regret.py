"""Paper 003's Theorem 3: the average regret of a Gaussian policy, computed exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.bounds import Interval
from dprl.learning.policy_gradient.estimator import Rates, RunShape
from dprl.learning.policy_gradient.people_sources import CompiledPeople
from dprl.learning.policy_gradient.trainer import PolicyGradient, run
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric
from dprl_papers.paper_003_dp_pg.fosp import Setting
from dprl_papers.paper_003_dp_pg.published import published_batch, published_step_size

STD, WIDTH, SIDE = 0.15, 0.25, 17
_TARGET = 0.3  # the best action is 0.3 s/spread
SCORE_NORM = 2.0 * 2.0**0.5 / STD  # clip norm: 2 standard deviations of the action, and |phi| at most sqrt 2
CURVATURE = 2.0 / STD**2  # F of Assumption 1


@dataclass(frozen=True)
class TargetBandit:
    """Bandit with a state x on a public grid of [-spread, spread].

    The reward is exp(-(a - c(x))^2/(2 w^2)), where c is linear in x.

    Attributes:
        spread: half the width of the states' interval; the smallest eigenvalue of the Fisher matrix is spread^2/(3
            std^2).
    """

    spread: float

    @property
    def horizon(self) -> int:
        return 1

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        return ((-1.0, 1.0),)

    @property
    def policy(self) -> Parametric:
        """Gaussian policy whose scaled action is the action.

        The bounds of an action lie 4 standard deviations from the best actions.
        """
        return Parametric("gaussian", self.observation_bounds, action=((-1.0, 1.0),), std=STD)

    def reset(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 0, SIDE)

    def observe(self, state: Any) -> jax.Array:
        return (self.spread * (2.0 * state / (SIDE - 1) - 1.0)).astype(jnp.float32)[None]

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        distance = action[0] - _TARGET * (2.0 * state / (SIDE - 1) - 1.0)
        return state, jnp.exp(-0.5 * (distance / WIDTH) ** 2).astype(jnp.float32), jnp.ones((), bool)

    def value(self, theta: Any) -> jax.Array:
        """Return J at ``(2,)`` parameters: a Gaussian's mean of a Gaussian, without the cut of actions to [-1, 1]."""
        x = jnp.linspace(-1.0, 1.0, SIDE)
        mean = theta[0] + theta[1] * self.spread * x
        variance = WIDTH**2 + STD**2
        return jnp.mean(WIDTH / jnp.sqrt(variance) * jnp.exp(-0.5 * (mean - _TARGET * x) ** 2 / variance))

    @property
    def best(self) -> float:
        return float(WIDTH / np.sqrt(WIDTH**2 + STD**2))

    @property
    def fisher(self) -> float:
        """Smallest eigenvalue mu of the Fisher matrix, which belongs to the parameter of x."""
        x = self.spread * np.linspace(-1.0, 1.0, SIDE)
        return float(min(1.0, np.mean(x**2)) / STD**2)


def gaussian_regret(spread: float, setting: Setting, seed: int, seeds: int) -> np.ndarray:
    """Return the ``(seeds,)`` average regret of DP-PG on the target bandit.

    Vectors are clipped at :data:`SCORE_NORM`. Batch and step size are those of Theorem 2, with the step size multiplied
    by ``setting.factor``. Noise is independent, for replacing one.
    """
    bandit, users, epsilon = TargetBandit(spread), setting.users, setting.epsilon
    policy, budget = bandit.policy, Budget(epsilon or 1.0, setting.delta)
    batch = round(users ** (1.0 / 3.0)) if epsilon is None else published_batch(users, policy.size, epsilon)
    steps, multiplier = users // batch, 0.0 if epsilon is None else gaussian_noise_multiplier(budget)
    shape = RunShape(
        policy=policy,
        places=steps * batch,
        batch=batch,
        steps=steps,
        horizon=1,
        baseline=False,
        bootstrap="none",
        block=min(1024, batch),
    )
    noise = policy.size * (2.0 * SCORE_NORM * multiplier / batch) ** 2
    gap = bandit.best - float(bandit.value(np.zeros(policy.size)))
    size = setting.factor * published_step_size(1.0, SCORE_NORM, CURVATURE, gap, batch, steps, noise)
    rates = Rates(*map(np.float32, (size, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0)))
    exact = GaussianSum(
        parts=((policy.size, SCORE_NORM),),
        steps=steps,
        batch=batch,
        noise_multiplier=1.0,
        relation="replace one",
    )
    found = [_regret(shape, exact, spread, rates, jnp.float64(multiplier), i) for i in range(seed, seed + seeds)]
    return np.array([float(x) for x in found])


@partial(jax.jit, static_argnums=(0, 1))
def _regret(shape: RunShape, exact: GaussianSum, spread: Any, rates: Rates, multiplier: Any, seed: Any) -> Any:
    mechanism, bandit = exact.in_float(noise_multiplier_override=multiplier), TargetBandit(spread)
    words = jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)])
    noise = SeededNoise(words).stream("users")
    coins = ActionCoins.from_jax_key(jax.random.fold_in(jax.random.key(5), seed))
    _, history = run(PolicyGradient(shape, mechanism), CompiledPeople(bandit, shape), noise, rates, coins)
    return bandit.best - jnp.mean(jax.vmap(bandit.value)(history[:-1].astype(jnp.float64)))
