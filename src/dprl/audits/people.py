"""Made-up people: their logs and visits, and what the rows of one person may hold instead.

The rows of a person are the same to the last bit, whoever else is in the log. Everything here is made up, and public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from dprl.bounds import Bounds

Columns = dict[str, Any]

NAN, HUGE = float("nan"), 1e308


def missing_names() -> dict[str, Callable[[], Any]]:
    """Return functions that make a missing name, a new object at each call, in each type that libraries use for one."""
    found: dict[str, Callable[[], Any]] = {
        "None": lambda: None,
        "nan": lambda: float("nan"),
        "np.float32 nan": lambda: np.float32("nan"),
        "Decimal NaN": lambda: Decimal("NaN"),
        "NaT": lambda: np.datetime64("NaT"),
        "empty text": lambda: "".join(()),
    }
    try:
        import pandas
    except ImportError:
        return found
    return found | {"pandas.NA": lambda: pandas.NA, "pandas.NaT": lambda: pandas.NaT}


# --- logs of trajectories -------------------------------------------------------------------------------------------

Change = Callable[[Columns, Bounds], Columns]


def cells(*, everywhere: bool = True, **values: float) -> Change:
    """Return the change that writes these values into every row of the person, or only into rows with ``t`` = 0."""

    def change(rows: Columns, bounds: Bounds) -> Columns:
        changed = (rows["t"] == 0) | everywhere
        return {n: np.where(changed, values[n], v) if n in values else v for n, v in rows.items()}

    return change


def _longest(rows: Columns, bounds: Bounds) -> Columns:
    """Extend each trajectory far beyond the horizon, at the largest reward and ratio."""
    count = bounds.horizon + 9
    found = {name: np.repeat(values[rows["t"] == 0], count) for name, values in rows.items()}
    time = np.tile(np.arange(float(count)), len(found["t"]) // count)
    return {**found, "t": time, "reward": np.ones(len(time)), "behavior_prob": np.full(len(time), 1e-6)}


def _many(rows: Columns, bounds: Bounds) -> Columns:
    """Give the person nine times the trajectories."""
    found = {name: np.tile(values, 9) for name, values in rows.items()}
    names = [f"{name}-{i // len(rows['t'])}" for i, name in enumerate(found["episode_id"])]
    return {**found, "episode_id": np.array(names, dtype=object)}


def _unnamed(name: Callable[[], Any]) -> Change:
    """Return the change after which the rows name nobody."""

    def change(rows: Columns, bounds: Bounds) -> Columns:
        by = "person_id" if "person_id" in rows else "episode_id"
        return {**rows, by: np.array([name() for _ in rows[by]], dtype=object)}

    return change


MANY = "nine times the trajectories"
ROWS: Mapping[str, Change] = {
    "the largest rewards and ratios": cells(reward=1.0, observation=2.0, behavior_prob=1e-6),
    "the smallest rewards": cells(reward=0.0, observation=0.0, behavior_prob=0.9),
    "not a number": cells(reward=NAN, observation=NAN),
    "one cell not a number": cells(everywhere=False, reward=NAN),
    "infinite rewards": cells(reward=np.inf, behavior_prob=1e-6),
    "huge": cells(observation=HUGE, reward=-HUGE),
    "beyond the bounds": cells(reward=50.0, observation=-7.0),
    "behaviour probability zero": cells(behavior_prob=0.0, reward=1.0),
    "negative behaviour probability": cells(behavior_prob=-0.5),
    "behaviour probability above one": cells(behavior_prob=7.0),
    "unknown action": cells(action=17.0),
    "no action": cells(action=NAN),
    "one time for all rows": cells(t=3.0),
    "ended before the end": cells(terminated=1.0),
    "longer than the horizon": _longest,
    MANY: _many,
}
"""Contents for the rows of the person who differs. Each changed log is a neighbour of the log without that person."""

# in an array an empty text is a name, and all rows with this name belong to one person
UNNAMED: Mapping[str, Change] = {
    f"a name that is {kind}": _unnamed(name) for kind, name in missing_names().items() if kind != "empty text"
}
"""Changes after which rows name nobody: the log must count as the log without these rows."""


@dataclass(frozen=True)
class PeopleWithTrajectories:
    """People with trajectories of one length, in the order of their names.

    Attributes:
        bounds: public bounds: rewards in [0, 1], one observation in [0, 2], two actions. If they fill missing
            observations, half of the observations are missing; if they have a censoring hazard, one person in three is
            censored in the last row.
        trajectories: number of trajectories per person.
        persons: whether the log has a column of people; otherwise each person has one trajectory.
    """

    bounds: Bounds
    trajectories: int = 1
    persons: bool = False

    def columns(self, people: Sequence[int], different: int | None = None, change: Change | None = None) -> Columns:
        """Return the log of ``people``, where ``change`` is applied to the rows of the person ``different``."""
        parts = [change(self._rows(p), self.bounds) if change and p == different else self._rows(p) for p in people]
        names = self._rows(0)
        return {name: np.concatenate([part[name] for part in parts] or [names[name][:0]]) for name in names}

    @lru_cache(maxsize=1 << 14)  # noqa: B019  (logs with equal fields share the cached rows)
    def _rows(self, person: int) -> Columns:
        horizon, count = self.bounds.horizon, self.trajectories * self.bounds.horizon
        rng = np.random.default_rng([7, person])
        time = np.tile(np.arange(float(horizon)), self.trajectories)
        episodes = [f"p{person:06d} {i // horizon}" for i in range(count)]
        found: Columns = {
            "episode_id": np.array(episodes, dtype=object),
            "t": time,
            "observation": rng.integers(0, 3, count).astype(np.float64),
            "action": rng.integers(0, 2, count).astype(np.float64),
            "reward": rng.random(count),
            "behavior_prob": np.full(count, 0.5),
            "terminated": (time == horizon - 1).astype(np.float64),
        }
        if self.bounds.fill is not None:
            found["observation"][person % 2 :: 2] = NAN
        if self.bounds.censoring_hazard is not None:
            found["censored"] = (time == horizon - 1) & (person % 3 == 0)
        return found | ({"person_id": np.full(count, f"p{person:06d}", object)} if self.persons else {})


# --- visits of users ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeopleWithVisits:
    """People who visit a bandit, in the order of their first visit: what each sees, and what each action would pay.

    Attributes:
        bounds: public bounds: rewards in [-1, 1], two observations in [-1, 1], three actions.
        visits: number of visits per person. People come again, in the same order, after everybody's visit before.
    """

    bounds: Bounds
    visits: int = 1

    def rows(
        self, people: Sequence[int], different: int | None = None, cells: tuple[float, float] | None = None
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return ``(R, 2)`` observations, ``(R, 3)`` rewards and names.

        Every row of ``different`` holds ``cells``: one number for all its observations, and one for all its rewards.
        """
        who = [person for _ in range(self.visits) for person in people]
        seen, paid = np.zeros((len(who), 2)), np.zeros((len(who), 3))
        for row, person in enumerate(who):
            rng = np.random.default_rng([9, person, row // max(len(people), 1)])
            seen[row], paid[row] = rng.uniform(-1.0, 1.0, 2), rng.uniform(-1.0, 1.0, 3)
            if person == different and cells is not None:
                seen[row], paid[row] = cells
        return seen, paid, [f"p{person:06d}" for person in who]


CELLS: Mapping[str, tuple[float, float]] = {
    "paid the most": (1.0, 1.0),
    "paid the least": (1.0, -1.0),
    "beyond the bounds": (50.0, -7e9),
    "huge": (-HUGE, HUGE),
    "nothing": (0.0, 0.0),
    "not a number": (NAN, 1.0),
    "infinite": (1.0, np.inf),
}
"""Pairs of values, which all observations and all rewards of the person who differs may have."""


def without(people: Sequence[int], place: int) -> list[int]:
    """Return ``people`` without the person at ``place``."""
    return [person for index, person in enumerate(people) if index != place]


def pairs_of(kinds: Sequence[str], units: int, turn: int) -> Iterator[tuple[int, int, str, list[str]]]:
    """Yield the number of people, the place of the person who differs, its position in words, and some of ``kinds``.

    Every number of people has the first kind and a share of the others. Where there is one person more than declared,
    the first kind also takes the first place, because a person there would push another one out. Another ``turn`` gives
    the numbers other kinds and positions.
    """
    foremost, *rest = kinds
    # numbers around the declared one, where a wrong cut or normaliser would show
    numbers = list(dict.fromkeys(n for n in (units - 1, units, units + 1, 2 * units) if n > 0))
    for index, count in enumerate(numbers):
        some = [foremost, *rest[(index + turn) % len(numbers) :: len(numbers)]]
        position, place = (("first", 0), ("middle", count // 2), ("last", count - 1))[(index + turn) % 3]
        yield count, place, position, some
    if (numbers.index(units + 1) + turn) % 3 != 0:
        yield units + 1, 0, "first", [foremost]
