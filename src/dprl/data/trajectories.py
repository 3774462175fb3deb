"""Logged trajectories as flat arrays with offsets, grouped by privacy unit and clamped to public bounds.

Nothing in this module raises because of what the rows hold: a row that cannot be used makes its episode contribute
zero, and that is all.

Under the privacy unit "transition", one tuple (s, a, r, s'), every row stands for itself. What a row becomes depends
only on its own cells: the row holds the next state, there is no time step and no identifier, and no row is checked
against another row. So no row that is broken, missing or repeated changes what any other row contributes. For what
follows for the guarantee see docs/proofs/transition.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dprl.bounds import Bounds

TRANSITION = "transition"
_HUGE = 1e100  # beyond this a float is a broken cell, not a measurement
_PER_ROW = ("observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "has_next")


@dataclass(frozen=True)
class Trajectories:
    """Log in memory. It is private: never printed, never put into a message.

    Transitions of an episode are contiguous and in order of ``t``; episodes of a unit are contiguous.

    Attributes:
        observation, next_observation: ``(N, d)`` float64 states, clamped to the bounds; missing values are filled.
        action: ``(N,)`` int64, -1 for an action that is not declared; ``(N, k)`` float64 when continuous.
        reward: ``(N,)`` float64, clamped.
        behavior_prob: ``(N,)`` probability (or density) of the logged action under the behaviour policy.
        target_prob: column name -> ``(N,)`` probability of the logged action under a target policy.
        terminated: ``(N,)`` true where the transition ends in a terminal state.
        has_next: ``(N,)`` false where the next state is unknown, so that nothing can be bootstrapped from it.
        episode_offsets: ``(E + 1,)``; episode ``e`` owns transitions ``[offsets[e], offsets[e+1])``.
        unit_offsets: ``(U + 1,)``; unit ``u`` owns episodes ``[offsets[u], offsets[u+1])``.
        valid: ``(E,)`` false for an episode that contributes zero.
        bounds: the public bounds to which the arrays were clamped.
        stays: ``(N,)`` probability of remaining uncensored in the step, 0 in the row in which a person was lost; None
            where the log has no censoring.
        unit: ``person``, ``trajectory`` or ``transition``. With ``transition`` every row is an episode and a unit of
            its own.
    """

    observation: np.ndarray = field(repr=False)
    next_observation: np.ndarray = field(repr=False)
    action: np.ndarray = field(repr=False)
    reward: np.ndarray = field(repr=False)
    behavior_prob: np.ndarray = field(repr=False)
    target_prob: Mapping[str, np.ndarray] = field(repr=False)
    terminated: np.ndarray = field(repr=False)
    has_next: np.ndarray = field(repr=False)
    episode_offsets: np.ndarray = field(repr=False)
    unit_offsets: np.ndarray = field(repr=False)
    valid: np.ndarray = field(repr=False)
    bounds: Bounds
    unit: str
    stays: np.ndarray | None = field(repr=False, default=None)

    @property
    def episodes(self) -> int:
        """Number of trajectories."""
        return len(self.episode_offsets) - 1

    @property
    def units(self) -> int:
        """Number of units that are in the log. It is private, unlike ``bounds.units``."""
        return len(self.unit_offsets) - 1

    def of_units(self, kept: np.ndarray, bounds: Bounds) -> Trajectories:
        """Return the log of only the units that are ``kept`` ``(U,)``, under other public bounds of the same horizon.

        A unit's numbers do not depend on which other units are kept.
        """
        episodes = np.repeat(kept, np.diff(self.unit_offsets))
        rows = np.repeat(episodes, self.lengths())
        return replace(
            self._of_rows(rows),
            episode_offsets=np.r_[0, np.cumsum(self.lengths()[episodes])].astype(np.int64),
            unit_offsets=np.r_[0, np.cumsum(np.diff(self.unit_offsets)[kept])].astype(np.int64),
            valid=self.valid[episodes],
            bounds=bounds,
        )

    def _of_rows(self, rows: np.ndarray) -> Trajectories:
        """Return the log with some of its rows, or with all rows in another order; the offsets stay as they were."""
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in _PER_ROW},
            target_prob={name: values[rows] for name, values in self.target_prob.items()},
            stays=None if self.stays is None else self.stays[rows],
        )

    def lengths(self) -> np.ndarray:
        """Return the ``(E,)`` number of transitions of each episode."""
        return np.diff(self.episode_offsets)

    def episode_of(self) -> np.ndarray:
        """Return the ``(N,)`` episode index of each transition."""
        return np.repeat(np.arange(self.episodes), self.lengths())

    def time(self) -> np.ndarray:
        """Return the ``(N,)`` position of each transition within its episode, from 0."""
        return np.arange(len(self.reward)) - np.repeat(self.episode_offsets[:-1], self.lengths())

    def episodes_by_step(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each step, and the indices of the episodes that have this step, the longest episode first.

        So one step of all episodes is done at a time, and what is computed from only an episode's own rows is the
        same, to the last bit, whichever other episodes there are.
        """
        lengths = self.lengths()
        order = np.argsort(-lengths, kind="stable")
        shorter = -lengths[order]
        for t in range(int(lengths.max(initial=0))):
            yield t, order[: int(np.searchsorted(shorter, -t, side="left"))]

    def unit_of_episode(self) -> np.ndarray:
        """Return the ``(E,)`` unit index of each episode."""
        return np.repeat(np.arange(self.units), np.diff(self.unit_offsets))


