"""The curator's look at a log counts what is there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dprl.bounds import Bounds
from dprl.data.describe import describe_log
from dprl.data.readers import read_log

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
    "a flag is missing": ({"terminated": (LONG, None)}, "cells_that_are_no_number"),
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


def test_rows_of_a_table_without_an_identifier_are_counted():
    """They become no rows of the log, where nobody would see that they are gone."""
    table = pa.table({**VISITS, "patient": ["a", None, "a", "b", "a", "c"]})
    found = describe_log(table, LONG_BOUNDS, None, None)
    assert (found["rows_without_an_identifier"], found["transitions"]) == (1, 5)
    by_visit = LONG_BOUNDS | {"prepare": LONG_BOUNDS["prepare"] | {"episode": "site"}}
    table = pa.table({**VISITS, "site": ["Bern", None, None, "Basel", "Bern", "Basel"]})
    assert describe_log(table, by_visit, None, None)["rows_without_an_identifier"] == 2
    assert describe_log(pa.table(VISITS), LONG_BOUNDS, None, None)["rows_without_an_identifier"] == 0


def test_a_log_without_rows():
    found = describe_log({k: [] for k in columns()}, BOUNDS, None, None)
    assert found["transitions"] == found["trajectories"] == found["units"] == 0
    assert found["reward_mean"] is None


def test_rewards_are_of_the_rows_that_have_one():
    """An empty one is neither an outcome of the lower bound nor at a bound."""
    log = {k: list(v) for k, v in columns().items()}
    log["reward"] = [0.5, 50.0, *[None] * (len(log["t"]) - 2)]
    found = describe_log(log, BOUNDS, "person", None)
    assert (found["reward_least"], found["reward_most"], found["reward_mean"]) == (0.5, 1.0, 0.75)
    assert (found["rewards_at_a_bound"], found["rewards_missing"]) == (1, len(log["t"]) - 2)
    trajectories = read_log(columns(), bounds=BOUNDS).load()
    assert describe_log(trajectories, None, None, None)["reward_mean"] == pytest.approx(np.mean(columns()["reward"]))


def test_observations_outside_of_their_bounds_are_counted_by_component():
    log = {k: list(v) for k, v in columns().items()}
    for name, row, value in [("0", 0, 10.5), ("1", 0, -6.0), ("1", 3, 7.0), ("1", 5, None), ("0", 7, 10.0)]:
        log[f"observation_{name}"][row] = value
    log["observation_0"][8], log["episode_id"][8] = 99.0, None  # nobody's row
    found = describe_log(log, BOUNDS, "person", None)
    outside = {name: count for name, count in found.items() if "outside" in name}
    assert outside == {
        "observations_outside_bounds": 2,
        "outside_bounds_in observation_0": 1,
        "outside_bounds_in observation_1": 2,
    }
    named = describe_log(log, replace(BOUNDS, observation_names=("age", "score")), "person", None)
    assert named["outside_bounds_in score"] == 2
    assert describe_log(columns(), BOUNDS, "person", None)["observations_outside_bounds"] == 0


def test_how_many_were_lost_is_said_where_that_is_declared():
    log = {k: list(v) for k, v in columns().items()}
    lasts = [i for i, (end, cut) in enumerate(zip(log["terminated"], log["truncated"], strict=True)) if end or cut]
    lost = lasts[:5]
    log["censored"] = [i in lost for i in range(len(log["t"]))]
    for i in lost:
        log["reward"][i], log["terminated"][i], log["truncated"][i] = None, False, True
    found = describe_log(log, replace(BOUNDS, censoring_hazard=0.02), "person", None)
    assert found["trajectories_lost"] == found["rewards_missing"] == 5
    assert found["trajectories_that_contribute_nothing"] == 0
    assert not any("lost" in name for name in describe_log(columns(), BOUNDS, "person", None))


def test_probabilities_that_nobody_logged_have_no_least():
    rows = {"observation_0": [0.0, 1.0], "action": [0, 1], "reward": [0.0, 1.0]}
    bounds = Bounds(
        units=2, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),), actions=2, max_importance_ratio=2.0,
        observation_names=("site",), strata=("site",),
    )  # fmt: skip
    assert "behavior_probability_least" not in describe_log(rows, bounds, None, None)
    assert describe_log(columns(), BOUNDS, "person", None)["behavior_probability_least"] == 0.5


def test_a_log_whose_probabilities_a_policy_says_is_described_without_asking_it():
    log = {name: cells for name, cells in columns().items() if name != "behavior_prob"}
    found = describe_log(log, BOUNDS, "person", None, behavior_policy="nowhere.py:policy")
    assert found["trajectories_that_contribute_nothing"] == 0
    assert "behavior_probability_least" not in found


def test_cells_that_a_section_does_not_declare_are_counted_by_column():
    visits = {**VISITS, "site": ["Genf", "Basel", None, "Basel", "", "Basel"], "when": ["soon", *VISITS["when"][1:]]}
    found = describe_log(pa.table(visits), LONG_BOUNDS, None, None)
    unread = {name.removeprefix("cells_not_read_in "): n for name, n in found.items() if name.startswith("cells_not")}
    assert unread == {"when": 1, "site": 1, "score": 0, "arm": 0}
    empty = {name.removeprefix("cells_empty_in "): n for name, n in found.items() if name.startswith("cells_empty")}
    assert empty == {"when": 0, "site": 2, "score": 0, "arm": 0}
    assert not any(name.startswith("cells_not") for name in describe_log(columns(), BOUNDS, "person", None))
