"""A bandit's log in parts is the bandit's file, to the last bit: who stands in which place, and what each would do."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.data import partition as partitioning
from dprl.data import parts
from dprl.environments import bandit_parts
from dprl.environments.bandit import Bandit
from dprl.environments.bandit_parts import BanditInParts
from dprl.environments.learning_source import open_people
from dprl.errors import DprlError

from .visits import bounds, file_and_parts, visits


def by_sign(observations: np.ndarray, places: np.ndarray, turns: np.ndarray) -> np.ndarray:
    assert len(observations) == len(places) == len(turns)
    return (observations[:, 0] > 0).astype(np.int32) + (observations[:, 1] > 0)


def assert_same_answers(file: Path, parts: Path, known: dict, places: np.ndarray) -> None:
    one = Bandit.of_file(file, known).answers(places, by_sign)
    facts, source = open_people(f"bandit:{parts}", known)
    assert isinstance(source, BanditInParts)
    assert (facts, source.units, source.people) == (source.facts, known["units"], "named")
    for found in (source.answers(places, by_sign), pickle.loads(pickle.dumps(source)).answers(places, by_sign)):
        for name, a, b in zip(one._fields, one, found, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(0, 60),
    people=st.integers(1, 40),
    parts=st.integers(1, 6),
    horizon=st.integers(1, 3),
    units=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_places_and_answers_are_those_of_the_file(rows, people, parts, horizon, units, seed):
    with tempfile.TemporaryDirectory() as folder:
        paths = file_and_parts(Path(folder), visits(rows, people, seed), parts)
        # all places and some beyond, nobody among them, in another order
        places = np.random.default_rng(seed).permutation(np.append(np.arange(units + 3), [-1, -1]))
        assert_same_answers(*paths, bounds(units, horizon), places)


def test_in_pieces_of_whole_people(tmp_path, monkeypatch):
    """However few rows are made numbers of at a time, and by whatever many files and batches they came."""
    monkeypatch.setattr(bandit_parts, "_ROWS", 7)
    monkeypatch.setattr(parts, "_SORTED", 3)
    file, _ = file_and_parts(tmp_path, table := visits(200, 40))
    (tmp_path / "files").mkdir()
    for i in range(4):
        pq.write_table(table.slice(50 * i, 50), tmp_path / "files" / f"{i}.parquet", row_group_size=11)
    partitioning.partition(tmp_path / "files", "person_id", 4, tmp_path / "several")
    assert_same_answers(file, tmp_path / "several", bounds(40, 2), np.arange(45))


def test_csv_and_numbers_as_names(tmp_path):
    table = visits(80, 20)
    table = table.set_column(
        0, "person_id", pa.array([None if n is None else -int(n[1:]) for n in table[0].to_pylist()])
    )
    pa.csv.write_csv(table, tmp_path / "v.csv")
    partitioning.partition(tmp_path / "v.csv", "person_id", 3, tmp_path / "parts")
    assert_same_answers(tmp_path / "v.csv", tmp_path / "parts", bounds(20), np.arange(20))


def test_what_cannot_be_a_bandit_is_refused_without_a_row(tmp_path):
    table = visits(30, 10)
    cases = {
        "another unit": (table.rename_columns(["who", *table.column_names[1:]]), "who", "needs them by 'person_id'"),
        "episodes": (
            table.append_column("episode_id", pa.array(range(30))), "person_id",
            "a column 'episode_id', which a bandit has not",
        ),
        "a reward is missing": (table.drop_columns(["reward_1"]), "person_id", "needs columns reward_0 to reward_2"),
    }  # fmt: skip
    for name, (log, by, words) in cases.items():
        pq.write_table(log, tmp_path / f"{name}.parquet")
        partitioning.partition(tmp_path / f"{name}.parquet", by, 2, tmp_path / name)
        with pytest.raises(DprlError, match=words):
            open_people(f"bandit:{tmp_path / name}", bounds(10))
