"""The arithmetic of :mod:`recommended` after the noise: water-filling, occupancies and Bayesian regression.

Everything here is a function of released sums and public facts, in float64 and traceable, so that it runs under
``jit`` and ``vmap``. Symbols: docs/proofs/recommended.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.evaluation.recommended_modes import Modes

# sizes and smoothness of the functions that are weighed against each other
TAUS = np.geomspace(0.03, 1.0, 8)
POWERS = (2.0, 4.0)
CONSTANT_VARIANCE = 1.0 / 3.0  # of a constant that is uniform in the value range
SIZE_POWER = 0.65  # prior weight of a size tau is tau ** -SIZE_POWER
MISFIT = 0.2  # share of a function's variance that the modes cannot express
LEAST_MISFIT = 0.03
# how far a value function may be from what the last step alone would make of it
TAUS_OF_ENDS = (0.01, 0.03, 0.1)
WEIGHT_OF_ENDS = 0.5  # prior weight of such models over that of all others
_NOISE_OF_CONSTANT = 0.3  # how much of the constant's square counts towards the noise of the Gram matrix
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
    """Gaussian posterior of the weights."""

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
    """Return ``(K, K)`` covariance of a random function without its constant, of mean square one.

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


def first_prior(modes: Modes, shape: float) -> np.ndarray:
    """Return ``(K, K)``: a constant that is uniform in the value range, and a shape of size ``shape``."""
    return shape**2 * shape_prior(modes, 4.0) + CONSTANT_VARIANCE * _constant(modes)


def priors(modes: Modes, shrink: jax.Array | float = 1.0, theta: jax.Array | None = None) -> Model:
    """Return the models of every size and smoothness, centred at the middle of the value range."""
    del theta
    taus = jnp.asarray(np.tile(TAUS, len(POWERS))) * shrink
    shapes = jnp.asarray(np.repeat(_shapes(modes), len(TAUS), axis=0))
    S = taus[:, None, None] ** 2 * shapes + CONSTANT_VARIANCE * _constant(modes)
    return Model(jnp.zeros((len(taus), modes.size)), S, MISFIT * taus**2, -SIZE_POWER * jnp.log(taus))


class Ends(NamedTuple):
    """Moments of the discount to the end, ``D(s) = E[gamma^(steps to the last), 0 if it never comes | s]``."""

    mean: jax.Array  # (K,) coefficients of D
    covariance: jax.Array  # (K, K)
    nothing: jax.Array | float  # what no reward at all is worth
    early: jax.Array  # () noisy mean, over the trajectories, of whether they have rewards before their end
    deviation: jax.Array | float  # () of its noise


def priors_with_ends(ends: Ends, modes: Modes, shrink: jax.Array | float, theta: jax.Array) -> Model:
    """Return :func:`priors`, and beside them models in which the last step alone pays, whatever the state: V = nothing
    + k D.

    Then the shape of the value function is that of the discount to the end, which is known better than returns are:
    they vary by their rewards as well. k is as free as the constant of the others; how far the value may be from
    this has three sizes. The prior weights of both kinds are public, times the likelihood of the rewards seen before
    the end: none, or any number.
    """
    plain = priors(modes, shrink)
    level = jnp.maximum(ends.mean[0], 0.05)
    pay = (theta[0] - ends.nothing) / level
    centre = ends.nothing * (jnp.zeros(modes.size).at[0].set(1.0) - ends.mean / level)
    shared = CONSTANT_VARIANCE / level**2 * jnp.outer(ends.mean, ends.mean) + pay**2 * ends.covariance
    taus = jnp.asarray(TAUS_OF_ENDS) * shrink
    S = shared + taus[:, None, None] ** 2 * jnp.asarray(_shapes(modes)[-1])
    z = ends.early / ends.deviation
    none = jax.scipy.stats.norm.logpdf(z) - jnp.log(ends.deviation)
    cdf = jax.scipy.stats.norm.cdf
    some = jnp.log(jnp.maximum(cdf(z) - cdf(z - 1.0 / ends.deviation), 1e-30))
    none += math.log(WEIGHT_OF_ENDS / len(TAUS_OF_ENDS))
    # trajectories that do not end say nothing
    none = jnp.where(ends.mean[0] > 3.0 * jnp.sqrt(ends.covariance[0, 0]), none, -jnp.inf)
    weight = plain.log_weight - jax.scipy.special.logsumexp(plain.log_weight) + some
    return Model(
        jnp.concatenate([plain.centre, jnp.tile(centre, (len(taus), 1))]),
        jnp.concatenate([plain.S, S]),
        jnp.concatenate([plain.extra, MISFIT * taus**2]),
        jnp.concatenate([weight, jnp.full(len(taus), none)]),
    )


