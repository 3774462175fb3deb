"""Inverse reinforcement learning from a released Q, where the transitions are known: r = Q - gamma P max Q.

Paper 001 wants to protect from this attack. From a Q that was learned only from noisy rewards, the attack finds the
reward plus the noise, and no more, which is the purpose of the noise.
"""

from __future__ import annotations

import numpy as np


def recovered_reward(q: np.ndarray, model: np.ndarray, discount: float) -> np.ndarray:
    """Return the ``(..., N)`` reward of each state by the Bellman equation, as the mean over actions.

    Args:
        q: ``(..., A, N)`` released values, in the unit of undiscounted rewards.
        model: ``(A, N, N)`` transition probabilities between the states.
        discount: discount factor of Q.
    """
    best = q.max(axis=-2)
    following = np.stack([best @ P.T for P in model], axis=-2)
    return (q - discount * following).mean(axis=-2)


def recovery_error(found: np.ndarray, reward: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the ``(...,)`` root mean square error over the reward's standard deviation.

    The mean reward has an error of 1.

    Args:
        found: ``(..., N)`` recovered rewards.
        reward: ``(N,)`` true rewards.
        weights: ``(N,)`` weights of the states, which sum to 1.
    """
    spread = np.sqrt(weights @ (reward - weights @ reward) ** 2)
    return np.sqrt(((found - reward) ** 2) @ weights) / spread
