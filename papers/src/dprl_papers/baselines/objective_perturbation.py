"""Objective perturbation for linear classifiers, a baseline of paper 002.

Method: Chaudhuri, Monteleoni and Sarwate (2011), with Gaussian noise as in Kifer, Smith and Thakurta (2012).
Privacy unit: a record. Relation: add or remove one. Released: the exact minimiser of
``sum of losses + Lambda/2 |theta|^2 + b . theta``, where b is Gaussian. Accountant: our own, :func:`delta_of`, which is
tighter than the papers' closed form. For a linear classifier, a record moves the perturbation along its own fixed row
x, so the privacy loss is a function of one Gaussian. Proof: docs/papers/002.md. For simulations only: a minimiser in
floating point is exact except for rounding.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.protectors.simulation import seeded_noise
from dprl_papers.baselines.record_noise import normal_vector
from dprl_papers.records.losses import LinearLoss, Records

NEWTON_STEPS = 60


def delta_of(epsilon: float, std: float, lipschitz: float, smoothness: float, ridge: float) -> float:
    """Return the delta at ``epsilon`` of a release with noise ``std`` in each coordinate of b.

    It is 1 where the ridge is too small for ``epsilon``. Otherwise, with ``c = epsilon - log(1 + smoothness/ridge)``,
    it is ``2 Phi(lipschitz/(2 std) - c std/lipschitz)``.

    Args:
        ridge: ridge Lambda of the sum over all records.
    """
    left = epsilon - math.log1p(smoothness / ridge)
    if left <= 0.0:
        return 1.0
    return min(1.0, math.erfc((left * std / lipschitz - 0.5 * lipschitz / std) / math.sqrt(2.0)))


def noise_std(budget: Budget, loss: LinearLoss, ridge: float) -> float:
    """Return the smallest standard deviation of b's coordinates within ``budget``.

    Raises:
        DprlError: the ridge is too small for this epsilon.
    """
    if math.log1p(loss.smoothness / ridge) >= budget.epsilon:
        raise DprlError("Objective perturbation needs a larger ridge at this epsilon.")
    low, high = 0.0, 1.0
    while delta_of(budget.epsilon, high, loss.lipschitz, loss.smoothness, ridge) > budget.delta:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        enough = delta_of(budget.epsilon, middle, loss.lipschitz, loss.smoothness, ridge) <= budget.delta
        low, high = (low, middle) if enough else (middle, high)
    return high


@partial(jax.jit, static_argnums=0)
def minimiser(loss: LinearLoss, records: Records, ridge: Any, tilt: jax.Array) -> jax.Array:
    """Return ``(d,)`` float64 minimiser of ``sum of losses + ridge/2 |theta|^2 + tilt . theta``, by Newton's method."""
    x, y, d = records.x.astype(jnp.float64), records.y.astype(jnp.float64), loss.dimension
    exact = Records(x, y)

    def value(theta: jax.Array) -> jax.Array:
        return jnp.sum(loss.losses(theta, exact)) + 0.5 * ridge * theta @ theta + tilt @ theta

    def one(theta: jax.Array, _: Any) -> tuple[jax.Array, None]:
        margin = y * (x @ theta)
        gradient = x.T @ (loss.slopes(margin) * y) + ridge * theta + tilt
        hessian = (x * loss.curvatures(margin)[:, None]).T @ x + ridge * jnp.eye(d, dtype=jnp.float64)
        towards = jnp.linalg.solve(hessian, gradient)
        tried = theta - (0.5 ** jnp.arange(12, dtype=jnp.float64))[:, None] * towards
        values = jax.vmap(value)(tried)
        best = jnp.argmin(values)
        return jnp.where(values[best] < value(theta), tried[best], theta), None

    return jax.lax.scan(one, jnp.zeros(d, jnp.float64), length=NEWTON_STEPS)[0]


@partial(jax.jit, static_argnums=0)
def release(loss: LinearLoss, records: Records, ridge: Any, std: Any, seed: Any) -> jax.Array:
    """Return the ``(d,)`` answer with the noise of :func:`noise_std`; ``ridge`` is that of the sum over all records."""
    return minimiser(loss, records, ridge, normal_vector(seeded_noise(seed), std, loss.dimension))
