"""Pong on-policy, in whole games; a state is the 128 bytes of the console's memory. Logs need the extra ``atari``.

A small double DQN (:mod:`dprl_papers.harness.dqn`) plays from six of the bytes: the positions of the ball and both
bats, and the ball's velocity. The behaviour policy is the target policy, ``0.8 softmax(Q / 0.1) + 0.2 uniform``. Values
are discounted by 0.95, so only the next point or two count. Their range is declared: a point takes some 35 decisions,
and ``1 / (1 - 0.95^33)`` is 1.23.

``pong.safetensors`` holds the weights of Q; true values, which are means of rollouts from saved states of the console
in games of the policy and at the start; the mean scores of the policy and of the greedy policy over whole games; and
the policy's mean reward. ``python -m dprl_papers.domains.pong`` makes the file anew in about half an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.environments.atari import ACTIONS, DISCOUNT, Pong, atari_bounds, atari_log
from dprl.protocols import Policy
from dprl_papers.harness.domain import Domain, from_rollout
from dprl_papers.harness.dqn import Weights, learn_dqn, q_values
from dprl_papers.harness.q_learning import soften
from dprl_papers.harness.simulated import mean_return, stored_domain

ASSETS = Path(__file__).with_suffix(".safetensors")
TEMPERATURE, EPSILON = 0.1, 0.2
PUBLIC = replace(atari_bounds(1, horizon=10_000), return_range=(-1.25, 1.25))
"""A game never took as long as the horizon."""
_CONSOLES, _STEPS = 16, 700_000
_POSITIONS, _SPEEDS = (49, 54, 51, 50), (58, 56)
_ROLLOUT_STEPS = 80  # 0.95^80 of the largest value is 0.02
_STATES, _APART = 100, 97


def network_inputs(memory: Any) -> np.ndarray:
    """Return ``(N, 7)`` float32 inputs of the network from ``(N, 128)`` bytes.

    They are the positions of the ball, the own bat and the opponent's bat, scaled to [-1, 1]; the ball's velocity; and
    how far the ball is below the own bat.
    """
    memory = np.asarray(memory, dtype=np.float32)
    speeds = memory[:, _SPEEDS]
    speeds = np.where(speeds < 128.0, speeds, speeds - 256.0)
    below = (memory[:, 54:55] - memory[:, 51:52]) / 32.0
    return np.concatenate([memory[:, _POSITIONS] / 128.0 - 1.0, speeds / 2.0, below], axis=1)


@dataclass(frozen=True, eq=False)
class NetworkPolicy:
    """Soft policy of the network, ``(1 - epsilon) softmax(Q / temperature) + epsilon / 3``, on ``(N, 128)`` bytes."""

    weights: Weights = field(repr=False)
    temperature: float = TEMPERATURE
    epsilon: float = EPSILON

    def __call__(self, states: Any, /) -> np.ndarray:
        # float64, so that a state's probabilities do not depend on the other states
        weights = {name: part.astype(np.float64) for name, part in self.weights.items()}
        return soften(q_values(weights, network_inputs(states).astype(np.float64)), self.temperature, self.epsilon)


class _Game:
    """Pong as the network sees it."""

    def __init__(self, seed: int) -> None:
        self.pong = Pong(seed)

    def begin(self) -> np.ndarray:
        self.pong.begin()
        return network_inputs(self.pong.observe()[None])[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        reward, over = self.pong.step(action)
        return network_inputs(self.pong.observe()[None])[0], reward, over


def learn_weights() -> Weights:
    """Return the network after 700,000 decisions in 16 games side by side."""
    return learn_dqn([_Game(seed) for seed in range(_CONSOLES)], ACTIONS, seed=0, steps=_STEPS)


def simulate(policy: Policy, bounds: Bounds, seed: int) -> Trajectories:
    """Return a log of ``bounds.units`` games."""
    return from_rollout(atari_log(policy, seed, bounds.units, horizon=bounds.horizon), bounds)


def _act(policy: Policy, states: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    cumulative = np.cumsum(np.asarray(policy(states.astype(np.float32))), axis=1)
    return np.minimum((cumulative <= draws.random((len(states), 1))).sum(axis=1), ACTIONS - 1)


def visit(policy: Policy, count: int, seed: int) -> tuple[np.ndarray, list[Any]]:
    """Return ``(count, 128)`` uint8 memories in games of ``policy``, and the console's states there.

    They are 97 decisions apart.
    """
    pong, draws = Pong(seed), np.random.default_rng(seed)
    memories, saved = [], []
    while len(saved) < count:
        for _ in range(_APART):
            action = _act(policy, pong.observe()[None], draws)[0]
            if pong.step(int(action))[1]:
                pong.begin()
        memories.append(pong.observe())
        saved.append(pong.save())
    return np.array(memories), saved


def simulate_truth(policy: Policy, saved: Sequence[Any], seed: int, repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of ``policy`` at saved states of a console, and their standard errors, by rollouts."""
    consoles, draws = [Pong(seed + i) for i in range(_CONSOLES)], np.random.default_rng(seed)
    returns = np.zeros(len(saved) * repetitions)
    for first in range(0, len(returns), _CONSOLES):
        running = list(range(first, min(first + _CONSOLES, len(returns))))
        for task in running:
            consoles[task - first].restore(saved[task // repetitions])
        for t in range(_ROLLOUT_STEPS):
            actions = _act(policy, np.array([consoles[task - first].observe() for task in running]), draws)
            played = [(task, *consoles[task - first].step(int(a))) for task, a in zip(running, actions, strict=True)]
            for task, reward, _ in played:
                returns[task] += DISCOUNT**t * reward
            running = [task for task, _, over in played if not over]
            if not running:
                break
    by_state = returns.reshape(len(saved), repetitions)
    return by_state.mean(axis=1), by_state.std(axis=1, ddof=1) / np.sqrt(repetitions)


def main() -> None:
    """Train the network, and simulate the policy's true values and scores."""
    from safetensors.numpy import save_file

    weights = learn_weights()
    policy = NetworkPolicy(weights)
    memories, saved = visit(policy, _STATES, seed=1)
    values, errors = simulate_truth(policy, saved, seed=100, repetitions=60)
    fresh = Pong(2)
    start, start_error = simulate_truth(policy, [fresh.save()], seed=200, repetitions=400)
    games = simulate(policy, replace(PUBLIC, units=20), seed=3)
    greedy = simulate(NetworkPolicy(weights, 1e-6, 0.0), replace(PUBLIC, units=20), seed=4)
    kept = {
        "states": memories,
        "values": values,
        "standard_errors": errors,
        "start_states": fresh.observe()[None],
        "start_values": start,
        "start_errors": start_error,
        "mean_return": np.array(mean_return(games)),
        "greedy_return": np.array(mean_return(greedy)),
        "mean_reward": np.array(games.reward.mean()),
    }
    save_file({**weights, **kept}, ASSETS)
    print(f"mean score {mean_return(games):.1f}, of the greedy policy {mean_return(greedy):.1f}")


def load_policy() -> NetworkPolicy:
    """Return the stored policy."""
    from safetensors.numpy import load_file

    kept = load_file(ASSETS)
    return NetworkPolicy({name: kept[name] for name in ("w1", "b1", "w2", "b2", "w3", "b3")})


def mean_reward() -> float:
    """Return the stored mean reward of a decision."""
    from safetensors.numpy import load_file

    return float(load_file(ASSETS)["mean_reward"])


def _domain() -> Domain:
    policy = load_policy()
    return stored_domain(
        Path(__file__),
        label="Pong",
        discount=DISCOUNT,
        features="columns",
        network="mlp:50",
        extra="atari",
        public=PUBLIC,
        policy=policy,
        simulate=lambda bounds, seed: simulate(policy, bounds, seed),
        mean_reward=mean_reward(),
        moment_units=40,
    )


if __name__ == "__main__":
    main()
else:
    DOMAIN = _domain()
