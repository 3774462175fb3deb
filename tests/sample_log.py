"""One small log, in every form that dprl reads, for the tests of the user's side."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories

PEOPLE, HORIZON, ACTIONS = 60, 4, 2
BOUNDS = Bounds(
    units=PEOPLE,
    horizon=HORIZON,
    reward=(-1.0, 1.0),
    observation=((0.0, 10.0), (-5.0, 5.0)),
    actions=ACTIONS,
    max_importance_ratio=2.0,
)
BOUNDS_TOML = """units = 60
horizon = 4
reward = [-1, 1]
observation = [[0, 10], [-5, 5]]
actions = 2
max_importance_ratio = 2
"""
PER_TRANSITION = ("observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "has_next")

Columns = dict[str, list[Any]]


def columns(people: int = PEOPLE, seed: int = 0) -> Columns:
    """A log as Python lists: one to three episodes a person, of one to four transitions, in order."""
    rng = np.random.default_rng(seed)
    names = ("person_id", "episode_id", "t", "observation_0", "observation_1", "action", "reward", "behavior_prob")
    log: Columns = {name: [] for name in (*names, "terminated", "truncated", "target_prob")}
    for person in range(people):
        for number in range(int(rng.integers(1, 4))):
            length = int(rng.integers(1, HORIZON + 1))
            ended = bool(rng.integers(0, 2))
            for t in range(length):
                last = t == length - 1
                x, y = float(rng.uniform(0, 10)), float(rng.uniform(-5, 5))
                action, reward = int(rng.integers(0, ACTIONS)), float(rng.uniform(-1, 1))
                ids = (f"person-{person:03d}", f"visit-{person:03d}-{number}", t)
                row = (*ids, x, y, action, reward, 0.5, last and ended, last and not ended, 0.25)
                for values, value in zip(log.values(), row, strict=True):
                    values.append(value)
    return log


def in_lists(log: Columns) -> Columns:
    """The same log with one list column instead of numbered ones."""
    rest = {k: v for k, v in log.items() if not k.startswith("observation_")}
    pairs = zip(log["observation_0"], log["observation_1"], strict=True)
    return {**rest, "observation": [list(pair) for pair in pairs]}


def in_arrays(log: Columns) -> dict[str, np.ndarray]:
    """The same log as typed arrays, with a two-dimensional observation."""
    found = {k: np.array(v) for k, v in in_lists(log).items()}
    return found | {"observation": np.array(found["observation"], dtype=np.float64)}


def write_parquet(log: Columns, path: Path) -> Path:
    pq.write_table(pa.table(dict(log)), path)
    return path


def write_csv(log: Columns, path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(log)
        writer.writerows(zip(*log.values(), strict=True))
    return path


def rows_of_episode(log: Columns, episode: str) -> list[int]:
    return [i for i, e in enumerate(log["episode_id"]) if e == episode]


def without(log: Columns, rows: list[int]) -> Columns:
    return {k: [v for i, v in enumerate(values) if i not in rows] for k, values in log.items()}


def assert_same(a: Trajectories, b: Trajectories) -> None:
    """Every array of both is the same, bit for bit."""
    for name in (*PER_TRANSITION, "episode_offsets", "unit_offsets", "valid"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert a.target_prob.keys() == b.target_prob.keys()
    for name, values in a.target_prob.items():
        np.testing.assert_array_equal(values, b.target_prob[name], err_msg=name)


def records(log: Trajectories, valid_only: bool = True) -> Counter[bytes]:
    """Each episode with what it holds and how many siblings it has, as bytes; how often each is there."""
    siblings = np.diff(log.unit_offsets)[log.unit_of_episode()]
    found: Counter[bytes] = Counter()
    for e in range(log.episodes):
        rows = slice(log.episode_offsets[e], log.episode_offsets[e + 1])
        if log.valid[e] or not valid_only:
            parts = [np.asarray(getattr(log, name)[rows], dtype=np.float64).tobytes() for name in PER_TRANSITION]
            found[b"|".join([*parts, bytes([siblings[e]])])] += 1
    return found
