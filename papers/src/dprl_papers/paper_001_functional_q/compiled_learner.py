"""The library's learner, compiled as a whole over many seeds side by side: for simulations, where rewards are known.

The compiled program contains the environment's rewards, so no release is made by it. A release asks for rewards step by
step on the host (:func:`dprl.learning.q_learner.run_on_host`). A test checks that both agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random

from dprl.arrays import unit_states
from dprl.learning.q_learner import PrivateSamples, RoundCoins, learn_from_samples
from dprl.learning.q_updates import LearnerShape, Rates, State, acting_weights, exploring_actions, init, policy_action
from dprl.value_functions.q_function import hidden_weights


class ExactAnswers:
    """Answers without noise. They protect nobody."""

    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> jax.Array:
        """Return ``rewards`` ``(B,)``, as float64."""
        return jnp.asarray(rewards, dtype=jnp.float64)


jax.tree_util.register_pytree_node(ExactAnswers, lambda _: ((), None), lambda *_: ExactAnswers())


@dataclass(frozen=True)
class KeyedCoins:
    """Coins from a JAX key, which may be traced.

    Attributes:
        key: a key of ``jax.random.key``.
    """

    key: Any

    def initial(self, shape: LearnerShape) -> Any:
        """Return the initial coins, as :meth:`dprl.learning.q_learner.AddressedCoins.initial` does."""
        keys, count = random.split(random.fold_in(self.key, 0)), hidden_weights(shape.network, shape.dimensions)
        return jnp.stack([random.uniform(key, (count,), jnp.float32) for key in keys])

    def for_round(self, shape: LearnerShape, j: Any) -> RoundCoins:
        """Return a round's coins, as :meth:`dprl.learning.q_learner.AddressedCoins.for_round` does, without seeds."""
        keys = self.keys_of_round(j)
        exploring = random.uniform(keys[0], (shape.round, 2), jnp.float32)
        return RoundCoins(exploring, random.uniform(keys[3], (shape.updates, shape.batch), jnp.float32), None)

    def keys_of_round(self, j: Any) -> Any:
        """Return the ``(4,)`` keys of a round; the second is for the environment's starts, the third for its steps."""
        return random.split(random.fold_in(self.key, j + 1), 4)


def run(shape: LearnerShape, environment: Any, rates: Rates, answers: Any, key: Any) -> tuple[State, Any]:
    """Return a whole run.

    The function may be compiled with ``shape`` and ``environment`` static, and batched over answers and keys.

    Args:
        environment: an :class:`~dprl.protocols.Environment`.
        answers: answers of a mechanism, ``noisy`` or, in the gradient variant, ``noisy_mean``.
        key: key of all randomness except the noise; nothing about it is secret.

    Returns:
        The learner's state, and Q's weights after each round, ``(rounds, ...)`` each.
    """
    bounds, given_coins = environment.observation_bounds, KeyedCoins(key)

    def unit_of(state: Any) -> Any:
        return unit_states(jnp.reshape(environment.observe(state), (1, -1)).astype(jnp.float64), bounds, jnp)[0]

    def one(carry: Any, j: Any) -> tuple[Any, Any]:
        state, walk = carry
        keys, coins = given_coins.keys_of_round(j), given_coins.for_round(shape, j)
        exploring = exploring_actions(shape, rates, coins.exploring, j, jnp)
        starts = jax.vmap(environment.reset)(random.split(keys[1], shape.round))

        def step(walk: Any, given: Any) -> tuple[Any, Any]:
            (there, time), (action, coin, start, noise) = walk, given
            there = jax.tree.map(lambda new, old: jnp.where(time == 0, new, old), start, there)
            unit = unit_of(there)
            greedy = policy_action(shape, acting_weights(state), unit, coin, jnp).astype(jnp.int32)
            action = jnp.where(action < 0, greedy, action)
            following, reward, over = environment.step(noise, there, action)
            time = jnp.where(over | (time + 1 >= environment.horizon), 0, time + 1)
            reward = jnp.asarray(reward, jnp.float64)
            return (following, time), (unit, action, reward, unit_of(following), jnp.asarray(over, bool))

        walk, (units, actions, rewards, following, over) = lax.scan(
            step, walk, (exploring, coins.exploring[:, 1], starts, random.split(keys[2], shape.round))
        )
        sample = PrivateSamples(units, jnp.ones(shape.round, bool), actions, rewards, following, over)
        state = learn_from_samples(shape, rates, state, answers, j, coins.replayed, sample)
        return (state, walk), state.q.weights

    start = init(shape, given_coins.initial(shape))
    walk = (environment.reset(key), jnp.int32(0))  # replaced by the first step's start
    (state, _), history = lax.scan(one, (start, walk), jnp.arange(shape.rounds, dtype=jnp.int32))
    return state, history
