"""The strongest attacks known on functional Q-learning: pairs of reward functions, and scores of what is released.

The mechanism's own code runs on both reward functions, and the attacker sees all its answers. Whatever is learned from
these answers tells no more. Everything in here is simulated.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.reward_relation import DEPTHS
from dprl.audits.attacks.trials import PlanCanary
from dprl.config import filled
from dprl.learning import planned_q
from dprl.learning.learning_plan import LearningPlan
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.reward_noise import RewardGradient, RewardNoise

SAWTOOTH_TEETH = 64
"""Intervals of the sawtooth, whose norm comes near the largest one: 97% of its square at a decay of 4."""


def canary_of_plan(plan: LearningPlan) -> PlanCanary:
    """Return the attack that fits the plan's mechanism."""
    match plan.mechanism:
        case FunctionNoise():
            return _output(plan, plan.mechanism) if plan.config.variant == "output" else _path(plan, plan.mechanism)
        case RewardNoise():
            return _observed(plan, plan.mechanism)
        case RewardGradient():
            return _gradient(plan, plan.mechanism)
    raise RuntimeError("There is no attack on this mechanism.")


def kernel_product(decay: float, points: np.ndarray, f: np.ndarray, g: Any) -> Any:
    """Return ``f' K^-1 g`` for the kernel ``exp(-decay |x - y|)`` on increasing points, by the Markov property.

    Args:
        points, f: ``(N,)``.
        g: ``(..., N)``.
    """
    rho = np.exp(-decay * np.diff(points))
    steps = (f[1:] - rho * f[:-1]) / -np.expm1(-2.0 * decay * np.diff(points))
    return f[0] * g[..., 0] + ((g[..., 1:] - rho * g[..., :-1]) * steps).sum(-1)


def sawtooth_reward(sup: float, lipschitz: float, points: np.ndarray) -> np.ndarray:
    """Return values ``(N,)`` that fall from ``sup`` and rise again at full slope, near the largest kernel norm."""
    falls = np.minimum(lipschitz * np.diff(points).max(), 2.0 * sup)
    return np.where(np.arange(len(points)) % 2 == 0, sup, sup - falls)


