"""Learned policies and values by rollouts: Mountain Car and HIV."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from dprl.environments.rollout import rollout
from dprl.errors import DprlError
from dprl.policies import TabularPolicy
from dprl.value_functions.features import make_features
from dprl_papers.domains import acrobot, cart_pole, hiv, mountain_car
from dprl_papers.domains.chain import Chain
from dprl_papers.harness.domain import MOMENT_SEED, load_domain
from dprl_papers.harness.q_learning import SoftPolicy, fitted_q, learn, step_scale
from dprl_papers.harness.simulated import Simulator, mean_return


def z_scores(values, errors, again, errors_again):
    return (values - again) / np.sqrt(errors**2 + errors_again**2)


# The tools.


def test_a_soft_policy_is_a_mixture():
    features = make_features("fourier:2", ((0.0, 1.0),))
    weights = np.random.default_rng(0).normal(size=(3, 4))
    states = np.random.default_rng(1).random((50, 1))
    policy = SoftPolicy(weights, features, 0.3, 0.2)
    preferences = np.exp(features(states) @ weights / 0.3)
    softmax = preferences / preferences.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(policy(states), 0.8 * softmax + 0.05, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(jax.jit(policy)(states)), policy(states), rtol=1e-12)
    np.testing.assert_allclose(policy.values(states), features(states) @ weights, atol=1e-12)
    for wrong in ({"temperature": 0.0}, {"epsilon": 1.1}):
        with pytest.raises(DprlError, match="soft policy"):
            SoftPolicy(**{"weights": weights, "features": features, "temperature": 1.0, "epsilon": 0.0, **wrong})


def test_features_learn_at_the_pace_of_their_frequency():
    coupled = make_features("fourier-coupled:2", ((0.0, 1.0),) * 2)
    expected = [1, 1, 1 / 2, 1, 2**-0.5, 5**-0.5, 1 / 2, 5**-0.5, 8**-0.5]
    np.testing.assert_allclose(step_scale(coupled), expected)
    np.testing.assert_array_equal(step_scale(make_features("columns", ((0.0, 1.0),))), 1.0)


def optimal(chain: Chain, features, exploration: float = 0.0) -> np.ndarray:
    """Q of the best policy, the last action everywhere but where it explores, in the features' weights."""
    n = chain.length - 1
    best = np.full((n, chain.actions), exploration / chain.actions)
    best[:, -1] += 1.0 - exploration
    values = np.append(chain.values(best), 0.0)
    advance = (1 - chain.stay) * np.arange(1, chain.actions + 1) / chain.actions
    gain = np.append(chain.discount * values[1:n], 1.0)
    q = advance * gain[:, None] + (1 - advance) * chain.discount * values[:n, None]
    return np.linalg.solve(features(np.arange(n, dtype=np.float64)[:, None]), q)


SHORT = Chain(length=4, actions=2, stay=0.2, discount=0.8, horizon=50)
TABLE = make_features("tabular", SHORT.observation_bounds)


@pytest.mark.slow
def test_q_learning_finds_the_best_values_of_a_table():
    weights = learn(SHORT, TABLE, 0, steps=20_000, step_size=0.02, exploration=0.5, parallel=4)
    np.testing.assert_allclose(weights, optimal(SHORT, TABLE), atol=0.03)
    np.testing.assert_array_equal(
        weights, learn(SHORT, TABLE, 0, steps=20_000, step_size=0.02, exploration=0.5, parallel=4)
    )
    with pytest.raises(DprlError, match="diverged"):
        learn(SHORT, TABLE, 0, steps=20_000, step_size=5.0, exploration=0.5, parallel=4)


@pytest.mark.slow
def test_sarsa_finds_the_values_of_exploring():
    found = learn(SHORT, TABLE, 0, steps=20_000, step_size=0.02, exploration=0.5, parallel=4, rule="Sarsa")
    np.testing.assert_allclose(found, optimal(SHORT, TABLE, 0.5), atol=0.008)
    assert np.abs(optimal(SHORT, TABLE, 0.5) - optimal(SHORT, TABLE)).max() > 0.02
    with pytest.raises(DprlError, match="diverged"):
        learn(SHORT, TABLE, 0, steps=20_000, step_size=5.0, exploration=0.5, parallel=4, rule="Sarsa")


@pytest.mark.slow
def test_fitted_q_finds_the_best_values_of_a_table():
    log = rollout(SHORT, TabularPolicy(np.full((3, 2), 0.5)), jax.random.key(1), 4000)
    phi, after = (TABLE(log[name].astype(np.float64)) for name in ("observation", "next_observation"))
    weights = fitted_q(phi, after, log["action"], log["reward"], log["terminated"], SHORT.discount)
    np.testing.assert_allclose(weights, optimal(SHORT, TABLE), atol=0.02)


