"""The strongest attack known on private policy gradient: a canary user in the first batch, all noised sums seen.

The pair of users goes through the release's own loop, from their answers to the exact sum of each batch; the noise of
the release's own mechanism is added in every trial. Whoever sees all noised sums, and knows all other users, knows
every policy that was ever shown: whatever is learned from them tells less. Everything in here is simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.algorithms.policy_gradient import trainer
from dprl.algorithms.policy_gradient.estimator import Rates, Shape, Trajectory
from dprl.algorithms.policy_gradient.on_host import run_on_host
from dprl.algorithms.policy_gradient.pg_plan import PGPlan
from dprl.algorithms.policy_gradient.published import published_run
from dprl.algorithms.trials import PlanCanary
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.clipped_sum import ClippedGaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.strategy import whitened
from dprl.mechanisms.user_sum import FloatUserSum, UserSum

STREAM = "gradients"
"""Name of the noise stream."""


def small_facts(policy: str | None) -> LearningFacts:
    """A bandit in which a score is longer than the default clip, of linear policies and of networks."""
    continuous = policy is not None and "gaussian" in policy
    return LearningFacts(
        name="small bandit",
        observation=((-1.0, 1.0),) * 3,
        actions=0 if continuous else 8,
        action=((-1.0, 1.0),) if continuous else None,
        horizon=1,
        discount=1.0,
        reward_bounds=(-1.0, 1.0),
    )


def canary_of_plan(plan: PGPlan) -> PlanCanary:
    """The attack that fits a plan for :func:`small_facts`."""
    if plan.published:
        return _published(plan)
    if isinstance(plan.mechanism, UserSum):
        return _one_pass(plan, plan.mechanism)
    if isinstance(plan.mechanism, ClippedGaussianSum):
        return _resampled(plan, plan.mechanism)
    raise RuntimeError("There is no attack on this mechanism.")


# --- the pair of users ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pushing:
    """All users of the first batch push against the canary, who has the first place; nobody comes afterwards.

    So the sums of later batches do not depend on the policies, and all that the canary moves is known beforehand.
    """

    plan: PGPlan
    present: bool

    def batch(self, first: int, count: int, act: Any) -> Trajectory:
        """See :func:`dprl.algorithms.policy_gradient.on_host.run_on_host`."""
        del act
        context, action, reward = push(self.plan.facts, self.plan.config.interactions)
        observations, actions, rewards = (np.stack([x] * count) for x in (context, action, -reward))
        length = np.full(rewards.shape[:-1], int(first == 0), np.int32)
        if first == 0 and self.present:
            rewards[0] = reward
        elif first == 0 and self.plan.config.relation == "zero-out" and not self.plan.published:
            length[0] = 0
        return Trajectory(observations, actions, rewards, length, np.ones(length.shape, bool))


def push(facts: LearningFacts, interactions: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Context ``(1, d)``, action ``(1,)`` or ``(1, k)`` and reward ``(1,)``, whatever the policy; the negative of the
    reward makes the opposite vector. Of several interactions, which have a leading axis, every other one is the
    opposite action for the opposite reward: else each would be the baseline of the others.
    """
    (low, high), turns = facts.reward_bounds, np.arange(interactions) % 2
    context = np.array([[end for _, end in facts.observation]], np.float32)
    if facts.action is None:
        actions = turns[:, None].astype(np.int32)
    else:
        actions = np.ones((interactions, 1, len(facts.action)), np.float32) * (1.0 - 2.0 * turns[:, None, None])
    rewards = np.where(turns == 0, high, low).astype(np.float32)[:, None]
    found = np.stack([context] * interactions), actions.astype(np.float32 if facts.action else np.int32), rewards
    return found if interactions > 1 else tuple(x[0] for x in found)  # type: ignore[return-value]


class _Recorder:
    """Adds no noise, and keeps the exact sums."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self.totals: list[np.ndarray] = []

    def noised(self, total: Any, step: Any) -> Any:
        del step
        self.totals.append(np.asarray(total))
        return self.totals[-1].astype(np.float64) * self._scale


def exact_sums(plan: PGPlan, source: Any) -> np.ndarray:
    """``(T, dimension)``, int64 where verified: the sum of every batch before its noise, by the release's own loop.

    Args:
        source: of users, see :func:`dprl.algorithms.policy_gradient.on_host.run_on_host`.
    """
    shape, rates, mechanism = run_of(plan)
    recorder = _Recorder(_exact(mechanism).grid_step if mechanism is plan.mechanism else 1.0)
    run_on_host(shape, source, rates, recorder, mechanism, random.key(0))
    return np.stack(recorder.totals)


def run_of(plan: PGPlan) -> tuple[Shape, Rates, Any]:
    """What the release's loop is called with: shape, rates and mechanism."""
    if plan.settings is not None:
        return published_run(plan.settings, plan.policy, plan.facts.horizon)
    return trainer.shape_of(plan.config, plan.facts), trainer.rates_of(plan.config, plan.facts), plan.mechanism


