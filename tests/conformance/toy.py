"""An algorithm that is nowhere registered: all that somebody writes who adds one, and the suite runs over it.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: the noisy sum of mean returns, and the noisy sum of every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import apply, project
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.protocols import Attack
from dprl.registry import Entry
from dprl.value_functions.features import Features


@dataclass(frozen=True, kw_only=True)
class Toy(ValueFunctionConfig):
    """The mean return, and then a few steps towards the returns.

    Attributes:
        steps: number of steps.
        sampling_rate: probability with which a unit takes part in a step.
    """

    steps: int = 3
    sampling_rate: float = 1.0

    algorithm: ClassVar[str] = "toy"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("steps must be between 1 and 1000", 1 <= self.steps <= 1000)
        self._check("sampling_rate must be above 0 and at most 1", 0.0 < self.sampling_rate <= 1.0)

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        size = facts.features.size
        return (
            Query("level", 1, 1.0, share=0.25),
            Query("steps", size, 0.3 * facts.features.norm_bound, self.steps, self.sampling_rate, share=0.75),
        )

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> ToyProgram:
        return ToyProgram(stages, facts.features, facts.units, facts.ratio)


class State(NamedTuple):
    theta: jax.Array  # (n,)
    last: jax.Array  # (n,) the last noisy sum


@dataclass(frozen=True)
class ToyProgram:
    stages: tuple[Stage, ...]
    features: Features
    units: int
    ratio: float

    columns = ("returns",)

    def init(self) -> Any:
        return jnp.zeros((), dtype=jnp.float64)

    def contribution(self, stage: int, state: Any, block: Any) -> jax.Array:
        if stage == 0:
            return jnp.sum(block.weight_return, axis=1, keepdims=True)
        values = apply(block.phi, state.theta.astype(block.phi.dtype))
        return project(self.ratio * block.weight_return - block.weight * values, block.phi)

    def update(self, stage: int, state: Any, noisy: jax.Array, step: Any) -> Any:
        del step
        if stage == 0:
            return jnp.clip(self.ratio * noisy[0] / self.units, -1.0, 1.0)
        mean = noisy / (self.stages[1].mechanism.sampling_rate * self.units)
        return State(state.theta + 0.1 * mean, noisy)

    def finish(self, stage: int, state: Any) -> Any:
        if stage == 1:
            return state
        theta = state * jnp.asarray(self.features.constant(), dtype=jnp.float64)
        return State(theta, jnp.zeros_like(theta))

    def answer(self, state: Any) -> jax.Array:
        return state.theta


ALGORITHM = Algorithm(
    Toy,
    settings={
        "full batches": Setting(Toy(discount=0.9)),
        "Poisson batches": Setting(Toy(discount=0.9, sampling_rate=0.5)),
        "Fourier features": Setting(Toy(discount=0.9), features="fourier:3"),
    },
    attacks=(Attack(), Attack(options={"sampling_rate": 0.1}, trials=200_000)),
)
TOY = Entry("toy", __name__, "the mean return, and a few steps from there")
