"""Parts as they are read: units by number from mapped files; what was changed, or splits a unit, is refused unnamed."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dprl.data.partition import partition
from dprl.data.parts import Parts
from dprl.data.readers import read_log
from dprl.errors import DprlError

from ..sample_log import BOUNDS, columns

PEOPLE = 20
LOG = pa.table(dict(columns(PEOPLE, seed=5)))
GAPS = LOG.set_column(0, "person_id", pa.array([None if i == 3 else p.as_py() for i, p in enumerate(LOG["person_id"])]))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    pq.write_table(GAPS, folder / "log.parquet")
    return partition(folder / "log.parquet", "person_id", 4, folder / "parts")[0].folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """A copy of the parts, to be spoiled."""
    return Path(shutil.copytree(made, tmp_path / "parts"))


def identified() -> pa.Table:
    """The log's rows that have a person, by person."""
    known = GAPS.filter(GAPS["person_id"].is_valid())
    order = np.argsort(np.array(known["person_id"].to_pylist()), kind="stable")
    return known.take(pa.array(order))


# --- reading --------------------------------------------------------------------------------------------------------

SOME = [[], [0], [PEOPLE - 1], list(range(PEOPLE)), [2, 3, 4, 5, 6, 7, 8], [0, 2, 3, 9, 17, 19], list(range(0, 20, 3))]


@pytest.mark.parametrize("units", SOME)
def test_rows_of_units(made, units):
    parts, log = Parts.open(made), identified()
    assert parts.units == PEOPLE
    people = np.array(log["person_id"].to_pylist())
    chosen = np.isin(people, np.unique(people)[units])
    found = parts.table(np.array(units, dtype=np.int64), ["reward", "action", "person_id"])
    assert found.column_names == ["reward", "action", "person_id"]
    for name in ("reward", "action"):
        assert found[name].to_pylist() == log[name].filter(pa.array(chosen)).to_pylist()
    counts = parts.rows_of(np.array(units, dtype=np.int64))
    assert counts.dtype == np.int64
    assert counts.tolist() == [int((people == person).sum()) for person in np.unique(people)[units]]
    assert found["person_id"].to_pylist() == np.repeat(units, counts).tolist()


def test_identifiers_are_numbers_of_units_over_all_parts(made):
    parts = Parts.open(made)
    assert len(parts.parts) == 4
    table = pa.concat_tables(parts.columns_in_blocks(["person_id", "episode_id"], rows=3))
    assert (
        table["person_id"].to_pylist()[:-1] == np.repeat(np.arange(PEOPLE), parts.rows_of(np.arange(PEOPLE))).tolist()
    )
    assert table["person_id"].to_pylist()[-1] is None  # the row of nobody is in no unit, and is kept
    assert table.schema.types == [pa.int64(), pa.int64()]


@pytest.mark.parametrize("rows", [1, 7, 1 << 16])
def test_all_rows_in_blocks(made, rows):
    blocks = list(Parts.open(made).columns_in_blocks(["reward"], rows))
    assert all(0 < len(block) <= rows for block in blocks)
    found = pa.concat_tables(blocks)["reward"].to_pylist()
    assert sorted(found) == sorted(GAPS["reward"].to_pylist())


def test_neighbours_are_views_of_the_files(made):
    parts = Parts.open(made)
    parts.rows_of(np.arange(PEOPLE))
    before = pa.total_allocated_bytes()
    found = parts.table(np.arange(2, 18), ["reward", "observation_0"])
    assert found.num_rows > 0
    assert pa.total_allocated_bytes() == before
    apart = parts.table(np.array([0, 2]), ["reward"])
    assert pa.total_allocated_bytes() > before
    parts.release_pages()
    kept = found["reward"].to_pylist()
    assert kept[: len(apart)] != apart["reward"].to_pylist()  # what was handed out can still be read
    assert kept == Parts.open(made).table(np.arange(2, 18), ["reward"])["reward"].to_pylist()


@pytest.mark.parametrize("units", [[1, 0], [3, 3], [-1], [PEOPLE]])
def test_units_are_asked_for_in_order_and_once(made, units):
    for ask in (Parts.open(made).rows_of, lambda units: Parts.open(made).table(units, ["reward"])):
        with pytest.raises(ValueError, match="ascending"):
            ask(np.array(units))


