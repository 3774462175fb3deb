"""The Gaussian sum over privacy units: clips each unit's vector, samples units, adds noise, and knows what it cost.

Privacy unit: whatever one row of ``vectors`` stands for. Neighbouring relation: add or remove one unit (with public
``units`` this covers zero-out, which is what adding a unit whose vector is zero means). Released: every noised sum.
Proofs: docs/proofs/clipped-gaussian-sum.md; for noise that changes from step to step docs/proofs/scheduled-noise.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.rows import SumRow, written
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import (
    Arithmetic,
    Participation,
    few_listed,
    listed,
    sum_in_float,
    sum_on_grid,
    sum_plainly,
)
from dprl.mechanisms.grid import MAX_DIMENSION, grid_step
from dprl.mechanisms.rounded_gaussian import MAX_STD, MIN_STD

RELATION = "add or remove one"
MOST_LEVELS = 16
"""Distinct multipliers of a schedule: each is a privacy loss distribution of its own to compose."""


@dataclass(frozen=True, kw_only=True)
class GaussianSum:
    """A Poisson-sampled, jointly clipped Gaussian sum, released ``steps`` times.

    Attributes:
        dimension: length of a unit's vector.
        clip_norm: L2 bound C of one unit's whole vector; also the sensitivity under add-or-remove.
        noise_multiplier: standard deviation of the noise in each coordinate, over C. With ``multipliers`` it follows
            from them, as that of the constant schedule with the same sum of 1/z^2: it sets step sizes, and pays for
            nothing.
        sampling_rate: public probability with which a unit takes part in a step; 1 for everybody.
        steps: number of releases; with ``multipliers`` it is their number.
        multipliers: the noise multiplier of each step, of at most 16 values, where it is not constant: a public
            schedule, fixed before the first row is read, such as that of a learned protector.
        arithmetic: ``exact`` for a release, on the integer grid. The other two have no privacy event and certify
            nothing: ``float`` is the same but for rounding, for experiments with many trials (:meth:`in_float`);
            ``plain`` neither clips nor adds noise, for oracles and references.
        factor: what every noised sum in ``float`` is multiplied by, such as a step size; may be traced.
    """

    dimension: int
    clip_norm: float = math.inf
    noise_multiplier: float = 0.0
    sampling_rate: float = 1.0
    steps: int = 1
    multipliers: tuple[float, ...] | None = None
    arithmetic: Arithmetic = "exact"
    factor: Any = 1.0

    def __post_init__(self) -> None:
        if self.arithmetic != "float" and self.factor != 1.0:
            raise DprlError("Only a sum in floating point has a factor.")
        if self.arithmetic == "plain":
            if self.multipliers is not None or (self.clip_norm, self.noise_multiplier) != (math.inf, 0.0):
                raise DprlError("A plain sum has neither a clip norm nor noise.")
            return
        if self.multipliers is not None:
            self._follow(self.multipliers)
        grid_step(self.clip_norm)
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise DprlError(f"A released vector has between 1 and {MAX_DIMENSION} coordinates.")
        for multiplier, _ in self.noise_levels:
            self.check_noise(multiplier)
        self._composed()  # refuses a sampling rate or a number of steps out of range

    def _follow(self, multipliers: tuple[float, ...]) -> None:
        """Set what follows from a schedule, and refuse one that makes no sense."""
        if not 1 <= len(multipliers) <= 10**6:
            raise DprlError("A noise schedule has between 1 and 1000000 steps.")
        levels = Counter(multipliers)
        if len(levels) > MOST_LEVELS:
            raise DprlError(f"A noise schedule has at most {MOST_LEVELS} distinct noise multipliers.")
        if not all(math.isfinite(z) and z > 0.0 for z in levels):
            raise DprlError("A noise schedule consists of positive finite noise multipliers.")
        precision = math.fsum(count / z**2 for z, count in levels.items())
        mean = multipliers[0] if len(levels) == 1 else math.sqrt(len(multipliers) / precision)
        if self.noise_multiplier not in (0.0, mean) or self.steps not in (1, len(multipliers)):
            raise DprlError("The noise multiplier and the number of steps of a schedule follow from it.")
        object.__setattr__(self, "noise_multiplier", mean)
        object.__setattr__(self, "steps", len(multipliers))

    def check_noise(self, noise_multiplier: float) -> None:
        """Refuse noise for which the sampler's error is not proved."""
        if not (math.isfinite(noise_multiplier) and MIN_STD <= self.on_grid(noise_multiplier) <= MAX_STD):
            raise DprlError("The noise multiplier must be between 0.004 and 2000: change epsilon or delta.")

    def in_float(self, factor: Any = 1.0) -> GaussianSum:
        """Return the same sum in single precision, for experiments with many trials. It protects nobody."""
        return replace(self, arithmetic="float", factor=factor)

    def plain(self) -> GaussianSum:
        """Return the noiseless limit, for oracles and references. It protects nobody."""
        return GaussianSum(
            dimension=self.dimension, sampling_rate=self.sampling_rate, steps=self.steps, arithmetic="plain"
        )

    # --- what it is and what it costs -------------------------------------------------------------------------------

    @property
    def certifies(self) -> bool:
        """Whether it may be part of a release: it has an exact sensitivity and an event."""
        return self.arithmetic == "exact"

    @property
    def dtype(self) -> Any:
        """The numbers that it adds up: grid points, or float64."""
        return jnp.int64 if self.arithmetic == "exact" else jnp.float64

    @property
    def participation(self) -> Participation:
        """Which steps a unit takes part in."""
        return "everyone" if self.sampling_rate == 1.0 else "Poisson"

    @property
    def sensitivity(self) -> float:
        """Largest L2 change of the un-noised sum when one unit is added or removed."""
        return self.clip_norm

    def expected(self, units: int) -> float:
        """Number of units that take part in a step on average, by which sums are divided: never the realised one."""
        return self.sampling_rate * units

    def most(self, units: int) -> int:
        """Largest number of units that may take part in a step."""
        return units

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a released sum."""
        return 0.0 if self.arithmetic == "plain" else self.noise_multiplier * self.clip_norm

    @property
    def noise_on_grid(self) -> float:
        return self.on_grid(self.noise_multiplier)

    def on_grid(self, noise_multiplier: Any) -> Any:
        """Standard deviation of noise with that multiplier, in grid points."""
        return noise_multiplier * self.clip_norm / grid_step(self.clip_norm)

    @property
    def noise_levels(self) -> tuple[tuple[float, int], ...]:
        """Each distinct noise multiplier with its number of steps, in order of appearance."""
        if self.multipliers is None:
            return ((self.noise_multiplier, self.steps),)
        return tuple(Counter(self.multipliers).items())

    def multiplier_at(self, step: Any) -> Any:
        """Noise multiplier of one step, which may be traced."""
        if self.multipliers is None:
            return self.noise_multiplier
        if isinstance(step, int | np.integer):
            return self.multipliers[int(step)]
        return jnp.asarray(self.multipliers, dtype=jnp.float64)[step]

    def on_grid_at(self, step: Any) -> Any:
        """Standard deviation of one step's noise in grid points."""
        return self.on_grid(self.multiplier_at(step))

    @property
    def released(self) -> int:
        """Numbers that a step releases."""
        return self.dimension

    @property
    def draws(self) -> int:
        """Number of Gaussian coordinates drawn in all; the sampler's error is charged for each."""
        return self.dimension * self.steps

    def delta(self, epsilon: float) -> float:
        """What the sampler's error adds to delta."""
        return events.sampler_delta(epsilon, self.draws)

    def event(self) -> events.DpEvent:
        """What the accountant must compose: exactly what :meth:`coins`, :meth:`clipped_sum` and :meth:`noised` do."""
        self._check_certifies()
        return self._composed()

    def _composed(self) -> events.DpEvent:
        if (self.steps, self.sampling_rate) == (1, 1.0):
            return events.gaussian(self.noise_multiplier)
        steps = [events.poisson_gaussian(self.sampling_rate, z, count) for z, count in self.noise_levels]
        return steps[0] if len(steps) == 1 else events.compose(steps)

    def _check_certifies(self) -> None:
        if not self.certifies:
            what = "A sum in floating point" if self.arithmetic == "float" else "An un-noised sum"
            raise DprlError(f"{what} has no privacy event; it cannot be released.")

    def describe(self, name: str, purpose: str) -> dict[str, Any]:
        """This mechanism as a row of a certificate."""
        self._check_certifies()
        return written(SumRow, self, name=name, purpose=purpose, grid_step=grid_step(self.clip_norm))

    def rows(self, name: str, purpose: str) -> list[dict[str, Any]]:
        """The rows of a certificate: one for each part of :meth:`event`, in its order."""
        whole = self.describe(name, purpose)
        return [whole | {"noise_multiplier": z, "steps": count} for z, count in self.noise_levels]

    # --- what a step does -------------------------------------------------------------------------------------------

    def coins(self, noise: Any, step: Any, units: int) -> Any:
        """``(units,)`` booleans: who takes part in this step."""
        return noise.coins(step, units, self.sampling_rate)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[jax.Array, jax.Array]:
        """Who takes part in this step as a list, see :func:`~dprl.mechanisms.arithmetic.listed`."""
        few = few_listed(noise, step, units, self.sampling_rate, multiple) if self.arithmetic == "float" else None
        return listed(self.coins(noise, step, units), multiple) if few is None else few

    def draw(self, noise: Any, step: Any, width: int | None = None) -> Any:
        """The step's noise, ``(dimension,)`` of :attr:`dtype`; ``(width,)`` where more are asked for."""
        count = self.dimension if width is None else width
        match self.arithmetic:
            case "exact":
                return noise.gaussian(step, count, self.on_grid_at(step))
            case "float":
                return noise.rounded(step, count, self.on_grid_at(step)) * grid_step(self.clip_norm)
            case "plain":
                return jnp.zeros(count, dtype=jnp.float64)

    def clipped_sum(self, vectors: jax.Array, included: jax.Array) -> jax.Array:
        """Sum of the clipped vectors of one block of units.

        Args:
            vectors: ``(units, dimension)``; rows of units that are not ``included`` may hold anything.
            included: ``(units,)`` booleans.

        Returns:
            ``(dimension,)`` of :attr:`dtype`; blocks of grid points add up exactly, in any order.
        """
        match self.arithmetic:
            case "exact":
                return sum_on_grid(vectors, included, self.clip_norm)
            case "float":
                return sum_in_float(vectors, included, self.clip_norm)
            case "plain":
                return sum_plainly(vectors, included)

    def noised(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        """What is released, ``(dimension,)`` of :attr:`dtype`: the step's ``total`` and its ``draw``."""
        return total + draw

    def scaled(self, points: jax.Array) -> jax.Array:
        """The noised sum ``(dimension,)`` float64, from its grid points; times :attr:`factor` where there are none."""
        return points.astype(jnp.float64) * grid_step(self.clip_norm) if self.certifies else points * self.factor

    def release(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        """:meth:`noised` and :meth:`scaled` in one, for loops that keep no step."""
        return self.scaled(self.noised(total, draw))


def to_levels(profile: Sequence[float], levels: int = 8) -> tuple[float, ...]:
    """Round a public profile of noise to at most ``levels`` distinct values, whose mean square of 1/w is one.

    Values are rounded on a logarithmic grid between the smallest and the largest, then divided by their mean. What is
    rounded is public, and the accountant sees the result: rounding costs no privacy. Time to calibrate is in proportion
    to the number of levels.

    >>> to_levels([2.0, 2.0, 2.0])
    (1.0, 1.0, 1.0)
    >>> [round(w, 3) for w in to_levels([1.0, 1.01, 4.0, 3.97], 2)]
    [0.729, 0.729, 2.915, 2.915]
    """
    values = np.asarray(profile, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.all((values > 0.0) & np.isfinite(values)):
        raise DprlError("A noise profile consists of positive finite numbers.")
    logs = np.log(values)
    distinct = np.unique(logs)
    if len(distinct) > levels:
        grid = np.linspace(distinct[0], distinct[-1], levels)
        logs = grid[np.argmin(np.abs(logs[:, None] - grid), axis=1)]
    scale = 0.5 * math.log(float(np.mean(np.exp(-2.0 * logs))))
    # one float for one level, whatever the order of the steps
    return tuple(float(w) for w in np.exp(logs + scale))
