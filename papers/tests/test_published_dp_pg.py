from __future__ import annotations

import math

import numpy as np
import pytest
from tests.learning.policy_gradient.test_pg_plan import facts

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.pg_plan import make_pg_plan
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import CONSTANT, Parametric
from dprl_papers.paper_003_dp_pg import published
from dprl_papers.paper_003_dp_pg.published import PublishedPG

TABLE = Parametric("tabular", ((0.0, 3.0),), actions=4)
BUDGET = Budget(0.5, 1e-6)


def test_noise_is_theorem_1s_and_the_utility_page_agrees():
    for epsilon, printed, exact in ((0.5, 21.2, 16.1), (1.0, 10.6, 8.45), (4.0, 2.65, 2.39)):
        found = published.noise_multipliers(Budget(epsilon, 1e-6))
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


def test_as_published_certifies_nothing():
    plan = make_pg_plan(PublishedPG(users=1000), facts(), Budget(0.5, 1e-6))
    assert plan.claim is not None
    assert plan.event is None
    assert plan.mechanism is None
    assert [c.holds for c in plan.claim.conditions] == [True, False]
    c = plan.config
    settings = PublishedPG(users=1000).settings(plan.policy, plan.facts, plan.budget)
    assert (c.batch, c.steps, c.noise, c.relation) == (
        settings.batch,
        settings.steps,
        "independent",
        "replace-one",
    )
    assert (c.estimator, c.baseline_weight, c.bootstrap, c.decay) == ("reinforce", 0.0, "none", "constant")
    assert (c.sharpness, c.scale_weight) == (1.0, 0.0)
    with pytest.raises(DprlError, match="nothing to learn"):
        make_pg_plan(PublishedPG(users=1000), facts(reward_bounds=(0.0, 0.0)), BUDGET)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise_multiplier": 1.0}, "contradicts calibration"),
        ({"baseline_weight": 0.0}, "published has no baseline_weight"),
        ({"sharpness": 2.0}, "published has no sharpness"),
        ({"scale_weight": 0.3}, "published has no scale_weight"),
    ],
)
def test_what_is_not_the_papers_is_refused(options, words):
    with pytest.raises(DprlError, match=words):
        make_pg_plan(DPPG(users=100, calibration="as-published", **options), facts(), BUDGET)
