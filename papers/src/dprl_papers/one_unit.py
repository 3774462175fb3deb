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

from dprl.accounting.user_relation import CLIPS
from dprl.config import Config, Provenance
from dprl.engine.options import Claimed, PublicFacts, Query, Stage
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Claim, Precondition

RELATION = "replace one"
MOVED = CLIPS[RELATION]
"""How many clip norms replacing one unit moves a clipped sum."""
C = TypeVar("C", bound=Config)


@dataclass(frozen=True, kw_only=True)
class ReplaceOne(GaussianSum):
    """Sum over everybody, or over a sample, where one unit is replaced: its noise is over twice the clip norm."""

    relation: str = RELATION

    @classmethod
    def of(cls, mechanism: GaussianSum) -> Self:
        """Return the sum with the same noise under this relation."""
        given = {f.name: getattr(mechanism, f.name) for f in fields(GaussianSum)}
        return cls(**given | {"relation": RELATION, "noise_multiplier": mechanism.noise_multiplier / MOVED})

    def _check_proved(self) -> None:
        """Accept what no proof of dprl's covers: a release with it writes a statement."""

    def plain(self) -> Self:
        """Return the noiseless limit."""
        return replace(self, parts=((self.dimension, math.inf),), noise_multiplier=0.0, arithmetic="plain")


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

    def participation_mask(self, noise: Any, step: Any, units: int) -> Any:
        if units == 0:
            return jnp.zeros(0, dtype=bool)
        return jnp.arange(units) == noise.uniform_index(step, units)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[jax.Array, jax.Array]:
        chosen = jnp.asarray(noise.uniform_index(step, units), dtype=jnp.int32)
        return jnp.full(multiple, units, dtype=jnp.int32).at[0].set(chosen), jnp.ones((), dtype=jnp.int64)


def one_a_step(shape: Query, units: int, noise_multiplier: float) -> Stage:
    """Return the stage that a shape asks for, with a paper's noise, of one of ``units`` a step."""
    mechanism = OneUnit(
        parts=((shape.dimension, shape.clip_norm),),
        noise_multiplier=noise_multiplier / MOVED,
        sampling_rate=1.0 / units,
        steps=shape.steps,
    )
    return Stage(shape.name, mechanism)


def one_unit_a_step(config: C, facts: PublicFacts) -> C:
    """Return the options with the rate of one unit a step, as a statement says it."""
    return config.replace(Provenance(f"one {facts.unit} a step"), sampling_rate=1.0 / facts.units)


def claimed(
    shapes: Sequence[Query], units: int, noise_multiplier: float, conditions: tuple[Precondition, ...]
) -> Claimed:
    """Return what an evaluation as published releases: the values, and one stage of one unit a step."""
    (shape,) = shapes
    stages = (one_a_step(shape, units, noise_multiplier),)
    return Claimed(stages, Claim(RELATION, conditions), ReplaceOne.of)
