"""Cart Pole on-policy: the behaviour policy is the target policy, a soft form of the policy that Sarsa learned.

Q is learned by Sarsa(0) with the coupled Fourier basis of order 2 (:mod:`dprl_papers.harness.q_learning`). The greedy
policy never falls within 200 steps, and a policy that never falls has the same value everywhere. Therefore the policy
is ``0.8 softmax(Q / 1.5) + 0.2 uniform``, which falls after some 70 steps. Values are discounted by 0.95 and never
truncated; a log cuts trajectories after 200 steps, which takes less than 0.001 from a value.

``cart_pole.safetensors`` holds the weights of Q; true values at states that the policy visits and at starts, which are
means of rollouts of the simulator; and the mean returns of the policy and of the greedy policy in 200 steps.
``python -m dprl_papers.domains.cart_pole`` makes the file anew in some minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dprl.environments.cart_pole import CartPole
from dprl.environments.rollout import environment_bounds
from dprl.value_functions.features import make_features
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.q_learning import SoftPolicy, learn
from dprl_papers.harness.simulated import Simulator, sobol_points, stored_domain

CART = CartPole()
# an observation is the state, except for a velocity beyond 3, which one state in ten thousand has
SIMULATOR = Simulator(environment=CART, steps=200)  # 0.95^200 of the largest value is 0.0007
BASIS = make_features("fourier-coupled:2", CART.observation_bounds)
ASSETS = Path(__file__).with_suffix(".safetensors")
TEMPERATURE, EPSILON = 1.5, 0.2
PUBLIC = replace(
    environment_bounds(CART, 1),
    return_range=(1.0, 1.0 / (1.0 - CART.discount)),  # every trajectory has a step
    observation_names=("position", "velocity", "angle", "angular velocity"),
)


def learn_weights() -> np.ndarray:
    """Return ``(81, 2)`` weights of Q: 20,000 steps of 16 trajectories side by side."""
    return learn(CART, BASIS, seed=0, steps=20_000, step_size=0.01, parallel=16, rule="Sarsa")


def soft_policy(weights: np.ndarray, temperature: float = TEMPERATURE, epsilon: float = EPSILON) -> SoftPolicy:
    """Return the soft policy of learned weights."""
    return SoftPolicy(weights, BASIS, temperature, epsilon)


def main() -> None:
    """Learn the policy, and simulate its true values and returns."""
    SIMULATOR.save_learned(ASSETS, PUBLIC, learn_weights(), soft_policy, sobol_points(((-0.05, 0.05),) * 4))


def _domain() -> Domain:
    from safetensors.numpy import load_file

    policy = soft_policy(load_file(ASSETS)["weights"])
    return stored_domain(
        Path(__file__),
        label="Cart Pole",
        discount=CART.discount,
        features="fourier:3",
        network="mlp:50",
        public=PUBLIC,
        policy=policy,
        simulate=lambda bounds, seed: SIMULATOR.log(policy, bounds, seed),
        mean_reward=1.0,
    )


if __name__ == "__main__":
    main()
else:
    DOMAIN = _domain()
