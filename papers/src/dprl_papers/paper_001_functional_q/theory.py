"""Paper 001's statements that can be computed exactly: the cost of a radius of the whole range, and Proposition 10.

Paper: Wang and Hegde, "Privacy-preserving Q-learning with functional noise in continuous spaces". Errata:
docs/papers/001.md. Nothing here reads any person's data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import DprlError
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.ornstein_uhlenbeck import parameters, unit_path

_LEVELS = 14  # number of halvings; values between two neighbouring points of a path hardly raise its maximum

# --- what privacy of all reward functions at once allows --------------------------------------------------------------


def largest_success(functions: int, epsilon: float, delta: float) -> float:
    """Return the largest mean probability of success over ``functions`` reward functions that are all neighbours.

    The functions' sets of good answers are disjoint. The probability is (e^epsilon + (k - 1) delta)/(k - 1 + e^epsilon)
    for k functions, and a mechanism attains it: docs/papers/001.md.
    """
    if functions < 1:
        raise DprlError("There must be at least one reward function.")
    others = functions - 1
    return (math.exp(epsilon) + others * delta) / (others + math.exp(epsilon))


# --- Proposition 10 ---------------------------------------------------------------------------------------------------


def printed_bound(states: int, std: float, discount: float) -> float:
    """Return Proposition 10's bound 2 sqrt(2) sigma/(sqrt(n pi) (1 - gamma)) on the mean over states of |v' - v*|."""
    return 2.0 * math.sqrt(2.0) * std / (math.sqrt(states * math.pi) * (1.0 - discount))


def right_bound(states: int, actions: int, std: float, discount: float) -> float:
    """Return sigma sqrt(2 ln(2 n m))/(1 - gamma): E max |z| over n m normals, after a contraction by gamma."""
    return std * math.sqrt(2.0 * math.log(2.0 * states * actions)) / (1.0 - discount)


def optimal_values(following: np.ndarray, weights: np.ndarray, rewards: np.ndarray, discount: float) -> np.ndarray:
    """Return the ``(n,)`` optimal values by value iteration, to 1e-9 of their scale.

    Args:
        following, weights: ``(m, n, b)`` successors of each action in each state, and their probabilities.
        rewards: ``(m, n)`` reward of each action in each state.
    """
    values = np.zeros(rewards.shape[1])
    for _ in range(math.ceil(math.log(1e-9 * (1.0 - discount)) / math.log(discount))):
        values = np.max(rewards + discount * np.sum(weights * values[following], axis=-1), axis=0)
    return values


def garnet(
    states: int, actions: int, successors: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a random finite MDP (Archibald, McKinnon and Thomas 1995).

    It has successors, their probabilities, and rewards in [0, 1].
    """
    shape = (actions, states, min(successors, states))
    following = rng.random((*shape[:2], states)).argsort(-1)[..., : shape[2]] if states <= 64 else None
    if following is None:  # repeated successors are rare, and do no harm
        following = rng.integers(0, states, shape)
    return following, rng.dirichlet(np.ones(shape[2]), shape[:2]), rng.random(shape[:2])


def noise_loss(
    states: int, actions: int, std: float, discount: float, seeds: int, kind: str = "garnet", seed: int = 0
) -> tuple[float, float]:
    """Return the mean over states of |v' - v*| when every reward gets independent noise, and its standard error.

    The mean and the error are taken over ``seeds``.

    Args:
        kind: ``garnet``; ``identity``, where every state stays where it is; or ``absorbing``, where all states go to
            one state that stays.
    """
    losses, noise = [], SeededNoise.from_seed(seed).stream(f"{states} states, {actions} actions")
    for draw in range(seeds):
        rng = np.random.default_rng([seed, states, actions, draw])
        following, weights, rewards = garnet(states, actions, 5, rng)
        if kind == "identity":
            following, weights = np.broadcast_to(np.arange(states)[:, None], (actions, states, 1)), np.ones(1)
        elif kind == "absorbing":
            following, weights = np.zeros((actions, states, 1), int), np.ones(1)
            rewards = np.zeros((actions, states))
        normals = noise.normals(draw, actions * states)
        noisy = rewards + std * np.asarray(normals).reshape(actions, states)
        exact = optimal_values(following, weights, rewards, discount)
        losses.append(np.abs(optimal_values(following, weights, noisy, discount) - exact).mean())
    return float(np.mean(losses)), float(np.std(losses, ddof=1) / math.sqrt(seeds)) if seeds > 1 else 0.0


# --- Lemma 8 ----------------------------------------------------------------------------------------------------------


def largest_of_path(decay: float, paths: int, seed: int = 0) -> float:
    """Return E max over [0, 1] of a path with covariance exp(-decay |x - y|), by simulation on 16,385 points."""
    law = parameters(decay, _LEVELS, 1.0, 0.0, 0.0)
    positions, nodes = jnp.arange(2**_LEVELS + 1)[:, None], SeededNoise.from_seed(seed).nodes()
    one = jax.jit(lambda number: unit_path(nodes, law, positions, jnp.full(len(positions), number)).max())
    return float(np.mean([one(number) for number in range(paths)]))


# --- appendix E.3 -----------------------------------------------------------------------------------------------------


def smallest_tail(
    std: Callable[[int], float], step_size: float = 3e-4, batch: int = 64, paths: int = 78, delta: float = 5e-5
) -> tuple[int | None, float | None]:
    """Return the smallest k below 100,000 with 2k - 8.68 sqrt(beta) sigma >= sqrt(2 ln(paths/delta)), and its sigma.

    Args:
        std: sigma as a function of k; beta = B/(4 alpha (k + 1)).
    """
    needed = math.sqrt(2.0 * math.log(paths / delta))
    for k in range(1, 100_000):
        sigma = std(k)
        if 2.0 * k - 8.68 * math.sqrt(batch / (4.0 * step_size * (k + 1))) * sigma >= needed:
            return k, sigma
    return None, None
