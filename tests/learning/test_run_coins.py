"""The coins of the learner: in a release words of ChaCha20 at an address, whatever the environment does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dprl.accounting.budget import Budget
from dprl.audits.conformance.reward_functions import Walk
from dprl.learning import q_learner, q_updates
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import make_learning_plan
from dprl.learning.q_learner import AddressedCoins
from dprl.mechanisms import keystream
from dprl.mechanisms.noise import SecureNoise
from dprl.protocols import EnvironmentSpec
from dprl.release.train import train
from dprl.value_functions.q_function import q_values

KEY = bytes(range(32))
BUDGET = Budget(0.9, 1e-4)
ROUND, ROUNDS = 12, 4


def options(**more: Any) -> FunctionalQ:
    short = {"samples": ROUND * ROUNDS, "round": ROUND, "batch": 5, "network": "mlp:3", "reward_radius": 0.01}
    return FunctionalQ(**{**short, **more})


class Clock:
    """An environment outside of JAX that keeps with which seeds it was reset; episodes end after ``length`` steps."""

    facts: EnvironmentSpec = replace(Walk().facts, on_grid=False, horizon=10)

    def __init__(self, length: int, reward: float = 0.1) -> None:
        self.length, self.reward = length, reward
        self.taken, self.seeds, self.actions = 0, dict[int, int](), list[int]()

    def reset(self, seed: int) -> np.ndarray:
        self.seeds[self.taken] = seed
        return np.full(1, 0.5)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        self.taken += 1
        self.actions.append(action)
        return np.full(1, self.taken % 7 / 7.0), self.reward, self.taken % self.length == 0, False


def released(length: int, key: bytes = KEY, **more: Any) -> tuple[Clock, bytes]:
    """A release of this run key."""
    clock = Clock(length)
    with patch.object(SecureNoise, "fresh", lambda: SecureNoise(key)):
        return clock, train(clock, BUDGET, algorithm=options(**more)).q_function.to_bytes()


def test_the_coins_of_a_release_are_words_of_chacha20_at_their_address():
    """Seeds and exploring_actions actions as RFC 8439 has them, wherever an episode began."""
    clock, _ = released(5)
    actions = SecureNoise(KEY).stream("learner").actions()
    key = np.asarray(actions.key).astype("<u4").tobytes()

    def words(draw: int, step: int, count: int) -> np.ndarray:
        return keystream.words(key, draw, step, 0, -(-count // 2)).view("<u4")[:count]

    assert set(clock.seeds) == set(range(0, ROUND * ROUNDS, 5))
    for sample, seed in clock.seeds.items():
        assert seed == words(3, sample // ROUND, ROUND)[sample % ROUND] >> 1
    # in the first round all is exploration
    np.testing.assert_array_equal(clock.actions[:ROUND], words(1, 0, ROUND) >> 31)
    coins, shape = AddressedCoins(actions), q_learner.shape_of(options(), Clock.facts)
    replayed = coins.for_round(shape, 2).replayed
    assert replayed.shape == (shape.updates, 5)
    np.testing.assert_array_equal(replayed.ravel() * 2.0**24, words(2, 2, replayed.size) >> 8)
    start = [words(draw, 2**32 - 1, 6) >> 8 for draw in range(2)]
    np.testing.assert_array_equal(coins.initial(shape) * 2.0**24, start)


def test_no_coin_depends_on_what_the_environment_answers():
    """Episodes of other lengths shift no seed of a later episode, and no action that explores."""
    one, other = (released(length, exploration=1.0)[0] for length in (4, 6))
    common = one.seeds.keys() & other.seeds.keys()
    assert common == {0, 12, 24, 36}
    assert {at: one.seeds[at] for at in common} == {at: other.seeds[at] for at in common}
    assert len(set(one.seeds.values())) == len(one.seeds)
    assert one.actions == other.actions
    assert len(set(one.actions)) == 2


@pytest.mark.parametrize("more", [{}, pytest.param({"actor_critic": True}, marks=pytest.mark.slow)])
def test_a_release_draws_from_chacha20_alone_and_repeats_with_its_key(monkeypatch, more):
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a draw that is not ChaCha20's")

    for name in ("key", "PRNGKey", "split", "fold_in", "uniform", "normal", "bits", "randint", "choice", "categorical"):
        monkeypatch.setattr(random, name, forbidden)
    for name in ("default_rng", "random", "randint", "uniform"):
        monkeypatch.setattr(np.random, name, forbidden)
    # a network that no other test has compiled
    first, again = (released(5, network="mlp:9", **more)[1] for _ in range(2))
    assert first == again
    assert released(5, KEY[::-1], network="mlp:9", **more)[1] != first


@pytest.mark.parametrize("network", ["mlp:8", "fourier:2"])
@pytest.mark.parametrize("actor_critic", [False, True])
def test_numpy_acts_as_compiled_code_does(network, actor_critic):
    facts = replace(Walk().facts, actions=3)
    plan = make_learning_plan(options(network=network, actor_critic=actor_critic), facts, BUDGET)
    shape, rates = q_learner.shape_of(plan.config, facts), q_learner.rates_of(plan.config, facts, plan.mechanism)
    rng = np.random.default_rng(1)
    state = q_updates.init(shape, rng.random((2, 16), np.float32))
    weights = {n: rng.normal(size=w.shape).astype(np.float32) for n, w in q_updates.acting_weights(state).items()}
    units, coins = rng.random((300, 1)), rng.random((300, 2), np.float32)
    if "c" in weights:  # no action is the best one everywhere
        weights["c"] = -q_values(network, dict(weights, c=np.zeros(3)), units).mean(axis=0).astype(np.float32)
    compiled = jax.vmap(lambda unit, coin: q_updates.policy_action(shape, weights, unit, coin, jnp))(units, coins[:, 1])
    found = [q_updates.policy_action(shape, weights, unit, coin) for unit, coin in zip(units, coins[:, 1], strict=True)]
    np.testing.assert_array_equal(found, compiled)
    assert len(set(map(int, found))) > 1
    for j in (0, 3, 1000):
        theirs = q_updates.exploring_actions(shape, rates, jnp.asarray(coins), np.int32(j), jnp)
        np.testing.assert_array_equal(q_updates.exploring_actions(shape, rates, coins, np.int32(j)), theirs)