def test_a_column_that_is_not_there(made):
    with pytest.raises(DprlError, match="no column 'height'"):
        Parts.open(made).table(np.arange(1), ["height"])


def test_only_the_path_travels_to_another_process(made, folder):
    parts = Parts.open(folder)
    parts.table(np.arange(PEOPLE), parts.names)
    raw = pickle.dumps(parts)
    assert len(raw) < 400
    again = pickle.loads(raw)
    assert (again.digest, again.by, again.units, again.folder) == (parts.digest, parts.by, PEOPLE, folder)
    assert again.table(np.arange(5), ["t"]) == parts.table(np.arange(5), ["t"])
    forge(folder, 1, reward=lambda values: values * 0.5)
    with pytest.raises(DprlError, match="another one than when it was opened"):
        pickle.loads(raw)


def test_a_relative_path_is_opened_from_anywhere(made, monkeypatch):
    monkeypatch.chdir(made.parent)
    parts = Parts.open("parts")
    monkeypatch.chdir("/")
    assert parts.folder == made
    parts.check()


def test_opening_reads_no_row(made, monkeypatch):
    """The schema of each file, but neither a record batch nor an offset."""
    monkeypatch.setattr(pa.ipc.RecordBatchFileReader, "get_batch", None)
    monkeypatch.setattr(np, "memmap", None)
    monkeypatch.setattr("dprl.data.parts.npy.open_memmap", None)
    log = read_log(made, bounds=BOUNDS)
    assert (log.unit, log.unit_column, log.name) == ("person", "person_id", "parts")


# --- units that are split -------------------------------------------------------------------------------------------

Change = Callable[[np.ndarray], Any]


