"""Domains: how they are found, the chain's exact law, moments, the cache, and what every log must keep."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from collections import Counter

import numpy as np
import pytest
from tests.evaluation import helpers

from dprl.bounds import Bounds
from dprl.data.trajectories import assemble
from dprl.errors import DprlError
from dprl.policies import check_policy
from dprl.value_functions.features import make_features
from dprl_papers.domains.chain import Chain, draw_log
from dprl_papers.harness import domain as domains
from dprl_papers.harness.domain import MOMENT_SEED, Truth, cached, domain_names, from_rollout, load_domain

ALL = [
    *("acrobot", "cart_pole", "chain", "chain_bernoulli", "hiv", "mountain_car", "mountain_car_off_policy", "one_step"),
    "pong",
]
# hiv simulates a pool first
LOGS = [
    *("chain", "chain_bernoulli", "mountain_car_off_policy", "one_step"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("acrobot", "cart_pole", "mountain_car")),
]
ARRAYS = ("observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "episode_offsets")


def features_of(domain):
    return make_features(domain.features, domain.public.observation)


# Every domain.


@pytest.mark.parametrize("name", ALL)
def test_public_facts_and_true_values(name):
    domain = load_domain(name)
    assert domain.name == name
    assert domain.bounds(17) == dataclasses.replace(domain.public, units=17)
    check_policy(domain.target_policy, domain.public)
    check_policy(domain.behavior, domain.public)
    low, high = domain.public.value_interval(domain.discount)
    truth = domain.truth
    assert domain.range == high - low
    assert truth.states.shape == (len(truth.values), len(domain.public.observation))
    assert truth.weights.sum() == pytest.approx(1.0)
    assert np.all((truth.values >= low) & (truth.values <= high))
    floor, ceiling = np.array(domain.public.observation).T
    assert np.all((truth.states >= floor - 1e-6) & (truth.states <= ceiling + 1e-6))
    # a constant is no answer, and the stored values are much better than one
    assert truth.std > 0.01 * domain.range
    assert truth.standard_error < 0.25 * truth.std
    assert domain.on_policy == (domain.public.max_importance_ratio == 1.0)
    reward_low, reward_high = domain.public.reward
    assert reward_low <= domain.mean_reward <= reward_high


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_its_seeds_and_lies_within_the_bounds(name):
    domain = load_domain(name)
    log, again, other = domain.log(100, 3), domain.log(100, 3), domain.log(100, 4)
    for column in ARRAYS:
        np.testing.assert_array_equal(getattr(log, column), getattr(again, column))
    assert len(log.reward) != len(other.reward) or not np.array_equal(log.observation, other.observation)
    assert log.bounds == domain.bounds(100)
    check_log(domain, log)


def check_log(domain, log):
    """The log is what the reader makes of its rows: nothing clamped, cut or refused, every step a transition."""
    columns = {
        "observation": log.observation,
        "next_observation": log.next_observation,
        "action": log.action,
        "reward": log.reward,
        "behavior_prob": log.behavior_prob,
        "terminated": log.terminated,
        "truncated": np.zeros(len(log.reward)),
        "episode": log.episode_of(),
        "t": log.time(),
    }
    read = assemble(columns, log.bounds, "trajectory")
    for column in (*ARRAYS, "unit_offsets", "valid", "has_next"):
        np.testing.assert_array_equal(getattr(read, column), getattr(log, column), err_msg=column)
    assert log.units == log.episodes == log.bounds.units
    last = log.episode_offsets[1:] - 1
    inner = np.setdiff1d(np.arange(len(log.reward)), last)
    np.testing.assert_array_equal(log.next_observation[inner], log.observation[inner + 1])
    assert not log.terminated[inner].any()
    np.testing.assert_array_equal(log.terminated[last] | (log.lengths() == domain.public.horizon), True)
    # the logged probability is the behaviour policy's, and ratios keep the public bound
    table = np.asarray(domain.behavior(log.observation))
    np.testing.assert_allclose(table[np.arange(len(table)), log.action], log.behavior_prob, rtol=1e-6)
    ratios = domain.ratios(log)
    assert ratios.max() <= domain.public.max_importance_ratio
    if not domain.on_policy:
        above = np.asarray(domain.target_policy(log.observation))[np.arange(len(table)), log.action]
        np.testing.assert_allclose(ratios, above / log.behavior_prob, rtol=1e-6)  # the bound cuts none


def test_seeds_of_the_moments_are_no_trials():
    for seed in (-1, MOMENT_SEED):
        with pytest.raises(DprlError, match="seed"):
            load_domain("chain").log(5, seed)


def test_truth():
    truth = Truth(np.zeros((3, 1)), np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.25, 0.25]), np.array([0.0, 3.0, 4.0]))
    assert truth.mean == 2.0
    assert truth.std == pytest.approx(np.sqrt(0.5 + 0.25 * 4))
    assert truth.rmse(truth.values + 3.0) == pytest.approx(3.0)
    assert truth.standard_error == pytest.approx(2.5)


# The chain.


def paths(chain: Chain, success: float) -> dict[tuple, float]:
    """Probability of every trajectory, as its start, its moves and its last reward: the law, by enumeration."""
    n, law = chain.length - 1, {}
    for start in range(n):
        for length in range(1, chain.horizon + 1):
            for moves in itertools.product((0, 1), repeat=length):
                position = start + np.cumsum(moves)
                ended = position[-1] == n
                if (length > 1 and position[-2] >= n) or (length < chain.horizon and not ended):
                    continue
                weight = np.prod([chain.stay if move == 0 else 1 - chain.stay for move in moves]) / n
                for reward in (0.0, 1.0):
                    paid = (success if reward else 1 - success) if ended else float(reward == 0.0)
                    law[(start, moves, reward)] = weight * paid
    return {path: p for path, p in law.items() if p > 0}


@pytest.mark.parametrize("success", [1.0, 0.3])
def test_logs_of_the_chain_have_its_law(success):
    """A chi-square of whole trajectories against their exact probabilities, the horizon's cut among them."""
    chain, units = Chain(length=4, stay=0.4, horizon=5), 40_000
    law = paths(chain, success)
    assert sum(law.values()) == pytest.approx(1.0)
    bounds = Bounds(units=units, horizon=5, reward=(0.0, 1.0), observation=((0.0, 2.0),), actions=1)
    log = draw_log(chain, bounds, 8, success)
    state = log.observation[:, 0].astype(int)
    following = np.where(log.terminated, 3, log.next_observation[:, 0].astype(int))
    found = Counter()
    for a, b in itertools.pairwise(log.episode_offsets):
        assert np.all(following[a : b - 1] == state[a + 1 : b])
        assert not log.terminated[a : b - 1].any()
        assert not log.reward[a : b - 1].any()
        found[(state[a], tuple(following[a:b] - state[a:b]), log.reward[b - 1])] += 1
    assert set(found) <= set(law)
    # rare trajectories together, so that every expected count is at least 10
    common = [path for path, p in law.items() if p * units >= 10]
    rare = units - units * sum(law[path] for path in common)
    statistic = sum((found[path] - units * law[path]) ** 2 / (units * law[path]) for path in common)
    freedom = len(common) - 1
    if rare > 1e-9:
        counted = units - sum(found[path] for path in common)
        statistic += (counted - rare) ** 2 / rare
        freedom += 1
    assert freedom > 20
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("name", ["chain", "chain_bernoulli"])
@pytest.mark.parametrize("spec", ["columns", "fourier:3"])
def test_logs_of_the_chain_have_its_exact_moments(name, spec):
    domain = load_domain(name)
    features = make_features(spec, domain.public.observation)
    estimated = dataclasses.replace(domain, moment_units=16_384)._estimated_moments(features)
    for exact, label in zip(domain.moments(features), "AbC", strict=True):
        error = np.abs(estimated[label] - exact).max() / np.abs(exact).max()
        assert error < 0.08, label
    A, b, C = domain.moments(features)
    assert helpers.mspbe(np.linalg.solve(A, b), A, b, C) == pytest.approx(0.0, abs=1e-12)


