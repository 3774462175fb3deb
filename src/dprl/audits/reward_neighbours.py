"""Learning from neighbouring reward functions, one after the other in one process: see :mod:`.neighbours`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.conformance.reward_functions import Walk
from dprl.audits.entering import Call, Door, differ
from dprl.audits.log_neighbours import Found, Tally, handed_out
from dprl.errors import DprlError
from dprl.learning.functional_q import FunctionalQ
from dprl.learning_facts import RewardOf
from dprl.registry import Entry
from dprl.release.train import train

WAYS = ("state", "action", "next state", "end", "chance")
"""What the difference of two neighbours is a function of."""


class Equal(Walk):
    """Compares equal whatever its rewards, as a subclass does that adds a table to a compared dataclass."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 0


class Unhashable(Walk):
    """Cannot be hashed, as what holds an array."""

    __hash__ = None  # type: ignore[assignment]


KINDS: Mapping[str, type[Walk]] = {"unequal": Walk, "equal": Equal, "unhashable": Unhashable}


def ways_of(config: FunctionalQ) -> tuple[dict[str, RewardOf | None], RewardOf]:
    """In which ways two rewards are made to differ, each with what the environment declares rewards to be of.

    What is not declared to be of the state must be refused, where the relation is of functions of the state. One path
    and a planned Q look at no other rewards.
    """
    of: RewardOf = "state" if config.shared_path else "state-action"
    inside = ("state",) if of == "state" else ("state", "action")
    if config.variant == "functional" and not config.shared_path:
        return {way: of if way in inside else None for way in WAYS}, of
    return dict.fromkeys(inside if config.variant in ("functional", "output") else WAYS, of), of


def learned_from(environment: Any, budget: Budget, config: FunctionalQ) -> Call:
    """A public call that learns in this environment."""

    def call(seed: int) -> Mapping[str, np.ndarray]:
        release = train(environment, budget, algorithm=config, seed=seed)
        q = np.frombuffer(release.q_function.to_bytes(), np.uint8)
        return handed_out({"training": release.training, "certificate": release.certificate}, q=q)

    return call


def reward_neighbours(entry: Entry, setting: str, *, kind: str = "equal") -> Found:
    """Compare reward functions as far apart as neighbours may be; and see that others are refused.

    Args:
        kind: of the environments, one of :data:`KINDS`.
    """
    suite, tally, door = entry.load_conformance(), Tally(), Door()
    config, relation = suite.config(setting), suite.plan(setting).relation
    ways, of = ways_of(config)

    first = door.record(learned_from(KINDS[kind](ends=0.2, declares=of), suite.budget, config))
    for way, declared in ways.items():
        other = KINDS[kind](
            ends=0.2, declares=declared, way=way, amount=relation.radius, slope=relation.lipschitz or 0.0
        )
        try:
            second = door.record(learned_from(other, suite.budget, config))
        except DprlError:
            tally.refuse(f"by {way}")
            continue
        found = differ(first, second)
        if found.largest == 0.0:
            found = replace(found, problems=(*found.problems, "what was asked is not the release's own reward"))
        tally.add(found, f"by {way}")
    return tally.found(entry.name, setting, relation.words(), f"{kind} environments")
