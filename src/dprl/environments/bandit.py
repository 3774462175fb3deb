"""Contextual bandits: arriving people from a file or from arrays, and a simulator.

A file has one row per visit: ``observation_0``, ... (the context), ``reward_0``, ... (what each action would pay) and,
where people are told apart, ``person_id``. A person's visits, up to the public horizon, are one unit; with a horizon
of 1 only the first visit counts. The current policy chooses the action of a visit, and only the reward of this
action is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.bounds import Bounds, Interval
from dprl.data.bandit_file import ArrivingRows, open_rows
from dprl.data.bounds_file import read_bounds, refuse_fill
from dprl.data.memory import name_of
from dprl.environments.people import Act, Answers, ClaimRows, LoggedPeople
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec
from dprl.user_code import quietly


@dataclass
class Bandit(LoggedPeople):
    """Arriving people of a bandit, in the order of their first visit; private except for the facts.

    Everybody in the log has a place in this order. One pass asks ``units`` places. People who are sampled again are
    asked in whatever place they are.

    Attributes:
        facts: public facts about the people.
        units: declared number of places for people.
        named: whether people are told apart.
        read: function that gives the rows; called by :meth:`load`, or when the first batch is asked for.
    """

    facts: EnvironmentSpec
    units: int = field()
    named: bool
    read: Callable[[], ArrivingRows] = field(repr=False)

    def __post_init__(self) -> None:
        self.people = "named" if self.named else "unnamed"
        self._cells: Cells | None = None

    @classmethod
    def of_file(cls, path: str | Path, bounds: Bounds | Mapping[str, Any] | str | Path | None) -> Bandit:
        """Return people from a ``.parquet`` or ``.csv`` file, of which only names and types of columns are read now.

        Raises:
            DprlError: a column or a bound is missing or of a wrong kind; the message names it.
        """
        known = bandit_bounds(bounds)
        assert known.actions is not None
        named, read = open_rows(Path(path), len(known.observation), known.actions)
        return cls(facts_of_bandit(f"bandit:{Path(path).name}", known), known.units, named, read)

    @classmethod
    def of_arrays(
        cls,
        observations: Any,
        rewards: Any,
        bounds: Bounds | Mapping[str, Any] | str | Path | None,
        people: Any = None,
    ) -> Bandit:
        """Return people from arrays: ``(R, d)`` observations, ``(R, A)`` rewards and, if given, ``(R,)`` people."""
        known = bandit_bounds(bounds)
        seen, paid = _numbers(observations, len(known.observation)), _numbers(rewards, known.actions or 1)
        rows = len(seen)
        if seen.shape != (rows, len(known.observation)) or paid.shape != (rows, known.actions):
            raise DprlError(
                f"A bandit takes observations (rows, {len(known.observation)}) and rewards (rows, {known.actions})."
            )
        codes = None
        if people is not None:
            codes = _codes(people)
            if codes.shape != (rows,):
                raise DprlError("A bandit takes one person for each row.")
        return cls(
            facts_of_bandit("bandit", known), known.units, people is not None, lambda: ArrivingRows(seen, paid, codes)
        )

    def answers(self, places: np.ndarray, act: Act) -> Answers:
        """Return what the people in ``places`` do."""
        return answers_to_policy(self._all().of_people(places), places, act)

    def load(self, claim: ClaimRows | None = None) -> None:
        """Read the rows for a release; ``claim`` is called with the rows before anything is computed from them."""
        rows = self.read()
        if claim is not None:
            claim(rows_to_claim(rows.observations, rows.rewards))
        self._cells = _in_places(rows, self.facts)

    def count(self) -> int:
        """Return the number of people in the log, which is private and may differ from the declared number."""
        return len(self._all().length)

    def entering(self) -> tuple[np.ndarray, ...]:
        """Return everything that is ever computed from the rows; private."""
        return tuple(self._all())

    def _all(self) -> Cells:
        if self._cells is None:
            self.load()
        assert self._cells is not None
        return self._cells


class Cells(NamedTuple):
    """Observations ``(U, H, d)``, rewards of all actions ``(U, H, A)`` and visit counts ``(U,)`` of people. Private."""

    observations: np.ndarray
    rewards: np.ndarray
    length: np.ndarray

    @classmethod
    def empty(cls, count: int, facts: EnvironmentSpec) -> Cells:
        """Return the cells of ``count`` people who answer nothing."""
        size = (count, facts.horizon)
        observations, rewards = (np.zeros((*size, n), np.float32) for n in (facts.dimensions, facts.actions))
        return cls(observations, rewards, np.zeros(count, np.int32))

    def of_people(self, users: np.ndarray) -> Cells:
        """Return the cells of the people with the numbers ``users`` ``(n,)``; a number that is nobody's has zeros."""

        def chosen(cells: np.ndarray) -> np.ndarray:
            out = np.zeros((len(users), *cells.shape[1:]), cells.dtype)
            there = (users >= 0) & (users < len(cells))
            out[there] = cells[users[there]]
            return out

        return Cells(*map(chosen, self))