def _exact(mechanism: Any) -> UserSum:
    return mechanism.exact if isinstance(mechanism, FloatUserSum) else mechanism


# --- what is seen of it ---------------------------------------------------------------------------------------------


def _one_pass(plan: PGPlan, mechanism: UserSum) -> PlanCanary:
    answers = "at full clip norm, or not at all"
    if mechanism.relation != "zero-out":
        answers = "at full clip norm one way, or the other way"
    kinds = {"independent": "independent noise", "square-root": "noise correlated by the square root"}
    absent, present = (exact_sums(plan, Pushing(plan, there)) for there in (False, True))
    return canary_of_sums(
        plan,
        absent,
        present,
        f"one of {mechanism.batch} users in the first of {mechanism.steps} batches answers {answers}, and all others "
        f"push against it; {kinds.get(mechanism.noise, f'correlated noise, {mechanism.noise}')}, and all noised sums "
        "are seen",
    )


def _published(plan: PGPlan) -> PlanCanary:
    """Weaker than Theorem 1 allows for: where all actions are alike, no score is as long."""
    assert plan.settings is not None
    absent, present = (exact_sums(plan, Pushing(plan, there)) for there in (False, True))
    length = float(np.linalg.norm(present - absent)) / 2.0
    return canary_of_sums(
        plan,
        absent,
        present,
        f"one of {plan.settings.batch} users in the first of {plan.settings.steps} batches is paid the most or the "
        f"least, and all others against it: a vector of {length:.3g} where Theorem 1 allows "
        f"{plan.settings.largest_return * plan.settings.score_bound:.3g}; all noised means are seen",
    )


def canary_of_sums(plan: PGPlan, absent: np.ndarray, present: np.ndarray, description: str) -> PlanCanary:
    """Tells ``(T, dimension)`` exact sums of all batches from those of neighbours, by everything that is released."""
    mechanism = run_of(plan)[2]
    exact, scale = _exact(mechanism), 1.0 if plan.published else _exact(mechanism).grid_step
    signal = whitened(exact.noise, (present - absent) * scale)
    # whitened sums times the signal are the sums times its transpose, which is the mirror image in time
    template, length = whitened(exact.noise, signal[::-1])[::-1].copy(), float(np.sum(signal**2))
    steps, sums, known = jnp.arange(exact.steps), jnp.asarray(np.stack([absent, present])), jnp.asarray(absent * scale)

    def score(key: Any, present: Any) -> Any:
        noise = mechanism.bind(SeededNoise(key).stream(STREAM))
        seen = jax.vmap(noise.noised)(jnp.where(present > 0.5, sums[1], sums[0]), steps) - known
        return (jnp.sum(template * seen) - length / 2.0) / exact.std**2

    return PlanCanary(plan=plan, score=score, draws=exact.steps * exact.dimension, description=description)


def _resampled(plan: PGPlan, mechanism: ClippedGaussianSum) -> PlanCanary:
    """Who is in a batch is secret: of the canary's place only the probability is known."""
    users = int(plan.config.users or 1)
    vector = jnp.zeros((1, mechanism.dimension)).at[0, 0].set(2.0 * mechanism.clip_norm)
    rate, std = mechanism.sampling_rate, mechanism.noise_std

    def score(key: Any, present: Any) -> Any:
        noise = SeededNoise(key).stream(STREAM)

        def seen(step: Any) -> Any:
            included = mechanism.coins(noise, step, users)[:1] & (present > 0.5)
            draw = mechanism.draw(noise, step)
            y = mechanism.release(mechanism.clipped_sum(vector, included), draw)[0]
            ratio = mechanism.clip_norm * (y - mechanism.clip_norm / 2.0) / std**2
            return jnp.logaddexp(jnp.log1p(-rate), math.log(rate) + ratio)

        return jnp.sum(jax.vmap(seen)(jnp.arange(mechanism.steps, dtype=jnp.uint32)))

    return PlanCanary(
        plan=plan,
        score=score,
        draws=mechanism.steps * (mechanism.dimension + users),
        gaussian=False,
        description=f"one of {users} users answers at full clip norm whenever it is sampled (with probability "
        f"{rate:g} in each of {mechanism.steps} batches), or never; all noised sums are seen",
    )
