"""How the learner asks an environment, which is somebody else's code and holds what is private.

The environment runs on the host, one step after the other. None of its functions is traced, so its tables are never
part of a compiled program: neither another release nor JAX's cache on disk can get hold of them. Exceptions of the
environment are dropped, because their messages may quote values.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from dprl.user_code import quietly


class Seen(NamedTuple):
    """An observation that the learner may use.

    Attributes:
        unit: ``(d,)`` float64 in [0, 1]; zeros if the observation is not known.
        known: whether the environment gave a valid observation. If not, the mechanism is not asked for a reward in that
            state: a made-up reward there would make the difference of two neighbours steep.
    """

    unit: np.ndarray
    known: bool


class EnvironmentSession:
    """Environment as the learner asks it.

    Args:
        source: the environment. ``reset(seed)`` returns an observation scaled to [0, 1]. ``step(action)`` returns the
            next observation, the reward, whether the episode terminated, and whether it was cut.
        dimensions: number of components of an observation.
        depth: bits of a component's position, if observations are declared to lie on the grid of a path.
    """

    def __init__(self, source: Any, dimensions: int, depth: int | None = None) -> None:
        self._source, self._dimensions, self._depth = source, dimensions, depth

    def reset(self, seed: int) -> Seen:
        """Return the first observation of an episode."""
        return self._seen(quietly(lambda: self._source.reset(seed), None))

    def step(self, action: int) -> tuple[Seen, float, bool, bool]:
        """Return the next observation, the reward, whether the episode terminated, and whether it was cut.

        A reward that is no number is NaN. A step that raises cuts the episode.
        """
        answer: tuple[Any, ...] = quietly(lambda: tuple(self._source.step(action)), ())
        if len(answer) != 4:
            return self._seen(None), math.nan, False, True
        following, reward, over, cut = answer
        ends = quietly(lambda: bool(over), False), quietly(lambda: bool(cut), True)
        return self._seen(following), number(reward), *ends

    def _seen(self, observation: Any) -> Seen:
        # a copy: environments write the next observation into the same array
        unit = quietly(lambda: np.array(observation, np.float64).reshape(-1), np.zeros(0))
        known = unit.shape == (self._dimensions,) and bool(np.isfinite(unit).all())
        if known:
            unit = np.clip(unit, 0.0, 1.0)
        if known and self._depth is not None:
            known = not (unit * 2.0**self._depth % 1.0).any()
        return Seen(unit if known else np.zeros(self._dimensions), known)


def number(value: Any) -> float:
    """Return a reward as a float; NaN for text, a vector, None, or a whole number beyond all floats."""

    def read() -> float:
        if isinstance(value, Real):
            return float(value)
        array = np.asarray(value)
        return float(array) if array.shape == () and array.dtype.kind in "biuf" else math.nan

    return quietly(read, math.nan)


def rewards_at(environment: Any, points: np.ndarray, actions: int) -> np.ndarray:
    """Return ``(A, N)`` float64 rewards of every action at ``(N, d)`` observations; NaN where they are no numbers."""

    def of(action: int) -> np.ndarray:
        found = np.asarray(environment.reward(points, np.int32(action)))
        if found.dtype.kind not in "biuf":
            raise TypeError
        return np.broadcast_to(found.astype(np.float64), len(points))

    nothing = np.full(len(points), math.nan)
    return np.stack([quietly(lambda a=a: of(a), nothing) for a in range(actions)])
