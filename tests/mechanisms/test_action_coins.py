"""Coins of people's actions: each has an address, and is the same whoever asks, for whatever else, in whatever code."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from dprl.environments.cart_pole import CartPole
from dprl.environments.pendulum import Pendulum
from dprl.learning.policy_gradient.estimator import RunShape
from dprl.learning.policy_gradient.people_sources import CompiledPeople, PolicyForPeople
from dprl.mechanisms import keystream
from dprl.mechanisms.action_coins import ActionCoins, uniform_of
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.threefry import normal_of
from dprl.policies.parametric import Parametric

SECURE = SecureNoise(bytes(range(32))).actions()
SOURCES = {"ChaCha20": SECURE, "threefry": SeededNoise.from_seed(5).actions()}


def test_words_are_those_of_chacha20_at_their_address():
    """Of draw j of place k in step t: word k of the region with tag j and index t, on the host and in compiled code."""
    key = np.asarray(SECURE.key).astype("<u4").tobytes()
    in_jax = jax.jit(lambda coins, place, draw: coins.uniforms(place, 40, draw, 1)[0])
    for step, draw, first in ((0, 0, 0), (7, 3, 37), (10**5, 501, 10**9)):
        region = keystream.words(key, draw, step, first // 16, 64).view("<u4")[first % 16 :][:40]
        np.testing.assert_array_equal(SECURE.for_batch(step).words_at(np.arange(first, first + 40), draw), region)
        np.testing.assert_array_equal(in_jax(SECURE.for_batch(step), first, draw), uniform_of(region))


@pytest.mark.parametrize("coins", SOURCES.values(), ids=SOURCES)
def test_a_coin_is_a_function_of_step_place_and_draw(coins):
    """Asked for in one piece or another, in order or not, far apart or twice."""
    table = np.stack([coins.for_batch(3).words_at(np.arange(4000), draw) for draw in range(3)])
    np.testing.assert_array_equal(coins.for_batch(3).uniforms(19, 70, 1, 2), uniform_of(table[1:, 19:89]))
    places = np.random.default_rng(0).permutation(np.r_[np.arange(9), 17, 17, 2500, 3999])
    np.testing.assert_array_equal(coins.for_batch(3).words_at(places, 2), table[2, places])
    assert coins.for_batch(3).words_at(places[:0], 0).shape == (0,)
    # of 32 bits, so that a few are equal by chance
    other = np.stack([coins.for_batch(step).words_at(np.arange(4000), 0) for step in (0, 2, 2**32 - 1)])
    assert len(np.unique(np.concatenate([table, other]))) > 24_000 - 20


@pytest.mark.parametrize("coins", SOURCES.values(), ids=SOURCES)
def test_their_law(coins):
    words = [coins.for_batch(step).words_at(np.arange(20_000), 4) for step in range(2)]
    uniforms = uniform_of(words[0])
    assert (uniforms >= 0.0).all()
    assert (uniforms < 1.0).all()
    assert kstest(uniforms, "uniform").pvalue > 1e-4
    assert kstest(np.asarray(normal_of(words[1])), "norm").pvalue > 1e-4
    start = coins.for_batch(2**32 - 1).words_at(np.arange(50), 0)
    np.testing.assert_array_equal(coins.initial(50), normal_of(start))
    assert {ActionCoins.from_jax_key(jax.random.key(i)).uniform_index(3) for i in range(40)} == {0, 1, 2}


def test_a_key_is_not_printed_and_streams_differ():
    assert "[" not in repr(SECURE) + repr(SECURE.for_batch(1))
    noise = SecureNoise(bytes(range(32)))
    assert not (noise.stream("a").actions().key == noise.stream("b").actions().key).any()


@pytest.mark.parametrize(
    "environment",
    [pytest.param(CartPole(horizon=40), id="softmax", marks=pytest.mark.slow), pytest.param(Pendulum(), id="gaussian")],
)
def test_who_stands_in_a_place_of_a_simulator_is_the_same_in_any_block(environment):
    kind = "softmax" if isinstance(environment, CartPole) else "gaussian"
    action = None if kind == "softmax" else environment.action_bounds
    actions = environment.actions if kind == "softmax" else None
    policy = Parametric(kind, environment.observation_bounds, actions, action)
    shape = RunShape(policy=policy, places=64, batch=64, steps=1, horizon=min(environment.horizon, 40), interactions=2)
    theta = jnp.zeros(policy.size, jnp.float32)
    answered = jax.jit(lambda coins, slots: CompiledPeople(environment, shape).trajectories(theta, coins, slots))
    coins = SECURE.for_batch(4)
    whole, piece = answered(coins, jnp.arange(16)), answered(coins, jnp.arange(9, 25))
    for one, two in zip(whole, piece, strict=True):
        np.testing.assert_allclose(np.asarray(one)[9:], np.asarray(two)[:7], rtol=1e-5, atol=1e-5)
    assert (np.asarray(whole.actions)[:, 0] != np.asarray(whole.actions)[:, 1]).any()


@pytest.mark.parametrize("kind", ["softmax", "gaussian"])
def test_the_policy_on_the_host_acts_by_the_same_coins(kind):
    """One by one as people come, or all at once as they stand in a log; and as compiled code does."""
    continuous = kind == "gaussian"
    policy = Parametric(kind, ((-1.0, 1.0),) * 2, None if continuous else 4, ((0.0, 1.0),) * 2 if continuous else None)
    rng, coins = np.random.default_rng(0), SECURE.for_batch(2)
    theta = rng.normal(size=policy.size).astype(np.float32)
    act = PolicyForPeople(policy, theta, coins)
    places, turns = np.repeat([3, 50, -1, 9000], 5), np.tile(np.arange(5), 4)
    seen = rng.uniform(-1.0, 1.0, (20, 2)).astype(np.float32)
    together = act(seen, places, turns)
    alone = np.concatenate([act(seen[i : i + 1], places[i : i + 1], turns[i : i + 1]) for i in range(20)[::-1]])[::-1]
    np.testing.assert_array_equal(together, alone)
    for i in (0, 7, 19):
        drawn = (coins.normals if continuous else coins.uniforms)(places[i], 1, turns[i] * (2 if continuous else 1), 2)
        expected = policy.draw(theta, seen[i : i + 1], drawn.T if continuous else drawn[0])
        np.testing.assert_allclose(together[i], expected[0], rtol=1e-6)
