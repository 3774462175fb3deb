"""The curator's look at a log counts what is there."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from dprl.data.describe import describe_log

from ..sample_log import BOUNDS, columns
from .test_prepare import LONG as LONG_BOUNDS
from .test_prepare import VISITS


def test_counts_of_a_log_with_known_defects():
    log = columns()
    log["reward"][0] = float("nan")
    log["reward"][-1] = 50.0
    log["action"][-1] = 9
    found = describe_log(log, BOUNDS, "person", None)
    assert found["transitions"] == len(log["t"])
    assert found["units"] == len(set(log["person_id"])) == found["units_declared"]
    assert found["trajectories"] == len(set(log["episode_id"]))
    assert found["trajectories_that_contribute_nothing"] == 1
    assert found["trajectories_that_contribute"] == found["trajectories"] - 1
    assert found["actions_unknown"] == 1
    assert found["reward_most"] == 1.0
    assert found["longest_trajectory"] == max(log["t"]) + 1
    assert found["mean_trajectory"] == pytest.approx(found["transitions"] / found["trajectories"])
    json.dumps(found, allow_nan=False)


# what is done to the log -> the reason under which exactly one episode must count
LOG = columns()
LONG = next(i for i, t in enumerate(LOG["t"]) if t == 2 and LOG["t"][i + 1] == 3) - 2  # first of four rows
REASONS = {
    "a step is missing": ({"t": (LONG + 1, 2)}, "steps_missing_or_repeated"),
    "a step is no number": ({"t": (LONG + 3, None)}, "steps_missing_or_repeated"),
    "a reward is missing": ({"reward": (LONG, None)}, "cells_that_are_no_number"),
    "a state is infinite": ({"observation_1": (LONG, float("inf"))}, "cells_that_are_no_number"),
    "a probability is missing": ({"behavior_prob": (LONG, None)}, "cells_that_are_no_number"),
    "a probability is zero": ({"behavior_prob": (LONG, 0.0)}, "behavior_probability_not_positive"),
    "a probability is negative": ({"behavior_prob": (LONG, -0.5)}, "behavior_probability_not_positive"),
    "a probability is two": ({"behavior_prob": (LONG, 2.0)}, "behavior_probability_above_one"),
    "it ends too early": ({"truncated": (LONG, True)}, "an_end_before_the_last_step"),
    "two cells are broken": (
        {"reward": (LONG, None), "observation_0": (LONG + 1, float("nan"))}, "cells_that_are_no_number"),
}  # fmt: skip


@pytest.mark.parametrize("defect", ["none", *REASONS])
@pytest.mark.parametrize("unit", ["person", "trajectory"])
def test_why_trajectories_contribute_nothing(defect, unit):
    changes, reason = REASONS.get(defect, ({}, ""))
    log = {k: list(v) for k, v in columns().items()}
    for column, (row, value) in changes.items():
        log[column][row] = value
    found = describe_log(log, BOUNDS, unit, None)
    counts = {name.removeprefix("because_of_"): n for name, n in found.items() if name.startswith("because_of_")}
    assert set(counts) == {r for _, r in REASONS.values()}
    assert {name for name, n in counts.items() if n} == ({reason} if reason else set())
    assert sum(counts.values()) == found["trajectories_that_contribute_nothing"] == (1 if reason else 0)
    assert found["rows_without_an_identifier"] == 0


def test_rows_without_an_identifier_are_counted():
    log = columns()
    log["episode_id"][3] = None
    log["person_id"][7] = None
    assert describe_log(log, BOUNDS, "person", None)["rows_without_an_identifier"] == 2
    assert describe_log(log, BOUNDS, "trajectory", None)["rows_without_an_identifier"] == 1


def test_a_log_without_rows():
    found = describe_log({k: [] for k in columns()}, BOUNDS, None, None)
    assert found["transitions"] == found["trajectories"] == found["units"] == 0
    assert found["reward_mean"] is None


def test_cells_that_a_section_does_not_declare_are_counted_by_column():
    visits = {**VISITS, "site": ["Genf", "Basel", None, "Basel", "", "Basel"], "when": ["soon", *VISITS["when"][1:]]}
    found = describe_log(pa.table(visits), LONG_BOUNDS, None, None)
    unread = {name.removeprefix("cells_not_read_in "): n for name, n in found.items() if name.startswith("cells_not")}
    assert unread == {"when": 1, "site": 1, "score": 0, "arm": 0}
    empty = {name.removeprefix("cells_empty_in "): n for name, n in found.items() if name.startswith("cells_empty")}
    assert empty == {"when": 0, "site": 2, "score": 0, "arm": 0}
    assert not any(name.startswith("cells_not") for name in describe_log(columns(), BOUNDS, "person", None))
