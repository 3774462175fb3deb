"""How the conformance suite runs and attacks functional Q-learning, on a walk whose rewards differ as neighbours' do.

Nothing in here is private. The attacks themselves are in :mod:`dprl.audits.attacks.reward_functions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.reward_functions import canary_of_plan
from dprl.audits.attacks.trials import PlanCanary
from dprl.environments.interval_walk import LONGEST_MOVE, IntervalWalk
from dprl.errors import DprlError
from dprl.learning import planner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import LearningPlan, Mechanism, make_learning_plan
from dprl.learning_facts import LearningFacts, RewardOf
from dprl.protocols import Attack

_UNITS = 200  # of an attack that states none; a reward function has no number
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


_SHORT = {"samples": 100, "round": 20, "batch": 8, "network": "mlp:4", "reward_radius": _RADIUS}
_BUDGET = Budget(0.9, 1e-4)


@dataclass(frozen=True)
class LearningConformance:
    """A learning algorithm: its settings, and how it is attacked."""

    name: str
    configs: Mapping[str, FunctionalQ]
    published: Mapping[str, FunctionalQ]
    attacks: tuple[Attack, ...]

    @property
    def calibrations(self) -> tuple[str, ...]:
        return ("verified", "as-published")

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.configs)

    @property
    def published_settings(self) -> tuple[str, ...]:
        return tuple(self.published)

    @property
    def budget(self) -> Budget:
        return _BUDGET

    def config(self, setting: str) -> FunctionalQ:
        return {**self.configs, **self.published}[setting]

    def plan(self, setting: str) -> LearningPlan:
        return _plan(self.config(setting), _BUDGET)

    def mechanisms(self, setting: str) -> dict[str, Mechanism]:
        mechanism = self.plan(setting).mechanism
        return {} if mechanism is None else {"reward": mechanism}

    def event(self, setting: str) -> events.DpEvent | None:
        return self.plan(setting).event

    def canary(
        self,
        calibration: str = "verified",
        *,
        units: int = _UNITS,
        epsilon: float,
        delta: float,
        released: str = "all",
        unit: str | None = None,
        **options: Any,
    ) -> PlanCanary:
        """See :class:`dprl.protocols.Conformance`; the privacy unit is the reward function, of which there is one."""
        if calibration not in self.calibrations:
            raise DprlError(f"{self.name} has no calibration {calibration!r}; it has {', '.join(self.calibrations)}.")
        if units != _UNITS or unit is not None:
            raise DprlError(f"{self.name} protects the reward function and knows no other units: leave units out.")
        if released not in (("all",) if calibration == "verified" else ("all", "last")):
            raise DprlError(
                "An audit of learning looks at all answers where it is verified, and as published at the last "
                "iterate: leave out released."
            )
        config = FunctionalQ.from_mapping({**options, "calibration": calibration}, "options")
        if not config.published and config.reward_radius is None and config.people is None:
            config = replace(config, reward_radius=_RADIUS)
        return canary_of_plan(_plan(config, Budget(epsilon, delta)), IntervalWalk())


@lru_cache(maxsize=64)
def _plan(config: FunctionalQ, budget: Budget) -> LearningPlan:
    walk = Walk()
    model = walk.transition_matrix(planner.POINTS) if config.variant == "output" else None
    return make_learning_plan(config, walk.facts, budget, model)


def _attack(trials: int, calibration: str = "verified", **options: Any) -> Attack:
    return Attack(calibration=calibration, epsilon=0.9, delta=1e-4, options=options, trials=trials)


CONFORMANCE = LearningConformance(
    name=FunctionalQ.algorithm,
    configs={
        "functional": FunctionalQ(variant="functional", **_SHORT),
        "functional, one path": FunctionalQ(variant="functional", shared_path=True, actor_critic=True, **_SHORT),
        "observed reward": FunctionalQ(**_SHORT),
        "gradient": FunctionalQ(variant="gradient", **{**_SHORT, "network": "fourier:2"}),
        "output": FunctionalQ(variant="output", **{**_SHORT, "network": None}),
    },
    published={"as published": FunctionalQ(calibration="as-published", samples=320, network="mlp:4")},
    attacks=(
        _attack(400_000, variant="functional"),
        _attack(400_000, variant="functional", shared_path=True),
        _attack(400_000, variant="observed-reward", samples=50),
        _attack(400_000, variant="gradient", samples=1000, network="fourier:1"),
        _attack(20_000, variant="output"),
        _attack(1_000, "as-published", published_std=0.32, samples=640),
    ),
)
