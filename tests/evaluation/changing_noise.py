"""GPOPE with noise that changes from step to step, by a public schedule or by what was released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp

from dprl.engine.program import Adaptive, PublicFacts, Query, Stage
from dprl.evaluation.gpope import GPOPE, GPOPEProgram

LEVELS = Adaptive((0.5, 0.8, 1.0, 1.5), 3.0)


@dataclass(frozen=True, kw_only=True)
class Changing(GPOPE):
    """GPOPE with other noise.

    Attributes:
        profile: relative noise of the steps.
        greedy: ask for the least noise in every step; otherwise for what the last norm says.
    """

    profile: tuple[float, ...] | None = None
    greedy: bool | None = None

    algorithm: ClassVar[str] = "gpope"

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        (shape,) = super().queries(facts)
        return (replace(shape, profile=self.profile, adaptive=None if self.greedy is None else LEVELS),)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Any:
        inner = super().program(facts, stages)
        return inner if self.greedy is None else AdaptiveGPOPE(inner, self.greedy)


@dataclass(frozen=True)
class AdaptiveGPOPE:
    """The state is GPOPE's, the last noisy norm, and the number of updates."""

    inner: GPOPEProgram
    greedy: bool

    columns = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.inner.stages

    def init(self) -> Any:
        return self.inner.init(), jnp.zeros((), jnp.float64), jnp.zeros((), jnp.int32)

    def level(self, stage: int, state: Any, step: Any) -> Any:
        del step
        noise = self.stages[stage].mechanism.noise_std
        return 0 if self.greedy else jnp.where(jnp.abs(state[1]) > noise, 0, 1)

    def contribution(self, stage: int, state: Any, block: Any) -> Any:
        return self.inner.contribution(stage, state[0], block)

    def update(self, stage: int, state: Any, noisy: Any, step: Any) -> Any:
        return self.inner.update(stage, state[0], noisy[:-1], step), noisy[-1], state[2] + 1

    def finish(self, stage: int, state: Any) -> Any:
        del stage
        return state

    def answer(self, state: Any) -> Any:
        return self.inner.answer(state[0])