def assemble(columns: Mapping[str, np.ndarray], bounds: Bounds, unit: str) -> Trajectories:
    """Return :class:`Trajectories` from raw columns, which are sorted, grouped, clamped and marked.

    The result does not depend on the order of the rows. Rows without an identifier are dropped. An episode that is
    broken in any way (a missing or repeated step, a cell that is not a number, a probability outside (0, 1], a flag
    before its end) contributes zero. An episode that is longer than the public horizon is cut. Under the unit
    ``transition`` every row is an episode and a unit of its own, and identifiers, ``t`` and ``truncated`` are ignored.

    Args:
        columns: ``observation`` ``(R, d)``, ``action``, ``reward``, ``behavior_prob``, ``terminated``, ``truncated``,
            optional ``next_observation``, ``target:NAME``; integer codes ``episode`` and ``person`` ``(R,)`` with -1
            for missing; ``t``. All but the codes are floats, with NaN for cells that could not be read.
        bounds: public bounds.
        unit: ``person``, ``trajectory`` or ``transition``.
    """
    codes = ("person", "episode")
    columns = {name: np.asarray(values, None if name in codes else np.float64) for name, values in columns.items()}
    grouped = _grouped(columns, unit)
    order, owner, kept = grouped.order, grouped.owner, grouped.position < bounds.horizon
    valid = np.ones(len(owner), dtype=bool)
    for _, broken in _defects(columns, grouped, bounds, unit):
        valid[grouped.index[broken]] = False
    index, has_next, rows = grouped.index[kept], ~grouped.last[kept], order[kept]
    del grouped

    if "next_observation" in columns:
        following, has_next = next_in_the_row(columns, rows, bounds)
    else:
        following = np.zeros((len(rows), len(bounds.state)))
        # the next state is in the next row of the same episode, even where the horizon cuts off that row itself
        inside = np.flatnonzero(kept)[has_next]
        following[has_next] = _clamp(_states(columns, "observation", order[inside + 1], bounds), bounds.state)

    def finite(name: str, otherwise: float) -> np.ndarray:
        values = columns[name][rows]
        return np.where(np.isfinite(values), values, otherwise)

    stays = None
    if "censored" in columns:
        stays = np.where(flags(columns, "censored", rows), 0.0, finite("uncensored_prob", 1.0))
    targets = [name for name in columns if name.startswith("target:")]
    log = Trajectories(
        stays=stays,
        observation=_clamp(_states(columns, "observation", rows, bounds), bounds.state),
        action=_actions(columns["action"][rows], bounds),
        reward=_clamp(columns["reward"][rows, None], (bounds.reward,))[:, 0],
        behavior_prob=finite("behavior_prob", 1.0),
        target_prob={name.removeprefix("target:"): finite(name, 0.0) for name in targets},
        next_observation=following,
        terminated=flags(columns, "terminated", rows),
        has_next=has_next,
        episode_offsets=np.r_[0, np.cumsum(np.bincount(index, minlength=len(owner)))].astype(np.int64),
        unit_offsets=np.r_[np.flatnonzero(starts(owner)), len(owner)].astype(np.int64),
        valid=valid,
        bounds=bounds,
        unit=unit,
    )
    if unit != TRANSITION:
        return log
    order = _canonical_order(log)
    return replace(log._of_rows(order), valid=valid[order])


