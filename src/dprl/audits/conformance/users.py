"""How the conformance suite runs and attacks private policy gradient, on users of its own.

Nothing in here is private. The attack itself is in :mod:`dprl.audits.attacks.users`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary
from dprl.audits.attacks.users import small_facts
from dprl.audits.conformance.suite import Suite, load
from dprl.errors import DprlError
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.estimator import Shape, Trajectory
from dprl.learning.policy_gradient.pg_plan import PGPlan, make_pg_plan, program_of
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import ALTERS_ONE_PLACE, GaussianSum, Stability

_HORIZON = 3
_BUDGET = Budget(1.0, 1e-6)


@dataclass(frozen=True)
class Crowd:
    """People in compiled code, whose contexts, coins and rewards are given: what they do depends on the policy.

    Attributes:
        contexts: ``(N, H, d)`` observations of every place.
        coins: ``(N, H)`` uniform numbers by which the policy draws, or ``(N, H, k)`` normals.
        paid: ``(N, H, A)`` reward of each action; ``(N, H, 1)`` where they are continuous.
        length: ``(N,)`` steps, 0 of a place that stays empty.
    """

    contexts: Any
    coins: Any
    paid: Any
    length: Any
    shape: Shape
    stability: ClassVar[tuple[Stability, ...]] = ALTERS_ONE_PLACE

    @property
    def units(self) -> int:
        return self.shape.users

    def block(self, units: Any, state: Any = None) -> Trajectory:
        """See :class:`~dprl.engine.unit_source.Blocks`."""
        place, policy = jnp.minimum(units, self.units - 1), self.shape.policy
        contexts, coins, paid = (jnp.asarray(x)[place] for x in (self.contexts, self.coins, self.paid))
        count, horizon = contexts.shape[:2]
        flat = (x.reshape(count * horizon, *x.shape[2:]) for x in (contexts, coins))
        actions = policy.draw(state.theta, *flat).reshape(count, horizon, *self.coins.shape[2:])
        which = jnp.zeros_like(paid[..., 0], jnp.int32) if policy.gaussian else actions
        rewards = jnp.take_along_axis(paid, which[..., None], axis=2)[..., 0]
        return Trajectory(contexts, actions, rewards, jnp.asarray(self.length)[place], jnp.ones(count, bool))

    def without(self, place: int) -> Crowd:
        """The user in ``place`` answers nothing."""
        return replace(self, length=_put(self.length, place, 0))

    def replaced(self, place: int) -> Crowd:
        """The user in ``place`` is another one, who wants the opposite."""
        return replace(self, paid=_put(self.paid, place, -self.paid[place]))


jax.tree_util.register_dataclass(Crowd, data_fields=["contexts", "coins", "paid", "length"], meta_fields=["shape"])


def _put(values: np.ndarray, place: int, value: Any) -> np.ndarray:
    out = np.array(values)
    out[place] = value
    return out


@dataclass(frozen=True)
class PolicyGradientConformance(Suite):
    """A learner from users: how it is run with a set of users and with its neighbours, and attacked."""

    @property
    def budget(self) -> Budget:
        return _BUDGET

    def facts(self, setting: str) -> LearningFacts:
        """Episodes of several steps, or of one; of two components."""
        policy = str(self.config(setting).policy)
        continuous = "gaussian" in policy
        return LearningFacts(
            name="crowd",
            observation=((-1.0, 1.0),) * 2,
            actions=0 if continuous else 3,
            action=((-1.0, 1.0),) if continuous else None,
            horizon=1 if "one step" in setting else _HORIZON,
            discount=0.9,
            reward_bounds=(-1.0, 1.0),
        )

    def plan(self, setting: str) -> PGPlan:
        return _plan(self.config(setting), self.facts(setting), _BUDGET)

    def mechanisms(self, setting: str) -> dict[str, GaussianSum]:
        mechanism = self.plan(setting).mechanism
        return {} if mechanism is None else {trainer.STREAM: mechanism}

    def event(self, setting: str) -> events.DpEvent | None:
        return self.plan(setting).event

    def users(self, setting: str) -> Crowd:
        """As many as there are places; some of them leave theirs empty."""
        facts, count = self.facts(setting), int(self.plan(setting).config.users or 0)
        rng, size = np.random.default_rng(0), (count, facts.horizon)
        coins = rng.random(size) if facts.action is None else rng.standard_normal((*size, len(facts.action)))
        length = rng.integers(1, facts.horizon + 1, count) * (rng.random(count) < 0.9)
        return Crowd(
            contexts=rng.uniform(-1.0, 1.0, (*size, facts.dimensions)).astype(np.float32),
            coins=coins.astype(np.float32),
            paid=rng.uniform(-1.0, 1.0, (*size, max(facts.actions, 1))).astype(np.float32),
            length=length.astype(np.int32),
            shape=program_of(self.plan(setting))[0].shape,
        )

    def run(
        self, setting: str, people: Any, noise: Any, wrap: Callable[[Any], Any] | None = None
    ) -> dict[str, np.ndarray]:
        """Run by the compiled loop, with the mechanism replaced by ``wrap(mechanism)``; returns all that is released.

        The host's loop is run through the front door, see :mod:`dprl.audits.user_neighbours`.
        """
        plan = self.plan(setting)
        program, rates = program_of(plan)
        if wrap is not None:
            program = replace(program, mechanism=wrap(program.mechanism))
        stream = noise.stream(trainer.STREAM)
        state, history = trainer.run(program, people, stream, rates, ActionCoins.of_key(random.key(7)))
        weights = trainer.released(plan.config, state, history, ActionCoins.of_key(random.key(8)))
        return {"policy": weights, "iterates": np.asarray(history), "baseline": np.asarray(state.baseline)}

    def attack(self, asked: dict[str, Any]) -> PlanCanary:
        """``units`` is the number of places for users."""
        units, unit, released, budget = (asked.pop(name) for name in ("units", "unit", "released", "budget"))
        if unit is not None:
            raise DprlError(f"{self.name} protects a user and knows no other unit: leave unit out.")
        if released != "all":
            raise DprlError(f"{self.name} is audited on all noised sums: leave out released.")
        config = self.algorithm.config.from_mapping(asked, "options")
        if config.users is not None:
            raise DprlError(f"{self.name} is audited with so many users as there are units: leave out users.")
        return load(self.algorithm.canary)(_plan(config, small_facts(config.policy), budget, units))


@lru_cache(maxsize=64)
def _plan(config: DPPG, facts: LearningFacts, budget: Budget, units: int | None = None) -> PGPlan:
    return make_pg_plan(config, facts, budget, units)
