"""Floating-point noise of the baselines that learn from records: only for experiments with public seeds.

Floating-point noise has no exact guarantee, so the noise in this file has no privacy event, and no release may use it.
The stated privacy costs are those of exact real numbers. Proofs: docs/papers/002.md.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.mechanisms.noise import SeededNoise


def normal_vector(noise: SeededNoise, std: Any, dimension: int) -> jax.Array:
    """Return ``(dimension,)`` float64 normal numbers with standard deviation ``std``.

    Added to an answer of sensitivity S, they are a Gaussian mechanism with noise multiplier std / S.
    """
    return std * noise.normals(0, dimension)


def noisy_minimum(noise: SeededNoise, step: Any, values: jax.Array, sensitivity: float, rho: Any) -> jax.Array:
    """Return the index of the smallest of the ``(k,)`` values plus Laplace noise.

    The scale of the noise is ``sensitivity / sqrt(2 rho)``.

    If a record moves all values in one direction, each by at most ``sensitivity``, the choice is
    ``sqrt(2 rho)``-differentially private, hence rho-zCDP (Bun and Steinke 2016, Proposition 1.4).
    """
    # a Laplace number is a normal number times a Rayleigh number
    normal = noise.normals(step, 3 * len(values)).reshape(3, -1)
    return jnp.argmin(values + sensitivity / jnp.sqrt(2.0 * rho) * normal[0] * jnp.hypot(normal[1], normal[2]))
