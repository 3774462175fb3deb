"""Paper 001's figures: what they measure by independent means, and that each comes out whole on few seeds."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from dprl.environments.interval_walk import IntervalWalk
from dprl.learning.planned_q import POINTS
from dprl_papers.harness.reproduce import make_request, reproduce
from dprl_papers.harness.spec import load_paper
from dprl_papers.paper_001_functional_q import authors, returns
from dprl_papers.paper_001_functional_q.figures.figure_2a import noisy_values
from dprl_papers.paper_001_functional_q.returns import (
    BEST,
    GRID,
    RANDOM,
    EndsWalk,
    Point,
    policy_returns,
    recovered_reward,
    recovery_error,
)


def test_returns_of_policies_by_simulation():
    """A policy that is neither best nor worst, where the middle is paid and where the ends are."""
    grid = np.linspace(0.0, 1.0, GRID)
    actions = (grid < 0.25).astype(int)
    rng = np.random.default_rng(0)
    states, total = rng.random(20_000), np.zeros(20_000)
    for _ in range(50):
        total += 0.5 - np.abs(states - 0.5)
        up = states < 0.25
        states = np.clip(states + np.where(up, 1.0, -1.0) * rng.uniform(0.0, 0.25, states.shape), 0.0, 1.0)
    middle = policy_returns(actions)
    assert middle == pytest.approx(total.mean(), abs=0.1)
    assert policy_returns(np.stack([actions, actions]), ends=True) == pytest.approx([25.0 - middle] * 2)
    assert float(EndsWalk().reward(np.array([0.1]), 0)) == pytest.approx(0.4)
    assert returns.extreme_returns(1) == pytest.approx((RANDOM, BEST), abs=1e-3)
    # in two dimensions: the component that is chosen walks to the middle, the other stays
    low, high = returns.extreme_returns(2)
    along = np.broadcast_to((np.linspace(0.0, 1.0, 65) < 0.5).astype(int)[:, None], (65, 65))
    assert low < policy_returns(along) < high
    assert policy_returns(along) == pytest.approx((policy_returns((grid < 0.5).astype(int)) + 12.5) / 2.0, abs=0.02)


def test_the_bellman_equation_gives_the_reward_back():
    walk = IntervalWalk()
    model, reward = walk.transition_matrix(POINTS), 0.5 - np.abs(POINTS - 0.5)
    q = np.zeros((2, len(POINTS)))
    for _ in range(300):
        q = reward + 0.9 * model @ q.max(0)
    weights = np.full(len(POINTS), 1.0 / len(POINTS))
    found = recovered_reward(np.stack([q, q + 1.0]), model, 0.9)
    np.testing.assert_allclose(found, [reward, reward + 0.1], atol=1e-9)
    errors = recovery_error(np.stack([found[0], np.full_like(reward, weights @ reward)]), reward, weights)
    assert errors == pytest.approx([0.0, 1.0], abs=1e-9)


def test_first_visits_of_a_long_budget_are_the_returns_of_chance():
    """At a huge epsilon: the noise is gone, and middle cells are worth more than those at the ends."""
    values = np.mean([noisy_values(1e6, 1e-4, seed) for seed in range(4)], axis=0)
    assert values[4:6].mean() > values[[0, 9]].mean() + 0.3
    assert values[0, 1] > values[0, 0]  # at the left end it is better to go right
    assert values[9, 0] > values[9, 1]


def test_options_of_a_point_are_its_variant_s():
    """The points that the figures compare differ in what their names say, and share the radius and the learner."""
    functional = returns.config_of(Point(method="functional", people=50))
    assert (functional.reward_radius, functional.reward_lipschitz, functional.shared_path) == (0.01, 0.04, True)
    apart = returns.config_of(Point(method="functional", people=50, shared=False, lipschitz=16.0))
    assert (apart.reward_lipschitz, apart.shared_path) == (0.16, False)
    observed = returns.config_of(Point(method="observed-reward", people=50, updates=0.125))
    assert observed.replace(variant="functional").network == functional.network
    assert (observed.updates, functional.updates) == (6, 50)


def test_the_figures_that_need_no_learner(tmp_path):
    """One of them drawn: its claims, tables and chart are on the page, and how it was measured."""
    paper = load_paper("001")
    results = reproduce(make_request(paper, "prop10", quick=True), tmp_path / "out")
    (figure,) = results["figures"]
    assert [c["verdict"] for c in figure["claims"]] == ["does not hold"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Exceeded by two standard errors" in page
    assert page.count('<svg role="img"') == 1
    assert "dynamic programming on 257 points" in page
    assert "MSPBE" not in page


@pytest.mark.slow
def test_the_paths_of_the_authors_code_have_its_kernel():
    """``sigma^2 exp(-|x - y|)``, from 400 paths; each network and each action has one of its own."""
    each = jax.vmap(lambda key: authors.paths(key, 0.5))(jax.random.split(jax.random.key(0), 400))
    at = np.array([0, 1024, 2048, 4096])
    seen = np.asarray(each)[..., at]  # (400, networks, actions, points)
    expected = 0.25 * np.exp(-np.abs(at[:, None] - at) / 4096)
    for network, action in np.ndindex(2, 2):
        np.testing.assert_allclose(np.cov(seen[:, network, action].T), expected, atol=5.0 * 0.25 * np.sqrt(2.0 / 400))
    assert abs(np.corrcoef(seen[:, 0, 0, 0], seen[:, 1, 0, 0])[0, 1]) < 5.0 / np.sqrt(400)


@pytest.mark.slow
def test_the_authors_code_learns_without_noise_and_not_under_much():
    found = authors.learn([0.0, 4.0], 0, 3)
    last = found["rewards"][:, :, -10:].mean(axis=(1, 2))
    assert last[0] > 18.0
    assert last[1] < 15.0
    assert returns.normalised(found["greedy"][0]).mean() > 0.8


@pytest.mark.slow
def test_learning_without_noise_finds_the_middle():
    point = Point(method="none")
    found = returns.measure(point, 0, 2)
    assert returns.normalised(found["return"]).min() > 0.98
    assert found["recovered"].max() < 0.3
    curve = returns.measure(replace(point, curve=True), 0, 2)["return"]
    assert curve.shape == (2, 100)
    assert curve[:, -20:].mean() > curve[:, :5].mean() + 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["1", "2a", "radius", "lipschitz", "irl", "e3", "2a-equal", "dimensions", "authors", "actor-critic"]
)
def test_a_quick_figure(tmp_path, name):
    results = reproduce(make_request(load_paper("001"), name, quick=True), tmp_path / "out")
    (figure,) = results["figures"]
    assert all(c["verdict"] in ("holds", "does not hold") for c in figure["claims"])
    assert figure["tables"]
    again = reproduce(make_request(load_paper("001"), name, quick=True), tmp_path / "out")
    assert again == results
