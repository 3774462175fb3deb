"""Gymnasium step by step, as learning sees it: clamped, scaled, from stated bounds alone."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.environments.learning_source import open_environment
from dprl.errors import DprlError

gymnasium = pytest.importorskip("gymnasium")

CART = {
    "units": 1,
    "horizon": 30,
    "reward": [0.0, 2.0],
    "observation": [[-2.4, 2.4], [-0.2, 0.2], [-0.2095, 0.2095], [-3.0, 3.0]],
    "actions": 2,
    "max_importance_ratio": 1.0,
}


def test_a_box_is_clamped_and_scaled():
    facts, source = open_environment("gymnasium:CartPole-v1", CART)
    assert facts.reward_bounds == (0.0, 2.0)  # as stated, whatever the rewards are
    assert facts.horizon == 30
    assert (facts.on_grid, facts.reward_ignores_action, facts.reward_lipschitz, facts.finite) == (
        False,
        False,
        None,
        None,
    )
    oracle = gymnasium.make("CartPole-v1", max_episode_steps=30)
    low, high = np.array(CART["observation"]).T

    def scaled(observation):
        return np.clip((np.asarray(observation, np.float64) - low) / (high - low), 0.0, 1.0)

    for seed in (3, 4):
        expected, _ = oracle.reset(seed=seed)
        np.testing.assert_array_equal(source.reset(seed), scaled(expected))
        outside, over, steps = False, False, 0
        while not over:
            expected, reward, terminated, truncated, _ = oracle.step(seed % 2)
            found = source.step(seed % 2)
            np.testing.assert_array_equal(found[0], scaled(expected))
            assert found[1:] == (reward, terminated, truncated and not terminated)
            outside |= bool(np.any((expected < low) | (expected > high)))
            over, steps = terminated or truncated, steps + 1
        assert outside
    source.close()
    oracle.close()


def test_a_discrete_space_is_finite():
    bounds = CART | {"observation": [[0.0, 15.0]], "actions": 4, "horizon": 10}
    facts, source = open_environment("gymnasium:FrozenLake-v1", bounds)
    assert facts.finite == (16, 4)
    assert source.reset(0) == [0.0]
    assert all(0.0 <= source.step(a)[0][0] * 15 <= 15 for a in (2, 1))
    source.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": 3}, "has 2 discrete actions"),
        ({"observation": [[0.0, 1.0]]}, "lists 1 components; the environment 'CartPole-v1' has 4"),
    ],
)
def test_bounds_of_another_environment(change, message):
    with pytest.raises(DprlError, match=message):
        open_environment("gymnasium:CartPole-v1", CART | change)