def test_values_and_rewards_of_the_chains():
    paper, bernoulli = load_domain("chain"), load_domain("chain_bernoulli")
    np.testing.assert_allclose(bernoulli.truth.values, 0.2 * paper.truth.values)
    np.testing.assert_allclose(paper.truth.values, Chain().values())
    np.testing.assert_allclose(
        bernoulli.moments(features_of(paper))[1], 0.2 * paper.moments(features_of(paper))[1], rtol=1e-12
    )
    for domain, success in ((paper, 1.0), (bernoulli, 0.2)):
        log = domain.log(5000, 1)
        last = log.reward[log.episode_offsets[1:] - 1]
        assert set(np.unique(log.reward)) == {0.0, 1.0}
        assert log.reward.sum() == last.sum()
        assert last.mean() == pytest.approx(success, abs=5 * np.sqrt(success * (1 - success) / 5000) + 1e-12)
        # mean of the whole: one reward in expectation `success` over 40 steps
        assert log.reward.mean() == pytest.approx(domain.mean_reward, rel=0.1)
        returns = log.reward * domain.discount ** log.time()
        per = np.bincount(log.episode_of(), returns)
        assert per.mean() == pytest.approx(domain.truth.mean, abs=5 * per.std() / np.sqrt(5000))


# One step.


