"""Simulated logs of any Gymnasium environment with discrete actions. Only this module imports the extra Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dprl.bounds import Bounds, Interval
from dprl.environments.rollout import Columns, action_probabilities, log_columns
from dprl.errors import DprlError
from dprl.policies.loading import check_policy
from dprl.protocols import Policy

UNBOUNDED = 1e6
"""Ends of an observation space beyond this are no bounds."""


@dataclass(frozen=True, kw_only=True)
class GymnasiumFacts:
    """Public facts of an environment.

    Attributes:
        observation: ends of each observation component; None for a component that has none.
        actions: number of discrete actions.
        horizon: transitions after which a trajectory is truncated.
        states: number of states, if observations are numbers of states.
    """

    observation: tuple[Interval | None, ...]
    actions: int
    horizon: int
    states: int | None = None


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise DprlError("Gymnasium is not installed; install it with: pip install 'dprl[gymnasium]'.") from None
    return gymnasium


def make(environment_id: str, horizon: int | None) -> Any:
    """Return the environment, cut after ``horizon`` transitions (default: at its own limit)."""
    gymnasium = _gymnasium()
    try:
        # the warnings of Gymnasium's checker would quote observations and rewards
        return gymnasium.make(environment_id, max_episode_steps=horizon, disable_env_checker=True)
    except Exception as error:
        kind = type(error).__name__
    raise DprlError(f"Gymnasium cannot make the environment {environment_id!r} ({kind}); check its id.")


def describe(environment_id: str, horizon: int | None = None) -> GymnasiumFacts:
    """Return the public facts of ``environment_id``: observation space, actions and horizon.

    Raises:
        DprlError: Gymnasium is not installed, the id is unknown, actions are not discrete, observations are neither a
            box nor discrete, or no horizon is known.
    """
    environment = make(environment_id, horizon)
    try:
        spaces = _gymnasium().spaces
        observation, action = environment.observation_space, environment.action_space
        if not isinstance(action, spaces.Discrete):
            raise DprlError(f"The environment {environment_id!r} has no discrete actions.")
        if isinstance(observation, spaces.Discrete):
            first = int(observation.start)
            ends = [(float(first), float(first + observation.n - 1))]
        elif isinstance(observation, spaces.Box):
            ends = [(float(a), float(b)) for a, b in zip(observation.low.flat, observation.high.flat, strict=True)]
        else:
            raise DprlError(f"Observations of {environment_id!r} are neither a box nor discrete.")
        known = None if environment.spec is None else environment.spec.max_episode_steps
        limit = horizon or known
        if limit is None:
            raise DprlError(f"The environment {environment_id!r} has no time limit of its own; give --horizon.")
        return GymnasiumFacts(
            observation=tuple(e if max(abs(e[0]), abs(e[1])) < UNBOUNDED else None for e in ends),
            actions=int(action.n),
            horizon=int(limit),
            states=int(observation.n) if isinstance(observation, spaces.Discrete) else None,
        )
    finally:
        environment.close()


def rollout_gymnasium(
    environment_id: str,
    policy: Policy,
    seed: int,
    episodes: int,
    *,
    horizon: int | None = None,
    parallel: int = 32,
    progress: Callable[[int], None] | None = None,
) -> Columns:
    """Simulate ``episodes`` trajectories; the columns are those of :func:`~dprl.environments.rollout.rollout`.

    The policy sees observations as ``(N, d)`` float32, flattened, and is asked once per step for all environments that
    run side by side. A trajectory depends only on ``seed`` and its own number.

    Args:
        environment_id: an id that Gymnasium knows.
        policy: function from states ``(N, d)`` to probabilities ``(N, A)``, row by row.
        seed: seed of resets and actions.
        episodes: number of trajectories.
        horizon: transitions after which a trajectory is truncated (default: the environment's own limit).
        parallel: number of environments that run side by side.
        progress: function that is called with the number of trajectories that are done.

    Raises:
        DprlError: for the reasons of :func:`describe`, or the policy does not give probabilities.
    """
    if episodes < 1 or parallel < 1:
        raise DprlError("The number of episodes must be at least 1.")
    facts = describe(environment_id, horizon)
    check_policy(policy, bounds_for_check(facts, episodes))
    environments = [make(environment_id, facts.horizon) for _ in range(min(parallel, episodes))]
    try:
        slots = [_RunningEnvironment(environment, facts.actions) for environment in environments]
        upcoming = iter(range(episodes))
        running: list[_RunningEnvironment] = []
        done: dict[int, list[tuple[Any, ...]]] = {}
        idle = list(slots)
        while True:
            for slot in idle:
                episode = next(upcoming, None)
                if episode is not None:
                    slot.begin(episode, seed)
                    running.append(slot)
            if not running:
                break
            answer = action_probabilities(policy, np.stack([slot.observation for slot in running]), facts.actions)
            idle = [slot for slot, probabilities in zip(running, answer, strict=True) if slot.step(probabilities)]
            for slot in idle:
                running.remove(slot)
                done[slot.episode] = slot.rows
            if progress is not None:
                progress(len(done))
        return log_columns([done[episode] for episode in range(episodes)])
    finally:
        for environment in environments:
            environment.close()


class _RunningEnvironment:
    """One environment and the trajectory that runs in it."""

    def __init__(self, environment: Any, actions: int) -> None:
        self.environment, self.actions = environment, actions
        self.first = int(environment.action_space.start)
        self.episode, self.rows = -1, []
        self.observation = np.empty(0, np.float32)

    def begin(self, episode: int, seed: int) -> None:
        reset, draws = np.random.SeedSequence([seed, episode]).spawn(2)
        observation, _ = self.environment.reset(seed=int(reset.generate_state(1)[0]))
        self.draws = np.random.default_rng(draws)
        self.episode, self.rows, self.observation = episode, [], _flat(observation)

    def step(self, probabilities: np.ndarray) -> bool:
        """Take one transition, and tell whether the trajectory is over."""
        action = int(self.draws.choice(self.actions, p=probabilities / probabilities.sum()))
        following, reward, terminated, truncated, _ = self.environment.step(self.first + action)
        following = _flat(following)
        # A step that terminates the trajectory is not truncated, even at the time limit.
        truncated = bool(truncated) and not terminated
        row = (self.observation, following, action, reward, probabilities[action], bool(terminated), truncated)
        self.rows.append(row)
        self.observation = following
        return bool(terminated) or truncated


def _flat(observation: Any) -> np.ndarray:
    return np.asarray(observation, dtype=np.float32).reshape(-1)


def bounds_for_check(facts: GymnasiumFacts, units: int) -> Bounds:
    """Return bounds on which a policy can be asked; a component without ends is taken to be in [-10, 10]."""
    return Bounds(
        units=units,
        horizon=facts.horizon,
        reward=(0.0, 0.0),
        observation=tuple(ends or (-10.0, 10.0) for ends in facts.observation),
        actions=facts.actions,
    )


def simulated_bounds(facts: GymnasiumFacts, columns: Columns, units: int, max_importance_ratio: float) -> Bounds:
    """Return the bounds of a simulated log.

    For rewards, and for components without ends, which Gymnasium does not declare, the bounds are the range in the
    simulation. It is public because no people are in a simulation. Bounds of a log of people are never made like this.
    """
    seen = np.concatenate([columns["observation"], columns["next_observation"]])
    ranges = zip(seen.min(axis=0), seen.max(axis=0), strict=True)
    observation = tuple(
        ends or (float(low), float(high)) for ends, (low, high) in zip(facts.observation, ranges, strict=True)
    )
    reward = (float(columns["reward"].min()), float(columns["reward"].max()))
    return replace(
        bounds_for_check(facts, units),
        reward=reward,
        observation=observation,
        max_importance_ratio=max_importance_ratio,
    )
