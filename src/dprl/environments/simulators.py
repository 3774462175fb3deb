"""Names of dprl's own simulators, the base of the problems of classical control, and public facts about a simulator.

A simulator is one file and one entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec

DISCOUNT = 0.99
"""Discount factor of learning in an environment that declares none."""


@dataclass(frozen=True)
class NamedSimulator:
    """A simulator under its name.

    Attributes:
        target: class of the simulator, as ``module:Class`` of this package; loaded when it is needed.
        logs: whether ``dprl simulate`` writes logs of the simulator.
        people: whether episodes can stand for people who answer, in ``dprl train dp-pg``.
        learning_options: options for learning that differ from the defaults of the class.
        observation_comment: comment on the observation bounds in a log's ``bounds.toml``.
    """

    target: str
    logs: bool = True
    people: bool = True
    learning_options: Mapping[str, Any] = field(default_factory=lambda: {"discount": DISCOUNT})
    observation_comment: str = ""

    def load(self) -> Any:
        """Return the simulator's class."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(f"dprl.environments.{module}"), name)


SIMULATORS = {
    "acrobot": NamedSimulator("acrobot:Acrobot"),
    "cart-pole": NamedSimulator(
        "cart_pole:CartPole",
        learning_options={"horizon": 500, "discount": DISCOUNT},
        observation_comment="each state, clipped to these",
    ),
    "chain": NamedSimulator("chain:Chain", people=False),
    "hiv": NamedSimulator("hiv:HIV", people=False, observation_comment="log10 of each state, clipped to these"),
    "interval-walk": NamedSimulator("interval_walk:IntervalWalk", people=False),
    "linear-bandit": NamedSimulator("bandit:LinearBandit", logs=False, learning_options={}),
    "mountain-car": NamedSimulator("mountain_car:MountainCar"),
    "pendulum": NamedSimulator("pendulum:Pendulum", logs=False),
}


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


def facts_of(simulator: Any) -> EnvironmentSpec:
    """Return the public facts about a simulator, in which everything is public."""
    words = type(simulator).__name__
    name = "".join(f"-{c.lower()}" if c.isupper() else c for c in words).strip("-")
    action = getattr(simulator, "action_bounds", None)
    return EnvironmentSpec(
        name=name,
        observation=simulator.observation_bounds,
        actions=0 if action is not None else simulator.actions,
        horizon=simulator.horizon,
        discount=simulator.discount,
        reward_bounds=simulator.reward_bounds,
        action=action,
    )
