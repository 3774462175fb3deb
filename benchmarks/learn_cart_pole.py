"""Cart Pole learned from logs of a mixed policy: how many people are needed, with privacy and without.

``python -m benchmarks learn_cart_pole``: each person has one trajectory of a policy that balances the pole in half of
its steps and draws an action in all others. A policy is learned from 40% of the people. Its mean return over 200
trajectories of up to 500 steps is measured in the simulator. It is shown beside ``dp-pg``, which meets people with its
own policies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dprl
from benchmarks.harness import goal, table
from benchmarks.learn_many_steps import without_noise
from dprl.environments.cart_pole import CartPole
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.greedy import Basis
from dprl.protocols import NO_JOURNAL

LOGGED, STEPS, EPISODES, SOLVED = 200, 500, 200, 475.0
BALANCES = (0.2, 0.5, 8.0, 2.0)
"""Weights of the logged policy. Where it draws no action, it pushes right if their product with the observation is
positive."""
BUDGET, OPTIONS = dprl.Budget(1.0, 1e-5), dprl.ImportanceSampling(discount=0.99)
RUNS = (
    (2_000, "advantage", False, 5),
    (1_000, "advantage", True, 10),
    (2_000, "advantage", True, 10),
    (5_000, "advantage", True, 10),
    (2_000, "fitted-q", False, 2),
    (2_000, "fitted-q", True, 2),
    (5_000, "fitted-q", True, 2),
)
"""Number of people, learner, whether there is noise, and number of logs."""


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _walked(right: Callable[[Any, Any], Any], weights: Any, people: int, horizon: int, key: Any) -> Any:
    world = CartPole(horizon=horizon, discount=0.99)

    def one(key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            state, alive = carry
            seen = world.observe(state)
            chance = right(seen, weights)
            action = (jax.random.uniform(key) < chance).astype(jnp.int32)
            after, _, end = world.step(key, state, action)
            own = jnp.where(action == 1, chance, 1.0 - chance)
            return (jnp.where(alive, after, state), alive & ~end), (seen, action, own, alive, end)

        first, rest = jax.random.split(key)
        return jax.lax.scan(step, (world.reset(first), jnp.array(True)), jax.random.split(rest, horizon))[1]

    return jax.vmap(one)(jax.random.split(key, people))


def walked(right: Callable[[Any, Any], Any], weights: Any, seed: int, people: int, horizon: int) -> list[np.ndarray]:
    """Return observations, actions, their probabilities, which steps took place, and which steps were the last.

    ``right`` gives the probability of a push to the right, from an observation and ``weights``.
    """
    return [np.asarray(x) for x in _walked(right, weights, people, horizon, jax.random.key(seed))]


def mixed(seen: Any, weights: Any) -> Any:
    """Return the probability of a push to the right under the policy that balances in half of its steps."""
    return 0.25 + 0.5 * (seen @ weights > 0.0)


@functools.cache
def greedy(basis: Basis) -> Callable[[Any, Any], Any]:
    """Return the same function for a greedy policy in this basis; ``weights`` are its scores' weights and roots."""

    def right(seen: Any, weights: Any) -> Any:
        theta, root = weights
        phi = basis(seen[None].astype(jnp.float64), jnp)[0]
        scores = theta @ phi - jnp.linalg.norm(jnp.einsum("n,anm->am", phi, root), axis=1)
        return (scores[1] > scores[0]).astype(jnp.float64)

    return right


def logged(people: int, seed: int) -> dict[str, np.ndarray]:
    """Return a log in which each person has one trajectory of the mixed policy."""
    seen, action, chance, alive, end = walked(mixed, np.asarray(BALANCES, np.float32), seed, people, LOGGED)
    person, time = np.nonzero(alive)
    return {f"observation_{i}": seen[alive][:, i].astype(np.float64) for i in range(4)} | {
        "episode_id": person, "t": time, "action": action[alive], "reward": np.ones(len(person)),
        "behavior_prob": chance[alive].astype(np.float64), "terminated": end[alive],
    }  # fmt: skip


def mean_return(policy: Any) -> float:
    """Return the mean return of a learned policy in the simulator."""
    steps = walked(greedy(policy.basis), (policy.theta, policy.root), 5, EPISODES, STEPS)[3]
    return float(steps.sum(axis=1).mean())


def learned(people: int, learner: str, noisy: bool, seed: int) -> tuple[float, str, float]:
    """Return the mean return of the policy learned from one log, the policy's basis, and the log's mean return."""
    bounds = dprl.Bounds(
        units=people, horizon=LOGGED, reward=(0.0, 1.0), observation=CartPole.observation_bounds, actions=2,
        max_importance_ratio=4.0, max_cumulative_ratio=20.0,
    )  # fmt: skip
    columns, noise = logged(people, seed), SeededNoise.from_seed(seed)
    first: Any = plan_of_learned(OPTIONS, bounds, BUDGET, learner=learner).first
    log = dprl.read_log(columns, bounds=bounds).load(None)
    own = log.of_units(first.split.in_first(noise, log.units), bounds)
    told = (first if noisy else without_noise(first)).released(own, None, noise, NO_JOURNAL)
    policy: Any = next(iter(told.policies.values()))
    return mean_return(policy), policy.basis.kind, len(columns["t"]) / people


def run() -> dict[str, Any]:
    """Return the benchmark's record."""
    rows, goals = [], []
    for people, learner, noisy, logs in RUNS:
        found = [learned(people, learner, noisy, seed) for seed in range(logs)]
        returns = [one[0] for one in found]
        rows.append(
            [f"{people:,}", learner, f"{BUDGET.epsilon:g}" if noisy else "no noise", found[0][1],
             f"{found[0][2]:.0f}", ", ".join(f"{x:.0f}" for x in returns)]
        )  # fmt: skip
        print(*rows[-1], flush=True)
        if noisy and learner == "advantage":
            goals.append(goal(f"mean return, {people:,} people, {learner}", float(np.mean(returns)), SOLVED, True, ""))
    return {
        "title": "Cart Pole learned from logs of a mixed policy",
        "notes": [
            f"Delta {BUDGET.delta:g}. Each person is in the log with one trajectory of at most {LOGGED} steps, of a "
            "policy that balances in half of its steps and draws an action in the others; 40% of the people teach. "
            f"Mean return of what was learned over {EPISODES} trajectories of at most {STEPS} steps, of each log. "
            "Learning with `dp-pg` from people who meet its policies solves it in 9 of 10 runs with 500 people, "
            "epsilon 1 and delta 1e-6 (see `learning_families`)."
        ],
        "table": table(["people", "learner", "epsilon", "basis", "logged return", "learned returns"], rows),
        "goals": goals,
    }