def answers_to_policy(cells: Cells, places: np.ndarray, act: Act) -> Answers:
    """Return the answers to the policy ``act`` of the people with these ``cells``, who are in these ``places``."""
    observations, paid, length = cells
    count, horizon, size = observations.shape
    where, turns = np.repeat(places, horizon), np.tile(np.arange(horizon), count)
    # the policy acts in empty places, too, so that the computation does not depend on who is there
    actions = np.asarray(act(observations.reshape(-1, size), where, turns)).reshape(count, horizon).astype(np.int32)
    rewards = np.take_along_axis(paid, actions[:, :, None], axis=2)[:, :, 0]
    return Answers(observations, actions, rewards, length, np.ones(count, bool))


def bandit_bounds(bounds: Bounds | Mapping[str, Any] | str | Path | None) -> Bounds:
    """Return the public bounds of a bandit: units, observation, reward, actions, and a horizon that is 1 by default."""
    known = read_bounds(bounds, horizon=1, max_importance_ratio=1.0)
    refuse_fill(known)
    if known.actions is None:
        raise DprlError("bounds: a bandit has discrete actions: give actions, their number.")
    return known


def rows_to_claim(observations: np.ndarray, rewards: np.ndarray) -> dict[str, np.ndarray]:
    """Return raw rows as a ledger claims them (:mod:`dprl.accounting.fingerprint`); their action is always 0."""
    return {"observation": observations, "action": np.zeros(len(rewards)), "reward": rewards}


def _numbers(cells: Any, width: int) -> np.ndarray:
    """Return cells as an array of numbers; where this fails, row by row ``(R, width)``, with NaN in rows that fail."""
    found = quietly(lambda: np.asarray(cells, np.float64), None)
    if found is None:
        rows = [quietly(lambda row=row: np.asarray(row, np.float64), None) for row in cells]
        found = np.array([np.full(width, np.nan) if row is None or row.shape != (width,) else row for row in rows])
    return found


