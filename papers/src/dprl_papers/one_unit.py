"""Noisy sums as papers have them: each step takes one uniformly chosen unit, and a neighbouring log replaces one unit.

Relation: replace one. Replacing a unit moves a clipped sum by up to twice the clip norm. These sums are not mechanisms
that dprl proves, so a release with one of them writes a statement and no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp

from dprl.accounting.user_relation import CLIPS_MOVED
from dprl.config import Config, Provenance
from dprl.engine.program import Claimed, PublicFacts, Query, Stage
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Claim, Precondition

RELATION = "replace one"
SENSITIVITY_IN_CLIPS = CLIPS_MOVED[RELATION]
"""How many clip norms replacing one unit moves a clipped sum."""
C = TypeVar("C", bound=Config)


@dataclass(frozen=True, kw_only=True)
class ReplaceOne(GaussianSum):
    """Sum over all units, or over a sample, under the relation replace one: its sensitivity is twice the clip norm."""

    relation: str = RELATION

    @classmethod
    def with_noise_of(cls, mechanism: GaussianSum) -> Self:
        """Return a sum with the same noise as ``mechanism`` under this relation."""
        given = {f.name: getattr(mechanism, f.name) for f in fields(GaussianSum)}
        return cls(
            **given | {"relation": RELATION, "noise_multiplier": mechanism.noise_multiplier / SENSITIVITY_IN_CLIPS}
        )

    def _check_proved(self) -> None:
        """Accept every mechanism, although no proof of dprl covers it: a release with it writes a statement."""

    def plain(self) -> Self:
        """Return the noiseless limit."""
        return replace(self, parts=((self.dimension, math.inf),), noise_multiplier=0.0, arithmetic="plain")


@dataclass(frozen=True, kw_only=True)
class OneUnit(ReplaceOne):
    """Sum of one uniformly chosen unit per step.

    Replacing one of m units moves the sum of a step by up to twice the clip norm, with probability 1/m. The privacy
    loss is that of a Poisson-sampled sum with rate 1/m (docs/proofs/gpope.md), so ``sampling_rate`` is 1/m.
    """

    def expected(self, units: int) -> float:
        del units
        return 1.0

    def most_members(self, units: int) -> int:
        del units
        return 1

    def participation_mask(self, noise: Any, step: Any, units: int) -> Any:
        if units == 0:
            return jnp.zeros(0, dtype=bool)
        return jnp.arange(units) == noise.uniform_index(step, units)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[jax.Array, jax.Array]:
        chosen = jnp.asarray(noise.uniform_index(step, units), dtype=jnp.int32)
        return jnp.full(multiple, units, dtype=jnp.int32).at[0].set(chosen), jnp.ones((), dtype=jnp.int64)


def single_unit_stage(query: Query, units: int, noise_multiplier: float) -> Stage:
    """Return the stage that answers ``query`` with a paper's noise, using one of ``units`` units per step."""
    mechanism = OneUnit(
        parts=((query.dimension, query.clip_norm),),
        noise_multiplier=noise_multiplier / SENSITIVITY_IN_CLIPS,
        sampling_rate=1.0 / units,
        steps=query.steps,
    )
    return Stage(query.name, mechanism)


def with_single_unit_rate(config: C, facts: PublicFacts) -> C:
    """Return the options with the sampling rate of one unit per step, in the form in which a statement shows them."""
    return config.replace(Provenance(f"one {facts.unit} a step"), sampling_rate=1.0 / facts.units)


def claimed(
    queries: Sequence[Query], units: int, noise_multiplier: float, conditions: tuple[Precondition, ...]
) -> Claimed:
    """Return what an evaluation as published releases: the values, and one stage that uses one unit per step."""
    (query,) = queries
    stages = (single_unit_stage(query, units, noise_multiplier),)
    return Claimed(stages, Claim(RELATION, conditions), ReplaceOne.with_noise_of)
