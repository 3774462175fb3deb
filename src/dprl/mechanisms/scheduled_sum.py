"""The Gaussian sum with a noise multiplier for each step: a public schedule, such as that of a learned protector.

Who takes part, the clip, the grid and the noise source are those of
:class:`~dprl.mechanisms.clipped_sum.ClippedGaussianSum`. The schedule is fixed before the first row is read, so each
step is the same mechanism with another multiplier, and the accountant composes them.
Proof: docs/proofs/scheduled-noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum

MOST_LEVELS = 16
"""Distinct multipliers of a schedule: each is a privacy loss distribution of its own to compose."""


@dataclass(frozen=True, kw_only=True)
class ScheduledGaussianSum(ClippedGaussianSum):
    """A Poisson-sampled, jointly clipped Gaussian sum, released once with each of ``multipliers``.

    Attributes:
        multipliers: noise multiplier of each step, ``(T,)``; of at most 16 values.
        noise_multiplier: of the constant schedule with the same sum of 1/z^2. It sets step sizes, and pays for nothing:
            what is spent is :meth:`event`.
        steps: T.
    """

    multipliers: tuple[float, ...]
    noise_multiplier: float = field(init=False)
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.multipliers) <= 10**6:
            raise DprlError("A noise schedule has between 1 and 1000000 steps.")
        levels = [multiplier for multiplier, _ in self.levels]
        if len(levels) > MOST_LEVELS:
            raise DprlError(f"A noise schedule has at most {MOST_LEVELS} distinct noise multipliers.")
        if not all(math.isfinite(z) and z > 0.0 for z in levels):
            raise DprlError("A noise schedule consists of positive finite noise multipliers.")
        precision = math.fsum(count / z**2 for z, count in self.levels)
        mean = levels[0] if len(levels) == 1 else math.sqrt(len(self.multipliers) / precision)
        object.__setattr__(self, "noise_multiplier", mean)
        object.__setattr__(self, "steps", len(self.multipliers))
        super().__post_init__()
        for z in levels:
            self.check_noise(z)

    @property
    def levels(self) -> tuple[tuple[float, int], ...]:
        """Each distinct multiplier with its number of steps, in order of appearance."""
        counts: dict[float, int] = {}
        for z in self.multipliers:
            counts[z] = counts.get(z, 0) + 1
        return tuple(counts.items())

    def event(self) -> events.DpEvent:
        """Every level's steps composed; of one level exactly the event of :class:`ClippedGaussianSum`."""
        if len(self.levels) == 1:
            return super().event()
        return events.compose([events.poisson_gaussian(self.sampling_rate, z, count) for z, count in self.levels])

    def multiplier_at(self, step: Any) -> Any:
        if isinstance(step, int | np.integer):
            return self.multipliers[int(step)]
        return jnp.asarray(self.multipliers, dtype=jnp.float64)[step]

    def rows(self, name: str, purpose: str) -> list[dict[str, Any]]:
        """A row of a certificate for each level, in the order of the event."""
        whole = self.describe(name, purpose)
        return [whole | {"noise_multiplier": z, "steps": count} for z, count in self.levels]


def to_levels(profile: Sequence[float], levels: int = 8) -> tuple[float, ...]:
    """A public profile of noise with at most ``levels`` distinct values, whose mean square of 1/w is one.

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
