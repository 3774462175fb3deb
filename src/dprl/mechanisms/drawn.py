"""Three ways to draw the noise of a sum's steps: when a step asks for it, all at once, or one step after the other.

Compiled loops use the first two, loops on the host use the third. All three give the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from dprl import x64 as x64
from dprl.arrays import AnyArray, Step
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.mechanisms.gaussian_sum import GaussianSum


@dataclass(frozen=True)
class DrawnAtStep:
    """Independent noise that compiled code draws when a step asks for it."""

    mechanism: GaussianSum
    noise: Any = field(repr=False)

    def draw(self, step: Step, width: int | None = None) -> Num[AnyArray, " dim"]:
        """Draw the step's noise; see :meth:`GaussianSum.draw <dprl.mechanisms.gaussian_sum.GaussianSum.draw>`."""
        return self.mechanism.draw(self.noise, step, width)


jax.tree_util.register_dataclass(DrawnAtStep, data_fields=["noise"], meta_fields=["mechanism"])


@dataclass(frozen=True)
class AllDrawn:
    """Noise of all steps, drawn beforehand. A step that is asked twice gets the same noise, so never ask twice.

    Attributes:
        rows: ``(steps, dimension)``, int64 grid points or float64.
    """

    rows: Num[AnyArray, "steps dim"] = field(repr=False)

    def draw(self, step: Step, width: int | None = None) -> Num[Array, " dim"]:
        """Return the step's noise. If there is no such step, every entry is the least int64 or, in floating point, NaN.

        With a ``width``, the entries beyond the dimension are zero.
        """
        rows, step = jnp.asarray(self.rows), jnp.asarray(step)
        nothing = jnp.nan if jnp.issubdtype(rows.dtype, jnp.floating) else np.iinfo(np.int64).min
        inside = (step >= 0) & (step < rows.shape[0])
        row = jnp.where(inside, rows[jnp.where(inside, step, 0)], jnp.asarray(nothing, rows.dtype))
        return row if width is None else jnp.pad(row, (0, width - row.shape[0]))


jax.tree_util.register_dataclass(AllDrawn, data_fields=["rows"], meta_fields=[])


class DrawnInOrder:
    """Noise that is drawn on the host for one step after the other. The object keeps only what later steps need.

    A step may be left out if what it released is known. With correlated noise its draws are still made, when a later
    step asks.
    """

    def __init__(self, mechanism: GaussianSum, noise: Any) -> None:
        self._mechanism, self._noise = mechanism, noise
        self._correlated = mechanism.correlation.bands(mechanism.steps) > 1
        self._correlator = mechanism.correlation.in_order(mechanism.steps, mechanism.dimension)
        self._next = 0

    def draw(self, step: int, **level: Any) -> Num[AnyArray, " dim"]:
        """Return the step's noise, drawn at a ``level`` if the mechanism chooses its noise step by step.

        Raises:
            DprlError: ``step`` or a later step was drawn before, or the mechanism has no such step.
        """
        if not self._next <= step < self._mechanism.steps:
            raise DprlError("The steps of a release are noised in order, each of them once.")
        first, self._next = self._next, step + 1
        if not self._correlated:
            return self._mechanism.draw(self._noise, step, **level)
        found = np.zeros(0)
        for each in range(first, step + 1):
            found = self._correlator.correlated(np.asarray(self._mechanism.draw(self._noise, each)))
        return found
