"""Output perturbation for linear classifiers, a baseline of paper 002.

Method: Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 1, with Gaussian noise. Privacy unit: a record. Relation:
add or remove one. Released: the minimiser of ``sum of losses + Lambda/2 |theta|^2`` with noise. That sum is
Lambda-strongly convex. At the minimiser without a record, the gradient of the sum with the record is the record's
gradient, of norm at most L, so the minimiser moves by at most ``L / Lambda``. Accountant: the Gaussian event, exactly.
For simulations only: a minimiser in floating point is exact except for rounding.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.protectors.simulation import seeded_noise
from dprl_papers.baselines.objective_perturbation import minimiser
from dprl_papers.baselines.record_noise import normal_vector
from dprl_papers.records.losses import LinearLoss, Records


def sensitivity(loss: LinearLoss, ridge: float) -> float:
    """Return the largest L2 change of the minimiser when a record is added or removed.

    ``ridge`` is that of the sum over all records.
    """
    return loss.lipschitz / ridge


def noise_std(budget: Budget, loss: LinearLoss, ridge: float) -> float:
    """Return the standard deviation of the noise in a coordinate."""
    return gaussian_noise_multiplier(budget) * sensitivity(loss, ridge)


@partial(jax.jit, static_argnums=0)
def release(loss: LinearLoss, records: Records, ridge: Any, std: Any, seed: Any) -> jax.Array:
    """Return the ``(d,)`` minimiser with the noise of :func:`noise_std`."""
    exact = minimiser(loss, records, ridge, jax.numpy.zeros(loss.dimension, jax.numpy.float64))
    return exact + normal_vector(seeded_noise(seed), std, loss.dimension)