class Halved(Chain):
    """Half of a reward is more than is allowed."""

    @property
    def reward_bounds(self):
        return (0.0, 0.5)


@pytest.mark.slow
def test_rollouts_have_the_chains_values():
    simulator = partial(Simulator, steps=200, batch=5_000)
    chain, table = Chain(length=6, actions=2, horizon=3), np.random.default_rng(0).dirichlet(np.ones(2), size=5)
    policy, states = TabularPolicy(table), np.arange(5, dtype=np.int32)
    values, errors = simulator(environment=chain).values(policy, states, 0, 2500)
    assert np.all(errors < 0.003)
    assert np.all(np.abs(values - chain.values(table)) < 5 * errors)  # the horizon of 3 ends nothing
    halved, _ = simulator(environment=Halved(length=6, actions=2, horizon=3)).values(policy, states, 0, 2500)
    np.testing.assert_allclose(halved, values / 2)


# Mountain Car.


@pytest.mark.slow
def test_the_cars_policies():
    """No action below 1/15, so ratios of the uniform policy are at most 5; greedily the car is out in time."""
    on, off = load_domain("mountain_car"), load_domain("mountain_car_off_policy")
    rng = np.random.default_rng(0)
    states = rng.uniform(*np.array(on.public.observation).T, (5000, 2))
    probabilities = np.asarray(on.behavior(states))
    assert probabilities.min() >= 1 / 15 - 1e-12
    assert probabilities.min() < 0.07
    assert (np.asarray(off.target_policy(states)) / np.asarray(off.behavior(states))).max() <= 5.0 + 1e-9
    np.testing.assert_array_equal(probabilities, np.asarray(off.behavior(states)))
    greedy = mountain_car.soft_policy(on.behavior.weights, temperature=1e-3, epsilon=0.0)
    lengths = np.bincount(rollout(mountain_car.CAR, greedy, jax.random.key(0), 200)["episode_id"])
    assert lengths.mean() < 130
    soft = on.log(200, 0)
    assert soft.terminated.sum() > 0.9 * 200
    assert soft.lengths().mean() < 175


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["mountain_car", "mountain_car_off_policy"])
def test_stored_values_of_the_car(name, many):
    """A few of the stored values, or every fifth, by rollouts with other coins."""
    domain = load_domain(name)
    size, (seed, repetitions) = len(domain.truth.values), (7, 60) if many else (6, 40)
    some = np.arange(0, size, 5) if many else np.random.default_rng(5).choice(size, 8, replace=False)
    values, errors = mountain_car.SIMULATOR.values(domain.target_policy, domain.truth.states[some], seed, repetitions)
    stored = domain.truth.values[some], domain.truth.standard_errors[some]
    # rollouts from a state that is a step from the goal, or never leaves the valley, do not differ: hence the 0.05
    z = z_scores(*stored, values, np.hypot(errors, 0.05))
    assert np.abs(z).max() < 5
    assert not many or np.mean(z**2) < 1.6


@pytest.mark.slow
def test_the_cars_policy_is_learned_again():
    kept = load_file(mountain_car.ASSETS)
    np.testing.assert_array_equal(mountain_car.learn_weights(), kept["weights"])


# Cart Pole and Acrobot.


@pytest.mark.parametrize(("module", "spread"), [(cart_pole, 3.0), (acrobot, 3.0)])
def test_values_differ_where_the_policy_is_soft(module, spread):
    """A policy that never fails, or never succeeds, has one value everywhere: nothing would be left to learn."""
    domain, kept = module.DOMAIN, load_file(module.ASSETS)
    assert np.sqrt(domain.truth.std**2 - domain.truth.standard_error**2) > spread
    horizon = domain.public.horizon
    assert 0.2 * horizon < abs(kept["mean_return"]) < 0.5 * horizon
    assert kept["greedy_return"] > kept["mean_return"] + 20
    least = np.asarray(domain.behavior(domain.truth.states)).min()
    assert module.EPSILON / domain.public.actions <= least < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("module", [cart_pole, acrobot])
