"""Treatment of HIV off-policy, on the simulator of Ernst et al. (2006): six features, four treatments, discount 0.98.

Q is learned by fitted Q iteration, linear in the six log10 components, from randomly treated patients. The behaviour
policy is ``softmax(Q / 0.2)``, and the target policy is ``softmax(Q / 0.1)``, with Q in millions. Both are softmaxes of
one Q, and the target policy has the lower temperature, so their ratio is at most the number of actions. A greedier
policy reaches the healthy state in some trajectories and earns a thousand times more there, which no linear value
function fits.

A patient starts near the unhealthy steady state and is logged for 50 steps of five days. Simulating is slow, so
trajectories are simulated once and kept in the cache folder. A log is drawn from them without replacement. Therefore
logs of several trials overlap, and their spread is below that of fresh logs. The value range is declared, and is wide
compared with the values of rollouts.

``hiv.safetensors`` holds the weights of Q, true values at states of a log and at starts, and the mean reward of the
target policy.
``python -m dprl_papers.domains.hiv`` makes the file anew in some minutes.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.environments.hiv import HIV, STEADY_STATES
from dprl.environments.rollout import environment_bounds, rollout
from dprl.errors import DprlError
from dprl.policies import UniformPolicy
from dprl.protocols import Policy
from dprl.value_functions.features import make_features
from dprl_papers.harness import q_learning
from dprl_papers.harness.domain import MOMENT_SEED, Domain, cached, from_rollout
from dprl_papers.harness.q_learning import SoftPolicy, fitted_q
from dprl_papers.harness.simulated import Simulator, sobol_points, stored_domain

HORIZON = 50
PATIENT = HIV(perturbation=0.3, horizon=HORIZON)
VALUE = (0.0, 1e7)
"""Declared range of values: that of patients who earn between 0 and 2e5 a step."""
BEHAVIOR_TEMPERATURE, TARGET_TEMPERATURE = 0.2, 0.1
REWARD_UNIT = 1e6
"""Q is in this unit."""
POOL = 8192
ASSETS = Path(__file__).with_suffix(".safetensors")
_BATCH = 1024
# observations are logarithms of the state; 0.98^300 is 0.0023
SIMULATOR = Simulator(environment=PATIENT, steps=300, states_of=lambda x: 10.0**x, batch=5120)
_FEATURES = make_features("columns", PATIENT.observation_bounds)


def learn_weights() -> np.ndarray:
    """Return ``(7, 4)`` weights of Q, in millions, from 2048 randomly treated patients."""
    log = _rollout(UniformPolicy(PATIENT.actions), 5, 2048)
    states, following = (_FEATURES(log[name].astype(np.float64)) for name in ("observation", "next_observation"))
    rewards = log["reward"] / REWARD_UNIT
    return fitted_q(states, following, log["action"], rewards, log["terminated"], PATIENT.discount)


def soft_policy(weights: np.ndarray, temperature: float) -> SoftPolicy:
    """Return ``softmax(Q / temperature)``."""
    return SoftPolicy(weights, _FEATURES, temperature, 0.0)


def _rollout(policy: Policy, seed: int, count: int) -> dict[str, np.ndarray]:
    return rollout(PATIENT, policy, jax.random.key(seed), count, batch=_BATCH)


@functools.cache
def _stored() -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(ASSETS)


@functools.cache
def _pool() -> dict[str, np.ndarray]:
    """Return ``POOL`` trajectories under the behaviour policy, ``(POOL, HORIZON, ...)`` each."""

    def make() -> dict[str, np.ndarray]:
        log = _rollout(DOMAIN.behavior, 11, POOL)
        names = ("observation", "next_observation", "action", "reward", "behavior_prob")
        return {name: log[name].reshape(POOL, HORIZON, *log[name].shape[1:]) for name in names}

    key = f"{POOL} {PATIENT} {BEHAVIOR_TEMPERATURE} {_stored()['weights'].tobytes().hex()}"
    return cached("hiv-pool", key, make, (Path(q_learning.__file__),))


def simulate(bounds: Bounds, seed: int) -> Trajectories:
    """Return a log of ``bounds.units`` patients, drawn from the pool; logs for the moments have fresh patients."""
    units = bounds.units
    if seed >= MOMENT_SEED:
        return from_rollout(_rollout(DOMAIN.behavior, seed, units), bounds)
    if units > POOL:
        raise DprlError(f"hiv: a log has at most {POOL} trajectories, as many as are simulated beforehand.")
    chosen = np.random.default_rng(seed).choice(POOL, units, replace=False)
    columns = {name: kept[chosen].reshape(units * HORIZON, *kept.shape[2:]) for name, kept in _pool().items()}
    columns["episode_id"] = np.repeat(np.arange(units), HORIZON)
    columns["terminated"] = np.zeros(units * HORIZON, dtype=bool)
    return from_rollout(columns, bounds)


def start_states() -> np.ndarray:
    """Return ``(256, 6)`` observations that represent the start distribution.

    They are a net of Sobol's points in the cube of perturbations, each half a cell from its corner.
    """
    unit = sobol_points(((0.0, 1.0),) * 6)
    factors = np.exp(PATIENT.perturbation * (2.0 * unit - 1.0))
    return np.log10(np.array(STEADY_STATES[PATIENT.start]) * factors)


def main() -> None:
    """Learn Q, and simulate the true values and the mean reward."""
    from safetensors.numpy import save_file

    weights = learn_weights()
    behavior, target = (soft_policy(weights, t) for t in (BEHAVIOR_TEMPERATURE, TARGET_TEMPERATURE))
    visited = _rollout(behavior, 1, 400)["observation"].astype(np.float64)
    states = visited[np.random.default_rng(2).choice(len(visited), 64, replace=False)]
    values, errors = SIMULATOR.values(target, states, seed=3, repetitions=240)
    mean_reward = np.array([_rollout(target, 4, _BATCH)["reward"].mean()])
    starts = SIMULATOR.starts(target, start_states(), seed=8, repetitions=20)
    kept = {"weights": weights, "states": states, "values": values, "standard_errors": errors}
    save_file({**kept, "mean_reward": mean_reward, **starts}, ASSETS)


def _domain() -> Domain:
    weights = _stored()["weights"]
    return stored_domain(
        Path(__file__),
        label="HIV treatment, off-policy",
        discount=PATIENT.discount,
        features="columns",
        public=replace(
            environment_bounds(PATIENT, 1, float(PATIENT.actions)),
            max_cumulative_ratio=float(PATIENT.actions),
            return_range=VALUE,
            observation_names=("log10 T1", "log10 T2", "log10 T1*", "log10 T2*", "log10 V", "log10 E"),
        ),
        policy=soft_policy(weights, TARGET_TEMPERATURE),
        behavior=soft_policy(weights, BEHAVIOR_TEMPERATURE),
        simulate=simulate,
        mean_reward=float(_stored()["mean_reward"][0]),
        moment_units=4000,
    )


if __name__ == "__main__":
    main()
else:
    DOMAIN = _domain()
