"""Acrobot on-policy: the policy that logs is the one that is evaluated, a soft form of what Sarsa learned.

Q is learned by Sarsa(0) with the coupled Fourier basis of order 1 (:mod:`dprl_papers.harness.sarsa`) and a discount of
0.99: with 0.95 the goal is too far away to be seen from the start. The policy is
``0.8 softmax(Q / 0.5) + 0.2 uniform``, which needs some 140 steps. Values are discounted by 0.95 and never truncated; a
log cuts trajectories after 500 steps. They are near -20 but for the last 40 steps.

``acrobot.safetensors`` holds the weights of Q, true values, which are means of rollouts of the simulator, from states
that the policy visits and from starts, the mean returns of the policy and of the greedy one in 500 steps, and the
policy's mean reward. ``python -m dprl_papers.domains.acrobot`` makes the file anew in some minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dprl.environments.acrobot import Acrobot
from dprl.protocols import Bounds, Policy
from dprl.value_functions.features import Features, make_features
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.q_learning import SoftPolicy
from dprl_papers.harness.sarsa import learn_sarsa
from dprl_papers.harness.simulated import net, save_learned, simulate_log, stored_starts, stored_truth

LINKS = Acrobot()
ASSETS = Path(__file__).with_suffix(".safetensors")
TEMPERATURE, EPSILON = 0.5, 0.2
LEARNING_DISCOUNT = 0.99
PUBLIC = Bounds(
    units=1,
    horizon=LINKS.horizon,
    reward=LINKS.reward_bounds,
    observation=LINKS.observation_bounds,
    actions=LINKS.actions,
    return_range=(-1.0 / (1.0 - LINKS.discount), 0.0),
    observation_names=("cosine 1", "sine 1", "cosine 2", "sine 2", "angular velocity 1", "angular velocity 2"),
)
_THOUSAND = replace(PUBLIC, units=1000)
_ROLLOUT_STEPS = 200  # 0.95^200 of the largest value is 0.0007


def learn_weights() -> np.ndarray:
    """Return ``(64, 3)`` weights of Q: 40,000 steps of 16 trajectories side by side."""
    links = Acrobot(discount=LEARNING_DISCOUNT)
    return learn_sarsa(links, _basis(), seed=0, steps=40_000, step_size=0.01, parallel=16)


def soft_policy(weights: np.ndarray, temperature: float = TEMPERATURE, epsilon: float = EPSILON) -> SoftPolicy:
    """Return the policy of learned weights."""
    return SoftPolicy(weights, _basis(), temperature, epsilon)


def _basis() -> Features:
    return make_features("fourier-coupled:1", LINKS.observation_bounds)


def simulate_truth(
    policy: Policy, states: np.ndarray, seed: int, repetitions: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Return values of ``policy`` at ``(S, 6)`` observations, and their standard errors."""
    from dprl_papers.harness.true_values import rollout_values

    return rollout_values(
        LINKS,
        policy,
        LINKS.states_of(states),
        seed,
        steps=_ROLLOUT_STEPS,
        repetitions=repetitions,
        rewards=LINKS.reward_bounds,
    )


def start_states() -> np.ndarray:
    """Return ``(256, 6)`` observations that stand for the start distribution."""
    import jax

    return np.asarray(jax.vmap(LINKS.observe)(net(((-0.1, 0.1),) * 4)), dtype=np.float64)


def main() -> None:
    """Learn the policy, and simulate its true values and returns."""
    weights = learn_weights()
    policy, greedy = soft_policy(weights), soft_policy(weights, 1e-6, 0.0)
    logs = (simulate_log(LINKS, policy, _THOUSAND, 1), simulate_log(LINKS, greedy, _THOUSAND, 2))
    save_learned(ASSETS, weights, logs, lambda states, seed: simulate_truth(policy, states, seed), start_states())


def _domain() -> Domain:
    from safetensors.numpy import load_file

    kept = load_file(ASSETS)
    policy = soft_policy(kept["weights"])
    return Domain(
        name="acrobot",
        label="Acrobot",
        discount=LINKS.discount,
        features="fourier:1",
        network="mlp:50",
        public=PUBLIC,
        target_policy=policy,
        behavior=policy,
        simulate=lambda bounds, seed: simulate_log(LINKS, policy, bounds, seed),
        true_values=lambda: stored_truth(ASSETS),
        start_values=lambda: stored_starts(ASSETS),
        mean_reward=float(kept["mean_reward"]),
        depends_on=(ASSETS,),
    )


if __name__ == "__main__":
    main()
else:
    DOMAIN = _domain()