def forge(folder: Path, part: int, offsets: Change | None = None, **changes: Change) -> None:
    """Change a part's columns or offsets, and the manifest so that every digest and size is right."""
    manifest = json.loads((folder / "parts.json").read_text())
    known = manifest["parts"][part]
    path, offsets_path = folder / known["file"], folder / known["offsets"]
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    for name, change in changes.items():
        values = np.asarray(table[name].to_numpy(), dtype=np.float64 if table[name].null_count else None)
        found = pa.array(change(values.copy()), table.schema.field(name).type, from_pandas=True)
        table = table.set_column(table.schema.get_field_index(name), name, found)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])
    if offsets is not None:
        np.save(offsets_path, np.asarray(offsets(np.load(offsets_path)), dtype=np.int64))
    known["rows"], known["units"] = len(table), len(np.load(offsets_path)) - 1
    for key, file in (("", path), ("offsets_", offsets_path)):
        known[f"{key}bytes"] = file.stat().st_size
        known[f"{key}sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "parts.json").write_text(json.dumps(manifest))


def put(place: slice, value: Any) -> Change:
    def change(values: np.ndarray) -> np.ndarray:
        values = values.astype(np.float64) if value is None else values
        values[place] = np.nan if value is None else value(values) if callable(value) else value
        return values

    return change


SPLIT: dict[str, Callable[[Path], None]] = {
    "a unit in two parts": lambda f: forge(
        f, 1, person_id=lambda v: np.where(v == v[0], v[0] - 1, v)
    ),
    "a unit in two parts that are no neighbours": lambda f: forge(f, 2, person_id=lambda v: np.where(v == v[0], 0, v)),
    "a unit twice in one part": lambda f: forge(f, 1, person_id=lambda v: np.where(v == v[0] + 2, v[0], v)),
    "units out of order": lambda f: forge(f, 1, person_id=lambda v: v[0] + v[-1] - v),
    "parts out of order": lambda f: forge(f, 0, person_id=lambda v: v + 1000),
    "one row of another unit": lambda f: forge(f, 1, person_id=put(slice(-1, None), lambda v: v[0])),
    "two units in one": lambda f: forge(f, 1, person_id=lambda v: np.where(v == v[0] + 1, v[0], v)),
    "offsets that cut a unit": lambda f: forge(f, 1, lambda o: np.sort(np.append(o, o[1] + 1))),
    "offsets that move a row": lambda f: forge(f, 1, lambda o: o + (np.arange(len(o)) == 2)),
    "offsets that join two units": lambda f: forge(f, 1, lambda o: np.delete(o, 1)),
    "offsets that leave out the last unit": lambda f: forge(f, 1, lambda o: o[:-1]),
    "offsets that leave out the last unit of all": lambda f: forge(f, 3, lambda o: o[:-1]),
    "offsets that leave out the last row of all": lambda f: forge(f, 3, lambda o: np.r_[o[:-1], o[-1] - 1]),
    "offsets that leave out the first row": lambda f: forge(f, 1, lambda o: o + (np.arange(len(o)) == 0)),
    "offsets of a unit without rows": lambda f: forge(f, 1, lambda o: np.sort(np.append(o, o[1]))),
    "offsets of a last unit without rows": lambda f: forge(f, 1, lambda o: np.append(o, o[-1])),
    "offsets beyond the rows of a part": lambda f: forge(f, 1, lambda o: np.r_[o[:-1], o[-1] + 9]),
    "offsets beyond the rows": lambda f: forge(f, 3, lambda o: np.r_[o[:-1], o[-1] + 9]),
    "offsets over the row of nobody": lambda f: forge(f, 3, lambda o: np.r_[o[:-1], o[-1] + 1]),
    "offsets that are negative": lambda f: forge(f, 3, lambda o: np.r_[o[:-1], -1]),
    "offsets that descend": lambda f: forge(f, 1, lambda o: np.r_[o[0], o[2], o[1], o[3:]]),
    "a row of nobody within": lambda f: forge(f, 1, person_id=put(slice(1, 2), None)),
    "a row of no episode within": lambda f: forge(f, 1, episode_id=put(slice(1, 2), None)),
    "a row of somebody after all": lambda f: forge(f, 3, person_id=put(slice(-1, None), 0.0)),
    "a row of nobody after the units of an earlier part": lambda f: forge(
        f, 2, lambda o: np.r_[o[:-1], o[-1] - 1], person_id=put(slice(-1, None), None)
    ),
    "a negative identifier": lambda f: forge(f, 0, person_id=lambda v: v - 1),
}  # fmt: skip


def refuse(folder: Path, words: str, use: Callable[[], object]) -> None:
    with pytest.raises(DprlError, match=words) as refused:
        use()
    said = str(refused.value).replace(str(folder), "")
    assert not re.search(r"\d|person|visit", said), "neither an identifier, nor a number"
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("how", SPLIT)
def test_a_unit_that_is_split_is_refused_and_not_named(folder, how):
    SPLIT[how](folder)
    parts = Parts.open(folder)
    refuse(folder, "a unit's rows lie in more than one place. Partition the log again", parts.check)
    log = read_log(folder, bounds=BOUNDS)
    refuse(folder, "a unit's rows lie", log.load)
    for looks_at in (list, next, lambda blocks: None):  # everything, the first rows, and nothing
        refuse(folder, "a unit's rows lie", lambda looks_at=looks_at: log.claim_in_blocks(looks_at))


def test_identifiers_may_be_any_that_ascend(folder):
    """What is refused above is not the forging; and parts of another writer need not number their units."""
    for part in range(4):
        forge(folder, part, person_id=lambda v: v * 10 + 7)
    Parts.open(folder).check()
    assert read_log(folder, bounds=BOUNDS).load().units == PEOPLE


# --- files that were changed ----------------------------------------------------------------------------------------


def flip(path: Path, place: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("name", ["part-00000.arrow", "part-00003.arrow", "units-00002.npy", "came-00001.npy"])
@pytest.mark.parametrize("where", [0.3, 0.5, 0.7])
def test_a_changed_byte_is_noticed(folder, name, where):
    path = folder / name
    flip(path, int(where * path.stat().st_size))
    refuse(folder, "is damaged", lambda: Parts.open(folder).check())
    refuse(folder, "is damaged", lambda: read_log(folder, bounds=BOUNDS).load())
    refuse(folder, "is damaged", lambda: read_log(folder, bounds=BOUNDS).claim_in_blocks(lambda blocks: None))


def changed_manifest(folder: Path, change: Callable[[dict], object]) -> None:
    manifest = json.loads((folder / "parts.json").read_text())
    change(manifest)
    (folder / "parts.json").write_text(json.dumps(manifest))


DAMAGED: dict[str, Callable[[Path], object]] = {
    "a file is cut": lambda f: (f / "part-00001.arrow").write_bytes((f / "part-00001.arrow").read_bytes()[:-1]),
    "offsets are cut": lambda f: (f / "units-00001.npy").write_bytes((f / "units-00001.npy").read_bytes()[:-1]),
    "a file is missing": lambda f: (f / "units-00001.npy").unlink(),
    "a file is a folder": lambda f: ((f / "units-00001.npy").unlink(), (f / "units-00001.npy").mkdir()),
    "no manifest": lambda f: (f / "parts.json").write_text(""),
    "bytes for a manifest": lambda f: (f / "parts.json").write_bytes(b"\xff\xfe"),
    "a list for a manifest": lambda f: (f / "parts.json").write_text("[1]"),
    "no unit": lambda f: changed_manifest(f, lambda m: m.pop("by")),
    "a unit that is no column": lambda f: changed_manifest(f, lambda m: m.update(by="patient")),
    "a unit that is no identifier": lambda f: changed_manifest(f, lambda m: m.update(by="reward")),
    "no parts": lambda f: changed_manifest(f, lambda m: m.update(parts=[])),
    "parts that are none": lambda f: changed_manifest(f, lambda m: m.update(parts=[1])),
    "columns that are none": lambda f: changed_manifest(f, lambda m: m.update(columns=[{"name": [], "type": 1}])),
    "another type": lambda f: changed_manifest(f, lambda m: m["columns"][2].update(type="double")),
    "a column less": lambda f: changed_manifest(f, lambda m: m["columns"].pop()),
    "another path": lambda f: changed_manifest(f, lambda m: m["parts"][0].update(file="../parts/part-00000.arrow")),
    "text for a number": lambda f: changed_manifest(f, lambda m: m["parts"][0].update(rows="1")),
    "more units than rows": lambda f: changed_manifest(f, lambda m: m["parts"][0].update(units=10**9)),
    "fewer units": lambda f: changed_manifest(f, lambda m: m["parts"][0].update(units=1)),
    "fewer rows": lambda f: changed_manifest(f, lambda m: m["parts"][1].update(rows=8)),
    "an unknown key": lambda f: changed_manifest(f, lambda m: m["parts"][1].update(more=8)),
    "files in another place": lambda f: changed_manifest(
        f, lambda m: m["parts"][1].update({k: m["parts"][0][k] for k in ("sha256", "offsets_sha256")})
    ),
}  # fmt: skip


ON_OPENING = ("a file is cut", "offsets are cut", "a file is missing", "another type", "no unit")
"""What no row says."""


@pytest.mark.parametrize("how", DAMAGED)
def test_damaged_parts_are_refused(folder, how):
    DAMAGED[how](folder)
    refuse(folder, "is damaged", lambda: Parts.open(folder).check())
    if how in ON_OPENING:
        refuse(folder, "is damaged", lambda: read_log(folder, bounds=BOUNDS))


def test_parts_of_another_version(folder):
    changed_manifest(folder, lambda m: m.update(schema="dprl.parts/1"))
    with pytest.raises(DprlError, match="not written by this version of dprl"):
        Parts.open(folder)


def test_a_folder_without_parts(tmp_path):
    with pytest.raises(DprlError, match=r"no log in parts in .*`dprl data partition`"):
        Parts.open(tmp_path)
    with pytest.raises(DprlError, match="but a folder: `dprl data partition`"):
        read_log(tmp_path, bounds=BOUNDS)


# --- the unit that is asked for -------------------------------------------------------------------------------------

UNITS = [
    ({"unit": "person", "person": "person_id"}, "episode_id", "aligned to its column 'episode_id', and the privacy"),
    ({}, "episode_id", "a person by 'person_id'"),
    ({"unit": "person", "person": "episode_id"}, "person_id", "a person by 'episode_id'"),
    ({"unit": "trajectory"}, "person_id", "does not tell trajectories apart"),
    ({"unit": "transition"}, "person_id", "transition needs no parts"),
]


@pytest.mark.parametrize(("asked", "by", "words"), UNITS)
def test_another_unit_than_that_of_the_parts_is_refused(tmp_path, asked, by, words):
    log = GAPS.append_column("next_observation_0", GAPS["t"]).append_column("next_observation_1", GAPS["t"])
    pq.write_table(log, tmp_path / "log.parquet")
    partition(tmp_path / "log.parquet", by, 2, tmp_path / "parts")
    with pytest.raises(DprlError, match=words):
        read_log(tmp_path / "parts", bounds=BOUNDS, **asked)
