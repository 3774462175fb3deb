"""What cannot be partitioned is refused, no half of it is left, and memory is bounded by a part."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dprl.data import partition as partitioning
from dprl.data.partition import partition
from dprl.errors import DprlError

from .logs_in_files import LOGS, TABLE, changed, write

# --- what is refused ------------------------------------------------------------------------------------------------


def renamed(folder: Path, source: str, target: str) -> None:
    (folder / source).rename(folder / target)


def second(folder: Path, log: pa.Table) -> None:
    pq.write_table(log, folder / "001.parquet")


PUBLIC = {
    "no column is named": (lambda folder: None, {"by": None}, "--by, such as person_id"),
    "no such column": (lambda folder: None, {"by": "patient"}, "no column 'patient'"),
    "a reward": (lambda folder: None, {"by": "reward"}, "'reward' says what happened"),
    "a component": (lambda folder: None, {"by": "observation_0"}, "'observation_0' says what happened"),
    "too few parts": (lambda folder: None, {"parts": 0}, "1 to 512 parts"),
    "too many parts": (lambda folder: None, {"parts": 513}, "1 to 512 parts"),
    "another file": (lambda folder: (folder / "README.md").touch(), {}, "'README.md', which is no .parquet"),
    "a folder": (lambda folder: (folder / "2026").mkdir(), {}, "'2026', which is no .parquet"),
    "two kinds": (lambda folder: renamed(folder, "000.parquet", "000.csv"), {}, "files, or .csv files"),
    "no files": (lambda folder: [path.unlink() for path in folder.iterdir()], {}, "must hold .parquet"),
    "parts": (lambda folder: (folder / "parts.json").touch(), {}, "in parts already"),
    "other columns": (
        lambda folder: second(folder, TABLE.drop_columns(["truncated"])), {}, "'000.parquet' and '001.parquet' have not"
    ),
    "other identifiers": (lambda folder: second(folder, LOGS["ids of numbers"]), {}, "'person_id' holds identifiers"),
    "dates for people": (
        lambda folder: second(folder, changed(TABLE, person_id=pa.array([0] * len(TABLE), pa.date32()))), {},
        "'person_id' has type date32",
    ),
    "text for rewards": (
        lambda folder: second(folder, changed(TABLE, reward=pa.array(["x"] * len(TABLE)))), {},
        "'reward' has type string; it must hold numbers",
    ),
    "lists for rewards": (
        lambda folder: second(folder, changed(TABLE, reward=pa.array([[1.0]] * len(TABLE)))), {},
        "'reward' holds lists in one file",
    ),
    "a file that is none": (lambda folder: (folder / "001.parquet").write_text("x"), {}, "'001.parquet' is not a Parq"),
    "a file that is cut": (lambda folder: cut(folder / "001.parquet"), {}, "'001.parquet' is damaged"),
}  # fmt: skip


def cut(path: Path) -> None:
    """Zeros in the middle of a Parquet file, in a column that the first pass does not read."""
    raw = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(TABLE.column_names.index("reward")).dictionary_page_offset
    raw[start : start + 200] = bytes(200)
    path.write_bytes(raw)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_cannot_be_partitioned_is_refused_and_nothing_is_left(tmp_path, name):
    spoil, options, words = PUBLIC[name]
    spoil(write(TABLE, tmp_path / "log.parquet", 3))
    before = sorted(tmp_path.rglob("*"))
    asked = {"by": "person_id", "parts": 4} | options
    with pytest.raises(DprlError, match=words) as refused:
        partition(tmp_path / "log", asked["by"], asked["parts"], tmp_path / "parts")
    assert "person-0" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder", "link"])
def test_parts_are_never_written_over(tmp_path, kind):
    out, source = tmp_path / "parts", write(TABLE, tmp_path / "log.parquet")
    if kind == "file":
        out.write_text("mine")
    elif kind == "link":
        out.symlink_to("nowhere")
    else:
        out.mkdir()
        if kind == "folder":
            (out / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DprlError, match="already there"):
        partition(source, "person_id", 4, out)
    assert sorted(tmp_path.rglob("*")) == before


def test_there_must_be_a_place_for_the_folder(tmp_path):
    source = write(TABLE, tmp_path / "log.parquet")
    with pytest.raises(DprlError, match=r"Cannot write the parts .*No such file or directory"):
        partition(source, "person_id", 4, tmp_path / "no" / "parts")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("bytes_a_file", [0, 100, 5_000])
def test_a_disk_that_refuses_leaves_nothing(tmp_path, bytes_a_file):
    source = write(TABLE, tmp_path / "log.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, hard))
    try:
        with pytest.raises(DprlError, match=r"Cannot write the parts .*File too large"):
            partition(source, "person_id", 2, tmp_path / "parts")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("where", ["_route", "_write_part", "sync", "sha256_of"])
def test_an_interruption_leaves_nothing(tmp_path, monkeypatch, where):
    source = write(TABLE, tmp_path / "log.parquet")
    work, calls = getattr(partitioning, where), []

    def interrupted(*arguments):
        calls.append(1)
        done = work(*arguments)
        if len(calls) == (1 if where == "_route" else 2):
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(partitioning, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        partition(source, "person_id", 4, tmp_path / "parts")
    assert list(tmp_path.iterdir()) == [source]


def test_only_the_owner_may_look_into_the_parts(tmp_path):
    parts, _ = partition(write(TABLE, tmp_path / "log.parquet"), "person_id", 4, tmp_path / "parts")
    assert parts.folder.stat().st_mode & 0o777 == 0o700
    files = {f.format(i) for i in range(4) for f in ("part-{:05d}.arrow", "units-{:05d}.npy", "came-{:05d}.npy")}
    assert {path.name for path in parts.folder.iterdir()} == {"parts.json", *files}


# --- memory ---------------------------------------------------------------------------------------------------------

PEAK = """
import resource, sys
import numpy as np
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.bounds import Bounds
source, out, parts = sys.argv[1:]
bounds = Bounds(units=10, horizon=10, reward=(0, 1), observation=((0, 1),) * 8, actions=2, max_importance_ratio=2)
{}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
WORK = {
    "written": "partition(source, 'person_id', int(parts), out)",
    "gone through": """
log = read_log(out, bounds=bounds, unit="person")
log.source.check()
log.claim_in_blocks(lambda blocks: [None for _ in blocks])
""",
    "taken": """
log = read_log(out, bounds=bounds, unit="person")
log.take(np.arange(0, log.source.units, 1000))
for start in range(0, log.source.units, 5000):
    log.take(np.arange(start, min(start + 5000, log.source.units)))
""",
}


