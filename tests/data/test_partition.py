"""A log in parts is the log, to the last bit, whatever its files, identifiers and rows are; no half of it is left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.fingerprint import fingerprint
from dprl.bounds import Bounds
from dprl.data import partition as partitioning
from dprl.data.describe import describe_log
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError

from ..sample_log import BOUNDS, PER_TRANSITION
from .logs_in_files import LOGS, TABLE, changed, shuffled, write

SECRET = bytes(range(32))
PERSON = {"bounds": BOUNDS, "unit": "person", "person": "person_id", "target_columns": ["target_prob"]}
EPISODE = {"bounds": BOUNDS, "unit": "trajectory", "target_columns": ["target_prob"]}


def assert_same_bits(a: Trajectories, b: Trajectories) -> None:
    for name in (*PER_TRANSITION, "episode_offsets", "unit_offsets", "valid"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert one.tobytes() == other.tobytes(), name
    assert {k: v.tobytes() for k, v in a.target_prob.items()} == {k: v.tobytes() for k, v in b.target_prob.items()}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("files", [1, 3])
def test_the_log_in_parts_is_the_log(tmp_path, name, files):
    log = LOGS[name]
    parts, _ = partition(write(log, tmp_path / "log.parquet", files), "person_id", 4, tmp_path / "parts")
    parts.check()
    whole, again = read_log(log, **PERSON).load(), read_log(tmp_path / "parts", **PERSON).load()
    assert_same_bits(again, whole)
    assert parts.units == whole.units
    assert len(parts.parts) == max(1, min(4, whole.units))
    assert all(part.units for part in parts.parts) == (whole.units > 0)


@pytest.mark.parametrize("name", ["shuffled", "ids of numbers", "missing ids", "missing numbers", "no rows"])
@pytest.mark.parametrize("files", [1, 3])
def test_csv_in_parts_is_the_same_csv(tmp_path, name, files):
    log = LOGS[name]
    if name == "missing numbers":  # cells of text that are none, and a broken line
        log = changed(
            log, reward=pc.if_else(pc.less(log.column("reward"), 0.8), log.column("reward").cast("string"), "x")
        )
    whole = write(log, tmp_path / "whole.csv")
    if files == 1:
        whole.write_bytes(whole.read_bytes() + b'"quo"te,1\n')
    parts, _ = partition(
        whole if files == 1 else write(log, tmp_path / "log.csv", files), "person_id", 4, tmp_path / "parts"
    )
    assert_same_bits(read_log(parts.folder, **PERSON).load(), read_log(whole, **PERSON).load())


def test_columns_of_different_types_become_numbers(tmp_path):
    folder = write(TABLE, tmp_path / "log.parquet", 3)
    kinds = {"reward": pa.float32(), "behavior_prob": pa.decimal128(3, 2), "action": pa.float32(),
             "terminated": pa.int8(), "t": pa.uint16()}  # fmt: skip
    numbers = {name: TABLE.column(name).cast(kind, safe=False) for name, kind in kinds.items()}
    other = changed(TABLE, truncated=pa.nulls(len(TABLE)), **numbers)
    pq.write_table(other, folder / "003.parquet")
    both = pa.concat_tables(
        changed(log, **{name: log.column(name).cast(pa.float64()) for name in (*kinds, "truncated")})
        for log in (TABLE, other)
    )
    parts, _ = partition(folder, "person_id", 4, tmp_path / "parts")
    assert_same_bits(read_log(parts.folder, **PERSON).load(), read_log(both, **PERSON).load())


def test_rows_without_episodes_are_their_persons(tmp_path):
    bounds = Bounds(units=9, horizon=1, reward=(-1, 1), observation=((0, 10),), actions=2, max_importance_ratio=2)
    log = TABLE.select(["person_id", "observation_0", "action", "reward", "behavior_prob"])
    partition(write(log, tmp_path / "log.parquet"), "person_id", 5, tmp_path / "parts")
    known = {"bounds": bounds, "person": "person_id"}
    assert_same_bits(read_log(tmp_path / "parts", **known).load(), read_log(log, **known).load())


def test_another_column_of_the_person_and_other_names(tmp_path):
    names = {"person_id": "patient", "episode_id": "trajectory_id", "t": "step", "observation_0": "states_0",
             "observation_1": "states_1"}  # fmt: skip
    log = TABLE.rename_columns([names.get(name, name) for name in TABLE.column_names])
    parts, _ = partition(write(log, tmp_path / "log.parquet"), "patient", 5, tmp_path / "parts")
    known = {**PERSON, "person": "patient"}
    assert_same_bits(read_log(parts.folder, **known).load(), read_log(TABLE, **PERSON).load())


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_log_in_any_number_of_parts(tmp_path_factory, data):
    """Random identifiers, steps that are missing or repeated, rows without an identifier, in any order and files."""
    rows = data.draw(st.integers(1, 40))
    pick = lambda values: data.draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows))  # noqa: E731
    kinds = ["a", "B", "b", "é", "aa", "", None], [3, -1, 10, 2**40, None], [0.5, -0.0, 0.0, -3.0, None, np.nan]
    people, episodes = (pick(data.draw(st.sampled_from(kinds))) for _ in range(2))
    log = pa.table({
        "person_id": pa.array(people), "episode_id": pa.array(episodes), "t": pick([0, 1, 2, None]),
        "observation_0": np.arange(rows, dtype=np.float64), "observation_1": pa.array(pick([0.0, -0.0, None]), "f8"),
        "action": pick([0, 1, 2]), "reward": pa.array(pick([0.25, np.nan, None]), pa.float32()),
        "behavior_prob": pick([0.5, 0.0]), "terminated": pick([False, True]), "target_prob": pick([0.5, 1.0]),
    })  # fmt: skip
    folder = tmp_path_factory.mktemp("any")
    source = write(log, folder / "log.parquet", data.draw(st.integers(1, min(3, rows))))
    for by, known in (("person_id", PERSON), ("episode_id", EPISODE)):
        parts, _ = partition(source, by, data.draw(st.integers(1, 4)), folder / by)
        parts.check()
        whole, in_parts = read_log(log, **known).load(), read_log(parts.folder, **known)
        assert_same_bits(in_parts.load(), whole)
        units = np.array(
            sorted(data.draw(st.sets(st.integers(0, max(0, parts.units - 1)))) if parts.units else ()), int
        )
        chosen, taken = np.isin(whole.unit_of_episode(), units), in_parts.take(units)
        rows_of_chosen = np.repeat(chosen, whole.lengths())
        for name in PER_TRANSITION:
            assert getattr(taken, name).tobytes() == getattr(whole, name)[rows_of_chosen].tobytes(), name
        assert taken.valid.tolist() == whole.valid[chosen].tolist()
        assert np.diff(taken.unit_offsets).tolist() == np.diff(whole.unit_offsets)[units].tolist()
        assert np.diff(taken.episode_offsets).tolist() == whole.lengths()[chosen].tolist()


# --- what a ledger and a curator see ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shuffled", "missing ids", "missing numbers", "lists with gaps", "no rows", "nobody"])
def test_a_ledger_knows_the_rows_again(tmp_path, name):
    source = write(LOGS[name], tmp_path / "log.parquet", 2)
    partition(source, "person_id", 4, tmp_path / "parts")
    of_file, of_parts, of_blocks = [], [], []
    read_log(LOGS[name], **PERSON).load(lambda raw: of_file.append(fingerprint([raw], SECRET)))
    in_parts = read_log(tmp_path / "parts", **PERSON)
    in_parts.load(lambda raw: of_parts.append(fingerprint([raw], SECRET)))
    in_parts.claim_in_blocks(lambda blocks: of_blocks.append(fingerprint(blocks, SECRET)))
    assert of_file == of_parts == of_blocks
    assert (of_file == [None]) == (name == "no rows")


def test_blocks_are_of_a_log_in_parts():
    with pytest.raises(DprlError, match="not in parts"):
        read_log(TABLE, **PERSON).claim_in_blocks(list)
    with pytest.raises(DprlError, match="not in parts"):
        read_log(TABLE, **PERSON).take(np.arange(1))


@pytest.mark.parametrize("name", ["shuffled", "missing ids", "missing numbers"])
def test_the_curator_is_told_the_same(tmp_path, name):
    partition(write(LOGS[name], tmp_path / "log.parquet"), "person_id", 4, tmp_path / "parts")
    found = describe_log(str(tmp_path / "parts"), BOUNDS, "person", None)
    assert found == describe_log(LOGS[name], BOUNDS, "person", None)


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 7, 30])
def test_parts_are_of_about_one_size_but_for_a_huge_unit(tmp_path, parts):
    rows = np.repeat(np.arange(30), np.where(np.arange(30) == 11, 3000, 20))
    log = pa.table({"person_id": rows, "reward": np.zeros(len(rows))})
    made, _ = partition(write(shuffled(log), tmp_path / "log.parquet"), "person_id", parts, tmp_path / "parts")
    assert len(made.parts) == parts
    assert all(part.units for part in made.parts)
    others = sorted(part.rows for part in made.parts)[:-1]
    assert all(rows <= 29 * 20 / min(parts - 1, 2) for rows in others)  # the huge one has a part of its own


def test_both_zeros_are_one_unit(tmp_path):
    log = pa.table({"person_id": [0.0, -0.0, 1.0, -0.0, 0.0, -1.0, 0.0], "reward": np.arange(7.0)})
    made, _ = partition(write(log, tmp_path / "log.parquet"), "person_id", 5, tmp_path / "parts")
    assert [(part.rows, part.units) for part in made.parts] == [(1, 1), (5, 1), (1, 1)]


def test_a_long_log_is_cut_by_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(partitioning, "_SAMPLE", 64)
    log = shuffled(pa.table({"person_id": np.arange(20_000) // 4, "reward": np.arange(20_000) * 1.0}))
    made, _ = partition(write(log, tmp_path / "log.parquet", 3), "person_id", 4, tmp_path / "parts")
    made.check()
    assert made.units == 5_000
    assert all(2_000 < part.rows < 9_000 for part in made.parts)


def test_no_text_of_the_log_is_in_the_parts(tmp_path):
    log = LOGS["missing ids"].append_column("note", pa.array(["seen by Dr. Secret"] * len(TABLE)))
    parts, layout = partition(write(log, tmp_path / "log.parquet"), "person_id", 4, tmp_path / "parts")
    assert layout.left_out == ("note",)
    assert parts.names == TABLE.column_names
    for path in parts.folder.iterdir():
        raw = path.read_bytes()
        assert not any(text in raw for text in (b"person-0", b"visit-0", b"Secret")), path.name
    csv, layout = partition(write(log, tmp_path / "log.csv"), "person_id", 4, tmp_path / "of_csv")
    assert layout.left_out == ()  # a cell of text might hold a number
    assert all(b"Secret" not in path.read_bytes() for path in csv.folder.iterdir())


def test_the_same_log_gives_the_same_parts(tmp_path):
    source = write(TABLE, tmp_path / "log.parquet")
    made = [partition(source, "person_id", 4, tmp_path / name)[0] for name in ("a", "b")]
    assert made[0].digest == made[1].digest
    other = write(changed(TABLE, reward=pa.array(np.zeros(len(TABLE)))), tmp_path / "other.parquet")
    assert partition(other, "person_id", 4, tmp_path / "c")[0].digest != made[0].digest