Models = Callable[[Modes, jax.Array, jax.Array], Model]


def refine(
    modes: Modes,
    known: Evidence,
    first: tuple[jax.Array, jax.Array],
    noise_of_gram: jax.Array,
    models: Models,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mean, covariance, and the covariance R of the evidence's noise with that of the Gram matrix in it.

    The latter is multiplied by the function itself, of which ``first`` is a first mean and covariance.
    """
    K = modes.size
    others = jnp.asarray(np.kron(np.eye(len(known.g) // K), np.diag((modes.frequency > 0).astype(float))))

    def once(number: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        theta, P, _ = carry
        spread = jnp.sum(jnp.diag(P)[1:]) + jnp.sum(theta[1:] ** 2) + _NOISE_OF_CONSTANT * theta[0] ** 2
        R = known.R + noise_of_gram * spread * others
        # the last pass knows how near the mean is to an end of the value range
        shrink = jnp.where(number == 2, near_the_end(theta, P), 1.0)
        posterior = condition(known._replace(R=R), models(modes, shrink, theta))
        return posterior.mean, posterior.covariance, R

    return jax.lax.fori_loop(0, 3, once, (*first, known.R))


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
    """Return ``L^-1 B`` and the logarithm of the determinant of L, for ``M = L L'`` ``(n, n)`` and ``B`` ``(n, k)``.

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
    """Bound the largest eigenvalue of a symmetric positive semidefinite matrix from below, by power iteration: no
    LAPACK, see :func:`whiten`.
    """
    step = lambda _, v: H @ v / jnp.linalg.norm(H @ v)  # noqa: E731
    v = jax.lax.fori_loop(0, 200, step, jnp.ones(len(H)) / math.sqrt(len(H)) + 1e-3 * jnp.arange(len(H)))
    return v @ H @ v / (v @ v)


def near_the_end(mean: jax.Array, covariance: jax.Array) -> jax.Array:
    """Return how much smaller a function must be whose mean is close to an end of the value range; 1 where it is
    not.
    """
    room = 1.0 - jnp.abs(mean[0]) + 2.0 * jnp.sqrt(jnp.maximum(covariance[0, 0], 0.0))
    return jnp.where(room < 0.9, jnp.maximum(room, 0.05), 1.0)


def density(modes: Modes, moments: jax.Array, variances: jax.Array) -> jax.Array:
    """Return ``(G,)`` nonnegative density over the grid points from noisy means of the second modes.

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
    """Return ``(K, K)`` Gram matrix of the modes under the occupancy.

    Each released moment is drawn towards that of the nonnegative density ``cells`` in proportion to its noise: where
    few states are visited the density alone would distort the matrix.
    """
    smooth = modes.second_grid.T @ cells
    distortion = jnp.maximum(jnp.sum((moments - smooth) ** 2 - variances), 0.0) / max(modes.second_size, 1)
    trust = distortion / (distortion + variances + 1e-300)
    means = jnp.concatenate([jnp.ones(1), smooth + trust * (moments - smooth)])
    values, vectors = jnp.linalg.eigh(jnp.einsum("l,lij->ij", means, modes.product))
    return (vectors * jnp.maximum(values, 1e-6)) @ vectors.T


def reconcile(modes: Modes, evidence: Evidence, theta: jax.Array, ends: Ends | None = None) -> Posterior:
    """Return what the unclipped statistics leave of ``theta``, which clipping may have biased.

    Models centred at ``theta`` with a bias of several sizes stand beside those that know nothing of it.
    """
    biases: np.ndarray = np.array(BIASES)[:, :, None, None] ** 2
    S = jnp.asarray(biases[:, 0] * _constant(modes) + biases[:, 1] * _shapes(modes)[0])
    extra = jnp.asarray(MISFIT * np.array(BIASES)[:, 1] ** 2)
    near = Model(jnp.tile(theta, (len(BIASES), 1)), S, extra, jnp.zeros(len(BIASES)))
    count = len(TAUS) * len(POWERS)
    far = priors(modes)._replace(log_weight=jnp.zeros(count))
    if ends is not None:
        far = priors_with_ends(ends, modes, 1.0, theta)
        far = far._replace(log_weight=far.log_weight - jnp.max(far.log_weight[:count]))
    both = Model(*(jnp.concatenate(pair) for pair in zip(near, far, strict=True)))
    return condition(evidence, both._replace(extra=jnp.maximum(both.extra, LEAST_MISFIT)))
