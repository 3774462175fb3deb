"""What is in the rows changes no exit code, no message and no file, and is quoted nowhere."""

from __future__ import annotations

import json
import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..sample_log import Columns, columns, in_lists, write_csv

SENTINELS = ("PATIENT-ZERO", "777123")


def with_cells(row: int = 5, **cells: object) -> Columns:
    return {k: [cells.get(k, v) if i == row else v for i, v in enumerate(values)] for k, values in columns().items()}


def only(rows: int) -> Columns:
    return {k: v[:rows] for k, v in columns().items()}


N = len(columns()["t"])
IDS = {"person_id": "PATIENT-ZERO", "episode_id": "777123.456"}
DIRTY = {
    "no rows at all": only(0),
    "one row": only(1),
    "one row without a person": {**only(1), "person_id": [None]},
    "sentinels for identifiers": with_cells(**IDS),
    "sentinel for a reward": with_cells(reward=777123.456, **IDS),
    "NaN": with_cells(reward=math.nan, observation_0=math.nan, behavior_prob=math.nan, **IDS),
    "infinity": with_cells(reward=math.inf, observation_1=-math.inf, **IDS),
    "beyond measurement": with_cells(reward=1e308, observation_0=-1e308, t=1e308, **IDS),
    "nothing": dict.fromkeys(columns()) and with_cells(**dict.fromkeys(columns())),
    "probability zero": with_cells(behavior_prob=0.0, **IDS),
    "negative probability": with_cells(behavior_prob=-777123.456, **IDS),
    "probability above one": with_cells(behavior_prob=777123.456, target_prob=777123.456, **IDS),
    "smallest probability": with_cells(behavior_prob=5e-324, **IDS),
    "unknown action": with_cells(action=777123, **IDS),
    "action that is no number": with_cells(action=math.nan, **IDS),
    "missing step": {k: [*v[:1], *v[2:]] for k, v in columns().items()},
    "repeated rows": {k: v * 3 for k, v in columns().items()},
    "endless episode": {k: [*v, *([v[0]] * 500)] for k, v in columns().items()} | {"t": list(range(N + 500))},
    "everybody one person": {**columns(), "person_id": ["PATIENT-ZERO"] * N},
    "everybody nobody": {**columns(), "person_id": [None] * N},
    "all rows broken": {**columns(), "reward": [math.nan] * N},
}  # fmt: skip


def shape(text: str) -> str:
    """What is printed, without the numbers that are noised and without their widths.

    A released sampling error that noise hides is left out, and then stands in no line.
    """
    numbers = re.sub(r"\s+", " ", re.sub(r"-?\d[\d.]*(e[-+]?\d+)?", "#", text))
    return numbers.replace("sampling error about #, at most #", "sampling error at most #")


def observed(outcome, trial) -> tuple[object, ...]:
    kept = {p.relative_to(trial.folder) for p in trial.out.rglob("*")}
    everything = [outcome.out, outcome.err, *(p.read_bytes().decode("latin-1") for p in trial.out.iterdir())]
    for sentinel in SENTINELS:
        assert not any(sentinel in text for text in everything)
    return outcome.code, shape(without_released_cautions(outcome.out, trial)), outcome.err, kept, trial.charges()


def without_released_cautions(printed: str, trial) -> str:
    """What is printed, without the cautions that follow from released values: each stands in the released estimate."""
    estimate = json.loads((trial.out / "estimate.json").read_text())
    for sentence in estimate["cautions"]:
        if sentence not in estimate["public_cautions"]:
            assert f"caution: {sentence}\n" in printed
            printed = printed.replace(f"caution: {sentence}\n", "", 1)
    return printed


@pytest.fixture(scope="module")
def clean():
    """What the first run of each kind showed; every other must show the same."""
    return {}


def compare(dprl, trial, clean, name: str, **changes) -> None:
    """Run on the rows that the trial now holds: what is seen is what is always seen."""
    found = observed(dprl(*trial.arguments(**changes)), trial)
    text = found[1].replace(shape(str(trial.folder)), "FOLDER")
    seen = (found[0], text, *found[2:])
    assert seen[0] == 0
    assert seen == clean.setdefault(name, seen)


