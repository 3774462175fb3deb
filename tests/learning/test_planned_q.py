"""The table of a planned Q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning import planned_q
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import bound_answers, make_learning_plan
from dprl.mechanisms.noise import SeededNoise

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

    def add_noise(self, rewards: Any, *asked: Any) -> Any:
        return rewards


def test_a_planned_q_is_released_with_one_path_an_action():
    walk = Certain()
    model = walk.transition_matrix(planned_q.POINTS)
    plan = make_learning_plan(FunctionalQ(variant="output", people=1000), walk.facts, BUDGET, model)
    rewards = np.tile(0.5 - np.abs(planned_q.POINTS - 0.5), (2, 1))
    rewards[0, 3], rewards[1, 4:6] = np.nan, (3e14, -1.1)  # each counts as 0, as what is beyond the bounds does
    exact = planned_q.released_q(model, rewards, Exact(), 0.9, walk.facts)
    assert (exact.network, exact.value) == ("table:257", (0.0, pytest.approx(5.0)))
    best = np.asarray(planned_q.optimal_q(model, np.where(np.abs(rewards) <= 0.5, rewards, 0.0), 0.9))
    np.testing.assert_allclose(exact(planned_q.POINTS).T, best, rtol=1e-6, atol=1e-6)
    noisy = planned_q.released_q(model, rewards, bound_answers(plan, SeededNoise.from_seed(0)), 0.9, walk.facts)
    moved = (noisy(planned_q.POINTS).T - best) / plan.mechanism.std
    assert 0.3 < moved.std() < 3.0
    assert abs(np.corrcoef(moved)[0, 1]) < 0.9
    again = planned_q.released_q(model, rewards, bound_answers(plan, SeededNoise.from_seed(0)), 0.9, walk.facts)
    np.testing.assert_array_equal(again.weights["V"], noisy.weights["V"])
