"""DP-APVI and DP-VAPVI: pessimistic value iteration on noisy statistics of a log (Qiao and Wang 2023, Algorithms 1, 2).

Privacy unit: a trajectory. Relation: add or remove one. Released: every noisy count, or every noisy Gram matrix and
vector; the policy is post-processing. Statements alone: the noise is drawn in floating point from public seeds. Proof,
and what differs from the paper: docs/papers/beyond.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.evaluation.adassp import smat
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_beyond.processes import Process

FAILURE = 0.05
"""Probability by which the paper's bonuses may fail."""


@dataclass(frozen=True)
class Counts:
    """Sums over a log's trajectories.

    Attributes:
        moves: ``(H, S, A, S)`` visits of state, action and next state.
        visits: ``(H, S, A)`` of state and action; without noise the sum of ``moves``.
        rewards: ``(H, S, A)`` sums of rewards.
    """

    moves: np.ndarray
    visits: np.ndarray
    rewards: np.ndarray

    @classmethod
    def from_log(cls, process: Process, log: Sequence[np.ndarray]) -> Counts:
        """Count exactly."""
        (s, a, r), moves = log, np.zeros(process.following.shape)
        rewards, h = np.zeros(process.shape), np.arange(a.shape[1])
        np.add.at(moves, (h, s[:, :-1], a, s[:, 1:]), 1.0)
        np.add.at(rewards, (h, s[:, :-1], a), r)
        return cls(moves, moves.sum(axis=-1), rewards)

    def noisy(self, mechanism: GaussianSum, seed: int) -> Counts:
        """Return the counts with the mechanism's noise."""
        flat = np.concatenate([x.ravel() for x in vars(self).values()])
        told = with_noise(mechanism, flat, 0, seed, "counts")
        parts = np.split(told, np.cumsum([self.moves.size, self.visits.size]))
        return Counts(*(x.reshape(like.shape) for x, like in zip(parts, vars(self).values(), strict=True)))


def with_noise(mechanism: GaussianSum, total: np.ndarray, step: int, seed: int, name: str) -> np.ndarray:
    """Return a step's sum with the mechanism's noise, in floating point."""
    mechanism = mechanism.in_float()
    draw = mechanism.draw(SeededNoise.from_seed(seed).stream(name), step)
    return np.asarray(mechanism.release(jnp.asarray(total), draw))


def counts_mechanism(process: Process, budget: Budget) -> GaussianSum:
    """Return the mechanism of DP-APVI.

    In each of H steps, a trajectory adds 1 to a move and to a visit, and at most 1 to a sum of rewards.
    """
    size = process.following.size + 2 * process.rewards.size
    norm = math.sqrt(3.0 * process.shape[0])
    return GaussianSum(parts=((size, norm),), noise_multiplier=noise_multiplier_for(events.gaussian, budget))


def consistent(moves: np.ndarray, visits: np.ndarray, slack: float) -> np.ndarray:
    """Return the counts of Eq. (3): the nearest to ``moves`` in the largest difference.

    No count is below zero, and their sums lie within ``slack`` of the ``visits``. Of the solutions of this linear
    program, it is the one where all counts move by the same amount, or to zero.
    """
    total, states = moves.sum(axis=-1), moves.shape[-1]
    more = np.maximum(visits - slack - total, 0.0) / states
    low, high = np.zeros_like(visits), moves.max(axis=-1)
    for _ in range(60):
        middle = (low + high) / 2.0
        over = np.maximum(moves - middle[..., None], 0.0).sum(axis=-1) > visits + slack
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    less = np.where(total > visits + slack, high, 0.0)
    return np.maximum(moves + (more - less)[..., None], 0.0)


def apvi(counts: Counts, std: float, bonus: float = 1.0, edge: float = 1.0) -> np.ndarray:
    """Return the actions ``(H, S)`` of Algorithm 1.

    Args:
        counts: noisy or exact.
        std: of the noise in each count; 0 for APVI, which has none.
        bonus, edge: what the printed bonus, and the count E up to which a pair counts as never seen, are multiplied by.
    """
    steps, states, actions = counts.visits.shape
    # E is 4 sqrt(H log(.) / rho) in the paper, where a variance is 2 H / rho
    edge *= 2.0 * std * math.sqrt(2.0 * math.log(4.0 * steps * states**2 * actions / FAILURE))
    moves = consistent(np.maximum(counts.moves, 0.0), np.maximum(counts.visits, 0.0), edge / 2.0)
    many, log = moves.sum(axis=-1), math.log(steps * states * actions / FAILURE)
    seen = many > edge
    safe = np.where(seen, many, 1.0)
    law = np.where(seen[..., None], moves / safe[..., None], 1.0 / states)
    paid = np.where(seen, np.clip(counts.rewards / safe, 0.0, 1.0), 0.0)
    ahead, found = np.zeros(states), np.zeros((steps, states), int)
    for h in reversed(range(steps)):
        variance = np.maximum(law[h] @ ahead**2 - (law[h] @ ahead) ** 2, 0.0)
        gamma = np.sqrt(2.0 * variance * log / np.where(seen[h], many[h] - edge, 1.0))
        gamma = bonus * (gamma + 16.0 * states * steps * edge * log / safe[h])
        q = paid[h] + law[h] @ ahead - np.where(seen[h], gamma, 2.0 * steps)
        q = np.clip(q, 0.0, steps - h)
        found[h], ahead = q.argmax(axis=1), q.max(axis=1)
    return found


