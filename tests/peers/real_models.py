"""Models of PyTorch, Flax and d3rlpy as policies, as they are."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest
import torch
from d3rlpy.algos import DiscreteCQLConfig
from flax import linen

import dprl
from dprl.policies.loading import check_policy, synthetic_states

BOUNDS = dprl.Bounds(
    units=100, horizon=1, reward=(0.0, 1.0), observation=((-1.0, 1.0),) * 2, actions=3, max_importance_ratio=3.0
)
STATES = synthetic_states(BOUNDS)


class Wide(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32), gymnasium.spaces.Discrete(3)


class Layer(linen.Module):
    @linen.compact
    def __call__(self, states):
        return linen.softmax(linen.Dense(3)(states))


def torch_module():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Softmax(dim=1))


def linen_module():
    return Layer().bind(Layer().init(jax.random.key(0), STATES))


@pytest.mark.parametrize("make", [torch_module, linen_module])
def test_a_module_is_a_policy(make):
    module = make()
    policy = dprl.load_policy(module, 3)
    check_policy(policy, BOUNDS)
    if make is torch_module:
        with torch.no_grad():
            expected = module(torch.tensor(STATES, dtype=torch.float32)).numpy()
    else:
        expected = np.asarray(module(STATES))
    np.testing.assert_allclose(policy(STATES), expected, rtol=0, atol=1e-7)


def test_scores_are_no_probabilities():
    with pytest.raises(dprl.DprlError, match="on public synthetic states"):
        check_policy(dprl.load_policy(torch.nn.Linear(2, 3), 3), BOUNDS)


def test_a_policy_of_d3rlpy_takes_its_action():
    learner = DiscreteCQLConfig().create(device="cpu:0")
    learner.build_with_env(Wide())
    policy = dprl.load_policy(learner, 3)
    check_policy(policy, BOUNDS)
    np.testing.assert_array_equal(policy(STATES), np.eye(3)[learner.predict(STATES)])


def test_a_module_is_evaluated():
    rng = np.random.default_rng(0)
    log = {"observation": rng.uniform(-1, 1, (100, 2)), "action": rng.integers(0, 3, 100),
           "reward": rng.uniform(0, 1, 100), "behavior_prob": np.full(100, 1 / 3)}  # fmt: skip
    budget = dprl.Budget(5.0, 1e-4)
    release = dprl.evaluate(log, torch_module(), budget, bounds=BOUNDS, algorithm="importance-sampling")
    assert list(release.values) == ["Sequential"]
    assert release.certificate["status"] == "verified"
