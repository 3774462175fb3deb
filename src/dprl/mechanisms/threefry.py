"""Threefry2x32-20 written out, with both output words used, and normals made of it.

``jax.random`` lowers threefry to a rolled loop on CPU; inside ``scan`` the unrolled form is 2-5 times cheaper
(benchmarks/noise.py). Counters are (element, step), so a draw needs no state. For experiments: never for a release.
Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: jax.Array, x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Twenty rounds on the counter words ``x0, x1`` (uint32, any equal shapes) under ``key`` ``(2,)`` uint32."""
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


def bits(key: jax.Array, step: jax.Array, count: int) -> jax.Array:
    """``(count,)`` uint32 random words of one step."""
    half = -(-count // 16) * 8  # odd-sized draws cost several times more; a multiple of 8 vectorises
    element = jnp.arange(half, dtype=jnp.uint32)
    words = threefry2x32(key, element, jnp.broadcast_to(step, (half,)))
    return jnp.concatenate(words)[:count]


def normal(key: jax.Array, step: jax.Array, count: int) -> jax.Array:
    """``(count,)`` float32 standard normals of one step."""
    # 23 bits: a 24-bit uniform plus a half rounds to 1 and would give infinity
    centred = (bits(key, step, count) >> jnp.uint32(9)).astype(jnp.float32) * jnp.float32(2.0**-22)
    return jnp.float32(2.0**0.5) * jax.lax.erf_inv(centred + jnp.float32(2.0**-23 - 1.0))
