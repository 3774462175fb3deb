"""``dprl data partition``: a log's files in, a folder of parts out, which stands wherever a log does."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..sample_log import BOUNDS_TOML, columns, write_csv, write_parquet

LOG = columns()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "bounds.toml").write_text(BOUNDS_TOML)
    write_parquet({**LOG, "note": ["of Dr. Secret"] * len(LOG["t"])}, tmp_path / "log.parquet")
    write_csv(LOG, tmp_path / "log.csv")
    return tmp_path


def test_parts_are_described_as_the_log_is(dprl, files):
    made = dprl(
        "data", "partition", files / "log.parquet", "--by", "person_id", "--parts", 3, "--out", files / "parts"
    ).done()
    assert made.out.startswith("NOT private")
    assert "3 parts by person_id" in made.out
    assert "left out, for it holds no numbers: column note" in made.out
    described = [
        dprl("data", "describe", files / name, "--bounds", files / "bounds.toml", "--json")
        for name in ("parts", "log.parquet")
    ]
    assert [outcome.code for outcome in described] == [0, 0]
    assert json.loads(described[0].out) == json.loads(described[1].out)


def test_what_is_printed_says_nothing_of_the_rows(dprl, files):
    """The same of a log of other people: as many parts and bytes, and neither a name nor a count of units or rows."""
    other = {**LOG, "person_id": [f"somebody-{p}" for p in LOG["person_id"]], "reward": [0.5] * len(LOG["t"])}
    write_parquet(other, files / "other.parquet")
    said = [
        dprl(
            "data", "partition", files / f"{name}.parquet", "--by", "person_id", "--parts", 3, "--out", files / name
        ).out
        for name in ("log", "other")
    ]
    assert said[0].replace("column note", "").split(", in ")[0] == said[1].split(", in ")[0]
    for count in (len(LOG["t"]), len(set(LOG["person_id"])), len(set(LOG["episode_id"]))):
        assert f" {count} " not in said[1]


def test_a_folder_of_files_is_a_log(dprl, files):
    table = pa.table(dict(LOG))
    (files / "logs").mkdir()
    for i in range(2):
        pq.write_table(table.slice(i * 20, 20 if i == 0 else None), files / "logs" / f"{i}.parquet")
    dprl("data", "partition", files / "logs", "--by", "person_id", "--out", files / "parts").done()
    bounds = ("--bounds", files / "bounds.toml")
    assert (
        dprl("data", "describe", files / "parts", *bounds).out
        == dprl("data", "describe", files / "log.csv", *bounds).out
    )


REFUSED = {
    "no column": (["log.csv", "--out", "parts"], "give the column of the privacy unit with --by"),
    "no log": (["lag.csv", "--by", "person_id", "--out", "parts"], "no log file 'lag.csv'"),
    "a Minari dataset": (["minari:door", "--by", "person_id", "--out", "parts"], "no log file 'minari:door'"),
    "a file in the way": (["log.csv", "--by", "person_id", "--out", "bounds.toml"], "already there"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_mistake_is_one_sentence(dprl, files, monkeypatch, how):
    monkeypatch.chdir(files)
    arguments, words = REFUSED[how]
    before = sorted(files.iterdir())
    dprl("data", "partition", *arguments).refused(words)
    assert sorted(files.iterdir()) == before


def test_a_split_unit_stops_a_release_before_anything_is_seen(dprl, files):
    """A part twice, as somebody may merge two folders by hand."""
    dprl("data", "partition", files / "log.csv", "--by", "person_id", "--parts", 3, "--out", files / "parts")
    manifest = json.loads((files / "parts" / "parts.json").read_text())
    manifest["parts"].append(manifest["parts"][1])
    (files / "parts" / "parts.json").write_text(json.dumps(manifest))
    refused = dprl("data", "describe", files / "parts", "--bounds", files / "bounds.toml")
    refused.refused("a unit's rows lie in more than one place. Partition the log again")
    assert "person-" not in refused.err