def test_what_the_files_of_sarsa_hold(module):
    """The weights are learned again; values and returns by other coins."""
    domain, kept = module.DOMAIN, load_file(module.ASSETS)
    np.testing.assert_allclose(module.learn_weights(), kept["weights"], atol=1e-9)  # XLA's flags change last digits
    some = np.arange(0, len(domain.truth.values), 5)
    values, errors = module.SIMULATOR.values(domain.target_policy, domain.truth.states[some], 7, 100)
    stored = domain.truth.values[some], domain.truth.standard_errors[some]
    z = z_scores(*stored, values, np.hypot(errors, 0.02))  # one step from the end returns do not differ
    assert np.abs(z).max() < 5
    assert np.mean(z**2) < 1.6
    log = domain.log(1000, 9)
    returns = np.bincount(log.episode_of(), log.reward)
    assert mean_return(log) == pytest.approx(kept["mean_return"], abs=5 * returns.std() * np.sqrt(2 / 1000))
    assert domain.mean_reward == pytest.approx(log.reward.mean(), abs=0.005)
    discounted = np.bincount(log.episode_of(), log.reward * domain.discount ** log.time())
    error = np.hypot(discounted.std() / np.sqrt(1000), domain.policy_value_error)
    assert discounted.mean() == pytest.approx(domain.policy_value, abs=5 * error + 0.001)


# HIV.


@pytest.fixture
def few_patients(monkeypatch):
    monkeypatch.setattr(hiv, "POOL", 64)
    hiv._pool.cache_clear()
    yield
    hiv._pool.cache_clear()


@pytest.mark.slow
def test_logs_of_patients_are_drawn_without_replacement(few_patients):
    domain = load_domain("hiv")
    log, whole = domain.log(40, 1), domain.log(64, 2)
    first = log.observation[log.episode_offsets[:-1]]
    assert len(np.unique(first, axis=0)) == 40
    every = whole.observation[whole.episode_offsets[:-1]]
    assert len(np.unique(np.vstack([first, every]), axis=0)) == 64
    assert not np.array_equal(first, domain.log(40, 3).observation[log.episode_offsets[:-1]])
    np.testing.assert_array_equal(log.observation, domain.log(40, 1).observation)
    np.testing.assert_array_equal(log.lengths(), hiv.HORIZON)
    inner = np.setdiff1d(np.arange(len(log.reward)), log.episode_offsets[1:] - 1)
    np.testing.assert_array_equal(log.next_observation[inner], log.observation[inner + 1])
    assert not log.terminated.any()
    table = np.asarray(domain.behavior(log.observation))
    np.testing.assert_allclose(table[np.arange(len(table)), log.action], log.behavior_prob, rtol=1e-5)
    # no reward is clipped
    low, high = domain.public.reward
    assert low < log.reward.min()
    assert log.reward.max() < high
    with pytest.raises(DprlError, match="at most 64"):
        domain.log(65, 0)
    fresh = domain.simulate(domain.bounds(64), MOMENT_SEED)
    assert len(np.unique(np.vstack([fresh.observation[:: hiv.HORIZON], every]), axis=0)) == 128


def test_ratios_of_two_softmaxes_are_at_most_the_number_of_actions():
    domain = load_domain("hiv")
    states = np.random.default_rng(0).uniform(-5, 8, (20_000, 6))
    ratios = np.asarray(domain.target_policy(states)) / np.asarray(domain.behavior(states))
    assert 1.4 < ratios.max() <= 4.0
    assert domain.public.max_importance_ratio == 4.0


@pytest.mark.slow
def test_the_patients_policy_is_learned_again():
    np.testing.assert_allclose(hiv.learn_weights(), load_file(hiv.ASSETS)["weights"], rtol=1e-9)


@pytest.mark.slow
def test_some_of_the_patients_stored_values():
    domain = load_domain("hiv")
    some = np.arange(0, len(domain.truth.values), 8)
    values, errors = hiv.SIMULATOR.values(domain.target_policy, domain.truth.states[some], 6, 48)
    z = z_scores(domain.truth.values[some], domain.truth.standard_errors[some], values, errors)
    assert np.abs(z).max() < 5
    rewards = hiv._rollout(domain.target_policy, 9, 256)["reward"].reshape(256, hiv.HORIZON)
    returns = rewards @ domain.discount ** np.arange(hiv.HORIZON)
    error = np.hypot(returns.std() / 16, domain.policy_value_error)
    assert returns.mean() == pytest.approx(domain.truncated_value, abs=5 * error)
    log = rewards.mean(axis=1)
    assert log.mean() == pytest.approx(domain.mean_reward, abs=5 * log.std() / 16 * np.sqrt(1 + 256 / 1024))


def test_a_domain_is_replaced_whole():
    """Copies of a domain keep no truth of the original."""
    domain = load_domain("chain")
    other = dataclasses.replace(domain, true_values=load_domain("chain_bernoulli").true_values)
    np.testing.assert_allclose(other.truth.values, 0.2 * domain.truth.values)
