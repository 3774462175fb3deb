"""The learner: what it learns from answers, in compiled code and step by step, and that it learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dprl.accounting.budget import Budget
from dprl.audits.conformance.reward_functions import SmallWalk
from dprl.learning import planner, q_learner, q_updates
from dprl.learning.functional_q import FunctionalQ, resolve
from dprl.learning.learning_plan import answers_of, make_learning_plan
from dprl.learning.run_coins import KeyedCoins, RoundCoins
from dprl.mechanisms.answers import ExactAnswers
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.q_function import q_values

SHORT: dict[str, Any] = {"samples": 60, "round": 10, "batch": 4, "network": "mlp:4", "people": 30}


@dataclass(frozen=True)
class Certain(SmallWalk):
    """Without chance, so that it is the same inside and outside of JAX: steps of 1/8 from 1/4 until the upper end."""

    horizon: int = 7

    def reset(self, key: Any) -> Any:
        return jnp.array([0.25])

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        following = jnp.clip(jnp.where(jnp.asarray(action) == 1, state + 0.125, state - 0.125), 0.0, 1.0)
        reward = self.reward(jnp.asarray(state)[None], jnp.asarray(action)[None])[0]
        return following, reward, following[0] >= 1.0


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
    return plan, q_learner.shape_of(plan.config, plan.facts), q_learner.rates_of(plan.config, plan.facts)


def leaves(state: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(state)]


class SameCoins(KeyedCoins):
    """Those of a compiled run, on the host."""

    def of_round(self, shape: Any, j: Any) -> RoundCoins:
        given = super().of_round(shape, j)
        return RoundCoins(np.asarray(given.exploring), given.replayed, np.zeros(shape.round, int))


CASES = [{"variant": "functional", "actor_critic": True}, {}, {"variant": "gradient", "network": "fourier:2"}]


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES)
def test_compiled_batched_and_step_by_step_are_one(options):
    """The same states, actions and answers, and so the same weights; the two batched runs differ in their noise."""
    plan, shape, rates = parts(**options)
    sources = [SeededNoise.from_seed(i).stream("reward") for i in (1, 2)]
    answers = [answers_of(plan, source, memo=False) for source in sources]
    key = random.key(5)
    both = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *answers)
    batched, history = jax.jit(jax.vmap(lambda a: q_learner.run(shape, Certain(), rates, a, key)))(both)
    told: list[int] = []
    outside = q_learner.run_on_host(shape, Outside(), rates, answers[0], SameCoins(key), told.append)
    assert told == [10, 20, 30, 40, 50, 60]
    for a, b in zip(leaves(batched), leaves(outside), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=2e-4, atol=2e-6)
    assert any(np.abs(x[0] - x[1]).max() > 1e-3 for x in leaves(batched.q.weights))
    # what is released is the mean of the second half
    mean = jax.tree.map(lambda x: np.asarray(x)[0, 3:].mean(axis=0), history)
    found = q_learner.q_of(jax.tree.map(lambda x: x[0], batched), shape, plan.facts, 0.9)
    for name, weights in mean.items():
        np.testing.assert_allclose(found.weights[name], weights, rtol=1e-4, atol=1e-6)
    assert (found.actor is not None) == plan.config.actor_critic
    if not shape.gradient:  # no observation of the terminal step is bootstrapped from, and the memory is full
        memory = batched.memory
        np.testing.assert_array_equal(np.asarray(memory.over)[0], np.asarray(memory.following)[0, :, 0] >= 1.0)
        assert np.asarray(memory.states).std() > 0.05


def test_one_update_is_the_semi_gradient():
    """By hand: a linear function, one sample, the target's best action, and the end of an episode."""
    config = FunctionalQ(**{**SHORT, "network": "fourier:1", "variant": "gradient", "step_size": 0.5})
    plan = make_learning_plan(config, Certain().facts, Budget(0.9, 1e-4))
    shape, rates = q_learner.shape_of(plan.config, plan.facts), q_learner.rates_of(plan.config, plan.facts)
    state = q_updates.init(shape, np.zeros((2, 8), np.float32))
    V = jnp.array([[0.3, -0.2], [0.1, 0.4]], jnp.float32)
    state = state._replace(q=state.q._replace(weights={"V": V}))
    fresh = q_updates.Transitions(
        jnp.array([[0.2], [0.7]], jnp.float32), jnp.array([0, 1]), jnp.zeros(2),
        jnp.array([[0.4], [1.0]], jnp.float32), jnp.array([False, True]),
    )  # fmt: skip
    unit = {s: np.asarray(q_values("fourier:1", {"V": np.eye(2)}, np.array([[s]])))[0] for s in (0.2, 0.7, 0.4)}
    gradients = np.asarray(jax.jit(q_updates.gradients, static_argnums=0)(shape, state, fresh))
    np.testing.assert_allclose(gradients, [[*unit[0.2], 0, 0], [0, 0, *unit[0.7]]], atol=1e-6)
    mean = np.array([0.01, 0.02, -0.03, 0.04])
    step = jax.jit(q_updates.gradient_step, static_argnums=0)
    found = step(shape, rates, state, fresh, gradients, mean, np.int32(0))
    known = [0.9 * (V @ unit[0.4]).max() - V[0] @ unit[0.2], 0.9 * -1.0 - V[1] @ unit[0.7]]
    # a reward of 0 for ever after is -1 on the learner's scale: rewards lie in [0, 1/2]
    scale = 0.1 / 0.25
    expected = V.reshape(-1) + 0.5 * (scale * mean + (known[0] * gradients[0] + known[1] * gradients[1]) / 2.0)
    np.testing.assert_allclose(np.asarray(found.q.weights["V"]).reshape(-1), expected, atol=1e-6)


