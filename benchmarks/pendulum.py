"""``python -m benchmarks.pendulum``: why figure ``control`` of paper 003 leaves the pendulum hanging, without privacy.

The return of greedy policies over 300 episodes: of the best policy of a class that an evolution strategy finds, which
meets no users; and at 20,000 users, without noise, of the recipe and of proximal policy optimisation.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from dprl.environments.user_source import facts_of
from dprl.policies.parametric import Parametric
from dprl_papers.paper_003_dp_pg.ppo import train_ppo
from dprl_papers.paper_003_dp_pg.returns import judged, measure, point, simulator

USERS, DISCOUNT = 20_000, 0.95
EPISODES, MEMBERS = 24, 32  # of the evolution strategy
PENDULUM = simulator("pendulum")
FACTS = facts_of(PENDULUM)


def policy_of(kind: str) -> Parametric:
    """Return a policy of the pendulum."""
    return Parametric(kind, FACTS.observation, None, FACTS.action)


def searched(kind: str, rounds: int, seed: int) -> float:
    """Return what a separable evolution strategy with cumulative step sizes (Ros and Hansen 2008) reaches."""
    policy, rng = policy_of(kind), np.random.default_rng(seed)

    @jax.jit
    def returns(thetas: jax.Array, key: jax.Array) -> jax.Array:
        def one(theta: jax.Array) -> jax.Array:
            def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
                action = policy.to_environment(policy.greedy(theta, jax.vmap(PENDULUM.observe)(state)))
                following, reward, _over = jax.vmap(lambda s, a: PENDULUM.step(key, s, a))(state, action)
                return following.astype(jnp.float32), reward

            starts = jax.vmap(PENDULUM.reset)(jax.random.split(key, EPISODES)).astype(jnp.float32)
            return jax.lax.scan(step, starts, length=PENDULUM.horizon)[1].sum(axis=0).mean()

        return jax.vmap(one)(thetas)

    n, parents = policy.size, MEMBERS // 2
    shares = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    shares /= shares.sum()
    worth = 1.0 / (shares**2).sum()
    rate, learned = (worth + 2.0) / (n + worth + 5.0), 0.3 * min(0.5, worth / (n + worth))
    mean = np.asarray(policy.initial(jnp.asarray(rng.normal(size=policy.random_weights), jnp.float32)), np.float64)
    variance, path, length = np.ones(n), np.zeros(n), 0.3
    for i in range(rounds):
        drawn = rng.normal(size=(MEMBERS, n))
        found = returns(jnp.asarray(mean + length * np.sqrt(variance) * drawn, jnp.float32), jax.random.key(i))
        best = drawn[np.argsort(-np.asarray(found))[:parents]]
        move = shares @ best
        mean = mean + length * np.sqrt(variance) * move
        path = (1.0 - rate) * path + np.sqrt(rate * (2.0 - rate) * worth) * move
        variance = (1.0 - learned) * variance + learned * variance * (shares @ best**2)
        usual = np.sqrt(n) * (1.0 - 0.25 / n)
        length = min(2.0, length * np.exp(rate / (1.0 + rate) * (np.linalg.norm(path) / usual - 1.0)))
    return judged(policy, PENDULUM, jnp.asarray(mean, jnp.float32), 0)


def main() -> None:
    for kind, rounds, seeds in (("gaussian", 150, 2), ("gaussian:fourier:3", 250, 2), ("mlp:16:gaussian", 400, 1)):
        for seed in range(seeds):
            print(f"evolution strategy, {kind}, seed {seed}: {searched(kind, rounds, seed):.0f}", flush=True)
    for kind in ("gaussian:fourier:8", "mlp:32:gaussian"):
        asked = point("pendulum", USERS, None, policy=kind, discount=DISCOUNT, steps=100)
        print(f"the recipe, {kind}: {measure(dataclasses.replace(asked, delta=4e-5), 0, 1)[0]:.0f}", flush=True)
    policy = policy_of("mlp:32:gaussian")
    last = train_ppo(policy, PENDULUM, 100, USERS // 100, DISCOUNT, 0)[-1]
    print(f"proximal policy optimisation, mlp:32:gaussian: {judged(policy, PENDULUM, last, 0):.0f}")


if __name__ == "__main__":
    main()