def test_the_trial_has_its_stated_values():
    """Importance-weighted outcomes of a large log average to the value, overall and along the second column."""
    domain = load_domain("one_step")
    log = domain.log(200_000, 5)
    weighted = domain.ratios(log) * log.reward
    features = features_of(domain)
    phi, truth = features(log.observation), domain.truth
    theta = np.linalg.lstsq(features(truth.states), truth.values, rcond=None)[0]
    gap = phi * (weighted - phi @ theta)[:, None]
    assert np.all(np.abs(gap.mean(axis=0)) < 5 * gap.std(axis=0) / np.sqrt(len(gap)))
    assert truth.rmse(features(truth.states) @ theta) < 0.01  # linear, up to the clips
    np.testing.assert_allclose(truth.values, 50.0 - 0.1 * (truth.states[:, 1] - 350.0), atol=0.05)


# Moments.


@pytest.mark.parametrize("name", ["mountain_car_off_policy", "one_step"])
def test_estimated_moments_are_the_papers_sums(name):
    """Transition by transition, as dense matrices."""
    domain = dataclasses.replace(load_domain(name), moment_units=6)
    features = features_of(domain)
    log = domain.simulate(domain.bounds(6), MOMENT_SEED)
    n = features.size
    A, b, C = np.zeros((n, n)), np.zeros(n), np.zeros((n, n))
    for start, stop in itertools.pairwise(log.episode_offsets):
        for i in range(start, stop):
            phi = features(log.observation[i : i + 1])[0]
            after = features(log.next_observation[i : i + 1])[0] * (not log.terminated[i])
            action = log.action[i]
            rho = domain.target_policy(log.observation[i : i + 1])[0, action] / log.behavior_prob[i]
            weight = 1.0 / (stop - start) / 6
            A += weight * rho * np.outer(phi, phi - domain.discount * after)
            b += weight * rho * log.reward[i] * phi
            C += weight * np.outer(phi, phi)
    found = domain.moments(features)
    for ours, theirs in zip(found, (A, b, C), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max())
    theta = np.random.default_rng(0).normal(size=n)
    residual = found[1] - found[0] @ theta
    assert helpers.mspbe(theta, *found) == pytest.approx(residual @ np.linalg.pinv(found[2]) @ residual, rel=1e-9)


def test_a_log_of_a_rollout_is_what_the_reader_makes_of_it():
    rng = np.random.default_rng(0)
    rows = 7
    columns = {
        "episode_id": np.array([0, 0, 0, 1, 2, 2, 2]),
        "observation": rng.uniform(-2, 2, (rows, 2)),
        "next_observation": rng.uniform(-2, 2, (rows, 2)),
        "action": rng.integers(0, 3, rows),
        "reward": rng.uniform(-3, 3, rows),
        "behavior_prob": rng.uniform(0.1, 1, rows),
        "terminated": np.array([0, 0, 1, 0, 0, 0, 1], bool),
        "truncated": np.array([0, 0, 0, 1, 0, 0, 0], bool),
    }
    bounds = Bounds(units=3, horizon=3, reward=(-1.0, 1.0), observation=((-1.0, 1.0),) * 2, actions=3)
    ours = from_rollout(columns, bounds)
    raw = {**columns, "episode": columns["episode_id"], "t": np.array([0, 1, 2, 0, 0, 1, 2])}
    del raw["episode_id"]
    theirs = assemble(raw, bounds, "trajectory")
    for field in dataclasses.fields(theirs):
        a, b = getattr(ours, field.name), getattr(theirs, field.name)
        np.testing.assert_array_equal(a, b) if isinstance(a, np.ndarray) else None
        assert isinstance(a, np.ndarray) or a == b


