"""Coins (random numbers) for people's actions and other public chance in learning: not noise, nor who takes part.

Every coin has an address: the step (which batch), the place (which person) and the number of the draw, which counts
only that person's draws. In the learner of Q-functions the steps are rounds and the places are samples
(``learning/q_learner.py``). So nobody else's coins change with who stands in one place, how often that person is asked,
or whether that person answers at all. A proof may therefore fix all coins, whoever the people are
(docs/proofs/one-pass-users.md, step 2). These coins hide nothing and may be known, because privacy rests on the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dprl import x64 as x64
from dprl.mechanisms import keystream, threefry

_KEY_WORDS = 8
_BLOCK = 16  # words of a ChaCha20 block: one for each of 16 neighbouring places
_GAP = 2048  # up to so many unused words are faster to make than to skip
_INITIAL, _CHOICE = 2**32 - 1, 2**32 - 2  # numbers of steps that no batch has


@dataclass(frozen=True)
class ActionCoins:
    """Coins of people's actions.

    Use :meth:`SecureNoise.actions <dprl.mechanisms.noise.SecureNoise.actions>`. In an experiment use
    :meth:`from_jax_key`.

    Attributes:
        key: ``(8,)`` uint32 for ChaCha20 in a release, ``(2,)`` uint32 for threefry everywhere else; the length
            decides. Pass the whole object to a compiled function. If the function closed over the key, the key would be
            part of its program.
        world: ``(2,)`` uint32, a JAX key for what a simulated world does to its people; see :meth:`BatchCoins.worlds`.
    """

    key: Any = field(repr=False)
    world: Any = field(repr=False)

    @classmethod
    def from_jax_key(cls, key: Any) -> ActionCoins:
        """Return the coins of a JAX key ``jax.random.key(...)``, which may be traced. Never use them for a release."""
        own, world = jax.random.split(key)
        return cls(jax.random.key_data(own), jax.random.key_data(world))

    def for_batch(self, step: Any) -> BatchCoins:
        """Return the coins of batch ``step``, which may be traced."""
        return BatchCoins(self.key, self.world, step)

    def before_first_batch(self) -> BatchCoins:
        """Return the coins for everything that is drawn before the first batch."""
        return self.for_batch(_INITIAL)

    def initial(self, count: int) -> jax.Array:
        """Return ``(count,)`` float32 standard normals, for initial weights."""
        return threefry.normal_of(_words(self.before_first_batch(), 0, count, 0, 1)[0])

    def uniform_index(self, count: int) -> int:
        """Return one index below ``count`` (at most 2^16); each has probability 1/``count``, up to 2^-32."""
        return int(_words(self.for_batch(_CHOICE), 0, 1, 0, 1)[0, 0]) * count >> 32


@dataclass(frozen=True)
class BatchCoins:
    """The coins of one batch.

    Attributes:
        key, world: see :class:`ActionCoins`.
        step: number of the batch.
    """

    key: Any = field(repr=False)
    world: Any = field(repr=False)
    step: Any

    def uniforms(self, first: Any, count: int, draw: Any, draws: int) -> jax.Array:
        """Return ``(draws, count)`` float32 in [0, 1), for consecutive draws of consecutive places.

        Draws count from ``draw`` on and places from ``first`` on. Both may be traced.
        """
        return uniform_of(_words(self, first, count, draw, draws))

    def normals(self, first: Any, count: int, draw: Any, draws: int) -> jax.Array:
        """Return the draws of :meth:`uniforms` as standard normals."""
        return threefry.normal_of(_words(self, first, count, draw, draws))

    def worlds(self, first: Any, count: int) -> jax.Array:
        """Return ``(count,)`` JAX keys, one per place from ``first``, for what a simulated world does to its person.

        Everything that an environment draws comes from threefry. These draws are part of who a simulated person is, and
        hide nobody.
        """
        world = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(self.world), impl="threefry2x32"), self.step)
        return jax.vmap(jax.random.fold_in, (None, 0))(world, jnp.arange(count, dtype=jnp.uint32) + first)

    def words_at(self, places: np.ndarray, draw: int) -> np.ndarray:
        """Return ``(n,)`` uint32: the words of draw number ``draw`` of the ``places`` ``(n,)``, on the host.

        Words of ChaCha20 come from :mod:`dprl.mechanisms.keystream`, which is quicker.
        """
        out, order = np.empty(len(places), dtype=np.uint32), np.argsort(places, kind="stable")
        ordered = places[order]
        for some in np.split(np.arange(len(places)), np.flatnonzero(np.diff(ordered) > _GAP) + 1):
            if len(some):
                first, last = int(ordered[some[0]]), int(ordered[some[-1]])
                out[order[some]] = self._stretch(first, last + 1 - first, draw)[ordered[some] - first]
        return out

    def _stretch(self, first: int, count: int, draw: int) -> np.ndarray:
        if not _is_chacha(self.key):  # the length is a power of two, so that few are compiled
            return np.asarray(_words(self, first, 1 << (count - 1).bit_length(), draw, 1)[0])[:count]
        skipped = first % _BLOCK
        key = np.asarray(self.key, dtype="<u4").tobytes()
        words = keystream.words(key, draw, int(self.step), first // _BLOCK, -(-(skipped + count) // 2))
        return words.view("<u4")[skipped : skipped + count]


jax.tree_util.register_dataclass(ActionCoins, data_fields=["key", "world"], meta_fields=[])
jax.tree_util.register_dataclass(BatchCoins, data_fields=["key", "world", "step"], meta_fields=[])


def uniform_of(words: Any) -> Any:
    """Turn uint32 ``words`` into float32 in [0, 1). The results are exact multiples of 2^-24."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _is_chacha(key: Any) -> bool:
    return key.shape[-1] == _KEY_WORDS


# Compiled when called directly; inlined when called in a traced function.
@partial(jax.jit, static_argnums=(2, 4), inline=True)
def _words(coins: BatchCoins, first: Any, count: int, draw: Any, draws: int) -> jax.Array:
    """Return ``(draws, count)`` uint32: the words of consecutive draws of consecutive places.

    With ChaCha20 this is word ``place % 16`` in block ``place // 16`` of the region with tag ``draw`` and index
    ``step``.
    """
    first, step = jnp.asarray(first).astype(jnp.uint32), jnp.asarray(coins.step).astype(jnp.uint32)
    draw = (jnp.asarray(draw).astype(jnp.uint32) + jnp.arange(draws, dtype=jnp.uint32))[:, None]
    if not _is_chacha(coins.key):
        key = threefry.threefry2x32((coins.key[0], coins.key[1]), step, jnp.zeros_like(step))
        place = (first + jnp.arange(count, dtype=jnp.uint32))[None]
        return threefry.threefry2x32(key, *jnp.broadcast_arrays(place, draw))[0]
    blocks = count // _BLOCK + 2  # of the first and the last only a part may be used
    number = (first // _BLOCK + jnp.arange(blocks, dtype=jnp.uint32))[None]
    address = jnp.broadcast_arrays(number, draw, step, jnp.zeros_like(step))
    # stacked first: otherwise XLA would compute each block once for every word in it
    words = jnp.stack(keystream.block(jnp.asarray(coins.key), tuple(address))).transpose(1, 2, 0).reshape(draws, -1)
    return lax.dynamic_slice_in_dim(words, first % _BLOCK, count, axis=1)
