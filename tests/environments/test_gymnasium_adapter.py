from __future__ import annotations

import sys

import numpy as np
import pytest

from dprl.environments.gymnasium_adapter import describe, rollout_gymnasium, simulated_bounds
from dprl.errors import DprlError
from dprl.policies import UniformPolicy

gymnasium = pytest.importorskip("gymnasium")


def leaning(states):
    right = 1.0 / (1.0 + np.exp(-3.0 * states[:, 2]))
    return np.column_stack([1.0 - right, right])


def test_facts():
    facts = describe("CartPole-v1")
    assert facts.actions == 2
    assert facts.horizon == 500
    assert [ends is None for ends in facts.observation] == [False, True, False, True]
    assert describe("FrozenLake-v1", horizon=7).observation == ((0.0, 15.0),)
    assert describe("FrozenLake-v1", horizon=7).horizon == 7


def test_a_trajectory_is_gymnasiums_own():
    """Replaying the logged actions from the logged start in a fresh environment gives the logged rows."""
    columns = rollout_gymnasium("CartPole-v1", leaning, 3, 12, parallel=5)
    rows = len(columns["t"])
    assert columns["observation"].shape == columns["next_observation"].shape == (rows, 4)
    np.testing.assert_allclose(
        columns["behavior_prob"], leaning(columns["observation"])[np.arange(rows), columns["action"]], rtol=1e-6
    )
    oracle = gymnasium.make("CartPole-v1")
    for episode in range(12):
        own = np.flatnonzero(columns["episode_id"] == episode)
        np.testing.assert_array_equal(columns["t"][own], np.arange(len(own)))
        oracle.reset()
        oracle.unwrapped.state = columns["observation"][own[0]].astype(float)
        for row in own:
            observation, reward, terminated, truncated, _ = oracle.step(int(columns["action"][row]))
            np.testing.assert_allclose(columns["next_observation"][row], observation, atol=1e-4)
            assert columns["reward"][row] == reward
            assert columns["terminated"][row] == terminated
            assert columns["truncated"][row] == truncated
        assert terminated
        assert not truncated


def test_the_number_side_by_side_changes_nothing():
    one, many = (rollout_gymnasium("CartPole-v1", leaning, 3, 7, parallel=p) for p in (1, 4))
    for name in one:
        np.testing.assert_array_equal(one[name], many[name])
    other = rollout_gymnasium("CartPole-v1", leaning, 4, 7)
    assert not np.array_equal(one["observation"][:5], other["observation"][:5])


def test_the_horizon_truncates_and_bounds_hold_what_was_seen():
    columns = rollout_gymnasium("CartPole-v1", UniformPolicy(2), 0, 8, horizon=5)
    assert np.all(columns["truncated"] == (columns["t"] == 4))
    facts = describe("CartPole-v1", 5)
    bounds = simulated_bounds(facts, columns, 8, 2.0)
    low, high = np.array(bounds.observation).T
    assert np.all(columns["observation"] >= low)
    assert np.all(columns["next_observation"] <= high)
    assert bounds.reward == (1.0, 1.0)
    assert bounds.observation[0] == facts.observation[0]
    assert bounds.horizon == 5


def test_discrete_observations():
    columns = rollout_gymnasium("FrozenLake-v1", UniformPolicy(4), 0, 5)
    assert columns["observation"].shape[1] == 1
    assert np.all(columns["terminated"] | columns["truncated"] | (np.diff(columns["episode_id"], append=-1) == 0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nowhere-v0", "cannot make the environment 'Nowhere-v0'"),
        ("Pendulum-v1", "no discrete actions"),
        ("Blackjack-v1", "neither a box nor discrete"),
    ],
)
def test_what_cannot_be_simulated_is_refused(name, message):
    with pytest.raises(DprlError, match=message):
        rollout_gymnasium(name, UniformPolicy(2), 0, 2)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(DprlError, match="not installed"):
        describe("CartPole-v1")


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(DprlError, match="returned shape"):
        rollout_gymnasium("CartPole-v1", UniformPolicy(3), 0, 2)
