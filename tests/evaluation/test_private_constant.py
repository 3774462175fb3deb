"""The private constant against plain averages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.engine.program import PublicFacts
from dprl.errors import DprlError
from dprl.evaluation.private_constant import PrivateConstant
from dprl.value_functions.features import make_features
from dprl.value_functions.value_function import ValueFunction

from . import helpers, one_shot


def facts(log, discount: float) -> PublicFacts:
    return PublicFacts(log.bounds, make_features("tabular", log.bounds.observation), discount, 1.0)


def released(config, log, features: str, policy=None) -> np.ndarray:
    """Values of five states in the noiseless limit."""
    program, _, data = one_shot.made(config, log, features, policy)
    theta = one_shot.plain(program, data)[1]
    low, high = log.bounds.observation[0]
    states = np.linspace(low, high, 5)
    return ValueFunction(theta, program.facts.features, log.bounds.value_interval(config.discount))(np.round(states))


@pytest.mark.parametrize("features", ["tabular", "fourier:2", "columns", "fourier-coupled:2"])
def test_it_is_the_mean_return_on_policy(features):
    log = one_shot.stepped(60)
    returns = (log.reward.reshape(60, 5) * 0.9 ** np.arange(5)).sum(axis=1)
    np.testing.assert_allclose(released(PrivateConstant(discount=0.9), log, features), returns.mean(), rtol=1e-9)


def test_it_is_the_mean_weighted_reward_over_one_minus_gamma_off_policy():
    log = one_shot.stepped(60)
    ratio = np.where(log.action == 1, 1.2, 0.8)
    # rewards are weighted around the middle of their interval, which ratios with mean one leave where it is
    expected = (0.5 + np.mean(ratio * (log.reward - 0.5))) / (1.0 - 0.7)
    config = PrivateConstant(discount=0.7)
    assert config.resolve(facts(log, 0.7), ()).estimator == "rewards"
    got = released(config, log, "tabular", helpers.stepped_policy)
    low, high = log.bounds.value_interval(0.7)
    assert low < expected < high
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    # by option: the per-decision weighted return
    weighted = released(config.replace(estimator="returns"), log, "tabular", helpers.stepped_policy)
    product = np.cumprod(ratio.reshape(60, 5), axis=1)
    assert product.max() < 2.5
    centre, half = (low + high) / 2, (high - low) / 2
    y = np.zeros(60)
    for t in reversed(range(5)):
        alive = t < 4
        reward = (log.reward.reshape(60, 5)[:, t] - centre * (1.0 - 0.7 * alive)) / half
        y = ratio.reshape(60, 5)[:, t] * (reward + 0.7 * alive * y)
    np.testing.assert_allclose(weighted, centre + half * y.mean(), rtol=1e-9)


def test_a_value_outside_of_the_range_is_kept_inside():
    """The end of a trajectory is nothing to the mean reward, which goes on for ever: more than the range allows."""
    log = one_shot.stepped(60)
    high = log.bounds.value_interval(0.99)[1]
    got = released(PrivateConstant(estimator="rewards"), log, "tabular", helpers.stepped_policy)
    np.testing.assert_allclose(got, high)
    assert high < 0.3 / (1.0 - 0.99)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from(["returns", "rewards"]))
def test_no_clip_binds(seed, estimator):
    config = PrivateConstant(discount=0.9, estimator=estimator)
    program, _, data = one_shot.made(config, one_shot.extreme(60, seed), "tabular", one_shot.extreme_policy)
    vectors = one_shot.vectors(program, 0, program.init(), data)
    assert np.abs(vectors).max() <= program.stages[0].mechanism.clip_norm
    assert program.stages[0].mechanism.clip_norm == (1.0 if estimator == "returns" else 1.6)


def test_the_whole_budget_pays_for_one_number():
    program = one_shot.make(PrivateConstant(), one_shot.extreme_bounds(30), "tabular")
    assert [(s.mechanism.dimension, s.mechanism.steps) for s in program.stages] == [(1, 1)]


def test_what_is_not_said():
    log = one_shot.stepped(60)
    assert (
        PrivateConstant(discount=0.9).resolve(facts(log, 0.9), ()).estimator == "returns"
    )  # five steps are not long there
    with pytest.raises(DprlError, match=r"^constant: estimator = 'rewards' needs a discount below 1\.$"):
        PrivateConstant(discount=1.0, estimator="rewards")
    assert PrivateConstant(discount=1.0).algorithm == "constant"
