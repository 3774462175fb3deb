"""The two noise sources. A release uses :class:`SecureNoise`; experiments, audits and benchmarks :class:`SeededNoise`.

Both give coins and Gaussians as functions of (run key, stream, step), on the same integer grid; everything after the
draw is the same code.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.mechanisms import threefry
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION, rounded_gaussian

_COINS, _GAUSSIAN = 0, 1


@dataclass(frozen=True)
class SecureNoise:
    """ChaCha20 keyed by the operating system. Runs on the host; each step has a key of its own.

    Use :meth:`fresh`. The run key never leaves the object: it is not printed, compared or stored.
    """

    _key: bytes = field(repr=False, compare=False)
    secure: bool = field(default=True, init=False)
    total_variation_per_draw: float = field(default=TOTAL_VARIATION, init=False)

    @classmethod
    def fresh(cls) -> Self:
        """A source with a new 256-bit key; refuses where the operating system has no secure randomness."""
        try:
            return cls(secrets.token_bytes(32))
        except NotImplementedError as error:
            raise DprlError("The operating system offers no secure randomness; a release needs it.") from error

    def describe(self) -> str:
        return "ChaCha20 keyed by the operating system, rounded Gaussian on an integer grid"

    def stream(self, name: str) -> SecureNoise:
        """An independent source for the mechanism called ``name``."""
        return SecureNoise(
            hashlib.blake2b(name.encode(), key=self._key, person=b"dprl-stream", digest_size=32).digest()
        )

    def coins(self, step: int, count: int, rate: float) -> np.ndarray:
        if rate == 1.0:
            return np.ones(count, dtype=bool)
        return self._words(_COINS, step)(count) < np.uint64(int(rate * 2.0**64))

    def gaussian(self, step: int, dimension: int, std: float) -> np.ndarray:
        return rounded_gaussian(self._words(_GAUSSIAN, step), dimension, std)

    def below(self, step: int, count: int) -> int:
        """One uniform index below ``count``; see :meth:`SeededNoise.below`."""
        return int(self._words(_COINS, step)(1)[0]) * count >> 64

    def _words(self, purpose: int, step: int) -> Any:
        label = purpose.to_bytes(1, "big") + int(step).to_bytes(8, "big")
        key = hashlib.blake2b(label, key=self._key, person=b"dprl-step", digest_size=32).digest()
        stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        return lambda count: np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")


@dataclass(frozen=True)
class SeededNoise:
    """Fast reproducible noise in JAX, for everything that is *not* a private release.

    ``key`` is a ``(2,)`` uint32 array; it may be a traced value, so that runs can be ``vmap``-ped over keys.
    Steps may be traced too. Anybody who knows the seed can subtract the noise.
    """

    key: Any
    secure: bool = field(default=False, init=False)
    total_variation_per_draw: float = field(default=1.0, init=False)

    @classmethod
    def from_seed(cls, seed: int) -> Self:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise DprlError("seed must be a whole number of at least 0.")
        return cls(jnp.array([seed >> 32, seed & 0xFFFFFFFF], dtype=jnp.uint32))

    def describe(self) -> str:
        return "reproducible noise from a seed: not a private release"

    def stream(self, name: str) -> SeededNoise:
        tag = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
        words = threefry.threefry2x32(self.key, jnp.uint32(tag >> 32), jnp.uint32(tag & 0xFFFFFFFF))
        return SeededNoise(jnp.stack(words))

    def coins(self, step: Any, count: int, rate: float) -> jax.Array:
        if rate == 1.0:
            return jnp.ones(count, dtype=bool)
        # compared in 32 bits: the rate is off by at most 2**-32, and downwards
        return threefry.bits(self.key, self._counter(step, _COINS), count) < jnp.uint32(int(rate * 2.0**32))

    def gaussian(self, step: Any, dimension: int, std: float) -> jax.Array:
        normal = threefry.normal(self.key, self._counter(step, _GAUSSIAN), dimension)
        return jnp.round(normal.astype(jnp.float64) * std).astype(jnp.int64)

    def below(self, step: Any, count: int) -> jax.Array:
        """One uniform index below ``count``: the single trajectory of a step in calibrations as published."""
        # the first word of the step's coins, without the other fifteen
        word, _ = threefry.threefry2x32(self.key, jnp.uint32(0), self._counter(step, _COINS))
        return ((word.astype(jnp.uint64) * jnp.uint64(count)) >> jnp.uint64(32)).astype(jnp.int32)

    @staticmethod
    def _counter(step: Any, purpose: int) -> jax.Array:
        return jnp.asarray(step, dtype=jnp.uint32) * jnp.uint32(2) + jnp.uint32(purpose)


jax.tree_util.register_dataclass(SeededNoise, data_fields=["key"], meta_fields=[])
