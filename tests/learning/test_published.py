"""Algorithm 1 as published, without noise against plain steps, and its paths; and the table of a planned Q."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dprl.accounting.budget import Budget
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning import planner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import answers_of, make_learning_plan
from dprl.learning.published import initial, published_q, published_rates, run_published
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.q_function import q_values

BUDGET = Budget(0.9, 1e-4)


@dataclass(frozen=True, kw_only=True)
class Certain(IntervalWalk):
    """Without chance, so that it is the same inside and outside of JAX: steps of 1/8 from 1/4 until the upper end."""

    horizon: int = 7

    def reset(self, key: Any) -> Any:
        return jnp.array([0.25])

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        following = jnp.clip(jnp.where(jnp.asarray(action) == 1, state + 0.125, state - 0.125), 0.0, 1.0)
        return following, self.reward(jnp.asarray(state), action), following[0] >= 1.0


class Exact:
    """No noise at all."""

    def noised(self, rewards: Any, *asked: Any) -> Any:
        return rewards


@pytest.mark.slow
def test_without_noise_it_is_plain_descent_and_with_it_paths_are_drawn_anew():
    walk, batch = Certain(), 10
    plan = make_learning_plan(
        FunctionalQ(calibration="as-published", samples=30, batch=batch, network="mlp:3", step_size=0.1, resets=1),
        walk.facts, BUDGET,
    )  # fmt: skip
    config, rates = plan.config, published_rates(plan.config, plan.facts)
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


def test_a_planned_q_is_released_with_one_path_an_action():
    walk = Certain()
    model = walk.transition_matrix(planner.POINTS)
    plan = make_learning_plan(FunctionalQ(variant="output", people=1000), walk.facts, BUDGET, model)
    rewards = np.tile(0.5 - np.abs(planner.POINTS - 0.5), (2, 1))
    rewards[0, 3] = np.nan  # counts as 0
    exact = planner.released(model, rewards, Exact(), 0.9, walk.facts)
    assert (exact.network, exact.value) == ("table:257", (0.0, pytest.approx(5.0)))
    best = np.asarray(planner.optimal_q(model, np.nan_to_num(rewards), 0.9))
    np.testing.assert_allclose(exact(planner.POINTS).T, best, rtol=1e-6, atol=1e-6)
    noised = planner.released(model, rewards, answers_of(plan, SeededNoise.from_seed(0)), 0.9, walk.facts)
    moved = (noised(planner.POINTS).T - best) / plan.mechanism.std
    assert 0.3 < moved.std() < 3.0
    assert abs(np.corrcoef(moved)[0, 1]) < 0.9
    again = planner.released(model, rewards, answers_of(plan, SeededNoise.from_seed(0)), 0.9, walk.facts)
    np.testing.assert_array_equal(again.weights["V"], noised.weights["V"])