def test_a_target_waits_and_an_action_is_as_exploring_as_is_said():
    config = FunctionalQ(**{**SHORT, "exploration": 0.2, "exploration_rounds": 4, "actor_critic": True})
    plan = make_learning_plan(config, Certain().facts, Budget(0.9, 1e-4))
    shape, rates = q_learner.shape_of(plan.config, plan.facts), q_learner.rates_of(plan.config, plan.facts)
    state = q_updates.init(shape, np.zeros((2, 8), np.float32))
    shape_of = {True: replace(shape, actor_critic=False), False: shape}
    coins = random.uniform(random.key(1), (20_000, 2))
    weights = dict(state.q.weights, c=jnp.array([0.0, 1.0], jnp.float32))
    greedy = state._replace(q=state.q._replace(weights=weights), actor=None)
    likely = np.exp(1.0) / (1.0 + np.exp(1.0))
    acting = state._replace(actor=state.q._replace(weights=weights))

    def taken(state: Any, j: Any) -> np.ndarray:
        exploring = q_updates.explored(shape_of[state.actor is None], rates, coins, j)
        best = partial(q_updates.best, shape_of[state.actor is None], q_updates.acting_weights(state), np.zeros(1))
        return np.where(exploring < 0, jax.jit(jax.vmap(best))(coins[:, 1]), exploring)

    for j, share in ((0, 1.0), (2, 0.5), (9, 0.2)):
        for chosen, best in ((greedy, 1.0), (acting, likely)):
            rate = float(taken(chosen, np.int32(j)).mean())
            assert abs(rate - (share / 2.0 + (1.0 - share) * best)) < 0.02


@pytest.mark.slow
def test_it_learns_what_value_iteration_plans():
    """The greedy policy walks to the middle: without noise, and with that of rewards of 1,000 people."""
    walk = SmallWalk(horizon=50)
    points = planner.POINTS
    rewards = np.tile(0.5 - np.abs(points - 0.5), (2, 1))
    best = np.asarray(planner.optimal_q(walk.transition_matrix(points), rewards, 0.9)).argmax(axis=0)
    clear = np.abs(points - 0.5) > 0.05
    cases = [
        ("functional", 1000, None), ("observed-reward", 1000, None), ("observed-reward", 1000, ExactAnswers()),
        ("gradient", 1000, None),
    ]  # fmt: skip
    for variant, people, answers in cases:
        plan = make_learning_plan(FunctionalQ(variant=variant, people=people), walk.facts, Budget(0.9, 1e-4))
        shape, rates = q_learner.shape_of(plan.config, plan.facts), q_learner.rates_of(plan.config, plan.facts)
        answers = (
            answers_of(plan, SeededNoise.from_seed(3).stream("reward"), memo=False) if answers is None else answers
        )
        state, _ = jax.jit(q_learner.run, static_argnums=(0, 1))(shape, walk, rates, answers, random.key(0))
        q = q_learner.q_of(state, shape, plan.facts, 0.9)
        assert np.mean(q.policy(points)[clear] == best[clear]) > 0.97, variant
        if variant != "gradient":
            value = np.asarray(planner.optimal_q(walk.transition_matrix(points), rewards, 0.9))
            assert np.abs(q(points).T - value).mean() < 0.25


def test_a_plan_is_needed_for_what_is_learned():
    """Discount and network of resolved options alone."""
    resolved = resolve(FunctionalQ(**SHORT), Certain().facts)
    rates = q_learner.rates_of(replace(resolved, discount=0.5), Certain().facts)
    assert (float(rates.scale), float(rates.centre), float(rates.ending)) == (2.0, 0.25, -1.0)
