"""ChaCha20 by address: the published answers, and what happens where there is none."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from cryptography.exceptions import UnsupportedAlgorithm

import dprl
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError
from dprl.mechanisms import keystream
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.mechanisms.noise import SecureNoise


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """RFC 8439, section 2.3, written out."""
    state = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        *struct.unpack("<3I", nonce),
    ]
    x, mask = list(state), 0xFFFFFFFF

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for target, source, mixed, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[target] = (x[target] + x[source]) & mask
            x[mixed] ^= x[target]
            x[mixed] = ((x[mixed] << turn) | (x[mixed] >> (32 - turn))) & mask

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & mask for a, b in zip(x, state, strict=True)))


def test_the_reference_gives_the_published_answer():
    nonce = bytes.fromhex("000000090000004a00000000")
    assert chacha20_block(bytes(range(32)), 1, nonce) == keystream._ANSWER


@pytest.mark.parametrize(("tag", "index", "block"), [(0, 0, 0), (7, 9, 1), (2**32 - 1, 2**64 - 1, 2**32 - 2)])
def test_an_address_is_a_nonce_and_a_counter(tag, index, block):
    key = bytes(range(100, 132))
    nonce = tag.to_bytes(4, "little") + index.to_bytes(8, "little")
    expected = b"".join(chacha20_block(key, block + i, nonce) for i in range(2))
    assert keystream.words(key, tag, index, block, 16).tobytes() == expected


def test_long_reads_are_one_stretch():
    key = b"k" * 32
    whole = keystream.words(key, 1, 2, 0, 30_000)
    np.testing.assert_array_equal(whole[8 * 1000 :], keystream.words(key, 1, 2, 1000, 22_000))
    assert len(keystream.words(key, 1, 2, 0, 0)) == 0


def test_a_region_does_not_run_into_the_next():
    with pytest.raises(ValueError, match="region"):
        keystream.words(b"k" * 32, 0, 0, 2**32 - 1, 9)
    with pytest.raises(OverflowError):
        keystream.words(b"k" * 32, 0, -1, 0, 8)


@pytest.fixture
def forgotten():
    keystream.check_available.cache_clear()
    yield
    keystream.check_available.cache_clear()


def test_without_chacha20_there_is_no_source(monkeypatch, forgotten):
    class Missing:
        def __init__(self, *args, **kwargs):
            pass

        def encryptor(self):
            raise UnsupportedAlgorithm("as in FIPS mode")

    monkeypatch.setattr(keystream, "Cipher", Missing)
    with pytest.raises(DprlError, match="OpenSSL offers no ChaCha20"):
        SecureNoise.fresh()


def test_without_chacha20_nothing_is_charged(monkeypatch, forgotten, tmp_path):
    def refuse(*args, **kwargs):
        raise UnsupportedAlgorithm("as in FIPS mode")

    ledger = Ledger.create(tmp_path / "ledger.db", "trial", dprl.Budget(1.0, 1e-5), "trajectory", RELATION)
    monkeypatch.setattr(keystream, "Cipher", refuse)
    log = {"observation": [0.5], "action": [1], "reward": [1.0], "behavior_prob": [0.5]}
    bounds = {
        "units": 100, "horizon": 1, "reward": [0, 1], "observation": [[0, 1]], "actions": 2, "max_importance_ratio": 2,
    }  # fmt: skip
    with pytest.raises(DprlError, match="OpenSSL offers no ChaCha20"):
        dprl.evaluate(
            log, "uniform", dprl.Budget(1.0, 1e-5), bounds=bounds, unit="trajectory", ledger=ledger, dataset="trial"
        )
    assert ledger.history() == []


@pytest.mark.parametrize("given", ["zeros", "short"])
def test_a_cipher_that_does_nothing_is_no_source(monkeypatch, forgotten, given):
    class Idle:
        def __init__(self, *args, **kwargs):
            pass

        def encryptor(self):
            return self

        def update_into(self, data, out):
            out[:] = bytes(len(out))
            return len(out) - (given == "short")

    monkeypatch.setattr(keystream, "Cipher", Idle)
    with pytest.raises(DprlError, match="fewer bytes" if given == "short" else "published answer"):
        SecureNoise(b"1" * 32)
