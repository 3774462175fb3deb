"""How near the canary of an attack comes to the clip norm: the nearer, the stronger the attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dprl.audits.attacks.programs import ProgramCanary, Watched
from dprl.engine.program import run
from dprl.mechanisms.noise import SeededNoise


@dataclass(frozen=True, eq=False)
class _Near(Watched):
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


def nearness(pair: ProgramCanary, trials: int) -> float:
    """Return the smallest norm of the canary's clipped vector over the clip norm, in all steps of some runs."""
    rows = pair.with_canary[1]
    near, batch = _Near(pair.plan.program, rows, pair.canary), min(8, len(pair.with_canary[0]))
    keys = jnp.stack([jnp.arange(trials, dtype=jnp.uint32), jnp.zeros(trials, dtype=jnp.uint32)], axis=1)
    least = jax.jit(jax.vmap(lambda key: run(near, SeededNoise(key), rows, batch=batch)[0][1]))
    return float(jnp.min(least(keys)))
