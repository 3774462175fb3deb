"""Logs of every kind, whole and in several files, for the tests of logs in parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ..sample_log import columns, in_lists


def shuffled(log: pa.Table, seed: int = 0) -> pa.Table:
    return log.take(np.random.default_rng(seed).permutation(len(log)))


def write(log: pa.Table, path: Path, files: int = 1) -> Path:
    """A file, or a folder of several that together are the log, in its order."""
    kind = {".csv": pa_csv.write_csv}.get(path.suffix, pq.write_table)
    if files == 1:
        kind(log, path)
        return path
    folder = path.with_suffix("")
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(log)), files)):
        kind(log.take(pa.array(rows)), folder / f"{i:03d}{path.suffix}")
    return folder


def changed(log: pa.Table, **values: object) -> pa.Table:
    for name, value in values.items():
        log = log.set_column(log.schema.get_field_index(name), name, value)
    return log


def with_gaps(values: list, every: int = 9) -> list:
    return [None if i % every == 4 else value for i, value in enumerate(values)]


def number(identifier: str) -> int:
    return int("".join(c for c in identifier if c.isdigit())) * 7 - 40


PLAIN = columns(30, seed=3)
TABLE = shuffled(pa.table(dict(PLAIN)))
PEOPLE, EPISODES = TABLE.column("person_id").to_pylist(), TABLE.column("episode_id").to_pylist()
LOGS = {
    "shuffled": TABLE,
    "in order": pa.table(dict(PLAIN)),
    "twice": pa.concat_tables([TABLE, shuffled(TABLE, 1)]),
    "one person": changed(TABLE, person_id=pa.array(["x"] * len(TABLE))),
    "nobody": changed(TABLE, person_id=pa.array([None] * len(TABLE), pa.string())),
    "nobody, without a type": changed(TABLE, person_id=pa.nulls(len(TABLE))),
    "no rows": TABLE.slice(0, 0),
    "ids of numbers": changed(
        TABLE, person_id=pa.array(map(number, PEOPLE)), episode_id=pa.array(map(number, EPISODES))
    ),
    "ids of floats": changed(TABLE, person_id=pa.array([number(p) / 2 for p in PEOPLE])),
    "ids that are no number": changed(
        TABLE, person_id=pa.array([[np.nan, np.inf, 0.0, -0.0, number(p)][i % 5] for i, p in enumerate(PEOPLE)])
    ),
    "large ids": changed(TABLE, person_id=pa.array([2**64 - 1 - abs(number(p)) for p in PEOPLE], pa.uint64())),
    "categories": changed(TABLE, person_id=pa.array(PEOPLE).dictionary_encode()),
    "categories of numbers": changed(TABLE, person_id=pa.array(map(number, PEOPLE)).dictionary_encode()),
    "decimals": changed(TABLE, reward=TABLE.column("reward").cast(pa.decimal128(20, 17), safe=False)),
    "missing ids": changed(
        TABLE, person_id=pa.array(with_gaps(PEOPLE)), episode_id=pa.array(with_gaps(EPISODES, 7))
    ),
    "a person without episodes": changed(
        TABLE, episode_id=pa.array([None if p == "person-007" else e for p, e in zip(PEOPLE, EPISODES, strict=True)])
    ),
    "missing numbers": changed(
        TABLE,
        **{name: pa.array(with_gaps(TABLE.column(name).to_pylist(), 40 + i))
           for i, name in enumerate(("t", "action", "reward", "terminated", "behavior_prob"))},
    ),
    "small numbers": changed(
        TABLE, reward=TABLE.column("reward").cast(pa.float32()), action=TABLE.column("action").cast(pa.uint8())
    ),
    "lists": shuffled(pa.table(in_lists(PLAIN))),
    "lists with gaps": pa.table(
        {**in_lists(PLAIN),
         "observation": [[[1.0, None], None, [1.0], [2.0, 3.0]][i % 37 % 4] for i in range(len(TABLE))]}
    ),
    "lists of one length": changed(
        shuffled(pa.table(in_lists(PLAIN))),
        observation=shuffled(pa.table(in_lists(PLAIN))).column("observation").cast(pa.list_(pa.float64(), 2)),
    ),
}  # fmt: skip
