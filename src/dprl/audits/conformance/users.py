"""How the conformance suite runs and attacks private policy gradient, on users of its own.

Nothing in here is private. The attack itself is in :mod:`dprl.audits.attacks.users`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary
from dprl.audits.attacks.users import STREAM, small_facts
from dprl.audits.conformance.suite import Suite, load
from dprl.errors import DprlError
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.estimator import Shape, Trajectory
from dprl.learning.policy_gradient.on_host import run_on_host, run_resampled
from dprl.learning.policy_gradient.pg_plan import Mechanism, PGPlan, make_pg_plan
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.action_coins import ActionCoins

_HORIZON = 3
_BUDGET = Budget(1.0, 1e-6)


@dataclass(frozen=True)
class Crowd:
    """Users whose contexts, coins and rewards are given: what they do depends on the policy that they meet.

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

    def answer(self, shape: Shape, theta: Any, coins: Any, slots: Any) -> Trajectory:
        """See :class:`dprl.learning.policy_gradient.users.Users`."""
        del coins
        place = jnp.minimum(slots, len(self.length) - 1)
        contexts, coins, paid = (jnp.asarray(x)[place] for x in (self.contexts, self.coins, self.paid))
        count, horizon = contexts.shape[:2]
        flat = (x.reshape(count * horizon, *x.shape[2:]) for x in (contexts, coins))
        actions = shape.policy.draw(theta, *flat).reshape(count, horizon, *self.coins.shape[2:])
        which = jnp.zeros_like(paid[..., 0], jnp.int32) if shape.policy.gaussian else actions
        rewards = jnp.take_along_axis(paid, which[..., None], axis=2)[..., 0]
        return Trajectory(contexts, actions, rewards, jnp.asarray(self.length)[place], jnp.ones(count, bool))

    def batch(self, first: int, count: int, act: Any) -> Trajectory:
        """The same for :func:`dprl.learning.policy_gradient.on_host.run_on_host`."""
        return self.answers(np.arange(first, first + count), act)

    def answers(self, places: np.ndarray, act: Any) -> Trajectory:
        """The same of users who are asked in any order; others' places are empty."""
        rows = _ANSWER(_Static(act.policy), self, act.theta, places)
        length = np.where((places >= 0) & (places < len(self.length)), rows.length, 0)
        return Trajectory(*(np.asarray(x) for x in rows._replace(length=length)))

    def count(self) -> int:
        """See :class:`dprl.learning.policy_gradient.on_host.LoggedUsers`."""
        return len(self.length)

    def without(self, place: int) -> Crowd:
        """The user in ``place`` answers nothing."""
        return self._with(length=_put(self.length, place, 0))

    def replaced(self, place: int) -> Crowd:
        """The user in ``place`` is another one, who wants the opposite."""
        return self._with(paid=_put(self.paid, place, -self.paid[place]))

    def _with(self, **changes: Any) -> Crowd:
        return Crowd(**{**{name: getattr(self, name) for name in self.__dataclass_fields__}, **changes})


jax.tree_util.register_dataclass(Crowd, data_fields=["contexts", "coins", "paid", "length"], meta_fields=[])


@dataclass(frozen=True)
class _Static:
    """What of a shape an answer needs."""

    policy: Any


_ANSWER = jax.jit(lambda shape, crowd, theta, slots: crowd.answer(shape, theta, None, slots), static_argnums=0)


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

    def mechanisms(self, setting: str) -> dict[str, Mechanism]:
        mechanism = self.plan(setting).mechanism
        return {} if mechanism is None else {STREAM: mechanism}

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
        )

    def run(
        self,
        setting: str,
        users: Any,
        noise: Any,
        wrap: Callable[[Any], Any] | None = None,
        on_host: bool = False,
    ) -> dict[str, np.ndarray]:
        """Run as a release does, with the mechanism's noise replaced by ``wrap(noise)``; returns all that is released.

        Args:
            users: a :class:`Crowd`; on the host any source of batches.
            wrap: where users are sampled again, of the mechanism itself.
            on_host: of users of a log, or of such as come one after the other.
        """
        plan = self.plan(setting)
        mechanism: Any = plan.mechanism
        shape, rates = trainer.shape_of(plan.config, plan.facts), trainer.rates_of(plan.config, plan.facts)
        if plan.config.poisson:
            mechanism = mechanism if wrap is None else wrap(mechanism)
            run = run_resampled(shape, users, rates, mechanism, noise.stream(STREAM), ActionCoins.of_key(random.key(7)))
            return self._released(plan, *run)
        bound = mechanism.in_order(noise.stream(STREAM)) if on_host else mechanism.bind(noise.stream(STREAM))
        bound = bound if wrap is None else wrap(bound)
        if on_host:
            state, history = run_on_host(shape, users, rates, bound, mechanism, ActionCoins.of_key(random.key(7)))
        else:
            state, history = trainer.run(shape, users, rates, bound, mechanism, ActionCoins.of_key(random.key(7)))
        return self._released(plan, state, history)

    def _released(self, plan: PGPlan, state: Any, history: Any) -> dict[str, np.ndarray]:
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
