"""The variant output: optimal Q-function of a public model, its sensitivity to the rewards, and its noisy release.

Proof: docs/proofs/output-perturbation.md. A learned network would have no such bound, so Q is planned here, on a grid
of points between which it is interpolated.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dprl.config import filled
from dprl.errors import DprlError
from dprl.learning.functional_q import FunctionalQ
from dprl.mechanisms.ornstein_uhlenbeck import positions_of
from dprl.protocols import EnvironmentSpec
from dprl.value_functions.q_function import QFunction

POINTS = np.linspace(0.0, 1.0, 257)
"""Points at which rewards are read and Q-values answered: multiples of the grid on which a path is known."""


def check_model(model: Any, actions: int) -> np.ndarray:
    """Return ``(A, N, N)`` float64 transition probabilities between :data:`POINTS`, rows divided by their sums.

    Raises:
        DprlError: the model has another shape, or its entries are no transition probabilities.
    """
    model = np.asarray(model, dtype=np.float64)
    size = len(POINTS)
    if model.shape != (actions, size, size) or not (model >= 0.0).all() or abs(model.sum(2) - 1.0).max() > 1e-9:
        raise DprlError(f"output: the model must be {actions} matrices of transition probabilities, {size} by {size}.")
    return model / model.sum(2, keepdims=True)


def transition_rate(model: np.ndarray) -> float:
    """Return kappa, the fastest change of the transition probabilities along the points, in L1 norm."""
    change = np.abs(np.diff(model, axis=1)).sum(2) / np.diff(POINTS)[None, :]
    return float(change.max())


def q_sensitivity(config: FunctionalQ, facts: EnvironmentSpec, model: Any) -> tuple[float, float]:
    """Return the largest difference of the optimal Q of two neighbours, and the difference's Lipschitz constant.

    The bounds are ``R_Q = R / (1 - gamma)`` and ``L_Q = L + gamma kappa R_Q``, plus what the rounding of value
    iteration adds to both.
    """
    discount = filled(config.discount)
    kappa = transition_rate(check_model(model, facts.actions))
    up = 1.0 + 2.0**-40  # the bounds hold in exact arithmetic
    # largest error of a computed Q-value: 260 roundings per sweep
    error = 2.0**-44 * max(map(abs, facts.reward_bounds)) / (1.0 - discount) ** 2
    sup = filled(config.reward_radius) / (1.0 - discount) * up + 2.0 * error
    lipschitz = (filled(config.reward_lipschitz) + discount * kappa * sup) * up
    return sup, lipschitz + 4.0 * error * (len(POINTS) - 1)


def optimal_q(model: Any, rewards: Any, discount: float) -> Any:
    """Return ``(A, N)`` float64 optimal Q-values at :data:`POINTS`, by a public number of sweeps of value iteration.

    Args:
        model: ``(A, N, N)`` transition probabilities.
        rewards: ``(A, N)``.
    """
    model = check_model(model, len(rewards))
    return _value_iteration(jnp.asarray(model), jnp.asarray(rewards, jnp.float64), discount, _sweep_count(discount))


@partial(jax.jit, static_argnums=3)
def _value_iteration(model: Any, rewards: Any, discount: Any, sweeps: int) -> Any:
    def sweep(q: Any, _: Any) -> tuple[Any, None]:
        return rewards + discount * (model @ jnp.max(q, axis=0)), None

    return lax.scan(sweep, jnp.zeros_like(rewards), length=sweeps)[0]


def noisy_q(q: Any, answers: Any) -> Any:
    """Return ``(A, N)`` float64: the only release, which is Q at :data:`POINTS` plus a path for each action."""
    actions, size = np.shape(q)
    positions = np.tile(positions_of(POINTS[:, None]), (actions, 1))
    path = np.repeat(np.arange(actions, dtype=np.int32), size)
    return answers.add_noise(jnp.reshape(q, -1), jnp.asarray(positions), jnp.asarray(path), 0).reshape(actions, size)


def released_q(model: Any, rewards: Any, answers: Any, discount: float, facts: EnvironmentSpec) -> QFunction:
    """Return the Q-function that is released.

    Args:
        rewards: ``(A, N)`` rewards at the points. They are private, and only ``answers`` sees them, as optimal
            Q-values. A reward that is no number counts as 0, and so does a reward beyond the declared bounds, for which
            the rounding of value iteration is not charged. No reward is clipped, since that could make the difference
            of two neighbours steep.
    """
    low, high = facts.reward_bounds
    largest = max(abs(low), abs(high)) * (1.0 + 2.0**-20)
    rewards = np.where(np.abs(rewards) <= largest, rewards, 0.0)
    noisy = np.asarray(noisy_q(optimal_q(model, rewards, discount), answers))
    value = (low / (1.0 - discount), high / (1.0 - discount))
    table = (noisy - (value[0] + value[1]) / 2.0) / ((value[1] - value[0]) / 2.0)
    return QFunction({"V": table.astype(np.float32)}, f"table:{len(POINTS)}", facts.observation, facts.actions, value)


def _sweep_count(discount: float) -> int:
    """Return how many sweeps bring value iteration within a millionth of its limit, for rewards in [0, 1]."""
    return 1 if discount < 1e-6 else math.ceil(math.log(1e-6 * (1.0 - discount)) / math.log(discount))