TYPES = {k: pa.table(columns()).schema.field(k).type for k in columns()} | {"action": pa.float64(), "t": pa.float64()}


@pytest.mark.parametrize("rows", ["clean", *DIRTY])
def test_rows_of_a_parquet_file(dprl, trial, clean, rows):
    log = columns() if rows == "clean" else DIRTY[rows]
    pq.write_table(pa.table({k: pa.array(v, TYPES[k]) for k, v in log.items()}), trial.log)
    compare(dprl, trial, clean, "parquet", target_policy=["uniform", "column:target_prob", f"{trial.policies}:mostly"])


@pytest.mark.parametrize("rows", ["clean", "no rows at all", "NaN", "all rows broken"])
def test_rows_under_gpope(dprl, trial, clean, rows):
    log = columns() if rows == "clean" else DIRTY[rows]
    pq.write_table(pa.table({k: pa.array(v, TYPES[k]) for k, v in log.items()}), trial.log)
    compare(dprl, trial, clean, "gpope", algorithm="gpope", set=["steps=5", "sampling_rate=0.5"])


LISTS = {"wrong length": [777123.456] * 3, "empty": [], "missing": None, "holes": [None, None]}


@pytest.mark.parametrize("kind", ["clean", *LISTS])
def test_lists_of_a_parquet_file(dprl, trial, clean, kind):
    log = in_lists(columns())
    if kind != "clean":
        log["observation"][5] = LISTS[kind]
    pq.write_table(pa.table(log), trial.log)
    compare(dprl, trial, clean, "lists")


LINE = ",".join(str(v[5]) for v in columns().values()).encode()
LINES = {
    "a word": LINE.replace(b"0.5", b"PATIENT-ZERO"),
    "words everywhere": b",".join([b"PATIENT-ZERO"] * 11),
    "too many cells": LINE + b",777123.456",
    "too few cells": b"PATIENT-ZERO",
    "an open quote": b'"PATIENT-ZERO,' + LINE,
    "a quoted line end": b'"PATIENT\n-ZERO",' + LINE,
    "latin-1": "PATIENT-ZERO-é,".encode("latin-1") + LINE.partition(b",")[2],
    "a NUL": b"PATIENT-ZERO\0," + LINE.partition(b",")[2],
    "an endless cell": b"777123" * 300_000,
    "nothing": b"",
}


@pytest.mark.parametrize("kind", ["clean", "no rows at all", "header alone", *LINES])
def test_lines_of_a_csv_file(dprl, trial, clean, kind):
    path = write_csv(columns(), trial.folder / "log.csv")
    lines = path.read_bytes().splitlines()
    if kind in LINES:
        lines.insert(6, LINES[kind])
    elif kind != "clean":
        lines = lines[:1]
    path.write_bytes(b"\n".join(lines) + (b"" if kind == "header alone" else b"\n"))
    compare(dprl, trial, clean, "csv", log=path)


def test_a_policy_that_fails_on_the_rows_alone_says_nothing(dprl, trial, clean):
    """It is sound on public states, and stumbles over the one state that is in the log."""
    state = columns()["observation_0"][5]
    trial.policies.write_text(
        "import numpy as np, warnings\n"
        "def mostly(states):\n"
        f"    if {state!r} in states[:, 0]:\n"
        "        warnings.warn('PATIENT-ZERO')\n"
        "        raise RuntimeError('PATIENT-ZERO')\n"
        "    return np.full((len(states), 2), 0.5)\n"
    )
    changes = {"ledger": None, "dataset": None, "target_policy": f"{trial.policies}:mostly"}
    compare(dprl, trial, clean, "policy", **changes)
    before = clean["policy"]
    trial.write(only(1))
    trial.out.rename(trial.folder / "first")
    found = observed(dprl(*trial.arguments(**changes)), trial)
    assert (found[0], found[1].replace(shape(str(trial.folder)), "FOLDER"), *found[2:]) == before
