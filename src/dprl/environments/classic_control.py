"""Base of the problems of classical control: public facts that are constants, and a horizon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dprl.bounds import Interval
from dprl.errors import DprlError


@dataclass(frozen=True, kw_only=True)
class ClassicControl:
    """Base of the problems of classical control; a subclass adds ``reset``, ``observe`` and ``step``.

    Attributes:
        name: name of the problem on the command line.
        observation_bounds: public low and high of each component of an observation.
        reward_bounds: smallest and largest reward of a step.
        horizon: transitions after which a trajectory is truncated.
        discount: discount factor of a step.
    """

    name: ClassVar[str]
    observation_bounds: ClassVar[tuple[Interval, ...]]
    reward_bounds: ClassVar[Interval]
    horizon: int = 200
    discount: float = 0.95

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise DprlError(f"{self.name}: horizon must be at least 1.")
