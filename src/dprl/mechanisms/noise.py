"""Noise sources: :class:`SecureNoise` for releases, :class:`SeededNoise` for experiments, audits and benchmarks.

Both give coins and Gaussians as functions of (run key, stream, step), on the same integer grid. Everything after the
draw is the same code.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.mechanisms import keystream, threefry
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.node_noise import NodeNoise
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION, WORDS, Table, propose, table

_COINS, _GAUSSIAN, _BELOW, _NODES, _ACTIONS, _WORLD, _WORDS = 0, 1, 2, 3, 4, 5, 6
# Rows with up to so many proposals in all fit into the cache together; measured, see benchmarks/noise.py.
_PROPOSALS = 1 << 15
# A longer row gains nothing from being drawn together with others.
_LONGEST_ROW = 1 << 12
# Number of steps whose rows share a region of the keystream; steps of two regions are drawn in two pieces.
_STEPS = 1 << 16
_FURTHER = 1 << 31
_INDICES = 1 << 12


@dataclass(frozen=True)
class SecureNoise:
    """Noise source for releases: ChaCha20 keyed by the operating system. It runs on the host.

    Use :meth:`fresh`. The run key never leaves the object: it is not printed, compared or stored.
    docs/proofs/rounded-gaussian.md, "Addresses", says where each draw lies in the keystream, and why no two draws share
    any of it.

    Raises:
        DprlError: the key is not 32 bytes, or the system has no ChaCha20.
    """

    _key: bytes = field(repr=False, compare=False)
    secure: bool = field(default=True, init=False)
    total_variation_per_draw: float = field(default=TOTAL_VARIATION, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self._key, bytes) or len(self._key) != keystream.KEY_BYTES:
            raise DprlError("The key of secure noise must be 32 bytes.")
        keystream.check_available()

    @classmethod
    def fresh(cls) -> Self:
        """Return a source with a new 256-bit key; refuse if the operating system has no secure randomness."""
        return cls(keystream.fresh_key())

    def describe(self) -> str:
        """Return the source's name in words, for certificates."""
        return "ChaCha20 keyed by the operating system, rounded Gaussian on an integer grid"

    def stream(self, name: str) -> SecureNoise:
        """Return an independent source for the mechanism called ``name``."""
        return SecureNoise(keystream.subkey(self._key, b"dprl-stream", name.encode()))

    def participation_mask(self, step: int, count: int, rate: float) -> np.ndarray:
        """Return ``(count,)`` booleans, each true with probability ``rate``."""
        if rate == 1.0:
            return np.ones(count, dtype=bool)
        return keystream.words(self._subkey(_COINS), 0, int(step), 0, count) < np.uint64(int(rate * 2.0**64))

    def gaussian(self, step: int, dimension: int, std: float) -> np.ndarray:
        """Return ``(dimension,)`` int64: Gaussians with standard deviation ``std``, rounded to whole numbers."""
        return self.block(int(step), 1, dimension, std)[0]

    def block(self, first: int, steps: int, dimension: int, std: float, out: np.ndarray | None = None) -> np.ndarray:
        """Return ``(steps, dimension)`` int64: the rows that :meth:`gaussian` gives for the steps from ``first`` on.

        Args:
            first: number of the first step.
            steps: number of steps.
            dimension: number of draws per step.
            std: standard deviation in grid points, between 2**24 and 2**44.
            out: array to fill and return, if given.
        """
        out = np.empty((steps, dimension), dtype=np.int64) if out is None else out
        if out.shape != (steps, dimension) or out.dtype != np.int64:
            raise ValueError("out must be an int64 array of (steps, dimension)")
        # each standard deviation has its own key: draws from the same words would all but give each other away
        bins, key = table(std), self._subkey(_GAUSSIAN, struct.pack("<d", std))
        # a multiple of 16: a dimension gets the same draws as the width to which a scan pads it
        width = -(-dimension // 16) * 16
        if width > _LONGEST_ROW:
            for i in range(steps):
                out[i] = _further(key, width, first + i, dimension, bins)
            return out
        proposals = _proposals(width)
        row_blocks = 8 * WORDS * proposals // keystream.BLOCK_BYTES
        done = 0
        while done < steps:
            region, place = divmod(first + done, _STEPS)
            rows = min(max(_PROPOSALS // proposals, 1), steps - done, _STEPS - place)
            words = np.empty((rows, WORDS, proposals), dtype="<u8")
            keystream.read(key, width, region, place * row_blocks, words)
            part = out[done : done + rows]
            for row, columns in _arrange(*propose(words, bins), width, part).items():
                part[row, columns] = _further(key, width, first + done + row, len(columns), bins)
            done += rows
        return out

    def uniform_index(self, step: int, count: int) -> int:
        """Return one uniform index below ``count``; see :meth:`SeededNoise.uniform_index`."""
        return int(self.uniform_indices(int(step), 1, count)[0])

    def uniform_indices(self, first: int, steps: int, count: int) -> np.ndarray:
        """Return ``(steps,)`` int64: the indices that :meth:`uniform_index` gives for the steps from ``first`` on."""
        if not 0 < count < 1 << 32:
            raise ValueError("count must be between 1 and 2^32 - 1")
        key, each = self._subkey(_BELOW), keystream.BLOCK_BYTES // 8
        words, done = np.empty(steps, dtype=np.uint64), 0
        while done < steps:
            region, place = divmod(first + done, _INDICES)
            take = min(steps - done, _INDICES - place)
            found = keystream.words(key, 0, region, place // each, place % each + take)
            words[done : done + take] = found[place % each :]
            done += take
        # the high half of the product of count and a 64-bit word, in 32-bit pieces
        size, half = np.uint64(count), np.uint64(32)
        low = (words & np.uint64(0xFFFFFFFF)) * size >> half
        return (((words >> half) * size + low) >> half).astype(np.int64)

    def words(self, step: int, block: int, count: int) -> np.ndarray:
        """Return ``(count,)`` uint64: uniform words of a step, from the start of a ``block`` of eight words."""
        return keystream.words(self._subkey(_WORDS), 0, int(step), int(block), count)

    def nodes(self) -> NodeNoise:
        """Return standard normals by address, for a path. Their ChaCha20 runs inside compiled loops."""
        return NodeNoise(jnp.asarray(np.frombuffer(self._subkey(_NODES), dtype="<u4").astype(np.uint32)))

    def actions(self) -> ActionCoins:
        """Return coins of people's actions by address, for the host and for compiled loops."""
        key, world = (
            np.frombuffer(self._subkey(purpose), dtype="<u4").astype(np.uint32) for purpose in (_ACTIONS, _WORLD)
        )
        return ActionCoins(key, world[:2])

    def _subkey(self, purpose: int, of: bytes = b"") -> bytes:
        return keystream.subkey(self._key, b"dprl-purpose", purpose.to_bytes(1, "big") + of)


def _arrange(values: np.ndarray, rejected: np.ndarray, width: int, out: np.ndarray) -> dict[int, list[int]]:
    """Make proposal ``i`` of each row its draw ``i``, or the row's next accepted spare if that proposal is rejected.

    Args:
        values: ``(rows, P)`` proposals; in each row, the proposals from ``width`` on are spares.
        rejected: places of the rejected proposals in the flattened array, in order.
        out: ``(rows, dimension)``, filled except for the columns that are returned.

    Returns:
        The rows that have too few spares, each with the columns that still lack a draw.
    """
    dimension, length = out.shape[1], values.shape[1]
    out[...] = values[:, :dimension]
    places = rejected.tolist()  # one in a hundred: a loop is as quick as array operations, and far quicker for one row
    refused, lacking = set(places), dict[int, list[int]]()
    rows, columns, sources = list[int](), list[int](), list[int]()
    spare = 0
    for place in places:
        row, column = divmod(place, length)
        if column >= dimension:
            continue
        spare = max(spare, row * length + width)
        while spare in refused:
            spare += 1
        if spare < (row + 1) * length:
            rows.append(row)
            columns.append(column)
            sources.append(spare)
            spare += 1
        else:
            lacking.setdefault(row, []).append(column)
    if rows:
        out[rows, columns] = values.reshape(-1)[sources]
    return lacking


def _proposals(width: int) -> int:
    """Return how many proposals a row has: with a few spares for rejected ones, and in whole blocks of keystream."""
    return -(-(width + width // 32 + 4) // 8) * 8


def _further(key: bytes, width: int, step: int, count: int, bins: Table) -> np.ndarray:
    """Return the first ``count`` draws from the region that belongs only to this step."""
    out, filled, block = np.empty(count, dtype=np.int64), 0, 0
    while filled < count:
        words = np.empty((1, WORDS, min(_proposals(width), _PROPOSALS)), dtype="<u8")
        keystream.read(key, _FURTHER + width, step, block, words)
        values, rejected = propose(words, bins)
        taken = np.delete(values[0], rejected)[: count - filled]
        out[filled : filled + len(taken)] = taken
        filled, block = filled + len(taken), block + words.nbytes // keystream.BLOCK_BYTES
    return out


@dataclass(frozen=True)
class SeededNoise:
    """Fast reproducible noise in JAX, for everything that is *not* a private release.

    ``key`` is a ``(2,)`` uint32 array; it may be a traced value, so that runs can be ``vmap``-ped over keys. Steps may
    be traced, too. Anybody who knows the seed can subtract the noise.
    """

    key: Any
    secure: bool = field(default=False, init=False)
    total_variation_per_draw: float = field(default=1.0, init=False)

    @classmethod
    def from_seed(cls, seed: int) -> Self:
        """Return the source of a seed."""
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise DprlError("seed must be a whole number of at least 0.")
        return cls(jnp.array([seed >> 32, seed & 0xFFFFFFFF], dtype=jnp.uint32))

    def describe(self) -> str:
        """Return the source's name in words, for statements."""
        return "reproducible noise from a seed: not a private release"

    def stream(self, name: str) -> SeededNoise:
        """Return an independent source for the mechanism called ``name``."""
        tag = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
        words = threefry.threefry2x32(self.key, jnp.uint32(tag >> 32), jnp.uint32(tag & 0xFFFFFFFF))
        return SeededNoise(jnp.stack(words))

    def participation_mask(self, step: Any, count: int, rate: float) -> jax.Array:
        """Return ``(count,)`` booleans, each true with probability ``rate``."""
        if rate == 1.0:
            return jnp.ones(count, dtype=bool)
        # compared in 32 bits: the rate is off by at most 2**-32, and downwards
        return threefry.bits(self.key, self._counter(step, _COINS), count) < jnp.uint32(int(rate * 2.0**32))

    def gaps(self, step: Any, count: int, rate: float) -> jax.Array:
        """Return ``(count,)`` float64: numbers of tails before each of the first heads, whose probability is ``rate``.

        The heads have the same distribution as in :meth:`participation_mask`, but they are other draws. Only heads cost
        time.
        """
        words = threefry.bits(self.key, self._counter(step, _COINS), count)
        uniform = (words.astype(jnp.float64) + 0.5) * 2.0**-32
        return jnp.floor(jnp.log(uniform) / math.log1p(-rate))

    def gaussian(self, step: Any, dimension: int, std: float) -> jax.Array:
        """Return ``(dimension,)`` int64: Gaussians with standard deviation ``std``, rounded to whole numbers."""
        return self.rounded(step, dimension, std).astype(jnp.int64)

    def rounded(self, step: Any, dimension: int, std: float) -> jax.Array:
        """Return :meth:`gaussian` as float64, which holds the same whole numbers."""
        return jnp.round(self.normals(step, dimension) * std)

    def normals(self, step: Any, dimension: int) -> jax.Array:
        """Return ``(dimension,)`` float64 standard normals of a step, for theory without a grid."""
        return threefry.normal(self.key, self._counter(step, _GAUSSIAN), dimension).astype(jnp.float64)

    def uniform_index(self, step: Any, count: int) -> jax.Array:
        """Return one uniform index below ``count``: the only unit of a step in calibrations as published."""
        # the first word of the step's coins, without the other fifteen
        word, _ = threefry.threefry2x32(self.key, jnp.uint32(0), self._counter(step, _COINS))
        return ((word.astype(jnp.uint64) * jnp.uint64(count)) >> jnp.uint64(32)).astype(jnp.int32)

    def words(self, step: int, block: int, count: int) -> np.ndarray:
        """Return ``(count,)`` uint64: uniform words of a step, on the host; ``count`` is at most eight."""
        of = np.asarray(self.key).astype("<u4").tobytes() + int(step).to_bytes(8, "little")
        found = hashlib.blake2b(of + int(block).to_bytes(8, "little"), person=b"dprl-words").digest()
        return np.frombuffer(found, dtype="<u8")[:count].astype(np.uint64)

    def nodes(self) -> NodeNoise:
        """Return standard normals by address, for a path."""
        return NodeNoise(self.stream("nodes").key)

    def actions(self) -> ActionCoins:
        """Return coins of people's actions by address."""
        return ActionCoins(self.stream("actions").key, self.stream("world").key)

    @staticmethod
    def _counter(step: Any, purpose: int) -> jax.Array:
        return jnp.asarray(step, dtype=jnp.uint32) * jnp.uint32(2) + jnp.uint32(purpose)


jax.tree_util.register_dataclass(SeededNoise, data_fields=["key"], meta_fields=[])
