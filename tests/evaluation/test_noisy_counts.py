"""Noisy counts against a model that is counted in a plain loop, and worst cases of a unit's vector."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import Bounds
from dprl.engine.loop import run
from dprl.engine.program import PublicFacts
from dprl.engine.ratios import step_ratios
from dprl.errors import DprlError
from dprl.evaluation.noisy_counts import NoisyCounts, reward_bound, support_of
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.loading import AlwaysPolicy
from dprl.value_functions.features import make_features

from . import helpers, one_shot


def counted(log, policy, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Values ``(S,)`` in the reward's unit of the model of first visits, by loops; and how often each was seen.

    A person with k trajectories counts each of them as 1 / k.
    """
    size = int(log.bounds.observation[0][1]) + 1
    ratios = np.ones(len(log.reward)) if policy is None else step_ratios(policy, log)
    counts, rewards = np.zeros((size, size + 1)), np.zeros(size)
    for person in range(log.units):
        episodes = range(log.unit_offsets[person], log.unit_offsets[person + 1])
        for e in episodes:
            seen = set()
            for i in range(log.episode_offsets[e], log.episode_offsets[e + 1]):
                s = int(log.observation[i, 0])
                if s in seen:
                    continue
                seen.add(s)
                if not (log.terminated[i] or log.has_next[i]):
                    continue  # what follows is not known
                target = size if log.terminated[i] else int(log.next_observation[i, 0])
                counts[s, target] += ratios[i] / len(episodes)
                rewards[s] += ratios[i] / len(episodes) * log.reward[i]
    seen = counts.sum(axis=1)
    model, mean = counts / seen[:, None], rewards / seen
    return np.linalg.solve(np.eye(size) - discount * model[:, :size], mean), seen


def values(program, theta: np.ndarray, interval) -> np.ndarray:
    low, high = interval
    return (low + high) / 2 + (high - low) / 2 * math.sqrt(program.size) * theta


@pytest.mark.parametrize("policy", [None, one_shot.extreme_policy])
def test_noiseless_limit_is_the_solved_model(policy):
    """On the full support; with almost no smoothing, and a value range that holds every value."""
    log = one_shot.extreme(90, 1)
    config = NoisyCounts(discount=0.5, smoothing=1e-6, reward_smoothing=1e-6, kappa=0.7)
    program, _, data = one_shot.made(config, log, "tabular", policy)
    theta = one_shot.plain(program, data)[1]
    expected, seen = counted(log, policy, 0.5)
    assert seen.min() > 10
    assert np.abs(expected - 0.5).max() < 2.5
    np.testing.assert_allclose(values(program, theta, (-2.0, 3.0)), expected, atol=1e-5)
    assert np.ptp(expected) > 0.1


@pytest.mark.parametrize("rewards", ["anywhere", "terminal"])
def test_noiseless_limit_on_the_chain(rewards):
    """Where the support is right and rewards come at the end, both statements of it give the counted model."""
    log = one_shot.chain(300, 2)
    config = NoisyCounts(support="0,1", rewards=rewards, smoothing=1e-6, reward_smoothing=1e-6)
    program, _, data = one_shot.made(config, log, "tabular")
    theta = one_shot.plain(program, data)[1]
    expected, seen = counted(log, None, 0.99)
    assert seen.min() >= 3
    # small counts: what smoothing is left shows
    np.testing.assert_allclose(values(program, theta, (0.0, 1.0)), expected, atol=2e-4)


def test_what_is_off_the_support_is_not_counted():
    log = one_shot.extreme(90, 4)
    program, _, data = one_shot.made(NoisyCounts(discount=0.9, support="1"), log, "tabular")
    vector = one_shot.vectors(program, 0, program.init(), data).sum(axis=0)
    expected = np.zeros(4)
    for e in range(log.episodes):
        seen = set()
        for i in range(log.episode_offsets[e], log.episode_offsets[e + 1]):
            s = int(log.observation[i, 0])
            step = log.has_next[i] and not log.terminated[i] and log.next_observation[i, 0] == s + 1
            if s not in seen and step:
                siblings = np.diff(log.unit_offsets)[log.unit_of_episode()[e]]
                expected[s] += 1.0 / siblings
            seen.add(s)
    np.testing.assert_allclose(vector[:4], expected, atol=1e-12)
    assert expected.min() > 0.0
    assert program.support.ends.tolist() == [4]


def facts(features: str = "tabular", components: int = 1) -> PublicFacts:
    bounds = one_shot.extreme_bounds(10, components)
    return PublicFacts(bounds, make_features(features, bounds.observation), 0.9, 1.0)


def test_supports():
    chain = support_of("x", "0, +1", facts())
    assert list(zip(chain.rows, chain.columns, strict=True)) == [
        (s, t) for s in range(5) for t in (s, s + 1) if t < 5
    ]  # fmt: skip
    assert chain.ends.tolist() == [4]
    both = support_of("x", "-2,3", facts())
    assert both.ends.tolist() == [0, 1, 2, 3, 4]
    assert list(zip(both.rows, both.columns, strict=True)) == [(0, 3), (1, 4), (2, 0), (3, 1), (4, 2)]
    np.testing.assert_array_equal(both.groups.sum(axis=2), 1.0)
    full = support_of("x", "full", facts(components=2))
    assert len(full.rows) == 25 * 25
    assert len(full.ends) == 25


