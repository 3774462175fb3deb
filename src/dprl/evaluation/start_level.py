"""A private constant to start at: one release before the steps of an algorithm.

Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: one noisy sum; the level is post-processing. Proof: docs/proofs/dptd.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, Query
from dprl.engine.rows import TRANSITION
from dprl.evaluation.private_constant import PrivateConstant, PrivateConstantProgram

START = "start"
"""Name of the stage."""


class StartLevel(Protocol):
    """Made of public facts alone: frozen, and equal where they are equal."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that are needed."""
        ...

    def shape(self, share: float) -> Query:
        """Return the sum that is asked for."""
        ...

    def vectors(self, block: Block) -> jax.Array:
        """Return ``(B, dimension)``, of each unit."""
        ...

    def level(self, noisy: jax.Array) -> jax.Array:
        """Return the constant in public units, in [-1, 1], from the noisy sum ``(dimension,)``."""
        ...


def start_level(facts: PublicFacts) -> StartLevel:
    """Return the mean return; where the unit is a transition, of which no return is known, LSTD on the constant."""
    if facts.unit == "transition":
        return ConstantLSTD(facts)
    constant = PrivateConstant(discount=facts.discount)
    (shape,) = constant.queries(facts)
    return MeanReturn(constant.program(facts, ()), shape.clip_norm)


@dataclass(frozen=True)
class MeanReturn:
    """Start at the mean return that :mod:`~dprl.evaluation.private_constant` releases."""

    constant: PrivateConstantProgram
    clip_norm: float

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that are needed."""
        return self.constant.columns

    def shape(self, share: float) -> Query:
        """Return the sum that is asked for."""
        return Query(START, 1, self.clip_norm, share=share)

    def vectors(self, block: Block) -> jax.Array:
        """Return each unit's vector."""
        return self.constant.contribution(0, self.constant.init(), block)

    def level(self, noisy: jax.Array) -> jax.Array:
        """Return the constant, from the noisy sum."""
        return self.constant.update(0, self.constant.init(), noisy, 0)


@dataclass(frozen=True)
class ConstantLSTD:
    """LSTD (Bradtke and Barto 1996) with the constant as only feature: ``V = sum rho r / sum rho (1 - gamma alive)``.

    One row at a time: it needs no return, and is right whether trajectories end or go on for ever.
    """

    facts: PublicFacts

    columns = (*TRANSITION, "raw_reward")

    def shape(self, share: float) -> Query:
        # rows are in single precision
        """Return the sum that is asked for."""
        return Query(START, 3, math.sqrt(3.0) * self.facts.bounds.max_importance_ratio * (1.0 + 1e-6), share=share)

    def vectors(self, block: Block) -> jax.Array:
        """Return ``(B, 3)``: sums of ``omega rho`` times the reward in [-1, 1], ``1 - gamma alive`` and 1; rho at most
        the largest ratio, so the norm is at most ``sqrt 3`` times it.
        """
        going = block.weight_rho * (1.0 - self.facts.discount * block.alive)
        return jnp.stack([jnp.sum(x, axis=-1) for x in (block.weight_raw_reward, going, block.weight_rho)], axis=-1)

    def level(self, noisy: jax.Array) -> jax.Array:
        """Return the constant, from the noisy sum."""
        low, high = self.facts.bounds.reward
        reward, going, weight = noisy
        # a weight this small is noise: with few rows the ratio then stays finite
        weight = jnp.maximum(weight, 0.5 * self.facts.units)
        total = (low + high) / 2.0 * weight + (high - low) / 2.0 * jnp.clip(reward, -weight, weight)
        least = max(1.0 - self.facts.discount, 1e-3) * 0.5 * self.facts.units
        value = total / jnp.maximum(going, least)
        return jnp.clip((value - self.facts.centre) / self.facts.half, -1.0, 1.0)
