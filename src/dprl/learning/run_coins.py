"""The coins of the learner: all that is random in a run but the environment and the noise.

They come as plain arrays of uniform numbers, one set per round, and the learner knows no other randomness. They hide
nothing and may be known: privacy rests on the noise. A release takes :class:`AddressedCoins`, a simulation that is
compiled as a whole :class:`KeyedCoins`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.learning.q_updates import Shape
from dprl.mechanisms.action_coins import ActionCoins, uniform_of
from dprl.value_functions.q_function import hidden_weights

_EXPLORING, _REPLAYED, _SEEDS = 0, 2, 3
"""Numbers of the draws of a round; exploring takes two."""


class RoundCoins(NamedTuple):
    """The coins of one round; uniform numbers are float32 in [0, 1).

    Attributes:
        exploring: ``(round, 2)`` uniform numbers of each sample's action.
        replayed: ``(updates, batch)`` uniform numbers that choose replayed samples.
        seeds: ``(round,)`` whole numbers below 2^31, of the episode that begins with a sample, where one begins there;
            None for an environment that is compiled.
    """

    exploring: Any
    replayed: Any
    seeds: Any


@dataclass(frozen=True)
class AddressedCoins:
    """Coins by address, on the host: the round is the step, the sample or the replayed sample is the place.

    So no coin depends on what the environment answered before, or on how many episodes ended.

    Attributes:
        coins: of ChaCha20 in a release.
    """

    coins: ActionCoins

    def initial(self, shape: Shape) -> np.ndarray:
        """``(2, n)`` uniform numbers of which hidden weights begin: those of Q, and those of an actor."""
        places = np.arange(hidden_weights(shape.network, shape.dimensions))
        start = self.coins.of_start()
        return np.stack([uniform_of(start.words_at(places, draw)) for draw in range(2)])

    def of_round(self, shape: Shape, j: int) -> RoundCoins:
        """The coins of round ``j``."""
        batch, samples = self.coins.of_batch(j), np.arange(shape.round)
        exploring = [uniform_of(batch.words_at(samples, _EXPLORING + i)) for i in range(2)]
        replayed = uniform_of(batch.words_at(np.arange(shape.updates * shape.batch), _REPLAYED))
        seeds = (batch.words_at(samples, _SEEDS) >> np.uint32(1)).astype(np.int64)
        return RoundCoins(np.stack(exploring, axis=1), replayed.reshape(shape.updates, shape.batch), seeds)


@dataclass(frozen=True)
class KeyedCoins:
    """Coins of a JAX key, which may be traced: never for a release.

    Attributes:
        key: ``jax.random.key``.
    """

    key: Any

    def initial(self, shape: Shape) -> Any:
        """As :meth:`AddressedCoins.initial`."""
        keys, count = random.split(random.fold_in(self.key, 0)), hidden_weights(shape.network, shape.dimensions)
        return jnp.stack([random.uniform(key, (count,), jnp.float32) for key in keys])

    def of_round(self, shape: Shape, j: Any) -> RoundCoins:
        """As :meth:`AddressedCoins.of_round`, without seeds."""
        keys = self.keys_of_round(j)
        exploring = random.uniform(keys[0], (shape.round, 2), jnp.float32)
        return RoundCoins(exploring, random.uniform(keys[3], (shape.updates, shape.batch), jnp.float32), None)

    def keys_of_round(self, j: Any) -> Any:
        """``(4,)`` keys, of which the second and third are the environment's: of its starts and of its steps."""
        return random.split(random.fold_in(self.key, j + 1), 4)