def peaks(folder: Path, rows: int, parts: int) -> dict[str, int]:
    """Most memory of a process for each work on a log of random people, in bytes."""
    path, names = folder / f"{rows}.parquet", [f"observation_{i}" for i in range(8)]
    rng, writer = np.random.default_rng(0), None
    for _ in range(0, rows, 100_000):
        people = rng.integers(0, rows // 10, 100_000)
        log = pa.table({
            "person_id": pc.binary_join_element_wise("person", pa.array(people).cast("string"), "-"),
            "episode_id": people, "t": rng.integers(0, 10, 100_000),
            **{name: rng.random(100_000) for name in names}, "action": rng.integers(0, 2, 100_000),
            "reward": rng.random(100_000), "behavior_prob": np.full(100_000, 0.5), "terminated": people > 7,
        })  # fmt: skip
        writer = writer or pq.ParquetWriter(path, log.schema)
        writer.write_table(log)
    assert writer is not None
    writer.close()
    run = lambda work: subprocess.run(  # noqa: E731
        [sys.executable, "-c", PEAK.format(work), str(path), str(folder / f"parts-{rows}"), str(parts)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {name: int(run(work).stdout) for name, work in WORK.items()}


@pytest.mark.slow
def test_memory_is_bounded_by_a_part_and_not_by_the_log(tmp_path):
    """Ten times the rows in ten times the parts: the same memory, but for a small part of what is added to the log."""
    small, large = peaks(tmp_path, 200_000, 4), peaks(tmp_path, 2_000_000, 40)
    sizes = [sum(p.stat().st_size for p in (tmp_path / f"parts-{rows}").iterdir()) for rows in (200_000, 2_000_000)]
    added = sizes[1] - sizes[0]
    assert added > 150e6
    assert {name: large[name] - small[name] < 0.5 * added for name in WORK} == dict.fromkeys(WORK, True)
