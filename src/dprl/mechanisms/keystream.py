"""ChaCha20 as a random-access table of words: every word has an address, and no address is used for two purposes.

An address is a nonce of 96 bits, made of a region's ``tag`` and ``index``, and the number of a 64-byte block within the
region. The list of who may use which address is in docs/proofs/rounded-gaussian.md, "Addresses".

:func:`words` runs on the host and is by far the quicker for whole stretches. :func:`block` computes the same function
(RFC 8439, section 2.3) inside compiled loops, for single blocks at scattered addresses, as a tree of addresses needs.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dprl.errors import DprlError

KEY_BYTES = 32
BLOCK_BYTES = 64
REGION_BLOCKS = 1 << 32
"""Blocks of one region: the block's number has 32 bits (RFC 8439)."""
_ZEROS = bytes(1 << 16)
# RFC 8439, section 2.3.2: its nonce and counter as tag, index and block, and the keystream under the key 00 01 .. 1f
_KNOWN = (0x09000000, 0x4A000000, 1)
_ANSWER = bytes.fromhex(
    "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
)


def fresh_key() -> bytes:
    """Return a key from the operating system."""
    try:
        key = secrets.token_bytes(KEY_BYTES)
    except (NotImplementedError, OSError) as error:
        raise DprlError("The operating system offers no secure randomness; a release needs it.") from error
    if not any(key):
        raise DprlError("The operating system gave zeros for randomness; a release needs a secure source.")
    return key


def words(key: bytes, tag: int, index: int, block: int, count: int) -> np.ndarray:
    """Return ``(count,)`` uint64: the keystream of one region from the start of a block.

    Args:
        key: 32 bytes.
        tag, index: name of the region: two whole numbers, below 2^32 and 2^64.
        block: number of the first block, below 2^32. Running past the region's last block is an error.
    """
    out = np.empty(count, dtype="<u8")
    read(key, tag, index, block, out)
    return out


def read(key: bytes, tag: int, index: int, block: int, out: np.ndarray) -> None:
    """Fill ``out``, a contiguous array of uint64, with the keystream that :func:`words` returns."""
    if block * BLOCK_BYTES + out.nbytes > REGION_BLOCKS * BLOCK_BYTES:
        raise ValueError("more keystream was asked for than a region holds")
    nonce = block.to_bytes(4, "little") + tag.to_bytes(4, "little") + index.to_bytes(8, "little")
    try:
        cipher = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
    except UnsupportedAlgorithm as error:
        raise DprlError("This system's OpenSSL offers no ChaCha20 (as in FIPS mode); a release needs it.") from error
    flat = out.reshape(-1).view(np.uint8).data
    for start in range(0, len(flat), len(_ZEROS)):
        part = flat[start : start + len(_ZEROS)]
        if cipher.update_into(memoryview(_ZEROS)[: len(part)], part) != len(part):
            raise DprlError("ChaCha20 gave fewer bytes than it was asked for; nothing is released.")


@lru_cache(maxsize=1)
def check_available() -> None:
    """Compare ChaCha20 with the published answer, once per process. Call this before anything is charged.

    Raises:
        DprlError: the system has no ChaCha20, or its ChaCha20 gives another answer.
    """
    tag, index, block = _KNOWN
    if words(bytes(range(KEY_BYTES)), tag, index, block, 8).tobytes() != _ANSWER:
        raise DprlError("ChaCha20 on this system does not give the published answer; a release needs it.")


def subkey(key: bytes, person: bytes, label: bytes) -> bytes:
    """Derive 32 bytes for one purpose by keyed BLAKE2b; ``person`` has at most 16 bytes."""
    return hashlib.blake2b(label, key=key, person=person, digest_size=KEY_BYTES).digest()


# --- single blocks in compiled loops ------------------------------------------------------------------------------

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
