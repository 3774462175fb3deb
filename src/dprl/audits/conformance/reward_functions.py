"""How the conformance suite runs and attacks functional Q-learning, on a walk whose rewards differ as neighbours' do.

Nothing in here is private. The attacks themselves are in :mod:`dprl.audits.attacks.reward_functions`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary
from dprl.audits.conformance.suite import UNITS, Suite, load
from dprl.environments.interval_walk import LONGEST_MOVE, IntervalWalk
from dprl.errors import DprlError
from dprl.learning import planner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import LearningPlan, Mechanism, make_learning_plan
from dprl.learning_facts import LearningFacts, RewardOf

_RADIUS = 0.01
_WIDTH = 1.0 / 8.0


@dataclass(frozen=True, kw_only=True)
class Walk(IntervalWalk):
    """The interval walk, of which some steps end an episode, with rewards that differ from a neighbour's.

    Attributes:
        ends: probability that a step ends the episode.
        way: what its rewards differ from others by: the ``state``, the ``action``, the ``next state``, the ``end`` of
            an episode, or ``chance``.
        amount: by how much at most.
        slope: by how much at most for a change of the state by 1.
        declares: what the environment says that its rewards are functions of.
    """

    horizon: int = 20
    ends: float = 0.0
    way: str = "state"
    amount: float = 0.0
    slope: float = 0.0
    declares: RewardOf | None = "state-action"

    @property
    def facts(self) -> LearningFacts:
        return replace(super().facts, name="small walk", reward_of=self.declares)

    def reward(self, state: Any, action: Any) -> Any:
        """Of the state and the action alone."""
        paid = 0.2 + 0.1 * super().reward(state, action)
        if self.way == "state":
            return paid + self._tooth(state[..., 0])
        return paid + self.amount * (jnp.asarray(action) % 2) if self.way == "action" else paid

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
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


_BUDGET = Budget(0.9, 1e-4)


@dataclass(frozen=True)
class LearningConformance(Suite):
    """A learning algorithm: its plans in the walk, and how it is attacked."""

    @property
    def budget(self) -> Budget:
        return _BUDGET

    def plan(self, setting: str) -> LearningPlan:
        return _plan(self.config(setting), _BUDGET)

    def mechanisms(self, setting: str) -> dict[str, Mechanism]:
        mechanism = self.plan(setting).mechanism
        return {} if mechanism is None else {"reward": mechanism}

    def event(self, setting: str) -> events.DpEvent | None:
        return self.plan(setting).event

    def attack(self, asked: dict[str, Any]) -> PlanCanary:
        """The privacy unit is the reward function, of which there is one."""
        units, unit, released, budget = (asked.pop(name) for name in ("units", "unit", "released", "budget"))
        if units != UNITS or unit is not None:
            raise DprlError(f"{self.name} protects the reward function and knows no other units: leave units out.")
        if released == "last" and self.verified:
            raise DprlError("An audit of learning looks at all answers: leave out released.")
        config = self.algorithm.config.from_mapping(asked, "options")
        if self.verified and config.reward_radius is None and config.people is None:
            config = replace(config, reward_radius=_RADIUS)
        return load(self.algorithm.canary)(_plan(config, budget))


@lru_cache(maxsize=64)
def _plan(config: FunctionalQ, budget: Budget) -> LearningPlan:
    walk = Walk()
    model = walk.transition_matrix(planner.POINTS) if config.variant == "output" else None
    return make_learning_plan(config, walk.facts, budget, model)