def _codes(people: Any) -> np.ndarray:
    """Return whole numbers that tell people apart by their names; -1 for rows that name nobody."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(n, len(known)) if n else -1 for n in map(name_of, people)], np.int64)


def facts_of_bandit(name: str, known: Bounds) -> EnvironmentSpec:
    """Return the public facts about the people of a bandit with these bounds."""
    assert known.actions is not None
    return EnvironmentSpec(
        name=name,
        observation=known.observation,
        actions=known.actions,
        horizon=known.horizon,
        discount=0.0,  # a visit's reward depends only on its own action, however many visits there are
        reward_bounds=known.reward,
        names=known.observation_names,
    )


def _in_places(rows: ArrivingRows, facts: EnvironmentSpec) -> Cells:
    """Return the cells of all people, in the order of their first visit; rows that name nobody are left out."""
    observations, rewards, codes = rows
    if codes is None:
        index, visit = np.arange(len(rewards)), np.zeros(len(rewards), np.int64)
        kept = index
    else:
        kept = np.flatnonzero(codes >= 0)
        _, first, inverse = np.unique(codes[kept], return_index=True, return_inverse=True)
        index = np.argsort(np.argsort(first))[inverse]
        order = np.argsort(index, kind="stable")
        starts = np.flatnonzero(np.diff(index[order], prepend=-1))
        visit = np.empty(len(kept), np.int64)
        visit[order] = np.arange(len(kept)) - np.repeat(starts, np.diff(np.append(starts, len(kept))))
    used = visit < facts.horizon
    index, visit, kept = index[used], visit[used], kept[used]
    count = int(index.max()) + 1 if len(index) else 0
    return cells_of(observations[kept], rewards[kept], index, visit, count, facts)


def cells_of(
    observations: np.ndarray,
    rewards: np.ndarray,
    index: np.ndarray,
    visit: np.ndarray,
    count: int,
    facts: EnvironmentSpec,
) -> Cells:
    """Return the cells of ``count`` people from raw rows.

    Args:
        observations: ``(R, d)``.
        rewards: ``(R, A)``.
        index: ``(R,)`` number of the person of each row. A person with a cell that is not a finite number answers
            nothing.
        visit: ``(R,)`` number of the person's visit.
        count: number of people.
        facts: public facts, with the bounds to which cells are clamped.
    """
    low, high = np.array(facts.observation, np.float64).T
    with np.errstate(invalid="ignore"):
        known = np.logical_and.reduce(np.isfinite(np.hstack([observations, rewards])), axis=1)
        seen = np.where(known[:, None], np.clip(observations, low, high), 0.0)
        paid = np.where(known[:, None], np.clip(rewards, *facts.reward_bounds), 0.0)
    cells = Cells.empty(count, facts)
    cells.observations[index, visit], cells.rewards[index, visit] = seen, paid
    np.add.at(cells.length, index, 1)
    cells.length[index[~known]] = 0
    return cells


@dataclass(frozen=True, kw_only=True)
class LinearBandit:
    """Simulator with standard normal contexts, in which a reward, before clipping, is linear in the context.

    The observation is the context, clamped to [-3, 3]. The reward is a linear function of the context and of a
    constant, plus noise, and is clipped.

    Attributes:
        arms: A, the number of actions.
        size: d, the number of components of a context.
        noise: standard deviation of a reward.
        seed: seed of the public weights.
    """

    arms: int = 4
    size: int = 8
    noise: float = 0.1
    seed: int = 0

    horizon = 1
    discount = 1.0
    reward_bounds = (0.0, 1.0)
    """Bounds to which rewards are clipped."""

    @property
    def actions(self) -> int:
        """Number of actions."""
        return self.arms

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """Bounds of each component, [-3, 3], to which it is clamped."""
        return ((-3.0, 3.0),) * self.size

    @property
    def weights(self) -> np.ndarray:
        """``(1 + d, A)`` weights of the constant and of the context."""
        draws = np.random.default_rng(self.seed).normal(size=(1 + self.size, self.arms))
        return draws * np.r_[0.1, np.full(self.size, 0.3 / np.sqrt(self.size))][:, None]

    def mean_rewards(self, contexts: Any) -> Any:
        """Return ``(N, A)`` mean rewards, before noise and clipping, of ``(N, d)`` contexts."""
        w = jnp.asarray(self.weights, jnp.float32)
        return 0.5 + w[0] + contexts @ w[1:]

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a context ``(d,)`` float32."""
        return jnp.clip(jax.random.normal(key, (self.size,), jnp.float32), -3.0, 3.0)

    def observe(self, state: Any) -> jax.Array:
        """Return the observation of a state, which is the state."""
        return state

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the same state, the reward of an action, and true: an interaction has one step."""
        mean = self.mean_rewards(jnp.asarray(state)[None])[0, action]
        reward = jnp.clip(mean + self.noise * jax.random.normal(key, (), jnp.float32), 0.0, 1.0)
        return state, reward, jnp.ones((), bool)
