"""Sources that a policy is learned from, by the name that a user gives: environments, and people who answer.

Environments run step by step on the host: those of Gymnasium, and JAX environments, which are not traced. Errors of
such a source are caught by its caller, :class:`dprl.learning.q_learner.EnvironmentSession`.

In a simulator every episode stands for a person, but no real one. People of Gymnasium and of a file are asked on the
host, one batch at a time (see :class:`dprl.environments.people.Answers`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.arrays import unit_states
from dprl.bounds import Bounds, Interval
from dprl.data.bounds_file import read_bounds, refuse_fill
from dprl.data.parts import MANIFEST
from dprl.environments import gymnasium_adapter
from dprl.environments.bandit import Bandit
from dprl.environments.bandit_parts import BanditInParts
from dprl.environments.interval_walk import NAME, IntervalWalk, is_unchanged_walk
from dprl.environments.people import Act, Answers, People, PeopleOfSource, SimulatedPeople, empty_answers, put_answer
from dprl.environments.simulators import DISCOUNT, SIMULATORS, facts_of
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec
from dprl.user_code import quietly

SIMULATORS_OF_PEOPLE = tuple(name for name, named in SIMULATORS.items() if named.people)
_PARALLEL = 64


@dataclass
class GymnasiumSource:
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
class StepwiseSource:
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
        self._begin, self._move = _COMPILED if is_unchanged_walk(self.environment) else (_begin, _move)

    def reset(self, seed: int) -> np.ndarray:
        """Begin an episode as :meth:`GymnasiumSource.reset` does."""
        self._steps, self._state, seen = self._begin(self.environment, np.int64(seed))
        self._time = 0
        return _scaled(seen, self.facts.observation)

    def step(self, action: int) -> tuple[np.ndarray, Any, Any, bool]:
        """Take a step as :meth:`GymnasiumSource.step` does."""
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


_COMPILED = jax.jit(_begin, static_argnums=0), jax.jit(_move, static_argnums=0)


def _scaled(observation: Any, bounds: tuple[Interval, ...]) -> np.ndarray:
    """Return an observation scaled to [0, 1]; raises ValueError for another number of components."""
    flat = np.asarray(observation, np.float64).reshape(1, len(bounds))
    return unit_states(np.where(np.isfinite(flat), flat, np.nan), bounds)[0]


def source_on_host(environment: Any, facts: EnvironmentSpec) -> Any:
    """Return a source, with ``reset(seed)`` and ``step(action)`` on the host, from the environment that a user gave."""
    return StepwiseSource(facts, environment) if hasattr(environment, "observation_bounds") else environment


def declared_facts(environment: Any, facts: EnvironmentSpec) -> EnvironmentSpec:
    """Return the facts that a user's environment declares, without facts on rewards inherited from the walk.

    A subclass or a wrapper of the walk has its own rewards, about which the walk's facts say nothing.
    """
    inherited = facts.name == NAME and not is_unchanged_walk(environment)
    return replace(facts, reward_of=None, reward_lipschitz=None) if inherited else facts


def open_environment(
    name: str, bounds: Bounds | Mapping[str, Any] | str | Path | None = None
) -> tuple[EnvironmentSpec, IntervalWalk | GymnasiumSource]:
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
    return facts, GymnasiumSource(facts, gymnasium_adapter.make(identifier, stated.horizon))


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


# --- people -------------------------------------------------------------------------------------------------------


@dataclass
class GymnasiumPeople(People):
    """People of a Gymnasium environment, each of whom has one episode; episodes run side by side on the host.

    Attributes:
        facts: public facts; observations and rewards are clamped to their bounds.
        identifier: id of the environment for ``gymnasium.make``.
        seed: seed of the episodes.
    """

    facts: EnvironmentSpec
    identifier: str
    seed: int = 0

    def __post_init__(self) -> None:
        self.people = "episodes"
        self._environments: list[Any] = []

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return the answers of the people in ``count`` places from ``first``."""
        if not self._environments:
            self._environments = [
                gymnasium_adapter.make(self.identifier, self.facts.horizon) for _ in range(min(count, _PARALLEL))
            ]
        answers = empty_answers(self.facts, count)
        waiting, running = iter(range(count)), list[_Episode]()
        idle = list(self._environments)
        while True:
            while idle and (row := next(waiting, None)) is not None:
                seed = np.random.SeedSequence([self.seed, first + row]).generate_state(1)[0]
                environment = idle.pop()
                begun = quietly(partial(_Episode, row, environment, int(seed)), None)
                if begun is None:
                    idle.append(environment)
                else:
                    running.append(begun)
            if not running:
                return answers
            seen = np.stack([episode.seen[-1] for episode in running]).astype(np.float32)
            places, turns = np.array([(first + episode.row, len(episode.actions)) for episode in running]).T
            actions = act(seen, places, turns)
            still = []
            for episode, action in zip(running, actions, strict=True):
                over = quietly(partial(episode.step, action), None)
                if over or over is None:
                    put_answer(answers, episode.row, episode.answer() if over else None, self.facts)
                    idle.append(episode.environment)
                else:
                    still.append(episode)
            running = still

    def close(self) -> None:
        """Close the environments that were opened."""
        for environment in self._environments:
            environment.close()
        self._environments = []


