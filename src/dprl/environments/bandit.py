"""Contextual bandits: arriving users from a file or from arrays, and a simulator.

A file has one row a visit: ``observation_0``, ... (what is seen), ``reward_0``, ... (what each action would pay) and,
where people are told apart, ``person_id``. A person's visits are one user, up to the public horizon; with a horizon of
1 the first visit alone counts. Which action was taken is decided by the current policy, and no other reward is looked
at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.data.bandit_file import ArrivingRows, open_rows
from dprl.data.bounds_file import read_bounds, refuse_fill
from dprl.data.memory import name_of
from dprl.environment_spec import EnvironmentSpec
from dprl.environments.people import Act, Answers, Claim, LoggedPeople
from dprl.errors import DprlError
from dprl.protocols import Bounds, Interval
from dprl.user_code import quietly


@dataclass
class Bandit(LoggedPeople):
    """Arriving users, in the order of their first visit; private but for its facts.

    Everybody in the log has a place of that order. In one pass ``units`` places are asked; users who are sampled again
    are asked wherever they stand.

    Attributes:
        facts: what is public.
        units: places for users, as declared.
        named: whether people are told apart.
        read: gives the rows; called by :meth:`load`, or when the first batch is asked for.
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
        """Users from a ``.parquet`` or ``.csv`` file, of which names and types of the columns alone are looked at.

        Raises:
            DprlError: names the column, or the bound, that is missing or of a wrong kind.
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
        """Users from arrays: ``(R, d)`` observations, ``(R, A)`` rewards and, if given, ``(R,)`` who came."""
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
        return answered(self._all().of(places), places, act)

    def load(self, claim: Claim | None = None) -> None:
        """Read the rows, for one release; ``claim`` is called with them before anything is made of them."""
        rows = self.read()
        if claim is not None:
            claim(as_claimed(rows.observations, rows.rewards))
        self._cells = _in_places(rows, self.facts)

    def count(self) -> int:
        """Return how many people are in the log, however many are declared; private."""
        return len(self._all().length)

    def entering(self) -> tuple[np.ndarray, ...]:
        """Return all that is ever made of the rows; private."""
        return tuple(self._all())

    def _all(self) -> Cells:
        if self._cells is None:
            self.load()
        assert self._cells is not None
        return self._cells


class Cells(NamedTuple):
    """Observations ``(U, H, d)``, rewards ``(U, H, A)`` and visits ``(U,)`` that users would have. Private."""

    observations: np.ndarray
    rewards: np.ndarray
    length: np.ndarray

    @classmethod
    def empty(cls, count: int, facts: EnvironmentSpec) -> Cells:
        """Return the cells of ``count`` users who answer nothing."""
        size = (count, facts.horizon)
        observations, rewards = (np.zeros((*size, n), np.float32) for n in (facts.dimensions, facts.actions))
        return cls(observations, rewards, np.zeros(count, np.int32))

    def of(self, users: np.ndarray) -> Cells:
        """Return those of ``users`` ``(n,)``, zeros of whom there is none."""

        def chosen(cells: np.ndarray) -> np.ndarray:
            out = np.zeros((len(users), *cells.shape[1:]), cells.dtype)
            there = (users >= 0) & (users < len(cells))
            out[there] = cells[users[there]]
            return out

        return Cells(*map(chosen, self))


def answered(cells: Cells, places: np.ndarray, act: Act) -> Answers:
    """Return what the users with these ``cells``, who stand in ``places``, do when they are met by ``act``."""
    observations, paid, length = cells
    count, horizon, size = observations.shape
    where, turns = np.repeat(places, horizon), np.tile(np.arange(horizon), count)
    # empty places are acted in too: what is computed does not depend on who is there
    actions = np.asarray(act(observations.reshape(-1, size), where, turns)).reshape(count, horizon).astype(np.int32)
    rewards = np.take_along_axis(paid, actions[:, :, None], axis=2)[:, :, 0]
    return Answers(observations, actions, rewards, length, np.ones(count, bool))


def bandit_bounds(bounds: Bounds | Mapping[str, Any] | str | Path | None) -> Bounds:
    """Return public bounds of a bandit: units, observation, reward and actions; the horizon is 1 where none is
    given.
    """
    known = read_bounds(bounds, horizon=1, max_importance_ratio=1.0)
    refuse_fill(known)
    if known.actions is None:
        raise DprlError("bounds: a bandit has discrete actions: give actions, their number.")
    return known


def as_claimed(observations: np.ndarray, rewards: np.ndarray) -> dict[str, np.ndarray]:
    """Raw rows as a ledger claims them (:mod:`dprl.accounting.fingerprint`); in a bandit's no action was taken."""
    return {"observation": observations, "action": np.zeros(len(rewards)), "reward": rewards}


def _numbers(cells: Any, width: int) -> np.ndarray:
    """Return an array as numbers; where that is none, its rows ``(R, width)``, NaN where one holds anything else."""
    found = quietly(lambda: np.asarray(cells, np.float64), None)
    if found is None:
        rows = [quietly(lambda row=row: np.asarray(row, np.float64), None) for row in cells]
        found = np.array([np.full(width, np.nan) if row is None or row.shape != (width,) else row for row in rows])
    return found


def _codes(people: Any) -> np.ndarray:
    """Whole numbers that tell people apart by their names, -1 for nobody."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(n, len(known)) if n else -1 for n in map(name_of, people)], np.int64)


def facts_of_bandit(name: str, known: Bounds) -> EnvironmentSpec:
    """Return what is public about the users of a bandit with these bounds."""
    assert known.actions is not None
    return EnvironmentSpec(
        name=name,
        observation=known.observation,
        actions=known.actions,
        horizon=known.horizon,
        discount=0.0,  # a visit's reward is its own action's, however many visits there are
        reward_bounds=known.reward,
        names=known.observation_names,
    )


def _in_places(rows: ArrivingRows, facts: EnvironmentSpec) -> Cells:
    """Users in the order of their first visit, everybody; rows that name nobody belong to nobody."""
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
    """Return the cells of ``count`` users from raw rows ``(R, d)`` and ``(R, A)``, of visit ``visit`` of user
    ``index``.

    A user with a cell that is no number answers nothing.
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
    """A simulator: contexts are standard normal beside a constant, and the reward of an action is linear in them.

    The observation is the context alone, clamped to [-3, 3]; the reward is a clipped linear function of it, and noise.

    Attributes:
        arms: A, number of actions.
        size: d, components of a context.
        noise: standard deviation of a reward.
        seed: of the public weights.
    """

    arms: int = 4
    size: int = 8
    noise: float = 0.1
    seed: int = 0

    horizon = 1
    discount = 1.0
    reward_bounds = (0.0, 1.0)
    """To which rewards are clipped."""

    @property
    def actions(self) -> int:
        """Number of actions."""
        return self.arms

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """Each component is clamped to [-3, 3]."""
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
        """Return what is seen of a state."""
        return state

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the reward of an action; nothing follows."""
        mean = self.mean_rewards(jnp.asarray(state)[None])[0, action]
        reward = jnp.clip(mean + self.noise * jax.random.normal(key, (), jnp.float32), 0.0, 1.0)
        return state, reward, jnp.ones((), bool)
