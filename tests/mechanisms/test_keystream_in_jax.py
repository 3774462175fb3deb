"""ChaCha20 in JAX is the ChaCha20 of the keystream, word by word."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dprl.mechanisms import keystream
from dprl.mechanisms.noise import SecureNoise, SeededNoise


def key_words(key: bytes) -> jnp.ndarray:
    return jnp.asarray(np.frombuffer(key, "<u4").astype(np.uint32))


def test_a_block_is_the_published_answer_and_what_openssl_gives():
    key = bytes(range(32))
    addresses = [keystream._KNOWN, (0, 0, 0), (7, 9, 1), (2**32 - 1, 2**64 - 1, 2**32 - 1), (5, 2**33 + 3, 12)]
    tag, index, block = (np.array(x, dtype=np.uint64) for x in zip(*addresses, strict=True))
    counter = [jnp.asarray((x & np.uint64(2**32 - 1)).astype(np.uint32)) for x in (block, tag, index, index >> 32)]
    words = np.stack(keystream.block(key_words(key), tuple(counter)), axis=1).astype("<u4")
    assert words[0].tobytes() == keystream._ANSWER
    for row, (t, i, b) in zip(words, addresses, strict=True):
        assert row.tobytes() == keystream.words(key, t, i, b, 8).tobytes()


def distinct(source, *more):
    node, path = jnp.arange(1, 41), jnp.zeros(40, dtype=jnp.int64)
    one = [
        ((node,), path, source),
        ((node,), path + 1, source),
        ((node + 40,), path, source),
        ((node,), path, source.stream("a")),
        ((node,), path, source.stream("b")),
    ]
    found = [s.nodes().normals(nodes, p) for nodes, p, s in (*one, *((nodes, path, source) for nodes in more))]
    np.testing.assert_array_equal(found[0], source.nodes().normals((node,), path))
    # float32 normals of 23 bits coincide now and then
    return len(np.unique(np.stack(found))) >= 40 * len(found) - 2


def test_nodes_of_streams_and_paths_are_others():
    source = SecureNoise(b"1" * 32)
    assert distinct(source)
    assert source.nodes().secure
    assert "key" not in repr(source.nodes())


@pytest.mark.slow
@pytest.mark.parametrize("source", [SecureNoise(b"1" * 32), SeededNoise.from_seed(1)])
def test_nodes_of_several_numbers_are_others(source):
    node = jnp.arange(1, 41)
    assert distinct(source, (node, node), (node, 0 * node + 7), (node, node, node), (node, node, 0 * node + 7))
    assert not distinct(source, (node,))
    assert source.nodes().secure == source.secure


def test_the_key_of_the_nodes_is_none_of_the_source():
    """Whoever had one of them could subtract the noise of the other."""
    source = SecureNoise(b"2" * 32)
    subkeys = [source._subkey(purpose) for purpose in range(5)]
    found = np.asarray(source.nodes().key).astype("<u4").tobytes()
    assert [found == key for key in subkeys] == [False, False, False, True, False]
    assert found != source._key