def _path(plan: LearningPlan, mechanism: FunctionNoise) -> PlanCanary:
    """Return the attack in which the rewards of all actions change by a sawtooth in the first observation component.

    Further components stay at 0.
    """
    points = np.linspace(0.0, 1.0, SAWTOOTH_TEETH + 1)
    f = sawtooth_reward(mechanism.sup, mechanism.lipschitz, points)
    actions = plan.facts.actions
    positions = np.zeros((actions * len(points), mechanism.dimensions), dtype=np.int64)
    positions[:, 0] = np.tile(np.rint(points * 2.0 ** DEPTHS[mechanism.dimensions]), actions)
    taken = np.repeat(np.arange(actions), len(points))
    if mechanism.paths == 1:  # all actions get the same answer
        positions, taken = positions[: len(points)], taken[: len(points)]
    change, level = np.tile(f, len(taken) // len(points)), sum(plan.facts.reward_bounds) / 2.0

    def score(key: Any, present: Any) -> Any:
        answers = mechanism.bind(SeededNoise(key).stream("reward"))
        seen = answers.add_noise(level + present * change, jnp.asarray(positions), jnp.asarray(taken), 0) - level
        return _path_ratio(mechanism, points, f, seen.reshape(-1, len(points)))

    which = "one path for all actions" if mechanism.paths == 1 else f"{actions} actions, a path each"
    return PlanCanary(
        plan=plan,
        score=score,
        draws=len(taken) * (DEPTHS[mechanism.dimensions] + 2) ** mechanism.dimensions,
        description=f"every action's reward changes by the same sawtooth of {SAWTOOTH_TEETH} teeth, R at its top "
        f"and L its slope; {which}, and the answers at all {len(points)} points are seen",
    )


def _path_ratio(mechanism: FunctionNoise, points: np.ndarray, f: np.ndarray, seen: Any) -> Any:
    """Return the log-likelihood ratio of a change by ``f`` in each row of ``seen`` ``(paths, N)``."""
    return jnp.sum(kernel_product(mechanism.decay, points, f, seen - f / 2.0)) / mechanism.std**2


def _observed(plan: LearningPlan, mechanism: RewardNoise) -> PlanCanary:
    """Return the attack in which every reward is larger by R."""
    radius, level = mechanism.radius, _level(plan, mechanism.radius)
    rounds = jnp.arange(mechanism.steps // mechanism.batch)

    def score(key: Any, present: Any) -> Any:
        answers: Any = mechanism.bind(SeededNoise(key).stream("reward"))
        zeros = jnp.zeros(mechanism.batch, jnp.int32)
        rewards = jnp.full(mechanism.batch, level + present * radius)
        seen = jax.vmap(lambda i: answers.add_noise(rewards, zeros[:, None], zeros, i))(rounds) - level
        return jnp.sum(radius * (seen - radius / 2.0)) / mechanism.std**2

    return PlanCanary(
        plan=plan,
        score=score,
        draws=mechanism.steps,
        description=f"every one of {mechanism.steps} rewards is larger by R, and their answers are seen",
    )


def _gradient(plan: LearningPlan, mechanism: RewardGradient) -> PlanCanary:
    """Return the attack in which every reward is larger by R, and every gradient of Q the same, at full clip norm."""
    radius, level = mechanism.radius, _level(plan, mechanism.radius)
    push = radius * mechanism.clip_norm

    def score(key: Any, present: Any) -> Any:
        answers = mechanism.bind(SeededNoise(key).stream("reward"))
        features = jnp.zeros((mechanism.batch, mechanism.dimension)).at[:, 0].set(2.0 * mechanism.clip_norm)
        phi = answers.clip(features)
        rewards = jnp.full(mechanism.batch, level + present * radius)
        seen = jax.vmap(lambda i: answers.noisy_mean(rewards, phi, i)[0])(jnp.arange(mechanism.steps))
        base = (level - answers.centre) * mechanism.clip_norm
        return jnp.sum(push * (seen - base - push / 2.0)) / mechanism.std**2

    return PlanCanary(
        plan=plan,
        score=score,
        draws=mechanism.steps * mechanism.dimension,
        description=f"every reward is larger by R and every gradient the same, at full clip norm; all "
        f"{mechanism.steps} noisy means are seen",
    )


def _level(plan: LearningPlan, radius: float) -> float:
    """Return a reward to which the radius can be added within the bounds."""
    low, high = plan.facts.reward_bounds
    return low + max(0.0, high - low - radius) / 2.0


def _output(plan: LearningPlan, mechanism: FunctionNoise) -> PlanCanary:
    """Return the attack in which every reward is larger by R, so that the whole Q is larger by R / (1 - gamma).

    The slope of Q does not change, so the attack is weaker than the bound from which the claim is made.
    """
    config, actions, points = plan.config, plan.facts.actions, planned_q.POINTS
    radius, discount = filled(config.reward_radius), filled(config.discount)
    level = _level(plan, radius)
    base, moved = (
        np.asarray(planned_q.optimal_q(plan.model, np.full((actions, len(points)), r), discount))
        for r in (level, level + radius)
    )

    def score(key: Any, q: Any) -> Any:
        answers = mechanism.bind(SeededNoise(key).stream("reward"))
        seen = planned_q.noisy_q(q, answers)
        return _path_ratio(mechanism, points, (moved - base)[0], seen - base)

    return PlanCanary(
        plan=plan,
        score=score,
        pair=(base, moved),
        draws=actions * len(points) * (DEPTHS[1] + 2),
        description=f"every reward is larger by R; the noisy optimal Q is seen at all {len(points)} points of "
        f"{actions} actions. The change has no slope, of which the claim allows for",
    )
