"""Simulated domains: logs and returns by rollouts, and true values from the domains' files.

The true values of a domain without a closed form are means over rollouts of the simulator from given states. They take
minutes to compute, so the domain's file stores them, together with the learned weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (returns are added up in float64)
from dprl.bounds import Bounds, Interval
from dprl.data.trajectories import Trajectories
from dprl.environments.rollout import _draw, rollout
from dprl.protocols import Environment, Policy
from dprl_papers.harness.domain import Domain, Truth, from_rollout

STARTS = ("start_states", "start_values", "start_errors", "start_truncated")
"""Arrays about the start distribution in a domain's file; the last, only where a log may be cut."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulator:
    """An environment, with the settings of the rollouts that find the values of a policy in it.

    Attributes:
        environment: a hashable simulator.
        steps: number of transitions after which a rollout is cut, chosen so that ``discount ** steps`` is negligible.
        states_of: maps ``(S, d)`` observations to states of the environment; by default an observation is the state.
        batch: number of rollouts that run side by side.
    """

    environment: Environment
    steps: int
    states_of: Callable[[np.ndarray], Any] = lambda observations: observations
    batch: int = 16_384

    def log(self, policy: Policy, bounds: Bounds, seed: int) -> Trajectories:
        """Return a log of ``bounds.units`` trajectories under ``policy``."""
        columns = rollout(self.environment, policy, jax.random.key(seed), bounds.units, batch=1000)
        return from_rollout(columns, bounds)

    def values(
        self, policy: Policy, observations: np.ndarray, seed: int, repetitions: int = 200, steps: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of ``policy`` at ``(S, d)`` observations, and their standard errors, ``(S,)`` each.

        Rewards are clipped to their bounds, as in a log. No horizon ends a rollout.

        Args:
            policy: a policy that JAX can trace.
            observations: observations at which rollouts begin.
            seed: seed of the rollouts.
            repetitions: number of rollouts from each state, at least 2.
            steps: number of transitions after which a rollout is cut; by default :attr:`steps`.
        """
        states, parts = self.states_of(observations), []
        width = max(1, min(repetitions, self.batch // len(observations)))
        for i, first in enumerate(range(0, repetitions, width)):
            repeated = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), width, axis=0), states)
            key = jax.random.fold_in(jax.random.key(seed), i)
            returns = _returns(self.environment, policy, steps or self.steps, key, repeated)
            parts.append(np.asarray(returns).reshape(-1, width)[:, : repetitions - first])
        returns = np.concatenate(parts, axis=1)
        return returns.mean(axis=1), returns.std(axis=1, ddof=1) / np.sqrt(returns.shape[1])

    def starts(self, policy: Policy, observations: np.ndarray, seed: int, repetitions: int) -> dict[str, np.ndarray]:
        """Return the arrays on starts in a domain's file; values until a log's horizon come from the same rollouts.

        Args:
            policy: the policy whose values are computed.
            observations: ``(S, d)`` observations that represent the start distribution.
            seed: of the rollouts.
            repetitions: number of rollouts from each state.
        """
        values, errors = self.values(policy, observations, seed, repetitions)
        truncated, _ = self.values(policy, observations, seed, repetitions, self.environment.horizon)
        return dict(zip(STARTS, (observations, values, errors, truncated), strict=True))

    def save_learned(
        self,
        path: Path,
        public: Bounds,
        weights: np.ndarray,
        soft_policy: Callable[..., Policy],
        starts: np.ndarray,
    ) -> None:
        """Write the file of a domain whose policy is learned, and print the returns that the policy reaches.

        This is only for domains where a log's horizon hardly changes the values: it stores no truncated values of
        starts.

        Args:
            path: path of the file.
            public: bounds of a log.
            weights: weights of Q.
            soft_policy: maps weights, and optionally a temperature and an epsilon, to a policy.
            starts: observations that represent the start distribution.
        """
        from safetensors.numpy import save_file

        policy, thousand = soft_policy(weights), replace(public, units=1000)
        log, greedy = self.log(policy, thousand, 1), self.log(soft_policy(weights, 1e-6, 0.0), thousand, 2)
        states = log.observation[np.random.default_rng(2).choice(len(log.observation), 400, replace=False)]
        at_states, at_starts = self.values(policy, states, 3), self.values(policy, starts, 4)
        kept = {
            "weights": weights,
            "states": states,
            "values": at_states[0],
            "standard_errors": at_states[1],
            **dict(zip(STARTS[:3], (starts, *at_starts), strict=True)),
            "mean_return": np.array(mean_return(log)),
            "greedy_return": np.array(mean_return(greedy)),
            "mean_reward": np.array(log.reward.mean()),
        }
        save_file(kept, path)
        print(f"mean return {mean_return(log):.1f}, of the greedy policy {mean_return(greedy):.1f}")


@functools.partial(jax.jit, static_argnames=("environment", "policy", "steps"))
def _returns(environment: Environment, policy: Any, steps: int, key: Any, state: Any) -> jax.Array:
    count = jax.tree.leaves(state)[0].shape[0]

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        state, alive, total, factor = carry
        choice, change = jax.random.split(jax.random.fold_in(key, now))
        probabilities = policy(jax.vmap(environment.observe)(state).astype(jnp.float32))
        action = _draw(probabilities, jax.random.uniform(choice, (count,), dtype=jnp.float64))
        state, earned, terminated = jax.vmap(environment.step)(jax.random.split(change, count), state, action)
        total = total + jnp.where(alive, factor * jnp.clip(earned.astype(jnp.float64), *environment.reward_bounds), 0.0)
        return (state, alive & ~terminated, total, factor * environment.discount), None

    start = (state, jnp.ones(count, bool), jnp.zeros(count, jnp.float64), jnp.ones((), jnp.float64))
    return jax.lax.scan(step, start, jnp.arange(steps))[0][2]


def sobol_points(box: tuple[Interval, ...]) -> np.ndarray:
    """Return ``(256, d)`` points that represent the uniform distribution on ``box``.

    They are a net of Sobol's points, each half a cell from its corner.
    """
    from scipy.stats import qmc

    low, high = np.array(box).T
    unit = qmc.Sobol(len(box), scramble=False).random_base2(8) + 1.0 / 512.0
    return low + (high - low) * unit


def mean_return(log: Trajectories) -> float:
    """Return the mean over a log's trajectories of the undiscounted sum of rewards."""
    return float(np.bincount(log.episode_of(), log.reward, minlength=log.episodes).mean())


def stored_domain(
    file: Path, *, policy: Policy, behavior: Policy | None = None, depends_on: tuple[Path, ...] = (), **facts: Any
) -> Domain:
    """Return a domain whose true values are stored beside its Python file.

    Args:
        file: the domain's module. The domain has its name, and the stored file has the suffix ``.safetensors``.
        policy: the policy that is evaluated.
        behavior: the policy that logs, if it is another policy.
        depends_on: further files that logs depend on.
        facts: the other fields of :class:`~dprl_papers.harness.domain.Domain`.
    """
    kept = file.with_suffix(".safetensors")
    return Domain(
        name=file.stem,
        target_policy=policy,
        behavior=policy if behavior is None else behavior,
        true_values=lambda: stored_truth(kept),
        start_values=lambda: stored_truth(kept, STARTS),
        depends_on=(kept, *depends_on),
        **facts,
    )


def stored_truth(path: Path, names: tuple[str, ...] = ("states", "values", "standard_errors", "")) -> Truth:
    """Return the true values that a domain's file stores under these names, with equal weights."""
    from safetensors.numpy import load_file

    kept = load_file(path)
    states, values, errors = (kept[name] for name in names[:3])
    weights = np.full(len(states), 1.0 / len(states))
    return Truth(states.astype(np.float64), values, weights, errors, kept.get(names[3]))
