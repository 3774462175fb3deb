"""How the conformance suite runs and attacks the learning algorithms, in a small environment of its own.

Nothing in here is private. The attacks themselves are in :mod:`dprl.audits.attacks.reward_functions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary
from dprl.audits.conformance.suite import UNITS, Suite, load
from dprl.errors import DprlError
from dprl.learning import planner, q_learner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import LearningPlan, Mechanism, answers_of, make_learning_plan
from dprl.learning.run_coins import AddressedCoins
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.action_coins import ActionCoins
from dprl.protocols import Interval

_RADIUS = 0.01
_GRID = 2.0**-20


@dataclass(frozen=True)
class SmallWalk:
    """A walk on multiples of 2^-20 of the unit interval, paid in the middle; some steps end an episode.

    Attributes:
        actions: action a moves by at most 1/4, down where a is even and up where it is odd.
        steep: how much the reward depends on the action.
        ends: probability that a step ends the episode.
    """

    actions: int = 2
    horizon: int = 20
    discount: float = 0.9
    steep: float = 0.0
    ends: float = 0.0

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        return ((0.0, 1.0),)

    @property
    def reward_bounds(self) -> Interval:
        return (0.0, 0.5)

    @property
    def facts(self) -> LearningFacts:
        """As if rewards depended on the action."""
        return LearningFacts(
            name="small walk",
            observation=self.observation_bounds,
            actions=self.actions,
            horizon=self.horizon,
            discount=self.discount,
            reward_bounds=self.reward_bounds,
            on_grid=True,
            reward_of="state-action",
            reward_lipschitz=1.0,
        )

    def reset(self, key: Any) -> Any:
        return _on_grid(random.uniform(key, (1,), jnp.float64))

    def observe(self, state: Any) -> Any:
        return state

    def reward(self, states: Any, actions: Any) -> Any:
        """``(B,)`` rewards of actions ``(B,)`` in states ``(B, 1)``: the only part that is private."""
        return (0.5 - jnp.abs(states[:, 0] - 0.5)) * (1.0 - self.steep * (jnp.asarray(actions) % 2))

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        coins = random.uniform(key, (2,), jnp.float64)
        move = _on_grid(0.25 * coins[0])
        following = jnp.clip(jnp.where(jnp.asarray(action) % 2 == 1, state + move, state - move), 0.0, 1.0)
        reward = self.reward(jnp.asarray(state)[None], jnp.asarray(action)[None])[0]
        return following, reward, coins[1] < self.ends

    def transition_matrix(self, points: np.ndarray) -> np.ndarray:
        """``(A, N, N)``: moves of every size up to 1/4, by the points between which they end."""
        sizes = (np.arange(64) + 0.5) / 64.0 / 4.0
        cells, count = len(points) - 1, len(points)
        out = np.zeros((self.actions, count, count))
        for action in range(self.actions):
            for move in sizes if action % 2 else -sizes:
                place = np.clip(points + move, 0.0, 1.0) * cells
                left = np.minimum(np.floor(place), cells - 1).astype(int)
                np.add.at(out[action], (np.arange(count), left), 1.0 + left - place)
                np.add.at(out[action], (np.arange(count), left + 1), place - left)
        return out / out.sum(2, keepdims=True)


class OnHost:
    """A small walk step by step, as Gymnasium would; its moves are its own."""

    def __init__(self, environment: Any) -> None:
        self._environment, self._rng = environment, np.random.default_rng(0)
        self._state, self._time = np.zeros(1), 0

    def reset(self, seed: int) -> np.ndarray:
        self._rng, self._time = np.random.default_rng(seed), 0
        self._state = np.round(self._rng.random(1) / _GRID) * _GRID
        return self._state

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        reward = float(self._environment.reward(self._state[None], np.array([action]))[0])
        move = np.round(0.25 * self._rng.random() / _GRID) * _GRID
        self._state = np.clip(self._state + (move if action % 2 else -move), 0.0, 1.0)
        self._time += 1
        return self._state, reward, False, self._time >= self._environment.horizon


def _on_grid(x: Any) -> Any:
    return jnp.round(x / _GRID) * _GRID


_BUDGET = Budget(0.9, 1e-4)


@dataclass(frozen=True)
class LearningConformance(Suite):
    """A learning algorithm: how it is run on a pair of reward functions, and attacked."""

    environment: SmallWalk = field(default_factory=SmallWalk)

    @property
    def budget(self) -> Budget:
        return _BUDGET

    def plan(self, setting: str) -> LearningPlan:
        return _plan(self.config(setting), self.environment, _BUDGET)

    def mechanisms(self, setting: str) -> dict[str, Mechanism]:
        mechanism = self.plan(setting).mechanism
        return {} if mechanism is None else {"reward": mechanism}

    def event(self, setting: str) -> events.DpEvent | None:
        return self.plan(setting).event

    def run(
        self,
        setting: str,
        environment: Any,
        noise: Any,
        wrap: Callable[[Any], Any] | None = None,
        on_host: bool = False,
    ) -> dict[str, np.ndarray]:
        """Run as a release does, and return all that is released.

        Args:
            wrap: what answers is replaced by ``wrap(answers)``, which sees what enters the mechanism.
            environment: :attr:`environment`, or that with other rewards.
            on_host: step by step, as with an environment that lives outside of JAX.
        """
        plan = self.plan(setting)
        config, facts = plan.config, plan.facts
        answers = answers_of(plan, noise.stream("reward"), on_host, wrap)
        if config.variant == "output":
            at = jnp.asarray(planner.POINTS)[:, None]
            rewards = [environment.reward(at, jnp.full(len(at), a)) for a in range(facts.actions)]
            assert config.discount is not None
            found = planner.released(plan.model, np.stack(rewards), answers, config.discount, facts)
            return dict(found.weights)
        shape, rates = q_learner.shape_of(config, facts), q_learner.rates_of(config, facts)
        key, iterates = random.key(7), dict[str, np.ndarray]()
        if on_host:
            coins = AddressedCoins(ActionCoins.of_key(key))
            state = q_learner.run_on_host(shape, OnHost(environment), rates, answers, coins)
        else:
            state, history = q_learner.run(shape, environment, rates, answers, key)
            iterates = {f"iterates of {name}": np.asarray(w) for name, w in history.items()}
        assert config.discount is not None
        found = q_learner.q_of(state, shape, facts, config.discount)
        actor = {f"actor.{name}": w for name, w in (found.actor or {}).items()}
        return {**found.weights, **actor, **iterates}

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
        return load(self.algorithm.canary)(_plan(config, self.environment, budget))


@lru_cache(maxsize=64)
def _plan(config: FunctionalQ, environment: SmallWalk, budget: Budget) -> LearningPlan:
    model = environment.transition_matrix(planner.POINTS) if config.variant == "output" else None
    return make_learning_plan(config, environment.facts, budget, model)
