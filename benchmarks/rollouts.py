"""Whole episodes of Cart Pole for a batch of users: this library's compiled rollouts beside Gymnasium's vectors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Worker, alternate, figure, goal, pin, table

USERS, HORIZON = 1000, 500
# weights of 1 and of the scaled components in the preference for pushing right: none, and a policy that nearly always
# balances the pole
POLICIES = {"starting policy": (0.0,) * 5, "balancing policy": (0.0, 24.0, 48.0, 40.0, 102.0)}
OURS, SYNC, ALONE, OWN = (
    f"dprl, {USERS:,} users at once",
    f"Gymnasium SyncVectorEnv of {USERS:,}",
    "Gymnasium SyncVectorEnv of 1",
    f"Gymnasium's own vector of {USERS:,}",
)


def serve_candidates() -> None:
    pin(1)
    import gymnasium
    import jax
    import jax.numpy as jnp
    import numpy as np

    from benchmarks.harness import serve
    from dprl.environments.cart_pole import OBSERVATION_LIMITS, CartPole
    from dprl.learning.policy_gradient.people_sources import rollout
    from dprl.mechanisms.noise import SeededNoise
    from dprl.policies.parametric import Parametric

    environment = CartPole(horizon=HORIZON)
    policy = Parametric("softmax", environment.observation_bounds, environment.actions)
    simulate = jax.jit(lambda theta, coins: rollout(policy, environment, theta, coins, USERS, HORIZON))
    scale, keys = np.asarray(OBSERVATION_LIMITS), iter(range(2**31))

    def ours(weights: np.ndarray) -> Callable[[], int]:
        theta = jnp.asarray(np.concatenate([np.zeros(5), weights]), jnp.float32)

        def go() -> int:
            jax.block_until_ready(simulate(theta, SeededNoise.from_seed(next(keys)).actions().for_batch(0)))
            return USERS

        return go

    def gym(weights: np.ndarray, count: int, mode: str, episodes: int) -> Callable[[], int]:
        """Return a call that runs an episode of ``count`` environments, ``episodes`` times.

        Observations, actions and rewards are kept.
        """
        vector, rng = gymnasium.make_vec("CartPole-v1", count, vectorization_mode=mode), np.random.default_rng(0)

        def episode() -> Any:
            seen, _ = vector.reset(seed=int(rng.integers(2**31)))
            alive, kept = np.ones(count, bool), []
            while alive.any():
                features = np.clip(seen / scale, -1.0, 1.0)
                preference = weights[0] + features @ weights[1:]
                action = (rng.random(count) * (1.0 + np.exp(-preference)) < 1.0).astype(np.int64)
                following, reward, terminated, truncated, _ = vector.step(action)
                kept.append((seen, action, reward, alive))
                alive = alive & ~(terminated | truncated)
                seen = following
            return [np.stack(part) for part in zip(*kept, strict=True)]

        def go() -> int:
            for _ in range(episodes):
                episode()
            return count * episodes

        return go

    candidates, lengths = {}, {}
    for name, numbers in POLICIES.items():
        weights = np.asarray(numbers)
        theta = jnp.asarray(np.concatenate([np.zeros(5), weights]), jnp.float32)
        lengths[name] = float(np.mean(simulate(theta, SeededNoise.from_seed(0).actions().for_batch(0)).length))
        several = 30 if name == "starting policy" else 3
        candidates |= {
            f"{OURS}, {name}": ours(weights),
            f"{SYNC}, {name}": gym(weights, USERS, "sync", 1),
            f"{ALONE}, {name}": gym(weights, 1, "sync", several),
            f"{OWN}, {name}": gym(weights, USERS, "vector_entry_point", 1),
        }
    facts = {"lengths": lengths, "versions": {"gymnasium": gymnasium.__version__}}
    serve(candidates, 1, facts)


def run() -> dict[str, Any]:
    worker = Worker(["-m", "benchmarks.rollouts"])
    runs = alternate([worker], repetitions=5, seconds=90.0)
    worker.close()
    over = lambda name, which: runs[f"{name}, {which}"]["time"] / runs[f"{OURS}, {which}"]["time"]  # noqa: E731
    rows = [
        [name, figure(1e6 * r["time"]), figure(r["time"] / runs[f"{OURS}, {name.rpartition(', ')[2]}"]["time"])]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
    ]
    goals = [
        goal(f"{name} over dprl, {which}", over(name, which), 10.0, True)
        for which in POLICIES
        for name in (SYNC, ALONE)
    ]
    lengths = ", ".join(f"{length:.0f} steps ({name})" for name, length in worker.facts["lengths"].items())
    return {
        "title": f"Rollouts, Cart Pole of at most {HORIZON} steps",
        "notes": [
            "Microseconds a user, who is a whole episode under a linear softmax policy; one core, processor time, "
            "medians over alternated rounds. Every candidate keeps observations, actions and rewards of the batch. "
            f"Mean lengths: {lengths}; a batch takes as long as its longest episode."
        ],
        "table": table(["candidate", "us a user", "over dprl"], rows),
        "goals": goals,
        "seconds_a_user": runs,
        "versions": worker.facts["versions"],
    }


if __name__ == "__main__":
    sys.exit(serve_candidates())
