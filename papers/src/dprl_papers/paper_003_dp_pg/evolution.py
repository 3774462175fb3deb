"""Search for the best policy of a class without any users: what a learner could reach with any number of users.

It is the separable evolution strategy with cumulative step sizes of Ros and Hansen (2008), run only on public episodes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.policies.parametric import Parametric

EPISODES, MEMBERS = 24, 32
"""Public episodes that judge a member, and members of a round."""


def evolved_parameters(policy: Parametric, environment: Any, rounds: int, seed: int) -> np.ndarray:
    """Return the parameters ``(d,)`` at which the strategy's mean ends."""
    rng = np.random.default_rng(seed)

    @jax.jit
    def returns(thetas: jax.Array, key: jax.Array) -> jax.Array:
        def one(theta: jax.Array) -> jax.Array:
            def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
                action = policy.to_environment(policy.greedy(theta, jax.vmap(environment.observe)(state)))
                following, reward, _over = jax.vmap(lambda s, a: environment.step(key, s, a))(state, action)
                return following.astype(jnp.float32), reward

            starts = jax.vmap(environment.reset)(jax.random.split(key, EPISODES)).astype(jnp.float32)
            return jax.lax.scan(step, starts, length=environment.horizon)[1].sum(axis=0).mean()

        return jax.vmap(one)(thetas)

    n, parents = policy.size, MEMBERS // 2
    shares = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    shares /= shares.sum()
    worth = 1.0 / (shares**2).sum()
    rate, learned = (worth + 2.0) / (n + worth + 5.0), 0.3 * min(0.5, worth / (n + worth))
    mean = np.asarray(policy.initial(jnp.asarray(rng.normal(size=policy.random_weights), jnp.float32)), np.float64)
    variance, path, length = np.ones(n), np.zeros(n), 0.3
    for number in range(rounds):
        drawn = rng.normal(size=(MEMBERS, n))
        found = returns(jnp.asarray(mean + length * np.sqrt(variance) * drawn, jnp.float32), jax.random.key(number))
        best = drawn[np.argsort(-np.asarray(found))[:parents]]
        move = shares @ best
        mean = mean + length * np.sqrt(variance) * move
        path = (1.0 - rate) * path + np.sqrt(rate * (2.0 - rate) * worth) * move
        variance = (1.0 - learned) * variance + learned * variance * (shares @ best**2)
        usual = np.sqrt(n) * (1.0 - 0.25 / n)
        length = min(2.0, length * np.exp(rate / (1.0 + rate) * (np.linalg.norm(path) / usual - 1.0)))
    return mean
