"""Inverse reinforcement learning from a released Q, where the transitions are known: r = Q - gamma P max Q.

What paper 001 wants to keep from an attacker. Of a Q that was learned from noisy rewards alone it finds the reward and
the noise, and no more: that is what the noise is for.
"""

from __future__ import annotations

import numpy as np


def recovered_reward(q: np.ndarray, model: np.ndarray, discount: float) -> np.ndarray:
    """Return ``(..., N)`` reward of each state by the Bellman equation, the mean over actions.

    Args:
        q: ``(..., A, N)`` released values, undiscounted rewards' unit.
        model: ``(A, N, N)`` transition probabilities between the states.
        discount: of Q.
    """
    best = q.max(axis=-2)
    following = np.stack([best @ P.T for P in model], axis=-2)
    return (q - discount * following).mean(axis=-2)


def recovery_error(found: np.ndarray, reward: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ``(...,)`` root of the mean square error over the standard deviation of the reward: 1 for the mean reward
    alone.

    Args:
        found: ``(..., N)``.
        reward: ``(N,)`` true ones.
        weights: ``(N,)`` of the states, which sum to 1.
    """
    spread = np.sqrt(weights @ (reward - weights @ reward) ** 2)
    return np.sqrt(((found - reward) ** 2) @ weights) / spread
