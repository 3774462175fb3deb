"""Acrobot on-policy: the behaviour policy is the target policy, a soft form of the policy that Sarsa learned.

Q is learned by Sarsa(0) with the coupled Fourier basis of order 1 (:mod:`dprl_papers.harness.q_learning`) and a
discount of 0.99: with 0.95, the goal is too far away to be seen from the start. The policy is
``0.8 softmax(Q / 0.5) + 0.2 uniform``, which needs some 140 steps. Values are discounted by 0.95 and never truncated; a
log cuts trajectories after 500 steps. Values are near -20 except in the last 40 steps.

``acrobot.safetensors`` holds the weights of Q; true values at states that the policy visits and at starts, which are
means of rollouts of the simulator; the mean returns of the policy and of the greedy policy in 500 steps; and the
policy's mean reward. ``python -m dprl_papers.domains.acrobot`` makes the file anew in some minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dprl.environments.acrobot import Acrobot
from dprl.environments.rollout import environment_bounds
from dprl.value_functions.features import make_features
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.q_learning import SoftPolicy, learn
from dprl_papers.harness.simulated import Simulator, sobol_points, stored_domain

LINKS = Acrobot()
# 0.95^200 of the largest value is 0.0007
SIMULATOR = Simulator(environment=LINKS, steps=200, states_of=LINKS.states_of)
BASIS = make_features("fourier-coupled:1", LINKS.observation_bounds)
ASSETS = Path(__file__).with_suffix(".safetensors")
TEMPERATURE, EPSILON = 0.5, 0.2
LEARNING_DISCOUNT = 0.99
PUBLIC = replace(
    environment_bounds(LINKS, 1),
    return_range=(-1.0 / (1.0 - LINKS.discount), 0.0),
    observation_names=("cosine 1", "sine 1", "cosine 2", "sine 2", "angular velocity 1", "angular velocity 2"),
)


def learn_weights() -> np.ndarray:
    """Return ``(64, 3)`` weights of Q: 40,000 steps of 16 trajectories side by side."""
    links = Acrobot(discount=LEARNING_DISCOUNT)
    return learn(links, BASIS, seed=0, steps=40_000, step_size=0.01, parallel=16, rule="Sarsa")


def soft_policy(weights: np.ndarray, temperature: float = TEMPERATURE, epsilon: float = EPSILON) -> SoftPolicy:
    """Return the soft policy of learned weights."""
    return SoftPolicy(weights, BASIS, temperature, epsilon)


def start_states() -> np.ndarray:
    """Return ``(256, 6)`` observations that represent the start distribution."""
    import jax

    return np.asarray(jax.vmap(LINKS.observe)(sobol_points(((-0.1, 0.1),) * 4)), dtype=np.float64)


def main() -> None:
    """Learn the policy, and simulate its true values and returns."""
    SIMULATOR.save_learned(ASSETS, PUBLIC, learn_weights(), soft_policy, start_states())


def _domain() -> Domain:
    from safetensors.numpy import load_file

    kept = load_file(ASSETS)
    policy = soft_policy(kept["weights"])
    return stored_domain(
        Path(__file__),
        label="Acrobot",
        discount=LINKS.discount,
        features="fourier:1",
        network="mlp:50",
        public=PUBLIC,
        policy=policy,
        simulate=lambda bounds, seed: SIMULATOR.log(policy, bounds, seed),
        mean_reward=float(kept["mean_reward"]),
    )


if __name__ == "__main__":
    main()
else:
    DOMAIN = _domain()