# Finding and keeping.


OWN = """
    import numpy as np
    from dprl.environments.rollout import rollout
    from dprl_papers.domains.chain import Chain
    from dprl_papers.harness.domain import Domain, Truth, from_rollout
    from dprl.policies import UniformPolicy
    from dprl.bounds import Bounds
    import jax

    CHAIN = Chain(length=4, actions=2, horizon=20)
    POLICY = UniformPolicy(2)

    def simulate(bounds, seed):
        return from_rollout(rollout(CHAIN, POLICY, jax.random.key(seed), bounds.units), bounds)

    DOMAIN = Domain(
        name="short", label="A short chain", discount=0.99, features="tabular",
        public=Bounds(units=1, horizon=20, reward=(0.0, 1.0), observation=((0.0, 2.0),), actions=2,
                      return_range=(0.0, 1.0)),
        target_policy=POLICY, behavior=POLICY, simulate=simulate, mean_reward=0.1, moment_units=2000,
        true_values=lambda: Truth(np.arange(3.0)[:, None], CHAIN.values(), np.full(3, 1 / 3), np.zeros(3)),
    )
"""


def test_a_domain_is_one_file(tmp_path):
    path = tmp_path / "my_domain.py"
    path.write_text(textwrap.dedent(OWN))
    for spec in (path, str(path)):
        domain = load_domain(spec)
        assert domain.name == "short"
        check_log(domain, domain.log(250, 1))
    features = features_of(domain)
    A, b, C = domain.moments(features)
    exact = Chain(length=4, actions=2, horizon=20).mspbe()
    scale = features(np.arange(3.0)[:, None])
    for ours, theirs in ((A, scale.T @ exact.A @ scale), (b, scale.T @ exact.b), (C, scale.T @ exact.C @ scale)):
        np.testing.assert_allclose(ours, theirs, atol=0.05 * np.abs(theirs).max())


def test_domains_that_are_none_are_refused(tmp_path):
    assert domain_names() == ALL
    broken, empty = tmp_path / "broken.py", tmp_path / "empty.py"
    broken.write_text("1 / 0")
    empty.write_text("DOMAIN = 3")
    for spec, words in (
        ("nothing", "There is no domain 'nothing'"),
        ("../chain", "There is no domain"),
        (tmp_path / "missing.py", "no domain file"),
        (broken, "ZeroDivisionError"),
        (empty, "defines no DOMAIN"),
    ):
        with pytest.raises(DprlError, match=words):
            load_domain(spec)


def test_what_is_kept_is_found_again_until_something_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = []

    def make():
        calls.append(1)
        return {"x": np.arange(6.0).reshape(2, 3).T}  # not contiguous

    source = tmp_path / "source.py"
    source.write_text("1")
    for expected in (1, 1):
        np.testing.assert_array_equal(cached("a/b", "key", make, (source,))["x"], make.__call__()["x"])
        calls.pop()
        assert len(calls) == expected
    cached("a/b", "other key", make, (source,))
    assert len(calls) == 2
    source.write_text("2")
    cached("a/b", "key", make, (source,))
    assert len(calls) == 3
    for file in domains.cache_folder().iterdir():
        file.write_bytes(b"damaged")
    cached("a/b", "key", make, (source,))
    assert len(calls) == 4
    cached("a/b", "key", make, (source,))
    assert len(calls) == 4
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder can be made there
    np.testing.assert_array_equal(cached("a/b", "key", make)["x"], make()["x"])
