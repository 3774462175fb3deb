"""Learning from neighbouring reward functions, one after the other in one process: see :mod:`.neighbours`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.audits.conformance.reward_functions import SmallWalk
from dprl.audits.entering import Call, Door, differ
from dprl.audits.log_neighbours import Found, Tally, handed_out
from dprl.errors import DprlError
from dprl.learning.functional_q import FunctionalQ
from dprl.learning_facts import LearningFacts, RewardOf
from dprl.registry import Entry
from dprl.release.train import train

_WIDTH = 1.0 / 8.0
WAYS = ("state", "action", "next state", "end", "chance")
"""What the difference of two neighbours is a function of."""


@dataclass(frozen=True)
class Walk(SmallWalk):
    """A small walk with rewards of its own.

    Attributes:
        way: what its rewards differ from others by.
        amount: by how much at most.
        slope: by how much at most for a change of the state by 1.
        declares: what the environment says that its rewards are functions of.
    """

    way: str = "state"
    amount: float = 0.0
    slope: float = 0.0
    declares: RewardOf | None = None

    @property
    def facts(self) -> LearningFacts:
        return replace(super().facts, reward_of=self.declares)

    def reward(self, states: Any, actions: Any) -> Any:
        """Of the state and the action alone."""
        paid = 0.2 + 0.1 * super().reward(states, actions)
        if self.way == "state":
            return paid + self._tooth(states[..., 0])
        return paid + self.amount * (jnp.asarray(actions) % 2) if self.way == "action" else paid

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        following, reward, over = super().step(key, state, action)
        match self.way:
            case "next state":
                reward = reward + self._tooth(following[0])
            case "end":
                reward = reward + self.amount * over
            case "chance":
                reward = reward + self.amount * (random.uniform(random.fold_in(key, 1)) < 0.5)
        return following, reward, over

    def _tooth(self, x: Any) -> Any:
        return self.amount - self.slope * jnp.abs(x % _WIDTH - _WIDTH / 2.0)


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


def reward_neighbours(entry: Entry, setting: str, *, kind: str = "equal") -> Found:
    """Compare reward functions as far apart as neighbours may be; and see that others are refused.

    Args:
        kind: of the environments, one of :data:`KINDS`.
    """
    suite, tally, door = entry.load_conformance(), Tally(), Door()
    config, relation = suite.config(setting), suite.plan(setting).relation
    ways, of = ways_of(config)

    def learned_from(environment: Walk) -> Call:
        def call(seed: int) -> Mapping[str, np.ndarray]:
            release = train(environment, suite.budget, algorithm=config, seed=seed)
            q = np.frombuffer(release.q_function.to_bytes(), np.uint8)
            return handed_out({"training": release.training, "certificate": release.certificate}, q=q)

        return call

    first = door.record(learned_from(KINDS[kind](ends=0.2, declares=of)))
    for way, declared in ways.items():
        other = KINDS[kind](
            ends=0.2, declares=declared, way=way, amount=relation.radius, slope=relation.lipschitz or 0.0
        )
        try:
            second = door.record(learned_from(other))
        except DprlError:
            tally.refuse(f"by {way}")
            continue
        found = differ(first, second)
        if found.largest == 0.0:
            found = replace(found, problems=(*found.problems, "what was asked is not the release's own reward"))
        tally.add(found, f"by {way}")
    return tally.found(entry.name, setting, relation.words(), f"{kind} environments")
