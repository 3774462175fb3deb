"""What the tests of attacks share: how near a canary comes to the clip norm, its scores, and other claims for it.

The nearer it comes, the stronger the attack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.programs import ScoredProgram
from dprl.audits.attacks.trials import PlanCanary
from dprl.engine.loop import run
from dprl.mechanisms.noise import SeededNoise


@dataclass(frozen=True, eq=False)
class _Near(ScoredProgram):
    """A program whose state also holds the smallest norm that the canary's clipped vector had, over the clip norm."""

    def init(self) -> tuple[Any, Any]:
        return self.inner.init(), jnp.ones((), dtype=jnp.float64)

    def update(self, stage: int, state: Any, noisy: Any, step: Any) -> Any:
        inner, least = state
        mechanism = self.stages[stage].mechanism
        vectors = self.inner.contribution(stage, inner, self.log.block(slice(None)))
        own = mechanism.scaled(jnp.asarray(mechanism.clipped_sum(vectors, jnp.arange(self.log.units) == self.canary)))
        least = jnp.minimum(least, jnp.sqrt(jnp.sum(own * own)) / mechanism.clip_norm)
        return self.inner.update(stage, inner, noisy, step), least


def nearness(attack: PlanCanary, trials: int) -> float:
    """Return the smallest norm that the clipped vector of the last unit, the canary, has over the clip norm, in all
    steps of some runs.
    """
    rows: Any = attack.pair[1][1]
    near: Any = _Near(attack.plan.program, rows, rows.units - 1)
    keys = jnp.stack([jnp.arange(trials, dtype=jnp.uint32), jnp.zeros(trials, dtype=jnp.uint32)], axis=1)
    least = jax.jit(jax.vmap(lambda key: run(near, SeededNoise(key), rows, batch=rows.units)[0][1]))
    return float(jnp.min(least(keys)))


def check_likelihood_ratio(attack: PlanCanary, least: float) -> None:
    """The exponential of the score has mean one without the canary, and so has the inverse with it.

    The mean is known to within less than a half, and not better than ``least``: so the check can fail.
    """
    for ratio in (np.exp(-attack.scores(3, 20_000, True)), np.exp(attack.scores(3, 20_000, False))):
        error = 5.0 * float(ratio.std()) / math.sqrt(len(ratio))
        assert abs(float(ratio.mean()) - 1.0) < error
        assert least < error < 0.5


def claiming(attack: PlanCanary, budget: Budget) -> PlanCanary:
    """Return the same attack, held against another claim than the one that its noise is made for."""
    return replace(attack, plan=replace(attack.plan, budget=budget))
