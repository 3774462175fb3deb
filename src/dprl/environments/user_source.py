"""Sources of users: a simulator, a Gymnasium environment, or a file of arriving users.

In a simulator every episode stands for a user, but no real person. Users of Gymnasium and of a file are asked on the
host, one batch at a time (see :class:`dprl.environments.people.Answers`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dprl.bounds import Bounds
from dprl.data.bounds_file import read_bounds
from dprl.data.parts import MANIFEST
from dprl.environments import gymnasium_adapter
from dprl.environments.bandit import Bandit
from dprl.environments.bandit_parts import BanditInParts
from dprl.environments.learning_source import gymnasium_facts
from dprl.environments.names import NAMES
from dprl.environments.people import Act, Answers, Arriving, People
from dprl.environments.user_stream import empty_answers, fill
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec
from dprl.user_code import quietly

SIMULATORS = tuple(name for name, named in NAMES.items() if named.people)
_PARALLEL = 64


@dataclass
class GymnasiumUsers(People):
    """Users of a Gymnasium environment, each of whom has one episode; episodes run side by side on the host.

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
        """Return the answers of the users in ``count`` places from ``first``."""
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
                    fill(answers, episode.row, episode.answer() if over else None, self.facts)
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
    """Episode of one user."""

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


def open_users(
    name: str, bounds: Bounds | Mapping[str, Any] | str | Path | None = None, seed: int = 0
) -> tuple[EnvironmentSpec, Any]:
    """Return the public facts about the users called ``name``, and the users: a simulator, or a source on the host.

    Args:
        name: one of :data:`SIMULATORS`, ``gymnasium:ID`` or ``bandit:FILE``; the file may be a folder that
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
        return facts, GymnasiumUsers(facts, rest, seed)
    if bounds is not None:
        raise DprlError(f"The bounds of {name!r} are its own: leave --bounds out.")
    name = {"cartpole": "cart-pole", "mountaincar": "mountain-car"}.get(name, name)
    if name not in SIMULATORS:
        raise DprlError(f"Unknown environment {name!r}: use {', '.join(SIMULATORS)}, bandit:FILE or gymnasium:ID.")
    simulator = NAMES[name].load()(**NAMES[name].learning)
    return facts_of(simulator), simulator


class Episodes(People):
    """Simulated people, none of whom is real: each has an episode, in a place of a batch."""

    def __init__(self, simulator: Any) -> None:
        self.simulator, self.facts, self.people = simulator, facts_of(simulator), "episodes"


def people_of(users: Any, bounds: Bounds | Mapping[str, Any] | str | Path | None = None, seed: int = 0) -> People:
    """Return the people behind a name (:func:`open_users`), a simulator, or a source of people.

    Raises:
        DprlError: the name is unknown, ``users`` is none of these, or bounds are given without a name.
    """
    if isinstance(users, str):
        _, users = open_users(users, bounds, seed)
    elif bounds is not None:
        raise DprlError("bounds are for users named by text: these have public facts of their own.")
    if isinstance(users, People):
        return users
    if hasattr(users, "facts") and hasattr(users, "batch"):
        return Arriving(users)
    if hasattr(users, "observation_bounds"):
        return Episodes(users)
    raise DprlError(
        "Users are a name such as cart-pole or bandit:FILE, an environment, a dprl.Bandit or a dprl.UserStream."
    )


def facts_of(simulator: Any) -> EnvironmentSpec:
    """Return the public facts about a simulator, in which everything is public."""
    words = type(simulator).__name__
    name = "".join(f"-{c.lower()}" if c.isupper() else c for c in words).strip("-")
    action = getattr(simulator, "action_bounds", None)
    return EnvironmentSpec(
        name=name,
        observation=simulator.observation_bounds,
        actions=0 if action is not None else simulator.actions,
        horizon=simulator.horizon,
        discount=simulator.discount,
        reward_bounds=simulator.reward_bounds,
        action=action,
    )