# --- linear -----------------------------------------------------------------------------------------------------------


def upper_triangle(matrix: np.ndarray) -> np.ndarray:
    """Return the upper triangle of a symmetric matrix as a vector of the same norm; ``smat`` undoes it."""
    i, j = np.triu_indices(len(matrix))
    return matrix[i, j] * np.where(i == j, 1.0, math.sqrt(2.0))


def regression_mechanisms(process: Process, budget: Budget) -> tuple[GaussianSum, GaussianSum]:
    """Return the mechanisms of DP-VAPVI.

    The first releases the Gram matrix and two vectors for the variance, the second the weighted Gram matrix and its
    vector, each once per step. A trajectory adds at most 1 to the norm of each, and all have the same noise.
    """
    size, steps = process.features.shape[-1], process.shape[0]
    square, one = size * (size + 1) // 2, noise_multiplier_for(events.gaussian, budget)
    made = []
    for vectors in (2, 1):
        parts = ((square, 1.0), *((size, 1.0),) * vectors)
        made.append(GaussianSum(parts=parts, steps=steps, noise_multiplier=one * math.sqrt(5 * steps / (1 + vectors))))
    return made[0], made[1]


def vapvi(
    process: Process,
    counts: Counts,
    mechanisms: tuple[GaussianSum, GaussianSum] | None,
    seed: int,
    bonus: float = 1.0,
    edge: float = 1.0,
) -> np.ndarray:
    """Return the actions ``(H, S)`` of Algorithm 2.

    Args:
        process: of which only the features are looked at.
        counts: exact ones; statistics of a linear process are sums of them.
        mechanisms: of :func:`regression_mechanisms`; None for VAPVI, which has no noise.
        bonus: C.
        edge: multiplies E, whose half is added to each Gram matrix so that it stays positive.
    """
    steps, states, actions = process.shape
    phi = process.features.reshape(states * actions, -1)
    size = phi.shape[1]
    std = 0.0 if mechanisms is None else mechanisms[0].noise_std
    ridge = 1.0 + edge * std * (math.sqrt(2.0 * size) + 3.0)

    def released(which: int, step: int, gram: np.ndarray, *vectors: np.ndarray) -> list[np.ndarray]:
        exact = np.concatenate([upper_triangle(gram), *vectors])
        told = exact if mechanisms is None else with_noise(mechanisms[which], exact, step, seed, f"regression {which}")
        square, *rest = np.split(told, np.cumsum([len(upper_triangle(gram)), *(size for _ in vectors)])[:-1])
        return list(
            np.linalg.solve(
                np.asarray(smat(jnp.asarray(square), size)) + ridge * np.eye(size), np.stack([*rest, *phi], axis=1)
            ).T
        )

    ahead, found = np.zeros(states), np.zeros((steps, states), int)
    for h in reversed(range(steps)):
        moves, visits = counts.moves[h].reshape(-1, states), counts.visits[h].ravel()
        most = float(max(steps - h - 1, 1))
        gram = phi.T @ (visits[:, None] * phi)
        beta, theta, *_ = released(0, h, gram, phi.T @ (moves @ (ahead / most) ** 2), phi.T @ (moves @ ahead / most))
        mean = np.clip(phi @ theta, 0.0, 1.0)
        variance = np.maximum(most**2 * (np.clip(phi @ beta, 0.0, 1.0) - mean**2), 1.0)
        gram = phi.T @ ((visits / variance)[:, None] * phi)
        target = (counts.rewards[h].ravel() + moves @ ahead) / variance / (steps - h)
        weights, *inverse = released(1, h, gram, phi.T @ target)
        width = np.sqrt(np.maximum(np.sum(phi * np.array(inverse), axis=1), 0.0))
        q = np.clip((steps - h) * (phi @ weights) - bonus * math.sqrt(size) * width, 0.0, steps - h)
        found[h], ahead = q.reshape(states, actions).argmax(axis=1), q.reshape(states, actions).max(axis=1)
    return found
