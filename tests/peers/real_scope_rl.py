"""SCOPE-RL: a logged dataset that it made, a policy of its own, and its estimators on the same log."""

from __future__ import annotations

from types import SimpleNamespace

import d3rlpy
import gym
import numpy as np
import pytest
from d3rlpy.algos import DoubleDQNConfig
from scope_rl.dataset import SyntheticDataset
from scope_rl.ope.discrete import (
    DoublyRobust,
    PerDecisionImportanceSampling,
    SelfNormalizedTIS,
    TrajectoryWiseImportanceSampling,
)
from scope_rl.policy import EpsilonGreedyHead, SoftmaxHead

import dprl

PEOPLE, STEPS, DISCOUNT = 300, 3, 0.9
BUDGET = dprl.Budget(1.0, 1e-6)
BOUNDS = dprl.Bounds(
    units=PEOPLE, horizon=STEPS, reward=(0.0, 1.0), observation=((-3.0, 3.0),) * 2, actions=2,
    max_importance_ratio=2.5, max_cumulative_ratio=2.5**STEPS,
)  # fmt: skip


class Walk(gym.Env):
    observation_space, action_space = gym.spaces.Box(-3.0, 3.0, (2,), np.float32), gym.spaces.Discrete(2)
    step_per_episode = STEPS
    random = np.random.default_rng(5)

    def reset(self, *, seed=None, options=None):
        self.time, self.place = 0, self.random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self.place, {}

    def step(self, action):
        self.time += 1
        moved = self.place + (action - 0.5) / 2.0 + self.random.normal(0.0, 0.1, 2)
        self.place = np.clip(moved, -3.0, 3.0).astype(np.float32)
        return self.place, float(self.place[0] > 0.0), False, self.time == STEPS, {}


@pytest.fixture(scope="module")
def heads():
    d3rlpy.seed(7)
    learner = DoubleDQNConfig().create(device="cpu:0")
    learner.build_with_env(Walk())
    return (
        EpsilonGreedyHead(learner, n_actions=2, epsilon=0.8, name="behavior", random_state=1),
        SoftmaxHead(learner, n_actions=2, tau=1.0, name="target", random_state=1),
    )


@pytest.fixture(scope="module")
def logged(heads):
    made = SyntheticDataset(env=Walk(), max_episode_steps=STEPS)
    return made.obtain_episodes(behavior_policies=heads[0], n_trajectories=PEOPLE, random_state=3)


@pytest.fixture(scope="module")
def target(heads):
    """The target policy in double precision: single precision adds up to one to eight digits only."""

    def policy(states):
        found = heads[1].calc_action_choice_probability(states).astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)

    return policy


@pytest.fixture(scope="module")
def asked(target, logged):
    """What every estimator of SCOPE-RL is asked."""
    dist = target(logged["state"])
    assert (dist[np.arange(PEOPLE * STEPS), logged["action"]] / logged["pscore"]).max() < 2.5
    own = {name: logged[name] for name in ("step_per_trajectory", "action", "reward", "pscore")}
    return {**own, "evaluation_policy_action_dist": dist, "gamma": DISCOUNT}


def reference(logged, target, algorithm):
    asked = {"bounds": BOUNDS, "algorithm": algorithm, "simulated": True, "seed": 0}
    release = dprl.evaluate(logged, target, BUDGET, **asked)
    return release, release.estimate["targets"][0]["reference"]


def test_a_head_answers_with_its_probabilities(heads, logged):
    states = logged["state"]
    expected = heads[1].calc_action_choice_probability(states)
    np.testing.assert_array_equal(dprl.load_policy(heads[1], 2)(states), expected)
    asked = {"bounds": BOUNDS, "algorithm": "importance-sampling"}
    assert list(dprl.evaluate(logged, heads[1], dprl.Budget(10.0, 1e-4), **asked).values) == ["SoftmaxHead"]


@pytest.mark.parametrize(
    ("estimator", "peer"),
    [("trajectory", TrajectoryWiseImportanceSampling), ("per-decision", PerDecisionImportanceSampling)],
)
def test_importance_sampling(logged, target, asked, estimator, peer):
    options = dprl.ImportanceSampling(discount=DISCOUNT, estimator=estimator, value_baseline=0.0)
    _, found = reference(logged, target, options)
    assert found == pytest.approx(peer().estimate_policy_value(**asked), abs=1e-10)


def test_self_normalised(logged, target, asked):
    """SCOPE-RL normalises by the mean weight plus 1e-10, of which ten digits see nothing."""
    plan = dprl.make_plan(
        dprl.ImportanceSampling(discount=DISCOUNT, estimator="self-normalised"), BOUNDS, BUDGET, [target]
    )
    total = plan.query.unit_vectors(dprl.read_log(logged, bounds=BOUNDS).load(), [target]).sum(axis=0)
    found = plan.query.decode(SimpleNamespace(noise_std=1e-9), total)[0].value
    assert found == pytest.approx(SelfNormalizedTIS().estimate_policy_value(**asked), rel=1.1e-10)


def test_doubly_robust(logged, target, asked):
    options = dprl.DoublyRobust(discount=DISCOUNT)
    release, found = reference(logged, target, options)
    # for each unit the value function of the others, in what can still return, as docs/proofs/doubly-robust.md has it
    query = dprl.make_plan(options, BOUNDS, BUDGET, [target]).query
    query = query.around(release.value_function)
    log = dprl.read_log(logged, bounds=BOUNDS).load()
    step, come = np.tile(np.arange(STEPS), PEOPLE), query.remaining_return
    values = np.array(come.low)[step] + query.baseline.fractions(log, target) * np.array(come.width)[step]
    expected = DoublyRobust().estimate_policy_value(
        **asked, state_action_value_prediction=np.repeat(values[:, None], 2, axis=1)
    )
    assert found == pytest.approx(expected, abs=1e-10)
