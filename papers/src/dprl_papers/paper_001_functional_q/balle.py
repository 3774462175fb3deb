"""The policy evaluation of Balle, Gomrokchi and Precup (2016) as paper 001's Figure 2 may have run it.

Paper 001 gives neither its features nor its policy. The reading here is: 100 episodes of random actions; DP-LSW, with
its own noise, on the first-visit returns of 10 cells times 2 actions; and the greedy policy of the result. It protects
a trajectory, under replacing one, and no reward function; docs/papers/balle-2016.md says what its noise guarantees.
"""

from __future__ import annotations

import math

import numpy as np

from dprl.environments.interval_walk import LONGEST_MOVE, IntervalWalk
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.baselines.smooth_gaussian import SmoothGaussian
from dprl_papers.baselines.smooth_sensitivity import psi_w
from dprl_papers.paper_001_functional_q.returns import GRID, policy_returns

CELLS, EPISODES = 10, 100


def balle_returns(epsilon: float, delta: float, seeds: int, seed: int = 0) -> np.ndarray:
    """Return the ``(seeds,)`` returns of the greedy policies."""
    cells = np.minimum((np.linspace(0.0, 1.0, GRID) * CELLS).astype(int), CELLS - 1)
    values = np.stack([noisy_values(epsilon, delta, i) for i in range(seed, seed + seeds)])
    return policy_returns(np.argmax(values[:, cells], axis=-1))


def noisy_values(epsilon: float, delta: float, seed: int) -> np.ndarray:
    """Return the ``(cells, actions)`` noisy values of one seed."""
    walk = IntervalWalk()
    horizon, discount = walk.horizon, walk.discount
    rng = np.random.default_rng([seed, 2016])
    actions = rng.integers(0, 2, (EPISODES, horizon))
    moves = np.where(actions == 1, 1.0, -1.0) * rng.uniform(0.0, LONGEST_MOVE, (EPISODES, horizon))
    states = np.empty((EPISODES, horizon))
    states[:, 0] = rng.random(EPISODES)
    for t in range(1, horizon):
        states[:, t] = np.clip(states[:, t - 1] + moves[:, t - 1], 0.0, 1.0)
    returns = 0.5 - np.abs(states - 0.5)
    for t in reversed(range(horizon - 1)):
        returns[:, t] += discount * returns[:, t + 1]
    pairs = 2 * np.minimum((states * CELLS).astype(int), CELLS - 1) + actions
    counts, totals = np.zeros(2 * CELLS), np.zeros(2 * CELLS)
    for episode in range(EPISODES):
        visited, first = np.unique(pairs[episode], return_index=True)
        counts[visited] += 1.0
        totals[visited] += returns[episode, first]
    mechanism = SmoothGaussian(epsilon=epsilon, delta=delta, dimension=2 * CELLS)
    width = walk.reward_bounds[1] * (1.0 - discount**horizon) / (1.0 - discount)
    bound = width * math.sqrt(psi_w(np.ones(2 * CELLS), counts, mechanism.beta))
    noise = SeededNoise.from_seed(seed).stream("balle")
    return mechanism.add_noise(totals / np.maximum(counts, 1.0), bound, noise).reshape(CELLS, 2)
