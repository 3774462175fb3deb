"""The Open Bandit Pipeline: its synthetic feedback, a learner of its own, and its estimators on the same log."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from obp.dataset import SyntheticBanditDataset, linear_behavior_policy, logistic_reward_function
from obp.ope import DoublyRobust, InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting

import dprl

ROUNDS, ACTIONS = 3000, 4
WEIGHTS = np.random.default_rng(2).normal(size=(3, ACTIONS))
BUDGET = dprl.Budget(1.0, 1e-6)


def target(states):
    scores = np.exp(states @ WEIGHTS)
    return scores / scores.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def feedback():
    return SyntheticBanditDataset(
        n_actions=ACTIONS, dim_context=3, reward_function=logistic_reward_function,
        behavior_policy_function=linear_behavior_policy, beta=0.3, random_state=1,
    ).obtain_batch_bandit_feedback(n_rounds=ROUNDS)  # fmt: skip


@pytest.fixture(scope="module")
def bounds():
    return dprl.Bounds(
        units=ROUNDS, horizon=1, reward=(0.0, 1.0), observation=((-8.0, 8.0),) * 3, actions=ACTIONS,
        max_importance_ratio=4.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def asked(feedback):
    """What every estimator of obp is asked."""
    dist = target(feedback["context"])
    taken = dist[np.arange(ROUNDS), feedback["action"]] / feedback["pscore"]
    assert taken.max() < 4.0  # what is declared is true, so that nothing is cut
    own = {name: feedback[name] for name in ("reward", "action", "pscore")}
    return {**own, "action_dist": dist[:, :, None], "position": np.zeros(ROUNDS, int)}


def reference(feedback, bounds, algorithm):
    release = dprl.evaluate(feedback, target, BUDGET, bounds=bounds, algorithm=algorithm, simulated=True, seed=0)
    return release, release.estimate["targets"][0]["reference"]


def test_inverse_probability_weighting(feedback, bounds, asked):
    _, found = reference(feedback, bounds, dprl.ImportanceSampling(discount=1.0, value_baseline=0.0))
    assert found == pytest.approx(InverseProbabilityWeighting().estimate_policy_value(**asked), abs=1e-10)


def test_self_normalised(feedback, bounds, asked):
    """The released ratio is drawn to the middle by what its noise calls for, which is none here."""
    plan = dprl.make_plan(dprl.ImportanceSampling(estimator="self-normalised"), bounds, BUDGET, [target])
    total = plan.query.unit_vectors(dprl.read_log(feedback, bounds=bounds).load(), [target]).sum(axis=0)
    found = plan.query.decode(SimpleNamespace(noise_std=1e-9), total)[0].value
    expected = SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**asked)
    assert found == pytest.approx(expected, abs=1e-10)


def test_doubly_robust(feedback, bounds, asked):
    options = dprl.DoublyRobust(discount=1.0)
    release, found = reference(feedback, bounds, options)
    query = dprl.make_plan(options, bounds, BUDGET, [target]).query.around(release.value_function)
    # for each unit the value function of the others
    fractions = query.baseline.fractions(dprl.read_log(feedback, bounds=bounds).load(), target)
    values = query.remaining_return.low[0] + fractions * query.remaining_return.width[0]
    expected = DoublyRobust().estimate_policy_value(
        **asked, estimated_rewards_by_reg_model=np.repeat(values[:, None, None], ACTIONS, axis=1)
    )
    assert found == pytest.approx(expected, abs=1e-10)
