"""The network that plays Pong and the values of its policy; logs of it where ale-py is installed."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from safetensors.numpy import load_file

from dprl_papers.domains import pong
from dprl_papers.harness.domain import load_domain
from dprl_papers.harness.dqn import q_values


def test_the_policy_sees_six_bytes():
    memory = np.zeros((2, 128))
    memory[0, [49, 54, 51, 50, 58, 56]] = (128, 64, 192, 255, 255, 2)
    expected = [[0, -0.5, 0.5, 127 / 128, -0.5, 1, -4], [-1, -1, -1, -1, 0, 0, 0]]
    np.testing.assert_allclose(pong.network_inputs(memory), expected)
    policy = pong.load_policy()
    states = np.random.default_rng(0).integers(0, 256, (200, 128)).astype(np.float32)
    found = policy(states)
    preferences = np.exp(
        (q := q_values(policy.weights, pong.network_inputs(states)) / pong.TEMPERATURE) - q.max(1, keepdims=True)
    )
    softmax = preferences / preferences.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, 0.8 * softmax + 0.2 / 3, atol=1e-4)
    unseen = states.copy()
    unseen[:, [i for i in range(128) if i not in (*pong._POSITIONS, *pong._SPEEDS)]] = 7
    np.testing.assert_array_equal(policy(unseen), found)


def test_the_domain_has_a_start_and_needs_the_games():
    games = load_domain("pong")
    assert games.extra == "atari"
    assert games.start is not None
    assert load_file(pong.ASSETS)["greedy_return"] >= -21


@pytest.mark.slow
def test_logs_and_values():
    """Scores, mean reward and mean value as stored, in pieces of games."""
    pytest.importorskip("ale_py")
    domain = load_domain("pong")
    whole = domain.simulate(dataclasses.replace(domain.bounds(150), horizon=200), 11)
    low, high = domain.public.reward
    assert set(np.unique(whole.reward)) <= {low, 0.0, high}
    assert np.all(whole.terminated[whole.episode_offsets[1:] - 1] | (whole.lengths() == 200))
    table = domain.behavior(whole.observation.astype(np.float32))
    np.testing.assert_allclose(table[np.arange(len(table)), whole.action], whole.behavior_prob, rtol=1e-9)
    # points are far apart, so that values lie in the declared range
    places = np.flatnonzero(whole.reward)
    same = whole.episode_of()[places][1:] == whole.episode_of()[places][:-1]
    assert np.diff(places)[same].min() >= 33
    low, high = domain.public.value_interval(domain.discount)
    assert high >= 1 / (1 - domain.discount**33)
    # mean discounted reward from states that are far from where their piece is cut, against the stored values
    means, factors = [], domain.discount ** np.arange(200)
    for a, b in itertools.pairwise(whole.episode_offsets):
        last = b - 80 * (not whole.terminated[b - 1])
        means.append(np.mean([whole.reward[t:b] @ factors[: b - t] for t in range(a, last, 5)]))
    error = np.hypot(np.std(means) / np.sqrt(len(means)), domain.truth.std / np.sqrt(len(domain.truth.values)))
    assert np.mean(means) == pytest.approx(domain.truth.mean, abs=5 * error)
    assert whole.reward.mean() == pytest.approx(domain.mean_reward, abs=0.005)


@pytest.mark.slow
def test_values_of_saved_states_are_repeated():
    pytest.importorskip("ale_py")
    policy = pong.load_policy()
    memories, saved = pong.visit(policy, 3, seed=5)
    values, errors = pong.simulate_truth(policy, saved, seed=6, repetitions=20)
    again, errors_again = pong.simulate_truth(policy, saved, seed=7, repetitions=20)
    assert memories.shape == (3, 128)
    assert np.all(np.abs(values - again) < 5 * np.hypot(errors, errors_again) + 0.02)
    stored = load_file(pong.ASSETS)
    start, error = pong.simulate_truth(policy, [pong.Pong(9).save()], seed=8, repetitions=40)
    assert start[0] == pytest.approx(stored["start_values"][0], abs=5 * np.hypot(error[0], stored["start_errors"][0]))


@pytest.mark.slow
def test_scores_are_those_stored():
    pytest.importorskip("ale_py")
    domain, kept = load_domain("pong"), load_file(pong.ASSETS)
    log = domain.log(5, 1)
    assert log.terminated.sum() == 5
    scores = np.bincount(log.episode_of(), log.reward)
    assert scores.mean() == pytest.approx(kept["mean_return"], abs=5 * (scores.std() + 1) / np.sqrt(5))
