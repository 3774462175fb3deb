"""Environments in which is learned: the interval walk as compiled functions, any of Gymnasium's step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dprl.data.bounds_file import read_bounds
from dprl.environments import gymnasium_adapter
from dprl.environments.interval_walk import NAME, IntervalWalk
from dprl.errors import DprlError
from dprl.learning_facts import LearningFacts
from dprl.protocols import Bounds

DISCOUNT = 0.99
"""Of a Gymnasium environment, which declares none."""


@dataclass
class HostSource:
    """A Gymnasium environment whose observations are clamped to public bounds and scaled to [0, 1].

    Attributes:
        facts: what is public.
        environment: as ``gymnasium.make`` gives it.
    """

    facts: LearningFacts
    environment: Any = field(repr=False)

    def __post_init__(self) -> None:
        self._low, high = np.array(self.facts.observation, np.float64).T
        self._width = np.where(high > self._low, high - self._low, 1.0)
        self._first = int(self.environment.action_space.start)

    def reset(self, seed: int | None = None) -> np.ndarray:
        """``(d,)`` float64 in [0, 1]: the first observation of an episode."""
        observation, _ = self.environment.reset(seed=seed)
        return self._scaled(observation)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """The next observation as of :meth:`reset`, the reward as it is, whether the episode terminated, or was cut."""
        following, reward, terminated, truncated, _ = self.environment.step(self._first + int(action))
        return self._scaled(following), float(reward), bool(terminated), bool(truncated) and not bool(terminated)

    def close(self) -> None:
        self.environment.close()

    def _scaled(self, observation: Any) -> np.ndarray:
        flat = np.asarray(observation, np.float64).reshape(-1)
        return np.clip((np.nan_to_num(flat) - self._low) / self._width, 0.0, 1.0)


def open_environment(
    name: str, bounds: Bounds | Mapping[str, Any] | str | Path | None = None
) -> tuple[LearningFacts, IntervalWalk | HostSource]:
    """What is public about an environment, and the environment itself.

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


def gymnasium_facts(name: str, identifier: str, stated: Bounds) -> LearningFacts:
    """What is public about a Gymnasium environment: its stated bounds, which must be those of ``identifier``.

    Raises:
        DprlError: unknown environment, other actions or components, or Gymnasium is not installed.
    """
    found = gymnasium_adapter.describe(identifier, stated.horizon)
    if stated.actions != found.actions:
        raise DprlError(f"bounds: the environment {identifier!r} has {found.actions} discrete actions.")
    if len(stated.observation) != len(found.observation):
        raise DprlError(
            f"bounds: observation lists {len(stated.observation)} components; the environment {identifier!r} has "
            f"{len(found.observation)}."
        )
    return LearningFacts(
        name=name,
        observation=stated.observation,
        actions=found.actions,
        horizon=stated.horizon,
        discount=DISCOUNT,
        reward_bounds=stated.reward,
        names=stated.observation_names,
        finite=None if found.states is None else (found.states, found.actions),
    )