def test_the_prior_of_offsets_is_what_all_states_do():
    """On the chain with few trajectories and heavy smoothing, every state has the same transition probabilities."""
    config = NoisyCounts(support="0,1", rewards="terminal", smoothing=1e3)
    program, _, data = one_shot.made(config, one_shot.chain(300, 3), "tabular")
    vector = one_shot.vectors(program, 0, program.init(), data).sum(axis=0)
    counts = np.zeros((39, 40))
    counts[program.support.rows, program.support.columns] = vector[: len(program.support.rows)]
    # a noise so small that the prior is not that of the smoothing itself
    prior = np.asarray(program._prior(jnp.asarray(counts * 1e9)))
    stay, advance = np.trace(counts[:, :39]) / 39, np.trace(counts[:, 1:39]) / 38
    np.testing.assert_allclose(np.diag(prior), stay / (stay + advance), rtol=1e-4)
    np.testing.assert_allclose(np.diag(prior[:, 1:]), advance / (stay + advance), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(program._prior(jnp.zeros((39, 40)))).sum(axis=1), 1.0)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from(["full", "0,1", "-1,0,2"]), st.booleans(), st.floats(0.05, 20))
def test_no_clip_binds(seed, support, terminal, kappa):
    config = NoisyCounts(
        discount=0.9, support=support, rewards="terminal" if terminal else "anywhere", kappa=kappa
    )  # fmt: skip
    program, _, data = one_shot.made(config, one_shot.extreme(60, seed), "tabular", one_shot.extreme_policy)
    one_shot.check_no_clip_binds(program, program.init(), data)


@pytest.mark.parametrize("rewards", ["anywhere", "terminal"])
def test_the_clip_norm_is_reached(rewards):
    """A trajectory through every state, with the largest ratio and the largest reward."""
    bounds = Bounds(
        units=5, horizon=9, reward=(0.0, 1.0), observation=((0.0, 3.0),), actions=2, max_importance_ratio=2.0,
        return_range=(0.0, 1.0),
    )  # fmt: skip
    columns = {
        "episode_id": [0] * 4, "t": [0, 1, 2, 3], "observation": [0.0, 1.0, 2.0, 3.0], "action": [1] * 4,
        "reward": [1.0] * 4, "behavior_prob": [0.5] * 4, "terminated": [False, False, False, True],
    }  # fmt: skip
    config, log = NoisyCounts(discount=0.9, support="0,1", rewards=rewards), one_shot.load(columns, bounds)
    program, _, data = one_shot.made(config, log, "tabular", AlwaysPolicy(1, 2))
    norm = np.linalg.norm(one_shot.vectors(program, 0, program.init(), data))
    # anywhere: the last reward, which ends the trajectory, is 1 where the bound of the others is 1.9
    least = 1.0 if rewards == "terminal" else 0.95
    assert least * (1 - 1e-5) <= norm / program.stages[0].mechanism.clip_norm <= 1.0


def test_rewards_of_the_bellman_equation_are_bounded():
    case = facts()
    centre, half = 0.5, 2.5
    every = [(r - centre * (1.0 - 0.9 * alive)) / half for r in (-1.0, 2.0) for alive in (0, 1)]
    assert reward_bound(case) == pytest.approx(max(map(abs, every)))
    assert reward_bound(case, at_end=True) == pytest.approx(1.5 / 2.5)


def test_it_is_accurate_on_the_chain():
    config = NoisyCounts(support="0,1", rewards="terminal")
    program, _, data = one_shot.made(config, one_shot.chain(1000, 5), "tabular", dtype=np.float32)
    for seed in range(2):
        theta = np.asarray(run(program, SeededNoise.from_seed(seed), data)[1])
        error = values(program, theta, (0.0, 1.0)) - one_shot.chain_values()
        assert math.sqrt(np.mean(error**2)) < 0.04


def test_noise_alone_gives_values_in_the_range():
    """Whatever the noise, the model is a model: probabilities, and values inside the public range."""
    program = one_shot.make(NoisyCounts(support="0,1"), helpers.chain_bounds(1000), "tabular")
    noise = np.random.default_rng(0).normal(size=(20, program.stages[0].mechanism.dimension)) * 1e6
    for draw in noise:
        state = np.asarray(program.update(0, program.init(), jnp.asarray(draw), 0))
        assert np.abs(state).max() <= 1.0  # and so it is a number


def test_what_is_not_said():
    with pytest.raises(DprlError, match="offsets need states in one component"):
        one_shot.make(NoisyCounts(support="0,1"), one_shot.extreme_bounds(9, 2), "tabular")
    with pytest.raises(DprlError, match="no transition of this support ends a trajectory"):
        one_shot.make(NoisyCounts(support="0", rewards="terminal"), one_shot.extreme_bounds(9), "tabular")
    for text in ("advance", "", "0;1", "0,1,", "1.5"):
        with pytest.raises(DprlError, match="support must be 'full', or whole numbers such as '0,1'"):
            NoisyCounts(support=text)
    with pytest.raises(DprlError, match=r"^noisy-counts: discount must be above 0"):
        NoisyCounts(discount=0.0)
