"""The curator's look at a log counts what is there."""

from __future__ import annotations

import json

import pytest

from dprl.data.describe import describe_log

from ..sample_log import BOUNDS, columns


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


def test_a_log_without_rows():
    found = describe_log({k: [] for k in columns()}, BOUNDS, None, None)
    assert found["transitions"] == found["trajectories"] == found["units"] == 0
    assert found["reward_mean"] is None
