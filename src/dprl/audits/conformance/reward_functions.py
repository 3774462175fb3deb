"""How functional Q-learning is released and attacked, on walks whose reward functions are neighbours.

Nothing in here is private. The attacks themselves are in :mod:`dprl.audits.attacks.reward_functions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary, check_all_seen
from dprl.audits.conformance.suite import Group, Neighbour, Suite, handed_out
from dprl.audits.record_replay import Call
from dprl.environments.interval_walk import LONGEST_MOVE, IntervalWalk
from dprl.errors import DprlError
from dprl.learning import planned_q
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import LearningPlan, make_learning_plan
from dprl.protocols import Attack, EnvironmentSpec, RewardOf
from dprl.release.train import train

_RADIUS = 0.01
_WIDTH = 1.0 / 8.0


@dataclass(frozen=True, kw_only=True)
class Walk(IntervalWalk):
    """The interval walk, in which a step may end an episode, with rewards that differ from a neighbour's.

    Attributes:
        ends: probability that a step ends the episode.
        way: what the difference of rewards depends on: the ``state``, the ``action``, the ``next state``, the ``end``
            of an episode, or ``chance``.
        amount: largest difference of two rewards.
        slope: largest change of the difference for a change of the state by 1.
        declares: what the environment declares its rewards to be functions of.
    """

    horizon: int = 20
    ends: float = 0.0
    way: str = "state"
    amount: float = 0.0
    slope: float = 0.0
    declares: RewardOf | None = "state-action"

    @property
    def facts(self) -> EnvironmentSpec:
        """Return the public facts of the walk."""
        return replace(super().facts, name="small walk", reward_of=self.declares)

    def reward(self, state: Any, action: Any) -> Any:
        """Return the part of the reward that is a function of the state and the action."""
        paid = 0.2 + 0.1 * super().reward(state, action)
        if self.way == "state":
            return paid + self._tooth(state[..., 0])
        return paid + self.amount * (jnp.asarray(action) % 2) if self.way == "action" else paid

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        """Return the next state, the reward, and whether the episode is over."""
        coins = random.uniform(key, (2,), jnp.float64)
        move = self._on_grid(LONGEST_MOVE * coins[0])
        following = jnp.clip(jnp.where(jnp.asarray(action) % 2 == 1, state + move, state - move), 0.0, 1.0)
        reward, over = self.reward(jnp.asarray(state), action), coins[1] < self.ends
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


WAYS = ("state", "action", "next state", "end", "chance")
"""Things on which the difference between the rewards of two neighbours may depend."""


class Equal(Walk):
    """A walk that equals every other one whatever its rewards, like a subclass that adds a table but no comparison."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 0


class Unhashable(Walk):
    """A walk that cannot be hashed, like an environment that holds an array."""

    __hash__ = None  # type: ignore[assignment]


KINDS: Mapping[str, type[Walk]] = {"unequal": Walk, "equal": Equal, "unhashable": Unhashable}


def ways_of(config: FunctionalQ) -> tuple[dict[str, RewardOf | None], RewardOf]:
    """Return the ways in which rewards differ, each with the neighbour's ``reward_of``, and the base's ``reward_of``.

    An environment's ``reward_of`` declares what its rewards are functions of. With a path per action, a neighbour that
    declares nothing must be refused. With a single path or a planned Q, only ways that the relation covers are tried.
    """
    of: RewardOf = "state" if config.shared_path else "state-action"
    inside = ("state",) if of == "state" else ("state", "action")
    if config.variant == "functional" and not config.shared_path:
        return {way: of if way in inside else None for way in WAYS}, of
    return dict.fromkeys(inside if config.variant in ("functional", "output") else WAYS, of), of


def learned_from(environment: Any, budget: Budget, config: FunctionalQ) -> Call:
    """Return the public call that learns in ``environment``."""

    def call(seed: int) -> Mapping[str, np.ndarray]:
        release = train(environment, budget, algorithm=config, seed=seed)
        q = np.frombuffer(release.q_function.to_bytes(), np.uint8)
        return handed_out(release, q=q)

    return call


_BUDGET = Budget(0.9, 1e-4)


@dataclass(frozen=True)
class LearningConformance(Suite):
    """The audits of a learner from rewards: its plans in the walk, neighbouring reward functions, and its attack."""

    budget = _BUDGET

    def plan(self, setting: str) -> LearningPlan:
        """Return the plan of a release."""
        return _plan(self.config(setting), _BUDGET)

    def relation(self, setting: str) -> str:
        """Return in words how far apart two neighbouring reward functions may be."""
        return self.plan(setting).relation.words()

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return kinds of environments."""
        return tuple(f"{kind} environments" for kind in KINDS)

    def neighbours(self, setting: str, source: str, folder: Path, turn: int) -> Iterator[Group]:
        """Yield reward functions as far apart as neighbours may be, and others, which must be refused."""
        kind, config, relation = KINDS[source.split()[0]], self.config(setting), self.plan(setting).relation
        ways, of = ways_of(config)
        far: dict[str, Any] = {"ends": 0.2, "amount": relation.radius, "slope": relation.lipschitz or 0.0}
        yield Group(
            learned_from(kind(ends=0.2, declares=of), self.budget, config),
            [
                Neighbour(
                    f"by {way}",
                    learned_from(kind(**far, declares=declared, way=way), self.budget, config),
                    covered=declared is not None,
                    moves=True,
                )
                for way, declared in ways.items()
            ],
        )

    def attack(self, asked: dict[str, Any]) -> PlanCanary:
        """Return the attack that the entry names. The privacy unit is the reward function, of which there is one."""
        units, unit, released, budget = (asked.pop(name) for name in ("units", "unit", "released", "budget"))
        if units != Attack.units or unit is not None:
            raise DprlError(
                f"{self.algorithm.name} protects the reward function and knows no other units: leave units out."
            )
        if self.algorithm.verified:
            check_all_seen(self.algorithm.name, released)
        config = self.algorithm.config.from_mapping(asked, "options")
        if self.algorithm.verified and config.reward_radius is None and config.people is None:
            config = replace(config, reward_radius=_RADIUS)
        return resolve_name(self.algorithm.canary)(_plan(config, budget))


@lru_cache(maxsize=64)
def _plan(config: FunctionalQ, budget: Budget) -> LearningPlan:
    walk = Walk()
    model = walk.transition_matrix(planned_q.POINTS) if config.variant == "output" else None
    return make_learning_plan(config, walk.facts, budget, model)
