"""Noise of the baselines that learn from records, in floating point: for experiments with public seeds alone.

Floating-point noise has no exact guarantee, so none of these has a privacy event, and no release may use them; what
each would cost is stated for real numbers. Proofs: docs/papers/002.md.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.mechanisms.noise import SeededNoise


def normal_vector(noise: SeededNoise, std: Any, dimension: int) -> jax.Array:
    """Return ``(dimension,)`` float64 normal numbers: added to an answer of sensitivity S, a Gaussian mechanism of std
    / S.
    """
    return std * noise.normals(0, dimension)


def noisy_minimum(noise: SeededNoise, step: Any, values: jax.Array, sensitivity: float, rho: Any) -> jax.Array:
    """Return the place of the least of ``values`` ``(k,)`` after Laplace noise of scale ``sensitivity / sqrt(2 rho)``.

    Where a record moves all values in one direction, each by at most ``sensitivity``, this is
    ``sqrt(2 rho)``-differentially private, hence rho-zCDP (Bun and Steinke 2016, Proposition 1.4).
    """
    # a Laplace number is a normal one times a Rayleigh one
    normal = noise.normals(step, 3 * len(values)).reshape(3, -1)
    return jnp.argmin(values + sensitivity / jnp.sqrt(2.0 * rho) * normal[0] * jnp.hypot(normal[1], normal[2]))
