"""Mountain Car on-policy: the behaviour policy is the target policy, a soft form of the policy that Q-learning learned.

Q is learned with the coupled Fourier basis of order 5 (:mod:`dprl_papers.harness.q_learning`); the policy is
``0.8 softmax(Q / 0.1) + 0.2 uniform``, so that each action has a probability of at least 1/15. Values are discounted
by 0.99 and never truncated; a log cuts trajectories after 200 steps. Rewards are -1, so values lie in [-100, 0].

``mountain_car.safetensors`` holds the weights of Q and true values, which are means of rollouts of the simulator from
states that the policy visits and from starts. ``python -m dprl_papers.domains.mountain_car`` makes this file and that
of the off-policy domain anew in some minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dprl.bounds import Bounds
from dprl.environments.mountain_car import MountainCar
from dprl.environments.rollout import environment_bounds
from dprl.policies import UniformPolicy
from dprl.value_functions.features import make_features
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.q_learning import SoftPolicy, learn
from dprl_papers.harness.simulated import Simulator, stored_domain

CAR = MountainCar()
SIMULATOR = Simulator(environment=CAR, steps=900)  # 0.99^900 of the largest value is 0.012
BASIS = make_features("fourier-coupled:5", CAR.observation_bounds)
ASSETS = Path(__file__).with_suffix(".safetensors")
OFF_POLICY_ASSETS = ASSETS.with_name("mountain_car_off_policy.safetensors")
TEMPERATURE, EPSILON = 0.1, 0.2
UNIFORM = UniformPolicy(CAR.actions)
START_POSITIONS = (-0.6, -0.4)


def learn_weights() -> np.ndarray:
    """Return ``(36, 3)`` weights of Q: 400,000 steps, some 2,500 trajectories."""
    return learn(CAR, BASIS, seed=0, steps=400_000, step_size=0.01)


def soft_policy(weights: np.ndarray, temperature: float = TEMPERATURE, epsilon: float = EPSILON) -> SoftPolicy:
    """Return the soft policy of learned weights."""
    return SoftPolicy(weights, BASIS, temperature, epsilon)


def start_states() -> np.ndarray:
    """Return ``(100, 2)`` starts at rest, in the middles of intervals of equally probable positions."""
    low, high = START_POSITIONS
    positions = low + (high - low) * (np.arange(100) + 0.5) / 100
    return np.stack([positions, np.zeros(100)], axis=1)


def public_bounds(max_importance_ratio: float) -> Bounds:
    """Return the public facts of a log; the value range follows from rewards of -1 and the discount."""
    return replace(
        environment_bounds(CAR, 1, max_importance_ratio),
        max_cumulative_ratio=max_importance_ratio,
        return_range=(-1.0 / (1.0 - CAR.discount), 0.0),
        observation_names=("position", "velocity"),
    )


def main() -> None:
    """Learn the policy and simulate the true values of both domains."""
    from safetensors.numpy import save_file

    weights = learn_weights()
    policy = soft_policy(weights)
    log = SIMULATOR.log(policy, replace(public_bounds(1.0), units=400), seed=1)
    states = log.observation[np.random.default_rng(2).choice(len(log.observation), 400, replace=False)]
    values, errors = SIMULATOR.values(policy, states, seed=3, repetitions=100)
    starts = SIMULATOR.starts(policy, start_states(), seed=5, repetitions=100)
    kept = {"weights": weights, "states": states, "values": values, "standard_errors": errors}
    save_file({**kept, **starts}, ASSETS)
    values, errors = SIMULATOR.values(UNIFORM, states, seed=4, repetitions=200)
    starts = SIMULATOR.starts(UNIFORM, start_states(), seed=6, repetitions=200)
    save_file({"states": states, "values": values, "standard_errors": errors, **starts}, OFF_POLICY_ASSETS)


def load_policy() -> SoftPolicy:
    """Return the stored policy."""
    from safetensors.numpy import load_file

    return soft_policy(load_file(ASSETS)["weights"])


def _domain() -> Domain:
    policy = load_policy()
    return stored_domain(
        Path(__file__),
        label="Mountain Car, on-policy",
        discount=CAR.discount,
        features="fourier:5",
        public=public_bounds(1.0),
        policy=policy,
        simulate=lambda bounds, seed: SIMULATOR.log(policy, bounds, seed),
        mean_reward=-1.0,
    )


if __name__ == "__main__":
    main()
else:
    DOMAIN = _domain()