class _Episode:
    """Episode of one person."""

    def __init__(self, row: int, environment: Any, seed: int) -> None:
        self.row, self.environment = row, environment
        self._first = int(environment.action_space.start)
        observation, _ = environment.reset(seed=seed)
        self.seen, self.actions, self.rewards = [np.asarray(observation, np.float64).reshape(-1)], [], []
        self.terminated = False

    def step(self, action: Any) -> bool:
        """Take one transition, and tell whether the episode is over."""
        following, reward, terminated, truncated, _ = self.environment.step(self._first + int(action))
        self.actions.append(int(action))
        self.rewards.append(float(reward))
        self.terminated = bool(terminated)
        if not (terminated or truncated):
            self.seen.append(np.asarray(following, np.float64).reshape(-1))
        return bool(terminated or truncated)

    def answer(self) -> tuple[Any, ...]:
        return self.seen, self.actions, self.rewards, self.terminated


def open_people(
    name: str, bounds: Bounds | Mapping[str, Any] | str | Path | None = None, seed: int = 0
) -> tuple[EnvironmentSpec, Any]:
    """Return the public facts about the people called ``name``, and the people: a simulator, or a source on the host.

    Args:
        name: one of :data:`SIMULATORS_OF_PEOPLE`, ``gymnasium:ID`` or ``bandit:FILE``; the file may be a folder that
            ``dprl data partition`` made.
        bounds: public bounds for Gymnasium and for a file, stated and never measured. A bandit needs units,
            observation, reward and actions.
        seed: seed of Gymnasium's episodes.

    Raises:
        DprlError: the name is unknown, bounds are missing or do not fit the environment, or Gymnasium is not installed.
    """
    kind, _, rest = name.partition(":")
    if kind == "bandit" and rest:
        in_parts = os.path.isfile(os.path.join(rest, MANIFEST))
        bandit = BanditInParts.of_folder(rest, bounds) if in_parts else Bandit.of_file(rest, bounds)
        return bandit.facts, bandit
    if kind == "gymnasium" and rest:
        facts = gymnasium_facts(name, rest, read_bounds(bounds, max_importance_ratio=1.0))
        return facts, GymnasiumPeople(facts, rest, seed)
    if bounds is not None:
        raise DprlError(f"The bounds of {name!r} are its own: leave --bounds out.")
    name = {"cartpole": "cart-pole", "mountaincar": "mountain-car"}.get(name, name)
    if name not in SIMULATORS_OF_PEOPLE:
        raise DprlError(
            f"Unknown environment {name!r}: use {', '.join(SIMULATORS_OF_PEOPLE)}, bandit:FILE or gymnasium:ID."
        )
    simulator = SIMULATORS[name].load()(**SIMULATORS[name].learning_options)
    return facts_of(simulator), simulator


def people_of(users: Any, bounds: Bounds | Mapping[str, Any] | str | Path | None = None, seed: int = 0) -> People:
    """Return the people behind a name (:func:`open_people`), a simulator, or a source of people.

    Raises:
        DprlError: the name is unknown, ``users`` is none of these, or bounds are given without a name.
    """
    if isinstance(users, str):
        _, users = open_people(users, bounds, seed)
    elif bounds is not None:
        raise DprlError("bounds are for users named by text: these have public facts of their own.")
    if isinstance(users, People):
        return users
    if hasattr(users, "facts") and hasattr(users, "batch"):
        return PeopleOfSource(users)
    if hasattr(users, "observation_bounds"):
        return SimulatedPeople(users)
    raise DprlError(
        "Users are a name such as cart-pole or bandit:FILE, an environment, a dprl.Bandit or a dprl.UserStream."
    )
