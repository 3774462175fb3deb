"""Faults in learning from people: in who is numbered and drawn, in whose coins are whose, in names and in claims."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from dprl.accounting import events
from dprl.environments import people
from dprl.environments.bandit import Bandit
from dprl.learning.policy_gradient import pg_plan
from dprl.mechanisms.action_coins import BatchCoins
from dprl.release import pipeline

from .planting import Planting, fault


@fault(
    "people who are sampled again are cut at their declared number",
    "who is added to a log that is sampled moves the sum by their own vector",
    (Bandit, "count"),
)
def _(original: Any, self: Any) -> Any:
    return min(original(self), self.units)


def in_order(original: Any) -> Any:
    """The next coins that nobody had yet, as of a generator that all share."""
    taken = count()
    return lambda self, places, draw: original(self, np.array([next(taken) for _ in places], dtype=np.int64), 0)


fault("coins of actions in the order in which people act", "who answers otherwise moves their own batch alone")(
    lambda planting: planting.replace(BatchCoins, "words_at", in_order)
)


@fault("a name that is missing is a new one each time", "who is missing answers nothing")
def _(planting: Planting) -> None:
    strangers = count()
    planting.replace(people, "name_of", lambda original: lambda value: original(value) or f"stranger {next(strangers)}")


@fault(
    "rows that are learned from are not claimed",
    "rows that are learned from have one name",
    (pipeline, "_read_and_claim"),
)
def _(original: Any, read: Any, account: Any) -> Any:
    return read(None)


@fault(
    "one batch of everybody is accounted for as a sample", "one batch of everybody has a price", (pg_plan, "event_of")
)
def _(original: Any, config: Any, z: Any) -> Any:
    return events.poisson_gaussian(config.batch / config.users, z, config.steps)
