"""The learner: what it learns from answers. That it learns is tested by papers/tests/test_compiled_learner.py."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting.budget import Budget
from dprl.audits.conformance.reward_functions import Walk
from dprl.learning import q_learner, q_updates
from dprl.learning.functional_q import FunctionalQ, resolve
from dprl.learning.learning_plan import make_learning_plan
from dprl.value_functions.q_function import q_values

FACTS = Walk().facts
SHORT: dict[str, Any] = {"samples": 60, "round": 10, "batch": 4, "network": "mlp:4", "people": 30}


def test_one_update_is_the_semi_gradient():
    """By hand: a linear function, one sample, the target's best action, and the end of an episode."""
    config = FunctionalQ(**{**SHORT, "network": "fourier:1", "variant": "gradient", "step_size": 0.5})
    plan = make_learning_plan(config, FACTS, Budget(0.9, 1e-4))
    shape = q_learner.shape_of(plan.config, plan.facts)
    rates = q_learner.rates_of(plan.config, plan.facts, plan.mechanism)
    state = q_updates.init(shape, np.zeros((2, 8), np.float32))
    V = jnp.array([[0.3, -0.2], [0.1, 0.4]], jnp.float32)
    state = state._replace(q=state.q._replace(weights={"V": V}))
    fresh = q_updates.Transitions(
        jnp.array([[0.2], [0.7]], jnp.float32), jnp.array([0, 1]), jnp.zeros(2),
        jnp.array([[0.4], [1.0]], jnp.float32), jnp.array([False, True]),
    )  # fmt: skip
    unit = {s: np.asarray(q_values("fourier:1", {"V": np.eye(2)}, np.array([[s]])))[0] for s in (0.2, 0.7, 0.4)}
    gradients = np.asarray(q_updates.gradients(shape, state, fresh))
    np.testing.assert_allclose(gradients, [[*unit[0.2], 0, 0], [0, 0, *unit[0.7]]], atol=1e-6)
    mean = np.array([0.01, 0.02, -0.03, 0.04])
    found = q_updates.gradient_step(shape, rates, state, fresh, gradients, mean, np.int32(0))
    known = [0.9 * (V @ unit[0.4]).max() - V[0] @ unit[0.2], 0.9 * -1.0 - V[1] @ unit[0.7]]
    # a reward of 0 for ever after is -1 on the learner's scale: rewards lie in [0, 1/2]
    scale = 0.1 / 0.25
    expected = V.reshape(-1) + 0.5 * (scale * mean + (known[0] * gradients[0] + known[1] * gradients[1]) / 2.0)
    np.testing.assert_allclose(np.asarray(found.q.weights["V"]).reshape(-1), expected, atol=1e-6)


def test_a_target_waits_and_an_action_is_as_exploring_as_is_said():
    config = FunctionalQ(**{**SHORT, "exploration": 0.2, "exploration_rounds": 4, "actor_critic": True})
    plan = make_learning_plan(config, FACTS, Budget(0.9, 1e-4))
    shape = q_learner.shape_of(plan.config, plan.facts)
    rates = q_learner.rates_of(plan.config, plan.facts, plan.mechanism)
    state = q_updates.init(shape, np.zeros((2, 8), np.float32))
    shape_of = {True: replace(shape, actor_critic=False), False: shape}
    coins = random.uniform(random.key(1), (20_000, 2))
    weights = dict(state.q.weights, c=jnp.array([0.0, 1.0], jnp.float32))
    greedy = state._replace(q=state.q._replace(weights=weights), actor=None)
    likely = np.exp(1.0) / (1.0 + np.exp(1.0))
    acting = state._replace(actor=state.q._replace(weights=weights))

    def taken(state: Any, j: Any) -> np.ndarray:
        exploring = q_updates.exploring_actions(shape_of[state.actor is None], rates, coins, j, jnp)
        best = partial(
            q_updates.policy_action, shape_of[state.actor is None], q_updates.acting_weights(state), np.zeros(1), xp=jnp
        )
        return np.where(exploring < 0, jax.jit(jax.vmap(best))(coins[:, 1]), exploring)

    for j, share in ((0, 1.0), (2, 0.5), (9, 0.2)):
        for chosen, best in ((greedy, 1.0), (acting, likely)):
            rate = float(taken(chosen, np.int32(j)).mean())
            assert abs(rate - (share / 2.0 + (1.0 - share) * best)) < 0.02


def test_a_plan_is_needed_for_what_is_learned():
    """Discount and network of resolved options alone."""
    resolved = resolve(FunctionalQ(**SHORT), FACTS)
    rates = q_learner.rates_of(replace(resolved, discount=0.5), FACTS, None)
    assert (float(rates.scale), float(rates.centre), float(rates.terminal_value)) == (2.0, 0.25, -1.0)