def _canonical_order(log: Trajectories) -> np.ndarray:
    """Return the ``(N,)`` rows in the order of the bits of their clamped contents, which tell 0.0 from -0.0.

    No identifier says which row was first, and two rows that are the same in everything are interchangeable. So a log
    whose rows stand for themselves does not depend on the order of its rows.
    """
    parts = [getattr(log, name) for name in (*_PER_ROW, "valid")]
    parts += [log.target_prob[name] for name in sorted(log.target_prob)]
    table = np.column_stack([part.astype(np.float64) for part in parts])
    return np.lexsort(np.ascontiguousarray(table.T).view(np.int64))


def next_in_the_row(
    columns: Mapping[str, np.ndarray], rows: np.ndarray, bounds: Bounds
) -> tuple[np.ndarray, np.ndarray]:
    """Return the next states ``(N, d)`` of these rows, clamped, and whether they are known ``(N,)``.

    A next state whose components are all missing is unknown, whatever fills a missing component.
    """
    following = _states(columns, "next_observation", rows, bounds)  # _HUGE is beyond single precision
    with np.errstate(invalid="ignore"):
        known = np.asarray((np.abs(following) <= _HUGE).all(axis=1))
    if bounds.fill is not None:
        known &= ~np.isnan(_rows(columns["next_observation"][rows])).all(axis=1)
    return _clamp(following, bounds.state), known


class Grouped(NamedTuple):
    """Grouping of the rows that have their identifiers, in the order of unit, episode and time."""

    order: np.ndarray  # (N,) numbers of rows of the log
    index: np.ndarray  # (N,) number of the row's episode
    position: np.ndarray  # (N,) position within the episode, from 0
    last: np.ndarray  # (N,) whether the row is the last of its episode
    owner: np.ndarray  # (E,) code of the episode's unit


def _grouped(columns: Mapping[str, np.ndarray], unit: str) -> Grouped:
    if unit == TRANSITION:
        rows = np.arange(len(columns["reward"]))
        return group(rows, rows, np.zeros(len(rows)))
    return group(columns["person" if unit == "person" else "episode"], columns["episode"], columns["t"])


def group(person: np.ndarray, episode: np.ndarray, t: np.ndarray) -> Grouped:
    """Return the grouping of ``(R,)`` rows by times and codes of persons and episodes, -1 for a missing identifier."""
    order = np.lexsort((t, episode, person))
    order = order[(episode[order] >= 0) & (person[order] >= 0)]
    episode, person = episode[order], person[order]
    # an episode belongs to one person: the same episode id under two persons is two episodes
    fresh = starts(episode) | starts(person)
    start = np.flatnonzero(fresh)
    index = np.cumsum(fresh) - 1
    return Grouped(
        order, index, np.arange(len(order)) - start[index], np.append(fresh[1:], True)[: len(order)], person[start]
    )


