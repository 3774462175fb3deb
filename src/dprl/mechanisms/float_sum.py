"""The Gaussian sum in single precision, for experiments with many trials. Not private, and never part of a release.

The same clip, the same coins and the same noise as :class:`~dprl.mechanisms.clipped_sum.ClippedGaussianSum`, without
the integer grid: several times faster, and equal to it but for rounding. A floating-point sum has no exact
sensitivity, so it has no privacy event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dprl.accounting import events
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum, listed
from dprl.mechanisms.grid import grid_step


@dataclass(frozen=True, eq=False)
class FloatSum:
    """Stands in for ``exact`` in an experiment.

    Attributes:
        exact: the mechanism of a release, whose numbers these are.
        factor: what every noised sum is multiplied by, such as a step size; may be traced.
    """

    exact: ClippedGaussianSum
    factor: Any = 1.0

    @property
    def dimension(self) -> int:
        return self.exact.dimension

    @property
    def released(self) -> int:
        return self.exact.released

    @property
    def sampling_rate(self) -> float:
        return self.exact.sampling_rate

    @property
    def steps(self) -> int:
        return self.exact.steps

    def event(self) -> events.DpEvent:
        raise DprlError("A sum in floating point has no privacy event; it cannot be released.")

    def coins(self, noise: Any, step: Any, units: int) -> Any:
        return self.exact.coins(noise, step, units)

    def members(self, noise: Any, step: Any, units: int, multiple: int) -> tuple[Any, Any]:
        """Who takes part as a list, see :func:`~dprl.mechanisms.clipped_sum.listed`; few among many at the cost of few.

        A list is then as long as a batch is in all but one of 10^15 steps; what would follow is left out.
        """
        mean = units * self.sampling_rate
        longest = -(-math.ceil(mean + 8.0 * math.sqrt(mean) + 16.0) // multiple) * multiple
        if 2 * longest > units:
            return listed(self.coins(noise, step, units), multiple)
        places = jnp.cumsum(noise.gaps(step, longest, self.sampling_rate) + 1.0) - 1.0
        order = jnp.minimum(places, float(units)).astype(jnp.int32)
        return order, jnp.sum(order < units)

    def draw(self, noise: Any, step: Any, width: int | None = None) -> Any:
        """The noise of the exact mechanism, ``(dimension,)`` float64."""
        draw = noise.rounded(step, self.dimension if width is None else width, self.exact.on_grid_at(step))
        return draw * grid_step(self.exact.clip_norm)

    def clipped_sum(self, vectors: jax.Array, included: jax.Array) -> jax.Array:
        """``(dimension,)`` float64 sum of the clipped rows of ``vectors`` ``(units, dimension)`` that are included."""
        square = jnp.sum(vectors * vectors, axis=1)
        # what is not finite contributes nothing, as on the grid
        finite = jnp.isfinite(square)
        # 1e-20: its power -3/2, of the derivative, is finite in single precision
        scale = jnp.minimum(1.0, self.exact.clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-20)))
        scale = jnp.where(included & finite, scale, 0.0).astype(vectors.dtype)
        total = scale @ jnp.where(finite[:, None], vectors, 0.0)
        return total.astype(jnp.float64)

    def noised(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        return total + draw

    def scaled(self, points: jax.Array) -> jax.Array:
        return points * self.factor

    def release(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        return self.scaled(self.noised(total, draw))
