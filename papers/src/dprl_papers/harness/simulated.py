"""What domains with a learned policy share: logs and returns by rollouts, and the true values that their files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dprl.data.trajectories import Trajectories
from dprl.protocols import Bounds, Environment, Interval, Policy
from dprl_papers.harness.domain import Truth, from_rollout


def simulate_log(environment: Environment, policy: Policy, bounds: Bounds, seed: int) -> Trajectories:
    """Return a log of ``bounds.units`` trajectories of ``environment`` under ``policy``."""
    import jax

    from dprl.environments.rollout import rollout

    return from_rollout(rollout(environment, policy, jax.random.key(seed), bounds.units, batch=1000), bounds)


def net(box: tuple[Interval, ...]) -> np.ndarray:
    """Return ``(256, d)`` points that stand for the uniform distribution on ``box``: a net of Sobol's points, each half
    a cell from its corner.
    """
    from scipy.stats import qmc

    low, high = np.array(box).T
    unit = qmc.Sobol(len(box), scramble=False).random_base2(8) + 1.0 / 512.0
    return low + (high - low) * unit


def save_learned(
    path: Path,
    weights: np.ndarray,
    logs: tuple[Trajectories, Trajectories],
    values: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    starts: np.ndarray,
) -> None:
    """Write the file of a domain whose policy is learned, and print the returns that it reaches.

    Only for domains whose values until a log's horizon are the values: starts have no truncated ones.

    Args:
        path: the file.
        weights: of Q.
        logs: one of the policy, and one of the greedy policy.
        values: observations and a seed to the policy's values and their standard errors.
        starts: observations that stand for the start distribution.
    """
    from safetensors.numpy import save_file

    log, greedy = logs
    states = log.observation[np.random.default_rng(2).choice(len(log.observation), 400, replace=False)]
    at_states, at_starts = values(states, 3), values(starts, 4)
    kept = {
        "weights": weights,
        "states": states,
        "values": at_states[0],
        "standard_errors": at_states[1],
        "start_states": starts,
        "start_values": at_starts[0],
        "start_errors": at_starts[1],
        "mean_return": np.array(mean_return(log)),
        "greedy_return": np.array(mean_return(greedy)),
        "mean_reward": np.array(log.reward.mean()),
    }
    save_file(kept, path)
    print(f"mean return {mean_return(log):.1f}, of the greedy policy {mean_return(greedy):.1f}")


def mean_return(log: Trajectories) -> float:
    """Return mean sum of rewards of a log's trajectories, not discounted."""
    return float(np.bincount(log.episode_of(), log.reward, minlength=log.episodes).mean())


def stored_truth(path: Path) -> Truth:
    """Return the true values of a domain's file, at states that a log visits."""
    kept = _load(path)
    return _uniform(kept["states"], kept["values"], kept["standard_errors"])


def stored_starts(path: Path) -> Truth:
    """Return the true values of a domain's file at states that stand for the start distribution."""
    kept = _load(path)
    states, values, errors = (kept[f"start_{x}"] for x in ("states", "values", "errors"))
    return _uniform(states, values, errors, kept.get("start_truncated"))


def _load(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def _uniform(states: np.ndarray, values: np.ndarray, errors: np.ndarray, truncated: np.ndarray | None = None) -> Truth:
    return Truth(states.astype(np.float64), values, np.full(len(states), 1.0 / len(states)), errors, truncated)
