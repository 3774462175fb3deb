"""Names of dprl's own simulators: a simulator is one file and one entry here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DISCOUNT = 0.99
"""Discount factor of learning in an environment that declares none."""


@dataclass(frozen=True)
class Named:
    """A simulator under its name.

    Attributes:
        target: class of the simulator, as ``module:Class`` of this package; loaded when it is needed.
        logs: whether ``dprl simulate`` writes logs of the simulator.
        people: whether episodes can stand for people who answer, in ``dprl train dp-pg``.
        learning: options for learning that differ from the defaults of the class.
        observed: comment on the observation bounds in a log's ``bounds.toml``.
    """

    target: str
    logs: bool = True
    people: bool = True
    learning: Mapping[str, Any] = field(default_factory=lambda: {"discount": DISCOUNT})
    observed: str = ""

    def load(self) -> Any:
        """Return the simulator's class."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(f"dprl.environments.{module}"), name)


NAMES = {
    "acrobot": Named("acrobot:Acrobot"),
    "cart-pole": Named(
        "cart_pole:CartPole",
        learning={"horizon": 500, "discount": DISCOUNT},
        observed="each state, clipped to these",
    ),
    "chain": Named("chain:Chain", people=False),
    "hiv": Named("hiv:HIV", people=False, observed="log10 of each state, clipped to these"),
    "interval-walk": Named("interval_walk:IntervalWalk", people=False),
    "linear-bandit": Named("bandit:LinearBandit", logs=False, learning={}),
    "mountain-car": Named("mountain_car:MountainCar"),
    "pendulum": Named("pendulum:Pendulum", logs=False),
}
