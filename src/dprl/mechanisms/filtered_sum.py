"""Gaussian sum whose noise is chosen step by step from earlier releases, within a budget that a filter enforces.

Before each step the program asks for a level, which is one of several public noise multipliers. The filter admits the
level if its cost and everything spent so far stay within the budget. Otherwise the stage ends before anything is drawn.
A step releases the noisy sum of the clipped vectors of one Poisson sample, and the noisy norm of that sum. Relation:
add or remove one unit.
Proof: docs/proofs/renyi-filter.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dprl.accounting import renyi_filter
from dprl.accounting.renyi_filter import WHOLE, RenyiFilterEvent
from dprl.accounting.rows import FilteredSumRow, certificate_row
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import MAX_UNITS
from dprl.mechanisms.gaussian_sum import GaussianSum

ENDED = -1
"""Recorded in place of a level: the step was not admitted, so nothing was drawn, and no step follows."""
MOST_COORDINATES = 2**16
"""Most coordinates of a sum whose norm is released: so many squares add up well enough for what rounding is charged."""


@dataclass(frozen=True, kw_only=True)
class FilteredGaussianSum(GaussianSum):
    """A Poisson-sampled, jointly clipped Gaussian sum and its norm, released at most ``steps`` times.

    Attributes:
        levels: noise multipliers of the sum, among which every step chooses; at most 64.
        norm_multiplier: standard deviation of the noise in the norm, divided by the clip norm.
        order, budget: alpha, and the RDP of order alpha that all steps together may spend.
        noise_multiplier: noise multiplier of the constant schedule that the budget lets run to its last step. It only
            sets step sizes; the accounting does not use it.
    """

    levels: tuple[float, ...]
    norm_multiplier: float
    order: int
    budget: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multipliers is not None or self.batch is not None or not self.certifies:
            raise RuntimeError("A filtered sum chooses its noise on the way, and counts on the grid.")
        self.event()  # refuses an order or a budget out of range
        if self.dimension > MOST_COORDINATES:
            raise DprlError(f"A sum whose norm is released has at most {MOST_COORDINATES} coordinates.")
        for multiplier in (*self.levels, self.norm_multiplier):
            self.check_noise(multiplier)

    @property
    def released(self) -> int:
        """Number of coordinates that a step releases: those of the sum, then its norm."""
        return self.dimension + 1

    @property
    def draws(self) -> int:
        """Number of Gaussian coordinates drawn in all."""
        return self.released * self.steps

    @property
    def costs(self) -> tuple[int, ...]:
        """Cost of a step at each level, in the filter's integer units; the whole budget is 2^40 of them."""
        return renyi_filter.integer_costs(self.event())

    def event(self) -> RenyiFilterEvent:
        """Return the event of the whole stage, in which the filter's whole budget is spent."""
        return RenyiFilterEvent(
            self.order, self.budget, self.sampling_rate, self.levels, self.norm_multiplier, self.steps
        )

    def admit(self, spent: Any, level: Any) -> tuple[Any, Any]:
        """Return whether a step at ``level`` may be drawn, and what is spent afterwards. Both arguments may be traced.

        A number that is no level is not admitted. A step that is not admitted costs nothing.
        """
        known = (level >= 0) & (level < len(self.levels))
        cost = jnp.asarray(self.costs, dtype=jnp.int64)[jnp.clip(level, 0, len(self.levels) - 1)]
        admitted = known & (cost <= WHOLE - spent)
        return admitted, jnp.where(admitted, spent + cost, spent)

    def multiplier_at(self, step: Any) -> Any:
        """Refuse to answer: the noise of a step follows from its level."""
        raise DprlError("The noise of a filtered step is that of its level, which is chosen on the way.")

    def draw(self, noise: Any, step: Any, width: int | None = None, *, level: Any = None) -> Any:
        """Draw the step's noise at ``level``: ``(dimension + 1,)`` int64 grid points, the last one for the norm.

        With a ``width`` there are ``width`` grid points for the sum, ``(width + 1,)`` in all.
        """
        if level is None:
            raise DprlError("A filtered step is drawn at a level.")
        std = self.levels[level] if isinstance(level, int) else jnp.asarray(self.levels, dtype=jnp.float64)[level]
        vector = noise.gaussian(step, self.dimension if width is None else width, self.on_grid(std))
        norm = noise.stream("norm").gaussian(step, 1, self.on_grid(self.norm_multiplier))
        return jnp.concatenate([jnp.asarray(vector), jnp.asarray(norm)])

    def answer(self, total: jax.Array) -> jax.Array:
        """Return the step's exact sum and its norm: ``(dimension + 1,)`` int64 grid points.

        The norm is cut at the largest norm that :data:`MAX_UNITS` units can have, because rounding is charged only up
        to there. A log may hold more people than it declares, and a cut moves two norms no further apart.
        """
        x = total.astype(jnp.float64)
        most = MAX_UNITS * self.clip_norm / self.grid_step
        norm = jnp.round(jnp.minimum(jnp.sqrt(jnp.sum(x * x)), most)).astype(jnp.int64)
        return jnp.concatenate([total, norm[None]])

    def add_noise(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        """Return the step's sum and norm with noise, ``(dimension + 1,)`` int64 grid points."""
        return self.answer(total) + jnp.concatenate([draw[: self.dimension], draw[-1:]])

    def describe(self, name: str, purpose: str) -> dict[str, Any]:
        """Return this mechanism as a row of a certificate.

        A step at the smallest level costs most. All steps together spend the budget.
        """
        self._check_certifies()
        stated = {"dimension": self.released, "levels": list(self.levels)}
        return certificate_row(FilteredSumRow, self, name=name, purpose=purpose, **stated)
