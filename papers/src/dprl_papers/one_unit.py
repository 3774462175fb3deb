"""Sums as papers have them: of one uniformly chosen unit a step, where another unit may stand in its place.

Relation: replace one, by which a clipped sum moves by twice the clip norm. No sum in here is a mechanism of dprl's: a
release with one writes a statement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp

from dprl.accounting import events
from dprl.config import Config, Mark
from dprl.engine.options import Claimed, Facts, Shape, Stage
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Claim, Precondition

RELATION = "replace one"
C = TypeVar("C", bound=Config)
MOVED = 2.0
"""By how many clip norms replacing one unit moves a clipped sum."""


@dataclass(frozen=True, kw_only=True)
class ReplaceOne(GaussianSum):
    """A sum whose event and rows are those of replacing one unit: the noise is over twice the clip norm."""

    @classmethod
    def of(cls, mechanism: GaussianSum) -> Self:
        """The same sum under this relation."""
        return cls(**{f.name: getattr(mechanism, f.name) for f in fields(GaussianSum)})

    @property
    def sensitivity(self) -> float:
        return MOVED * self.clip_norm

    def _composed(self) -> events.DpEvent:
        if (self.steps, self.sampling_rate) == (1, 1.0):
            return events.gaussian(self.noise_multiplier / MOVED)
        return events.poisson_gaussian(self.sampling_rate, self.noise_multiplier / MOVED, self.steps)

    def describe(self, name: str, purpose: str) -> dict[str, Any]:
        row = super().describe(name, purpose)
        return row | {"noise_multiplier": self.noise_multiplier / MOVED, "sensitivity": self.sensitivity}

    def rows(self, name: str, purpose: str) -> list[dict[str, Any]]:
        return [self.describe(name, purpose)]

    def plain(self) -> Self:
        return replace(self, clip_norm=math.inf, noise_multiplier=0.0, arithmetic="plain")


@dataclass(frozen=True, kw_only=True)
class OneUnit(ReplaceOne):
    """Of one uniformly chosen unit a step.

    Replacing one of m units moves a step's sum by twice the clip norm with probability 1/m: that has the privacy loss
    of a Poisson-sampled sum (docs/proofs/gpope.md). ``sampling_rate`` is 1/m.
    """

    def expected(self, units: int) -> float:
        del units
        return 1.0

    def most(self, units: int) -> int:
        del units
        return 1

    def coins(self, noise: Any, step: Any, units: int) -> Any:
        if units == 0:
            return jnp.zeros(0, dtype=bool)
        return jnp.arange(units) == noise.below(step, units)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[jax.Array, jax.Array]:
        chosen = jnp.asarray(noise.below(step, units), dtype=jnp.int32)
        return jnp.full(multiple, units, dtype=jnp.int32).at[0].set(chosen), jnp.ones((), dtype=jnp.int64)


def one_a_step(shape: Shape, units: int, noise_multiplier: float) -> Stage:
    """The stage that a shape asks for, with a paper's noise, of one of ``units`` a step."""
    mechanism = OneUnit(
        dimension=shape.dimension,
        clip_norm=shape.clip_norm,
        noise_multiplier=noise_multiplier,
        sampling_rate=1.0 / units,
        steps=shape.steps,
    )
    return Stage(shape.name, mechanism)


def one_unit_a_step(config: C, facts: Facts) -> C:
    """The options with the rate of one unit a step, as a statement says it."""
    return config.replace(Mark(f"one {facts.unit} a step"), sampling_rate=1.0 / facts.units)


def claimed(
    shapes: Sequence[Shape], units: int, noise_multiplier: float, conditions: tuple[Precondition, ...]
) -> Claimed:
    """What an evaluation as published releases: the values, and one stage of one unit a step."""
    (shape,) = shapes
    stages = (one_a_step(shape, units, noise_multiplier),)
    return Claimed(stages, Claim(RELATION, conditions), ReplaceOne.of)
