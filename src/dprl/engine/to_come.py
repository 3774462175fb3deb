"""What a trajectory that is not over can still return, step by step, from public facts alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dprl.protocols import Bounds


class ToCome(NamedTuple):
    """Range of returns that a trajectory that is not over can still have from each step on, discounted to that step.

    Attributes:
        low, high: ``(H,)``.
    """

    low: Float[np.ndarray, " horizon"]
    high: Float[np.ndarray, " horizon"]

    @property
    def width(self) -> Float[np.ndarray, " horizon"]:
        """``(H,)``; never more than that of the first step, for values do not grow because rewards may come late."""
        return np.minimum(self.high - self.low, (self.high - self.low)[0])

    def part(self, start: float, end: float) -> ToCome:
        """Return the part of every step's range between the fractions ``start`` and ``end`` of its width."""
        return ToCome(self.low + start * self.width, self.low + end * self.width)


def to_come(bounds: Bounds, discount: float) -> ToCome:
    """Derive what can still come from the bounds of rewards; and from those of returns, less what a trajectory can have
    had before.
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
            # wider again, so that what is still open never grows with time, discounted to the start
            open_at = power * (high - low)
            missing = (np.maximum.accumulate(open_at[::-1])[::-1] - open_at) / (2.0 * power)
            low, high = low - np.nan_to_num(missing), high + np.nan_to_num(missing)
    return ToCome(low, high)
