"""The ChaCha20 block function in JAX: secure words by address inside of compiled loops.

RFC 8439, section 2.3. :mod:`dprl.mechanisms.keystream` computes the same function and is far quicker for whole
stretches of keystream. A tree of addresses needs single blocks at scattered addresses, for which this module is made.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_ROUNDS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip


# Compiled when called directly; inlined when called in a traced function.
@partial(jax.jit, inline=True)
def block(key: jax.Array, counter: tuple[jax.Array, jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
    """Return the sixteen words of one block for each counter.

    Args:
        key: ``(8,)`` uint32, the key's bytes in little-endian words.
        counter: four uint32 arrays of one shape: the block's number, then the three words of its nonce.

    Returns:
        Sixteen uint32 arrays of that shape.
    """
    shape = counter[0].shape
    start = (
        *(jnp.full(shape, word, dtype=jnp.uint32) for word in _CONSTANTS),
        *(jnp.broadcast_to(key[i], shape) for i in range(8)),
        *counter,
    )

    def double_round(_: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        x = list(state)
        for a, b, c, d in _ROUNDS:
            for target, source, mixed, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[target] = x[target] + x[source]
                x[mixed] = x[mixed] ^ x[target]
                x[mixed] = (x[mixed] << jnp.uint32(turn)) | (x[mixed] >> jnp.uint32(32 - turn))
        return tuple(x)

    # a loop: unrolled rounds would take seconds to compile
    mixed = jax.lax.fori_loop(0, 10, double_round, start)
    return tuple(x + first for x, first in zip(mixed, start, strict=True))
