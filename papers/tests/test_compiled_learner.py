"""The learner compiled as a whole is the one that releases step by step; and it learns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.learning.test_planned_q import Certain

from dprl.accounting.budget import Budget
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning import planned_q, q_learner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import make_learning_plan
from dprl.learning.q_learner import RoundCoins
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_001_functional_q import compiled_learner
from dprl_papers.paper_001_functional_q.compiled_learner import ExactAnswers, KeyedCoins

SHORT: dict[str, Any] = {"samples": 60, "round": 10, "batch": 4, "network": "mlp:4", "people": 30}


class Outside:
    """The same as a source."""

    def __init__(self) -> None:
        self.state, self.time = 0.25, 0

    def reset(self, seed: int) -> np.ndarray:
        self.state, self.time = 0.25, 0
        return np.array([self.state])

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        reward = 0.5 - abs(self.state - 0.5)
        self.state = min(max(self.state + (0.125 if action == 1 else -0.125), 0.0), 1.0)
        self.time += 1
        return np.array([self.state]), reward, self.state >= 1.0, self.time >= 7


def parts(**options: Any) -> tuple[Any, Any, Any]:
    plan = make_learning_plan(FunctionalQ(**{**SHORT, **options}), Certain().facts, Budget(0.9, 1e-4))
    return (
        plan,
        q_learner.shape_of(plan.config, plan.facts),
        q_learner.rates_of(plan.config, plan.facts, plan.mechanism),
    )


def leaves(state: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(state)]


class SameCoins(KeyedCoins):
    """Those of a compiled run, on the host."""

    def for_round(self, shape: Any, j: Any) -> RoundCoins:
        given = super().for_round(shape, j)
        return RoundCoins(np.asarray(given.exploring), given.replayed, np.zeros(shape.round, int))


CASES = [{"variant": "functional", "actor_critic": True}, {}, {"variant": "gradient", "network": "fourier:2"}]


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES)
def test_compiled_batched_and_step_by_step_are_one(options):
    """The same states, actions and answers, and so the same weights; the two batched runs differ in their noise."""
    plan, shape, rates = parts(**options)
    sources = [SeededNoise.from_seed(i).stream("reward") for i in (1, 2)]
    answers = [plan.mechanism.bind(source) for source in sources]
    key = random.key(5)
    both = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *answers)
    batched, history = jax.jit(jax.vmap(lambda a: compiled_learner.run(shape, Certain(), rates, a, key)))(both)
    told: list[int] = []
    outside = q_learner.run_on_host(shape, Outside(), rates, answers[0], SameCoins(key), told.append)
    assert told == [10, 20, 30, 40, 50, 60]
    for a, b in zip(leaves(batched), leaves(outside), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=2e-4, atol=2e-6)
    assert any(np.abs(x[0] - x[1]).max() > 1e-3 for x in leaves(batched.q.weights))
    # what is released is the mean of the second half
    mean = jax.tree.map(lambda x: np.asarray(x)[0, 3:].mean(axis=0), history)
    found = q_learner.q_function_of(jax.tree.map(lambda x: x[0], batched), shape, plan.facts, 0.9)
    for name, weights in mean.items():
        np.testing.assert_allclose(found.weights[name], weights, rtol=1e-4, atol=1e-6)
    assert (found.actor is not None) == plan.config.actor_critic
    if not shape.gradient:  # no observation of the terminal step is bootstrapped from, and the memory is full
        memory = batched.memory
        np.testing.assert_array_equal(np.asarray(memory.over)[0], np.asarray(memory.following)[0, :, 0] >= 1.0)
        assert np.asarray(memory.states).std() > 0.05


@pytest.mark.slow
def test_it_learns_what_value_iteration_plans():
    """The greedy policy walks to the middle: without noise, and with that of rewards of 1,000 people."""
    walk = IntervalWalk()
    points = planned_q.POINTS
    rewards = np.tile(0.5 - np.abs(points - 0.5), (2, 1))
    best = np.asarray(planned_q.optimal_q(walk.transition_matrix(points), rewards, 0.9)).argmax(axis=0)
    clear = np.abs(points - 0.5) > 0.05
    cases = [
        ("functional", 1000, None), ("observed-reward", 1000, None), ("observed-reward", 1000, ExactAnswers()),
        ("gradient", 1000, None),
    ]  # fmt: skip
    for variant, people, answers in cases:
        plan = make_learning_plan(FunctionalQ(variant=variant, people=people), walk.facts, Budget(0.9, 1e-4))
        shape, rates = (
            q_learner.shape_of(plan.config, plan.facts),
            q_learner.rates_of(plan.config, plan.facts, plan.mechanism),
        )
        answers = answers or plan.mechanism.bind(SeededNoise.from_seed(3).stream("reward"))
        state, _ = jax.jit(compiled_learner.run, static_argnums=(0, 1))(shape, walk, rates, answers, random.key(0))
        q = q_learner.q_function_of(state, shape, plan.facts, 0.9)
        assert np.mean(q.policy(points)[clear] == best[clear]) > 0.97, variant
        if variant != "gradient":
            value = np.asarray(planned_q.optimal_q(walk.transition_matrix(points), rewards, 0.9))
            assert np.abs(q(points).T - value).mean() < 0.25