def starts(values: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` whether each value differs from the value before it; true for the first value."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _defects(
    columns: Mapping[str, np.ndarray], grouped: Grouped, bounds: Bounds, unit: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each reason for which an episode contributes nothing, with the ``(N,)`` rows that give it."""
    rows = grouped.order
    if unit != TRANSITION:
        yield "steps_missing_or_repeated", columns["t"][rows] != grouped.position
        ends = flags(columns, "terminated", rows) | flags(columns, "truncated", rows)
        yield "an_end_before_the_last_step", ends & ~grouped.last
    lost = flags(columns, "censored", rows) if "censored" in columns else np.zeros(len(rows), dtype=bool)
    used = {"reward", "observation", "behavior_prob", "action", "terminated", "censored"}
    used |= set() if unit == TRANSITION else {"truncated"}
    for name in columns:
        if name in used or name.startswith("target:"):
            cells = _states(columns, name, rows, bounds) if name == "observation" else _rows(columns[name][rows])
            with np.errstate(invalid="ignore"):
                sound = (np.abs(cells) <= _HUGE).all(axis=1)
            if name in ("reward", "terminated", "truncated"):
                sound |= lost  # nobody saw the cell of a lost person, and its weight is zero
            yield "cells_that_are_no_number", np.asarray(~sound)
    probability = columns["behavior_prob"][rows]
    with np.errstate(invalid="ignore"):
        # NaN makes these comparisons false; it is counted above
        yield "behavior_probability_not_positive", probability <= 0.0
        if bounds.actions is not None:
            yield "behavior_probability_above_one", probability > 1.0
        if "censored" in columns:
            stays = columns["uncensored_prob"][rows]
            yield "probability_of_staying_not_in_range", ~lost & ~((stays > 0.0) & (stays <= 1.0))


def count_defects(columns: Mapping[str, np.ndarray], bounds: Bounds, unit: str) -> dict[str, int]:
    """Return the number of episodes that contribute nothing, by reason. NOT private.

    An episode with several defects counts under each of its reasons.

    Args:
        columns, bounds, unit: as :func:`assemble` takes them, with columns of float64.
    """
    grouped = _grouped(columns, unit)
    found: dict[str, np.ndarray] = {}  # a reason may be given several times
    for reason, rows in _defects(columns, grouped, bounds, unit):
        found[reason] = rows | found.get(reason, False)
    return {reason: len(np.unique(grouped.index[rows])) for reason, rows in found.items()}


def _states(columns: Mapping[str, np.ndarray], name: str, rows: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Return the states ``(N, d)`` of these rows, with public fills for missing values, and their flags last.

    A row's state is made of its own cells. A missing value without a fill stays NaN.
    """
    observed = _rows(columns[name][rows])
    if bounds.fill is None:
        return observed
    missing = np.isnan(observed)
    fill = np.array([np.nan if value is None else value for value in bounds.fill])
    return np.hstack([np.where(missing, fill, observed), missing[:, list(bounds.flag_missing or ())]])


def flags(columns: Mapping[str, np.ndarray], name: str, rows: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` whether these rows' cells are true. Unreadable cells are not, and they break their episodes."""
    return np.nan_to_num(columns[name][rows], nan=0.0) != 0.0


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), int(np.prod(values.shape[1:])))


def _clamp(values: np.ndarray, bounds: tuple[tuple[float, float], ...]) -> np.ndarray:
    low, high = np.array(bounds, dtype=np.float64).T
    out = np.clip(values, low, high)
    np.copyto(out, low, where=np.isnan(out))
    return out


def _actions(values: np.ndarray, bounds: Bounds) -> np.ndarray:
    if bounds.action is not None:
        return _clamp(_rows(values), bounds.action)
    assert bounds.actions is not None
    with np.errstate(invalid="ignore"):
        known = (values >= 0) & (values < bounds.actions) & (values == np.floor(values))
    return np.where(known, values, -1.0).astype(np.int64)
