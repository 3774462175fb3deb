"""The table of a planned Q."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.learning import planner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import answers_of, make_learning_plan
from dprl.mechanisms.answers import ExactAnswers
from dprl.mechanisms.noise import SeededNoise

from .test_q_learner import Certain

BUDGET = Budget(0.9, 1e-4)


def test_a_planned_q_is_released_with_one_path_an_action():
    walk = Certain()
    model = walk.transition_matrix(planner.POINTS)
    plan = make_learning_plan(FunctionalQ(variant="output", people=1000), walk.facts, BUDGET, model)
    rewards = np.tile(0.5 - np.abs(planner.POINTS - 0.5), (2, 1))
    rewards[0, 3] = np.nan  # counts as 0
    exact = planner.released(model, rewards, ExactAnswers(), 0.9, walk.facts)
    assert (exact.network, exact.value) == ("table:257", (0.0, pytest.approx(5.0)))
    best = np.asarray(planner.optimal_q(model, np.nan_to_num(rewards), 0.9))
    np.testing.assert_allclose(exact(planner.POINTS).T, best, rtol=1e-6, atol=1e-6)
    noised = planner.released(model, rewards, answers_of(plan, SeededNoise.from_seed(0)), 0.9, walk.facts)
    moved = (noised(planner.POINTS).T - best) / plan.mechanism.std
    assert 0.3 < moved.std() < 3.0
    assert abs(np.corrcoef(moved)[0, 1]) < 0.9
    again = planner.released(model, rewards, answers_of(plan, SeededNoise.from_seed(0)), 0.9, walk.facts)
    np.testing.assert_array_equal(again.weights["V"], noised.weights["V"])
