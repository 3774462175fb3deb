"""Algorithm 1 of paper 001 as published: without noise against plain steps, its paths, its sigmas, what it claims."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.learning.test_plan import FACTS
from tests.learning.test_planned_q import Certain

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import make_learning_plan
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.q_function import q_values
from dprl_papers.paper_001_functional_q.published import (
    PublishedQ,
    budget_of_noise,
    constant,
    initial,
    published_q,
    published_rates,
    run_published,
    sigma_line_5,
    sigma_proof,
    sigma_theorem_5,
    variation,
)

BUDGET = Budget(0.9, 1e-4)


@pytest.mark.slow
def test_without_noise_it_is_plain_descent_and_with_it_paths_are_drawn_anew():
    walk, batch = Certain(), 10
    plan = make_learning_plan(
        PublishedQ(samples=30, batch=batch, network="mlp:3", step_size=0.1, resets=1),
        walk.facts, BUDGET,
    )  # fmt: skip
    config = plan.config
    assert isinstance(config, PublishedQ)
    rates = published_rates(config, plan.facts)
    run = jax.jit(partial(run_published, config, walk))
    start, noise = initial("mlp:3", random.key(4), 2), SeededNoise.from_seed(1).nodes()
    still = rates._replace(path=rates.path._replace(std=jnp.float64(0.0)))
    weights, history = run(still, noise, random.key(0), start)

    # by hand: greedy actions, targets of the same weights, one step down a round
    mine = {name: jnp.asarray(w, jnp.float64) for name, w in start.items()}
    state, time = 0.25, 0
    for j in range(3):
        rows = []
        for _ in range(batch):
            state = 0.25 if time == 0 else state
            action = int(np.argmax(q_values("mlp:3", mine, jnp.array([[state]]), jnp)[0]))
            after = min(max(state + (0.125 if action else -0.125), 0.0), 1.0)
            best = float(q_values("mlp:3", mine, jnp.array([[after]]), jnp).max())
            rows.append((state, action, 0.5 - abs(state - 0.5) + 0.9 * best))
            state, time = after, 0 if after >= 1.0 or time == 6 else time + 1

        def loss(w: dict, rows: list = rows) -> jax.Array:
            values = q_values("mlp:3", w, jnp.array([[s] for s, _, _ in rows]), jnp)
            errors = jnp.stack([values[i, a] - y for i, (_, a, y) in enumerate(rows)])
            return jnp.mean(errors**2) / 2.0

        mine = jax.tree.map(lambda w, g: w - 0.1 * g, mine, jax.grad(loss)(mine))
        for name, w in mine.items():
            np.testing.assert_allclose(np.asarray(history[name])[j], w, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(history["V"])[-1], np.asarray(weights["V"]))
    q = published_q(weights, config, plan.facts)
    points = np.linspace(0.0, 1.0, 5)
    np.testing.assert_allclose(q(points), q_values("mlp:3", mine, points[:, None]), rtol=1e-3, atol=1e-4)

    # the same path in the first round, whatever J; another in the second
    _, one = run(rates, noise, random.key(0), start)
    _, three = run(rates._replace(every=jnp.int32(1)), noise, random.key(0), start)
    assert np.abs(np.asarray(one["c"])[0] - np.asarray(history["c"])[0]).max() > 1e-4
    np.testing.assert_array_equal(np.asarray(one["c"])[0], np.asarray(three["c"])[0])
    assert np.abs(np.asarray(one["c"])[1] - np.asarray(three["c"])[1]).max() > 1e-4


def test_the_three_printed_sigmas():
    """Appendix E.3: which formula gives which number (docs/papers/001.md)."""
    found = {
        (epsilon, delta): [f(Budget(epsilon, delta), 5000, 64) for f in (sigma_line_5, sigma_theorem_5, sigma_proof)]
        for epsilon in (0.9, 0.45)
        for delta in (5e-5, 1e-4)
    }
    for case, expected in {
        (0.9, 5e-5): (3.50, 0.313, 3.69), (0.9, 1e-4): (3.37, 0.302, 3.56),
        (0.45, 5e-5): (4.77, 0.604, 7.11), (0.45, 1e-4): (4.59, 0.580, 6.84),
    }.items():  # fmt: skip
        assert found[case] == pytest.approx(expected, rel=5e-3)
    assert variation(64) == pytest.approx(4.5e-4)
    c = constant(64)
    line, theorem, proof = found[0.9, 1e-4]
    assert proof / theorem == pytest.approx(1.0 / math.sqrt(c))
    assert proof / line == pytest.approx(1.0 / math.sqrt(0.9))
    assert budget_of_noise(BUDGET).delta == 5e-5


def test_as_published_claims_and_certifies_nothing():
    plan = make_learning_plan(PublishedQ(), FACTS, BUDGET)
    assert plan.claim is not None
    assert plan.event is plan.mechanism is None
    assert plan.config.published_std == pytest.approx(0.313, abs=1e-3)
    assert plan.config.resets == 78
    assert [condition.holds for condition in plan.claim.conditions] == [False] * 3
    # with the noise of the proof, and less of everything else, the proof's own condition holds
    proper = make_learning_plan(PublishedQ(published_std=3.7), FACTS, BUDGET)
    assert [condition.holds for condition in proper.claim.conditions] == [False, False, True]


@pytest.mark.parametrize("options", [{"people": 9}, {"noise_multiplier": 2.0}, {"decay": 3.0}])
def test_what_is_not_the_papers_is_refused(options):
    with pytest.raises(DprlError, match="which has the paper's own"):
        make_learning_plan(FunctionalQ(calibration="as-published", **options), FACTS, BUDGET)
