"""The arithmetic of :mod:`recommended` after the noise: water-filling, occupancies and Bayesian regression.

Everything here is a function of released sums and public facts, in float64 and traceable, so that it runs under
``jit`` and ``vmap``. Symbols: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.algorithms.evaluation.recommended_modes import Modes

# sizes and smoothness of the functions that are weighed against each other
TAUS = np.geomspace(0.03, 1.0, 8)
POWERS = (2.0, 4.0)
CONSTANT_VARIANCE = 1.0 / 3.0  # of a constant that is uniform in the value range
SIZE_POWER = 0.65  # prior weight of a size tau is tau ** -SIZE_POWER
MISFIT = 0.2  # share of a function's variance that the modes cannot express
LEAST_MISFIT = 0.03
# what clipping may have done to the constant and to the shape of a descended answer, each by itself
BIASES = tuple((c, s) for c in (0.003, 0.03, 0.3) for s in (0.003, 0.01, 0.03, 0.1, 0.3))
_TINY = 1e-12


class Evidence(NamedTuple):
    """Released statistics ``g = H theta + noise`` of several stages, stacked: ``s`` rows, ``K`` modes."""

    g: jax.Array  # (s,)
    H: jax.Array  # (s, K)
    R: jax.Array  # (s, s) covariance of the noise
    Z: jax.Array  # (s, s) covariance of what the modes cannot express, for a function of size one


class Model(NamedTuple):
    """Gaussian models ``theta ~ N(centre, S)``, with ``extra`` times ``Z`` added to the noise; one a row."""

    centre: jax.Array  # (c, K)
    S: jax.Array  # (c, K, K)
    extra: jax.Array  # (c,)
    log_weight: jax.Array  # (c,)


class Posterior(NamedTuple):
    mean: jax.Array  # (K,)
    covariance: jax.Array  # (K, K)
    weights: jax.Array  # (c,) of the models


def water_fill(variances: jax.Array, caps: np.ndarray, precision: jax.Array | float) -> jax.Array:
    """Squared weights x >= 0 that minimise ``sum S_k / (1 + S_k n^2 x_k)`` subject to ``sum c_k x_k = 1``.

    The sum is the posterior variance of independent coefficients of variance ``S_k`` that are measured with noise
    ``1 / (n sqrt(x_k))``.

    Args:
        variances: ``(K,)`` S.
        caps: ``(K,)`` c.
        precision: n.
    """
    limits = jnp.asarray(caps)

    def weights(log_price: jax.Array) -> jax.Array:
        level = variances * precision / jnp.sqrt(jnp.exp(log_price) * limits)
        return jnp.maximum(0.0, level - 1.0) / (variances * precision**2 + 1e-300)

    def halve(_: jax.Array, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2.0
        over = jnp.sum(limits * weights(middle)) > 1.0
        return jnp.where(over, middle, low), jnp.where(over, high, middle)

    ends = (jnp.asarray(-60.0), jnp.asarray(60.0))
    return weights(jax.lax.fori_loop(0, 100, halve, ends)[1])


def shape_prior(modes: Modes, power: float) -> np.ndarray:
    """``(K, K)`` covariance of a random function without its constant, of mean square one.

    Half is on linear functions (whose cosine coefficients are correlated), half on modes of variance f^-power.
    """
    smooth: np.ndarray = np.where(modes.frequency > 0, np.maximum(modes.frequency, 1.0) ** -power, 0.0)
    smooth = smooth / max(float(smooth.sum()), 1e-300)
    linear = modes.linear[:, np.abs(modes.linear).sum(axis=0) > 0]
    return 0.5 * linear @ linear.T / max(linear.shape[1], 1) + 0.5 * np.diag(smooth)


@lru_cache(maxsize=64)
def _shapes(modes: Modes) -> np.ndarray:
    return np.stack([shape_prior(modes, power) for power in POWERS])


def _constant(modes: Modes) -> np.ndarray:
    return np.diag((modes.frequency == 0).astype(float))


def priors(modes: Modes, shrink: jax.Array | float = 1.0) -> Model:
    """The models of every size and smoothness, centred at the middle of the value range."""
    taus = jnp.asarray(np.tile(TAUS, len(POWERS))) * shrink
    shapes = jnp.asarray(np.repeat(_shapes(modes), len(TAUS), axis=0))
    S = taus[:, None, None] ** 2 * shapes + CONSTANT_VARIANCE * _constant(modes)
    return Model(jnp.zeros((len(taus), modes.size)), S, MISFIT * taus**2, -SIZE_POWER * jnp.log(taus))


def condition(evidence: Evidence, models: Model) -> Posterior:
    """Posterior averaged over the models by their marginal likelihoods."""

    def one(
        centre: jax.Array, S: jax.Array, extra: jax.Array, log_weight: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        HS = evidence.H @ S
        M = HS @ evidence.H.T + evidence.R + extra * evidence.Z
        M = (M + M.T) / 2.0 + _TINY * jnp.trace(M) * jnp.eye(len(M))
        whitened, log_pivots = whiten(M, jnp.concatenate([(evidence.g - evidence.H @ centre)[:, None], HS], axis=1))
        u, G = whitened[:, 0], whitened[:, 1:]
        log_likelihood = -0.5 * u @ u - log_pivots
        return log_weight + log_likelihood, centre + G.T @ u, S - G.T @ G

    log, means, covariances = jax.vmap(one)(*models)
    weights = jax.nn.softmax(log)
    mean = weights @ means
    off = means - mean
    covariance = jnp.einsum("c,cij->ij", weights, covariances) + jnp.einsum("c,ci,cj->ij", weights, off, off)
    return Posterior(mean, covariance, weights)


def whiten(M: jax.Array, B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``L^-1 B`` and the logarithm of the determinant of L, for ``M = L L'`` ``(n, n)`` and ``B`` ``(n, k)``.

    Elimination in plain operations: many small factorisations by LAPACK side by side, as under ``vmap``, can make the
    CPU runtime of jaxlib 0.10 wait for ever.
    """
    size = len(M)
    rows = jnp.arange(size)

    def eliminate(i: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        left, done, log_pivots = carry
        pivot = jnp.sqrt(left[i, i])
        row = left[i] / pivot
        below = jnp.where(rows > i, left[:, i] / pivot, 0.0)
        return left - below[:, None] * row, done.at[i].set(row[size:]), log_pivots + jnp.log(pivot)

    start = (jnp.concatenate([M, B], axis=1), jnp.zeros_like(B), jnp.zeros((), M.dtype))
    _, done, log_pivots = jax.lax.fori_loop(0, size, eliminate, start)
    return done, log_pivots


def largest_eigenvalue(H: jax.Array) -> jax.Array:
    """Of a symmetric positive semidefinite matrix, from below, by power iteration: no LAPACK, see :func:`whiten`."""
    step = lambda _, v: H @ v / jnp.linalg.norm(H @ v)  # noqa: E731
    v = jax.lax.fori_loop(0, 200, step, jnp.ones(len(H)) / math.sqrt(len(H)) + 1e-3 * jnp.arange(len(H)))
    return v @ H @ v / (v @ v)


def near_the_end(mean: jax.Array, covariance: jax.Array) -> jax.Array:
    """How much smaller a function must be whose mean is close to an end of the value range; 1 where it is not."""
    room = 1.0 - jnp.abs(mean[0]) + 2.0 * jnp.sqrt(jnp.maximum(covariance[0, 0], 0.0))
    return jnp.where(room < 0.9, jnp.maximum(room, 0.05), 1.0)


def density(modes: Modes, moments: jax.Array, variances: jax.Array) -> jax.Array:
    """``(G,)`` nonnegative density over the grid points from noised means of the second modes.

    Modes are shrunk by the average over prior variances tau^2 f^-p; what is negative is cut.
    """
    taus = jnp.asarray(np.tile([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2], 3))
    powers = np.repeat([1.0, 2.0, 4.0], 7)
    S = taus[:, None] ** 2 * modes.second_frequency[None, :] ** -powers[:, None]
    total = S + variances
    away = moments - modes.uniform
    log = -0.5 * jnp.sum(away**2 / total + jnp.log(total), axis=1)
    kept = jax.nn.softmax(log) @ (S / total)
    values = jnp.maximum(1.0 + modes.dual @ (kept * away), 0.0)
    return values / jnp.sum(values)


def gram(modes: Modes, cells: jax.Array, moments: jax.Array, variances: jax.Array) -> jax.Array:
    """``(K, K)`` Gram matrix of the modes under the occupancy.

    Each released moment is drawn towards that of the nonnegative density ``cells`` in proportion to its noise: where
    few states are visited the density alone would distort the matrix.
    """
    smooth = modes.second_grid.T @ cells
    distortion = jnp.maximum(jnp.sum((moments - smooth) ** 2 - variances), 0.0) / max(modes.second_size, 1)
    trust = distortion / (distortion + variances + 1e-300)
    means = jnp.concatenate([jnp.ones(1), smooth + trust * (moments - smooth)])
    values, vectors = jnp.linalg.eigh(jnp.einsum("l,lij->ij", means, modes.product))
    return (vectors * jnp.maximum(values, 1e-6)) @ vectors.T


def reconcile(modes: Modes, evidence: Evidence, theta: jax.Array) -> Posterior:
    """What the unclipped statistics leave of ``theta``, which clipping may have biased.

    Models centred at ``theta`` with a bias of several sizes stand beside those that know nothing of it.
    """
    biases: np.ndarray = np.array(BIASES)[:, :, None, None] ** 2
    S = jnp.asarray(biases[:, 0] * _constant(modes) + biases[:, 1] * _shapes(modes)[0])
    extra = jnp.asarray(MISFIT * np.array(BIASES)[:, 1] ** 2)
    near = Model(jnp.tile(theta, (len(BIASES), 1)), S, extra, jnp.zeros(len(BIASES)))
    far = priors(modes)._replace(log_weight=jnp.zeros(len(TAUS) * len(POWERS)))
    both = Model(*(jnp.concatenate(pair) for pair in zip(near, far, strict=True)))
    return condition(evidence, both._replace(extra=jnp.maximum(both.extra, LEAST_MISFIT)))
