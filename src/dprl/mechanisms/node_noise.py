"""Standard normals by address: the normal of a node is a function of the key, the node and the path.

There is no state, so a path can be asked anywhere, in any order and any number of times, inside compiled loops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from dprl import x64 as x64
from dprl.mechanisms import keystream, threefry

_KEY_WORDS = 8
_NODES = 3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NodeNoise:
    """Standard normals by address, for a path.

    Use :meth:`SecureNoise.nodes <dprl.mechanisms.noise.SecureNoise.nodes>` or, in an experiment,
    :meth:`SeededNoise.nodes <dprl.mechanisms.noise.SeededNoise.nodes>`. The key is never printed.

    Attributes:
        key: ``(8,)`` uint32 for ChaCha20 in a release, ``(2,)`` uint32 for threefry everywhere else; the length
            decides. Pass the whole object to a compiled function. If the function closed over the key, the key would be
            part of its program.
    """

    key: Any = field(repr=False)

    @property
    def secure(self) -> bool:
        """Whether the numbers come from ChaCha20."""
        return self.key.shape[-1] == _KEY_WORDS

    def normals(self, nodes: tuple[jax.Array, ...], path: jax.Array) -> jax.Array:
        """Return independent standard normals, one for each different (nodes, path).

        Args:
            nodes: one to three arrays that broadcast, of whole numbers below 2^32 that together name a node. Their
                number must always be the same for one key; otherwise two addresses could coincide.
            path: number of the path, below 2^32.

        Returns:
            float64, of the shape to which ``nodes`` and ``path`` broadcast.
        """
        if not 1 <= len(nodes) <= _NODES:
            raise ValueError("a node has one to three numbers")
        return _normals(self, tuple(jnp.asarray(n) for n in nodes), jnp.asarray(path))


# Compiled when called directly; inlined when called in a traced function.
@partial(jax.jit, inline=True)
def _normals(noise: NodeNoise, nodes: tuple[jax.Array, ...], path: jax.Array) -> jax.Array:
    address = jnp.broadcast_arrays(*(n.astype(jnp.uint32) for n in (*nodes, path)))
    if not noise.secure:
        # Every number before the last two goes into the key; the last two are the counter under that key.
        key = (noise.key[0], noise.key[1])
        for number in address[:-2]:
            key = threefry.threefry2x32(key, number, jnp.zeros_like(number))
        return threefry.normal_of(threefry.threefry2x32(key, address[-2], address[-1])[0]).astype(jnp.float64)
    none = jnp.zeros_like(address[0])
    first, second, third = (*address[:-1], *(none,) * (_NODES - len(nodes)))
    return normal_of_words(*keystream.block(noise.key, (first, second, third, address[-1]))[:4])


@partial(jax.jit, inline=True)
def normal_of_words(w0: jax.Array, w1: jax.Array, w2: jax.Array, w3: jax.Array) -> jax.Array:
    """Return float64 standard normals, each made of 128 bits: its sign and its tail probability.

    The words are uint32 of one shape. A normal is ``x = +-Phi^-1(p)`` with p uniform on ``(0, 1/2]`` to 127 bits; with
    63 bits, normals beyond 4.4 would be too coarse. The error of x is below 2^-46 for ``|x| <= 8`` (measured: 2^-48.7).
    """
    high = (w0.astype(jnp.uint64) << jnp.uint64(32)) | w1.astype(jnp.uint64)
    low = (w2.astype(jnp.uint64) << jnp.uint64(32)) | w3.astype(jnp.uint64)
    whole = (high & jnp.uint64(2**63 - 1)).astype(jnp.float64)
    part = (low.astype(jnp.float64) + 0.5) * 2.0**-64
    tail = jnp.minimum((whole + part) * 2.0**-64, 0.5)
    size = -ndtri(tail)
    return jnp.where(high >> jnp.uint64(63) == 1, size, -size)
