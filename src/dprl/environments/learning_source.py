"""Environments for learning, step by step on the host: those of Gymnasium, and JAX environments, which are not traced.

Errors of a source are caught by its caller, :class:`dprl.learning.q_learner.EnvironmentSession`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.data.bounds_file import read_bounds, refuse_fill
from dprl.environment_spec import EnvironmentSpec
from dprl.environments import gymnasium_adapter
from dprl.environments.interval_walk import NAME, IntervalWalk, is_own
from dprl.environments.names import DISCOUNT
from dprl.errors import DprlError
from dprl.protocols import Bounds, Interval
from dprl.states import unit_states


@dataclass
class HostSource:
    """A Gymnasium environment whose observations are clamped to public bounds and scaled to [0, 1].

    Attributes:
        facts: public facts about the environment.
        environment: the environment, from ``gymnasium.make``.
    """

    facts: EnvironmentSpec
    environment: Any = field(repr=False)

    def __post_init__(self) -> None:
        self._first = int(self.environment.action_space.start)

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Return the first observation of an episode, ``(d,)`` float64 in [0, 1]; NaN for what is no finite number."""
        observation, _ = self.environment.reset(seed=seed)
        return _scaled(observation, self.facts.observation)

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool]:
        """Return the next observation, the unchanged reward, whether the episode terminated, and whether it was cut.

        The observation has the form of :meth:`reset`.
        """
        following, reward, terminated, truncated, _ = self.environment.step(self._first + int(action))
        seen = _scaled(following, self.facts.observation)
        return seen, reward, bool(terminated), bool(truncated) and not bool(terminated)

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


@dataclass
class Stepwise:
    """A JAX environment (:class:`dprl.protocols.Environment`) that runs step by step.

    It is called, not compiled, so that data in its methods stay arguments of JAX operations and do not enter compiled
    code. Only dprl's own walk is compiled, because all of it is public.

    Attributes:
        facts: public facts about the environment.
        environment: environment whose observations are clamped to the bounds of ``facts`` and scaled to [0, 1].
    """

    facts: EnvironmentSpec
    environment: Any = field(repr=False)

    def __post_init__(self) -> None:
        self._begin, self._move = _OWN if is_own(self.environment) else (_begin, _move)

    def reset(self, seed: int) -> np.ndarray:
        """Begin an episode as :meth:`HostSource.reset` does."""
        self._steps, self._state, seen = self._begin(self.environment, np.int64(seed))
        self._time = 0
        return _scaled(seen, self.facts.observation)

    def step(self, action: int) -> tuple[np.ndarray, Any, Any, bool]:
        """Take a step as :meth:`HostSource.step` does."""
        self._state, reward, over, seen = self._move(
            self.environment, self._steps, np.int32(self._time), self._state, np.int32(action)
        )
        self._time += 1
        return _scaled(seen, self.facts.observation), reward, over, self._time >= self.facts.horizon


# Keys hold nothing of the environment; compiled, they cost a tenth of the time.
_keys_of = jax.jit(lambda seed: random.split(random.key(seed)))
_key_at = jax.jit(lambda keys, time: random.fold_in(keys, time))


def _begin(environment: Any, seed: Any) -> tuple[Any, Any, Any]:
    """Return the key of an episode's steps, its first state and the observation of this state."""
    start, steps = _keys_of(seed)
    state = environment.reset(start)
    return steps, state, environment.observe(state)


def _move(environment: Any, steps: Any, time: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
    """Return the next state, the reward, whether the episode terminated, and the observation of the next state."""
    state, reward, over = environment.step(_key_at(steps, time), state, jnp.asarray(action))
    return state, reward, over, environment.observe(state)


_OWN = jax.jit(_begin, static_argnums=0), jax.jit(_move, static_argnums=0)


def _scaled(observation: Any, bounds: tuple[Interval, ...]) -> np.ndarray:
    """Return an observation scaled to [0, 1]; raises ValueError for another number of components."""
    flat = np.asarray(observation, np.float64).reshape(1, len(bounds))
    return unit_states(np.where(np.isfinite(flat), flat, np.nan), bounds)[0]


def source_of(environment: Any, facts: EnvironmentSpec) -> Any:
    """Return a source, with ``reset(seed)`` and ``step(action)`` on the host, from the environment that a user gave."""
    return Stepwise(facts, environment) if hasattr(environment, "observation_bounds") else environment


def declared_facts(environment: Any, facts: EnvironmentSpec) -> EnvironmentSpec:
    """Return the facts that a user's environment declares, without facts on rewards inherited from the walk.

    A subclass or a wrapper of the walk has its own rewards, about which the walk's facts say nothing.
    """
    inherited = facts.name == NAME and not is_own(environment)
    return replace(facts, reward_of=None, reward_lipschitz=None) if inherited else facts


def open_environment(
    name: str, bounds: Bounds | Mapping[str, Any] | str | Path | None = None
) -> tuple[EnvironmentSpec, IntervalWalk | HostSource]:
    """Return the public facts about an environment, and the environment itself.

    Args:
        name: ``interval-walk`` or ``gymnasium:ID``.
        bounds: bounds of a Gymnasium environment, such as a ``bounds.toml`` that ``dprl simulate`` wrote. Its reward,
            observation and horizon are used; they are stated, never measured.

    Raises:
        DprlError: the environment is unknown, bounds are missing or do not fit the environment, or Gymnasium is not
            installed.
    """
    if name == NAME:
        if bounds is not None:
            raise DprlError(f"The bounds of {NAME!r} are its own: leave --bounds out.")
        walk = IntervalWalk()
        return walk.facts, walk
    kind, _, identifier = name.partition(":")
    if kind != "gymnasium" or not identifier:
        raise DprlError(f"Unknown environment {name!r}: use {NAME} or gymnasium:ID.")
    stated = read_bounds(bounds)
    facts = gymnasium_facts(name, identifier, stated)
    return facts, HostSource(facts, gymnasium_adapter.make(identifier, stated.horizon))


def gymnasium_facts(name: str, identifier: str, stated: Bounds) -> EnvironmentSpec:
    """Return the public facts about a Gymnasium environment: its stated bounds, which must fit ``identifier``.

    Raises:
        DprlError: the environment is unknown, has other actions or components, or Gymnasium is not installed.
    """
    refuse_fill(stated)
    found = gymnasium_adapter.describe(identifier, stated.horizon)
    if stated.actions != found.actions:
        raise DprlError(f"bounds: the environment {identifier!r} has {found.actions} discrete actions.")
    if len(stated.observation) != len(found.observation):
        raise DprlError(
            f"bounds: observation lists {len(stated.observation)} components; the environment {identifier!r} has "
            f"{len(found.observation)}."
        )
    return EnvironmentSpec(
        name=name,
        observation=stated.observation,
        actions=found.actions,
        horizon=stated.horizon,
        discount=DISCOUNT,
        reward_bounds=stated.reward,
        names=stated.observation_names,
        finite=None if found.states is None else (found.states, found.actions),
    )
