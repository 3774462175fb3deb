"""Environments in which is learned, step by step on the host: Gymnasium's, and JAX environments, which stay untraced.

What a source raises is caught by whoever asks it: :class:`dprl.learning.asking.EnvironmentSession`.
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
        facts: what is public.
        environment: as ``gymnasium.make`` gives it.
    """

    facts: EnvironmentSpec
    environment: Any = field(repr=False)

    def __post_init__(self) -> None:
        self._first = int(self.environment.action_space.start)

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Return ``(d,)`` float64 in [0, 1], NaN where it is no finite number: the first observation of an episode."""
        observation, _ = self.environment.reset(seed=seed)
        return _scaled(observation, self.facts.observation)

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool]:
        """Return the next observation as of :meth:`reset`, the reward as it is, whether the episode terminated, or was
        cut.
        """
        following, reward, terminated, truncated, _ = self.environment.step(self._first + int(action))
        seen = _scaled(following, self.facts.observation)
        return seen, reward, bool(terminated), bool(truncated) and not bool(terminated)

    def close(self) -> None:
        """Close what was opened."""
        self.environment.close()


@dataclass
class Stepwise:
    """A JAX environment (:class:`dprl.protocols.Environment`), one step after the other.

    It is called, never compiled: whatever its methods hold stays an argument of the operations that they do. Only the
    library's own walk is compiled: all of it is public.

    Attributes:
        facts: what is public.
        environment: whose observations are clamped to the bounds of ``facts`` and scaled to [0, 1].
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


# Keys hold nothing of the environment: compiled, they cost a tenth of what they cost operation by operation.
_keys_of = jax.jit(lambda seed: random.split(random.key(seed)))
_key_at = jax.jit(lambda keys, time: random.fold_in(keys, time))


def _begin(environment: Any, seed: Any) -> tuple[Any, Any, Any]:
    """Key of an episode's steps, its first state and what is observed of it."""
    start, steps = _keys_of(seed)
    state = environment.reset(start)
    return steps, state, environment.observe(state)


def _move(environment: Any, steps: Any, time: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
    """Return the next state, the reward, whether the episode terminated, and what is observed."""
    state, reward, over = environment.step(_key_at(steps, time), state, jnp.asarray(action))
    return state, reward, over, environment.observe(state)


_OWN = jax.jit(_begin, static_argnums=0), jax.jit(_move, static_argnums=0)


def _scaled(observation: Any, bounds: tuple[Interval, ...]) -> np.ndarray:
    """Raises ValueError for another number of components."""
    flat = np.asarray(observation, np.float64).reshape(1, len(bounds))
    return unit_states(np.where(np.isfinite(flat), flat, np.nan), bounds)[0]


def source_of(environment: Any, facts: EnvironmentSpec) -> Any:
    """Whatever was handed over, with ``reset(seed)`` and ``step(action)`` on the host."""
    return Stepwise(facts, environment) if hasattr(environment, "observation_bounds") else environment


def declared_facts(environment: Any, facts: EnvironmentSpec) -> EnvironmentSpec:
    """Return what an environment that was handed over declares; without what it inherits from the interval walk about
    rewards.

    A subclass or a wrapper of the walk has rewards of its own, of which the walk's facts say nothing.
    """
    inherited = facts.name == NAME and not is_own(environment)
    return replace(facts, reward_of=None, reward_lipschitz=None) if inherited else facts


def open_environment(
    name: str, bounds: Bounds | Mapping[str, Any] | str | Path | None = None
) -> tuple[EnvironmentSpec, IntervalWalk | HostSource]:
    """Return what is public about an environment, and the environment itself.

    Args:
        name: ``interval-walk`` or ``gymnasium:ID``.
        bounds: of a Gymnasium environment: a ``bounds.toml`` as ``dprl simulate`` writes it. Its reward, observation
            and horizon are used; they are stated, never measured.

    Raises:
        DprlError: an unknown environment, no bounds or others than the environment's, or Gymnasium is not installed.
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
    """Return what is public about a Gymnasium environment: its stated bounds, which must be those of ``identifier``.

    Raises:
        DprlError: unknown environment, other actions or components, or Gymnasium is not installed.
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
