"""The checks of the primal-dual algorithms, which are those of :mod:`checks` on other cases, and of transitions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import dprl
from dprl.data.trajectories import Trajectories

from .checks import adds_up, draws_as_declared, neighbouring_logs, runs_as_declared
from .lab import check, require, rows_where, small_log, suite_of

ALGORITHM_1 = ("dptd", "Algorithm 1, Poisson batches")

for name, run, case in (
    # a start, and steps with momentum
    ("neighbours of a network", neighbouring_logs, ("dptd", "a network")),
    # Poisson batches and a random iterate
    ("neighbours of algorithm 1", neighbouring_logs, ALGORITHM_1),
    # neither half of a gradient is small, for w starts at random
    ("neighbours of random weights", neighbouring_logs, ("dp-gld", "a network")),
    # what is clipped is a difference
    ("neighbours of recursive momentum", neighbouring_logs, ("dp-srm", "linear")),
    ("contributions to a network add up", adds_up, ("dptd", "a network")),
    ("the event of algorithm 1 is what ran", runs_as_declared, ALGORITHM_1),
    ("noise in front of momentum is as declared", draws_as_declared, ALGORITHM_1),
):
    check(functools.partial(run, case=case), name, slow=True)


# --- the unit transition --------------------------------------------------------------------------------------------


def _loaded(columns: dict[str, np.ndarray]) -> Trajectories:
    return dprl.read_log(columns, bounds=suite_of(ALGORITHM_1).bounds, unit="transition").load()


def _transitions() -> dict[str, np.ndarray]:
    """Rows with next states of their own, not those of the row that follows."""
    columns = small_log()
    columns["observation"] = np.linspace(0.0, 2.0, len(columns["t"]))  # so that no two rows are the same
    return {**columns, "next_observation": np.linspace(2.0, 0.5, len(columns["t"]))}


def _rows(log: Trajectories) -> dict[float, tuple[Any, ...]]:
    """What each unit's one row holds, by its state."""
    names = ("next_observation", "action", "reward", "behavior_prob", "terminated", "has_next", "valid")
    parts = [np.asarray(getattr(log, name), dtype=np.float64).reshape(log.units).tolist() for name in names]
    return dict(zip(log.observation[:, 0].tolist(), zip(*parts, strict=True), strict=True))


@check
def a_transition_stands_for_itself() -> None:
    """A row is what it is, whichever other row is missing or broken."""
    columns = _transitions()
    everybody, size = _rows(_loaded(columns)), len(columns["t"])
    require(len(everybody) == size, "a row is no unit of its own")
    for row in range(size):
        mine = np.arange(size) == row
        broken = {**columns, "reward": np.where(mine, np.nan, columns["reward"])}
        state = float(columns["observation"][row])
        others = {key: value for key, value in everybody.items() if key != state}
        without = _rows(_loaded(rows_where(columns, ~mine)))
        beside = {key: value for key, value in _rows(_loaded(broken)).items() if key != state}
        require(without == others == beside, "a row depends on another one")


@check
def the_order_of_a_file_tells_nothing() -> None:
    """What is loaded is a function of the rows, whatever their order."""
    columns = _transitions()
    one, other = (_loaded({name: x[::way] for name, x in columns.items()}) for way in (1, -1))
    for name in ("observation", "next_observation", "action", "reward", "terminated"):
        require(np.array_equal(getattr(one, name), getattr(other, name)), "the order of a file is seen")
