"""Range of the return that an unfinished trajectory can still have, step by step, from public facts only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dprl.bounds import Bounds


class ToCome(NamedTuple):
    """Range of the return that an unfinished trajectory can still have from each step on, discounted to that step.

    Attributes:
        low, high: ends of the range at each step, ``(H,)``.
    """

    low: Float[np.ndarray, " horizon"]
    high: Float[np.ndarray, " horizon"]

    @property
    def width(self) -> Float[np.ndarray, " horizon"]:
        """Width of the range at each step, ``(H,)``.

        It is at most the width at the first step: values do not grow merely because rewards may come late.
        """
        return np.minimum(self.high - self.low, (self.high - self.low)[0])

    def part(self, start: float, end: float) -> ToCome:
        """Return the part of every step's range between the fractions ``start`` and ``end`` of its width."""
        return ToCome(self.low + start * self.width, self.low + end * self.width)


def to_come(bounds: Bounds, discount: float) -> ToCome:
    """Derive the range of returns to come from the bounds on rewards.

    Where returns have bounds, too, the range is also limited by these, less what a trajectory can have earned before.
    """
    horizon, (least, most) = bounds.horizon, bounds.reward
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        power = discount ** np.arange(horizon, dtype=np.float64)
        before = np.append(0.0, np.cumsum(power)[:-1])
        left = np.cumsum(power)[::-1]
        low, high = (least * left if least < 0.0 else np.full(horizon, least)), most * left
        high = high if most > 0.0 else np.full(horizon, most)
        if bounds.return_range is not None:
            tighter = [
                (bounds.return_range[0] - most * before) / power,
                (bounds.return_range[1] - least * before) / power,
            ]
            low, high = np.fmax(low, np.fmin(tighter[0], high)), np.fmin(high, np.fmax(tighter[1], low))
            # widen the range again, so that its width, discounted to the start, never grows with time
            open_at = power * (high - low)
            missing = (np.maximum.accumulate(open_at[::-1])[::-1] - open_at) / (2.0 * power)
            low, high = low - np.nan_to_num(missing), high + np.nan_to_num(missing)
    return ToCome(low, high)
