from __future__ import annotations

import math

import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.learning.policy_gradient import published
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import CONSTANT, Parametric

TABLE = Parametric("tabular", ((0.0, 3.0),), actions=4)
BUDGET = Budget(0.5, 1e-6)


def test_noise_is_theorem_1s_and_the_utility_page_agrees():
    for epsilon, printed, exact in ((0.5, 21.2, 16.1), (1.0, 10.6, 8.45), (4.0, 2.65, 2.39)):
        found = published.wasted(Budget(epsilon, 1e-6))
        assert found["as published"] == pytest.approx(printed, rel=2e-3)
        assert found["replace one"] == pytest.approx(exact, rel=2e-3)
        assert found["zero out one"] == found["replace one"] / 2


def test_batch_and_step_size_minimise_theorem_2s_bound():
    users, d, gap = 10**6, 16, 0.5
    m = published.published_batch(users, d, 0.5)
    assert m == round((1 / 0.5) ** (2 / 3) * (users * d) ** (1 / 3))
    steps, smooth = users // m, 2.0 + 0.5
    noise = d * published.published_std(1.0, math.sqrt(2.0), m, BUDGET) ** 2
    variance = 2.0 / m + noise
    eta = published.published_step_size(1.0, math.sqrt(2.0), 0.5, gap, m, steps, noise)
    bound = lambda x: 2 * gap / (x * steps) + smooth * variance * x  # noqa: E731  (Eq. 6)
    assert eta < 1 / (smooth * (1 - 1 / m))
    assert bound(eta) < min(bound(1.01 * eta), bound(0.99 * eta))
    # few steps: the other end of the minimum
    assert published.published_step_size(1.0, 1.0, 0.5, gap, m, 1, 0.0) == pytest.approx(1 / (1.5 * (1 - 1 / m)))


@pytest.mark.parametrize("policy", [TABLE, Parametric("softmax", ((-1.0, 1.0),) * 3, actions=3)])
def test_no_score_of_a_softmax_is_longer_than_g(policy):
    import jax

    bound, _ = published.score_bounds(policy, 1)
    rng, longest = np.random.default_rng(0), 0.0
    score = jax.jit(jax.grad(lambda theta, s, a: policy.log_prob(theta, s[None], a[None])[0]))
    for _ in range(100):
        low, high = np.array(policy.observation).T
        state = np.where(rng.random(len(low)) < 0.5, low, high).astype(np.float32)
        theta = (6.0 * rng.normal(size=policy.size)).astype(np.float32)
        longest = max(
            longest, *(float(np.linalg.norm(score(theta, state, np.int32(a)))) for a in range(policy.actions))
        )
    assert 0.95 * bound < longest <= bound * (1 + 1e-5)
    assert longest > math.sqrt(1 - 1 / policy.actions)  # the paper's G (E1)


def test_the_trainer_draws_sigma_on_the_mean():
    settings = published.published_settings(TABLE, 5000, 1.0, 1, BUDGET)
    shape, rates, mechanism = published.published_run(settings, TABLE, 1)
    assert (shape.steps, shape.batch) == (settings.steps, settings.batch)
    assert not shape.baseline
    assert mechanism.arithmetic == "unclipped"
    assert float(rates.step_size) == pytest.approx(settings.step_size)
    bound = mechanism.bind(SeededNoise.from_seed(0))
    draws = np.stack([bound.draw(step) for step in range(mechanism.steps)]) / settings.batch
    assert draws.std() == pytest.approx(settings.std, rel=5 / math.sqrt(2 * draws.size))
    vectors = np.full((3, TABLE.size), 50.0)
    np.testing.assert_allclose(mechanism.clipped_sum(vectors, np.array([True, False, True])), 100.0)


def test_conditions_and_what_has_no_bound():
    assert [c.holds for c in published.conditions(Budget(0.5, 1e-6))] == [True, False]
    assert [c.holds for c in published.conditions(Budget(1.0, 1e-6))] == [False, False]
    with pytest.raises(DprlError, match="bound of the score"):
        published.score_bounds(Parametric("mlp:4", ((0.0, 1.0),), actions=2), 1)
    gaussian = Parametric("gaussian", ((0.0, 1.0),), action=((0.0, 1.0),), std=0.5)
    assert published.score_bounds(gaussian, 2)[0] == pytest.approx(2 * 4 * math.hypot(1.0, CONSTANT) / 0.5)
