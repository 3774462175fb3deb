"""The Gaussian sum over privacy units: clips each unit's vector, samples units, adds noise, and knows what it cost.

Privacy unit: whatever one row of ``vectors`` stands for. Neighbouring relation: add or remove one unit (with public
``units`` this covers zero-out, which is what adding a unit whose vector is zero means). Released: every noised sum.
Proof: docs/proofs/clipped-gaussian-sum.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.accounting import events
from dprl.errors import DprlError
from dprl.mechanisms.grid import MAX_DIMENSION, clip_to_grid, grid_step
from dprl.mechanisms.rounded_gaussian import MAX_STD, MIN_STD

RELATION = "add or remove one"


def listed(included: jax.Array, multiple: int) -> tuple[jax.Array, jax.Array]:
    """Indices of those ``included`` ``(units,)``, filled up with ``units`` to a ``multiple``, and how many they are."""
    units = included.shape[0]
    order = jnp.flatnonzero(included, size=-(-units // multiple) * multiple, fill_value=units)
    return order, jnp.sum(included)


@dataclass(frozen=True, kw_only=True)
class ClippedGaussianSum:
    """A Poisson-sampled, jointly clipped Gaussian sum, released ``steps`` times.

    Attributes:
        clip_norm: L2 bound C of one unit's whole vector; also the sensitivity under add-or-remove.
        noise_multiplier: standard deviation of the noise in each coordinate, over C.
        sampling_rate: public probability with which a unit takes part in a step; 1 for everybody.
        steps: number of releases.
        dimension: length of a unit's vector.
    """

    clip_norm: float
    noise_multiplier: float
    dimension: int
    sampling_rate: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        grid_step(self.clip_norm)
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise DprlError(f"A released vector has between 1 and {MAX_DIMENSION} coordinates.")
        self.check_noise(self.noise_multiplier)
        self.event()  # refuses a sampling rate or a number of steps out of range

    def check_noise(self, noise_multiplier: float) -> None:
        """Refuse noise for which the sampler's error is not proved."""
        if not (math.isfinite(noise_multiplier) and MIN_STD <= self.on_grid(noise_multiplier) <= MAX_STD):
            raise DprlError("The noise multiplier must be between 0.004 and 2000: change epsilon or delta.")

    @property
    def sensitivity(self) -> float:
        """Largest L2 change of the un-noised sum when one unit is added or removed."""
        return self.clip_norm

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a released sum."""
        return self.noise_multiplier * self.clip_norm

    @property
    def noise_on_grid(self) -> float:
        return self.on_grid(self.noise_multiplier)

    def on_grid(self, noise_multiplier: Any) -> Any:
        """Standard deviation of noise with that multiplier, in grid points."""
        return noise_multiplier * self.clip_norm / grid_step(self.clip_norm)

    @property
    def released(self) -> int:
        """Numbers that a step releases."""
        return self.dimension

    def multiplier_at(self, step: Any) -> Any:
        """Noise multiplier of one step, which may be traced."""
        del step
        return self.noise_multiplier

    def on_grid_at(self, step: Any) -> Any:
        """Standard deviation of one step's noise in grid points."""
        return self.on_grid(self.multiplier_at(step))

    @property
    def draws(self) -> int:
        """Number of Gaussian coordinates drawn in all; the sampler's error is charged for each."""
        return self.dimension * self.steps

    def event(self) -> events.DpEvent:
        """What the accountant must compose: exactly what :meth:`coins`, :meth:`clipped_sum` and :meth:`noised` do."""
        if self.steps == 1 and self.sampling_rate == 1.0:
            return events.gaussian(self.noise_multiplier)
        return events.poisson_gaussian(self.sampling_rate, self.noise_multiplier, self.steps)

    def coins(self, noise: Any, step: Any, units: int) -> Any:
        """``(units,)`` booleans: who takes part in this step."""
        return noise.coins(step, units, self.sampling_rate)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[jax.Array, jax.Array]:
        """Who takes part in this step as a list, see :func:`listed`."""
        return listed(self.coins(noise, step, units), multiple)

    def draw(self, noise: Any, step: Any, width: int | None = None) -> Any:
        """The step's noise, ``(dimension,)`` int64 grid points; ``(width,)`` where more are asked for."""
        return noise.gaussian(step, self.dimension if width is None else width, self.on_grid_at(step))

    def clipped_sum(self, vectors: jax.Array, included: jax.Array) -> jax.Array:
        """Exact sum of the clipped vectors of one block of units.

        Args:
            vectors: ``(units, dimension)``; rows of units that are not ``included`` may hold anything.
            included: ``(units,)`` booleans.

        Returns:
            ``(dimension,)`` int64 grid points; blocks add up exactly, in any order.
        """
        points = clip_to_grid(vectors, self.clip_norm)
        return jnp.sum(jnp.where(included[:, None], points, 0), axis=0)

    def noised(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        """What is released, ``(dimension,)`` int64 grid points: the step's exact ``total`` and its ``draw``."""
        return total + draw

    def scaled(self, points: jax.Array) -> jax.Array:
        """The noised sum ``(dimension,)`` float64, from its grid points."""
        return points.astype(jnp.float64) * grid_step(self.clip_norm)

    def release(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        """:meth:`noised` and :meth:`scaled` in one, for loops that keep no step."""
        return self.scaled(self.noised(total, draw))

    def describe(self, name: str, purpose: str) -> dict[str, Any]:
        """This mechanism as a row of a certificate."""
        return {
            "name": name,
            "purpose": purpose,
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "sampling_rate": self.sampling_rate,
            "steps": self.steps,
            "dimension": self.dimension,
            "grid_step": grid_step(self.clip_norm),
        }

    def rows(self, name: str, purpose: str) -> list[dict[str, Any]]:
        """The rows of a certificate: one for each part of :meth:`event`."""
        return [self.describe(name, purpose)]


@dataclass(frozen=True, kw_only=True)
class PlainSum:
    """No clipping and no noise: the noiseless limit for oracles and references. It protects nobody."""

    dimension: int
    sampling_rate: float = 1.0
    steps: int = 1

    @property
    def released(self) -> int:
        return self.dimension

    def event(self) -> events.DpEvent:
        raise DprlError("An un-noised sum has no privacy event; it cannot be released.")

    def coins(self, noise: Any, step: Any, units: int) -> Any:
        return noise.coins(step, units, self.sampling_rate)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[jax.Array, jax.Array]:
        """Who takes part in this step as a list, see :func:`listed`."""
        return listed(self.coins(noise, step, units), multiple)

    def draw(self, noise: Any, step: Any, width: int | None = None) -> Any:
        return jnp.zeros(self.dimension if width is None else width, dtype=jnp.float64)

    def clipped_sum(self, vectors: jax.Array, included: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(included[:, None], vectors.astype(jnp.float64), 0.0), axis=0)

    def noised(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        return total + draw

    def scaled(self, points: jax.Array) -> jax.Array:
        return points

    def release(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        return self.scaled(self.noised(total, draw))


Mechanism = ClippedGaussianSum | PlainSum
