"""Threefry2x32-20 written out, with both output words used, and normals made from its words.

``jax.random`` lowers threefry to a rolled loop on CPU; inside ``scan`` the unrolled form is several times cheaper
(benchmarks/noise.py). Counters are (element, step), so a draw needs no state. Use it only for experiments, never for a
release. Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, UInt32

from dprl.arrays import AnyArray

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


# Compiled when called directly; inlined when called in a traced function.
@partial(jax.jit, inline=True)
def threefry2x32(
    key: jax.Array | tuple[jax.Array, jax.Array], x0: jax.Array, x1: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return two uint32 words: twenty rounds on the counter words ``x0, x1`` (uint32, equal shapes) under ``key``."""
    ks = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = x0 + ks[0], x1 + ks[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = (x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + ks[(block + 1) % 3]
        x1 = x1 + ks[(block + 2) % 3] + jnp.uint32(block + 1)
    return x0, x1


@partial(jax.jit, static_argnames="count", inline=True)
def bits(key: jax.Array, step: jax.Array, count: int) -> jax.Array:
    """Return ``(count,)`` uint32 random words of one step."""
    return _padded_bits(key, step, count)[:count]


@partial(jax.jit, static_argnames="count", inline=True)
def normal(key: jax.Array, step: jax.Array, count: int) -> jax.Array:
    """Return ``(count,)`` float32 standard normals of one step."""
    return normal_of(_padded_bits(key, step, count))[:count]


def normal_of(words: UInt32[AnyArray, "*any"]) -> Float32[Array, "*any"]:
    """Turn uint32 ``words``, of any shape, into float32 standard normals."""
    # 23 bits: a 24-bit uniform plus a half rounds to 1 and would give infinity
    centred = (words >> jnp.uint32(9)).astype(jnp.float32) * jnp.float32(2.0**-22)
    return jnp.float32(2.0**0.5) * _erf_inv(centred + jnp.float32(2.0**-23 - 1.0))


def _padded_bits(key: jax.Array, step: jax.Array, count: int) -> jax.Array:
    """Return the words of :func:`bits`, filled up to a multiple of 16."""
    padded = -(-count // 16) * 16  # a remainder is not vectorised and costs more than all the rest
    element = jnp.arange(padded, dtype=jnp.uint32)
    half = jnp.uint32(padded // 2)
    # Not `concatenate`: its branch in every element would keep XLA from vectorising the operations fused with it.
    counter = jnp.where(element < half, element, element - half)
    first, second = threefry2x32(key, counter, jnp.broadcast_to(step, (padded,)))
    return jnp.where(element < half, first, second)


_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _erf_inv(x: jax.Array) -> jax.Array:
    """Return the inverse error function in float32: Giles, "Approximating the erfinv function" (2011).

    The logarithm is of (1 - x)(1 + x), whose factors are exact on the grid of :func:`normal`. This is quicker than
    ``log1p(-x * x)`` and more accurate in the tails.
    """
    one = jnp.float32(1.0)
    w = -jnp.log((one - x) * (one + x))
    central = w < jnp.float32(5.0)
    t = jnp.where(central, w - jnp.float32(2.5), jnp.sqrt(w) - jnp.float32(3.0))
    p = jnp.zeros_like(t)
    for near, far in zip(_CENTRE, _TAIL, strict=True):
        p = p * t + jnp.where(central, jnp.float32(near), jnp.float32(far))
    return p * x
