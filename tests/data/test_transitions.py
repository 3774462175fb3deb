"""The unit transition: a row stands for itself, whatever stands beside it, before it or after it."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.data.describe import describe_log
from dprl.data.readers import read_log
from dprl.errors import DprlError

from ..sample_log import BOUNDS, PER_TRANSITION, Columns, assert_same, columns, records

OF_A_TRAJECTORY = ("person_id", "episode_id", "t", "truncated")


def log_of_transitions() -> Columns:
    """The sample log; the next state is drawn anew, so that the next row's is another one."""
    log, rng = columns(), np.random.default_rng(7)
    rows = len(log["t"])
    log["next_observation_0"] = list(rng.uniform(0, 10, rows))
    log["next_observation_1"] = list(rng.uniform(-5, 5, rows))
    return log


LOG = log_of_transitions()
ROWS = len(LOG["t"])


def load(log, **options):
    return read_log(
        log, **({"bounds": BOUNDS, "unit": "transition", "target_columns": ["target_prob"]} | options)
    ).load()


def taken(log: Columns, rows) -> Columns:
    return {name: [values[i] for i in rows] for name, values in log.items()}


def changed(column: str, row: int, value) -> Columns:
    return {**LOG, column: [value if i == row else v for i, v in enumerate(LOG[column])]}


WHOLE = records(load(LOG))


def test_every_row_is_a_unit_with_its_own_next_state():
    log = load(LOG)
    assert log.unit == "transition"
    assert log.units == log.episodes == ROWS == sum(WHOLE.values())
    assert (log.lengths() == 1).all()
    assert (log.time() == 0).all()
    assert log.valid.all()
    assert log.has_next.all()
    assert log.bounds is BOUNDS
    # each row is there as it was written: state, next state, decision, reward, end
    written = np.column_stack([LOG[n] for n in ("observation_0", "observation_1", "next_observation_0",
                                                "next_observation_1", "action", "reward", "terminated")])  # fmt: skip
    found = np.column_stack([log.observation, log.next_observation, log.action, log.reward, log.terminated])
    np.testing.assert_array_equal(found[np.lexsort(found.T)], written[np.lexsort(written.T)].astype(float))


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_file_changes_nothing(random):
    order = list(range(ROWS))
    random.shuffle(order)
    # two rows that differ in the sign of a zero alone have an order too, and one that stands twice is there twice
    more = taken(LOG, [*range(ROWS), 3, 3, 5, 5])
    more["observation_1"][-2:] = [0.0, -0.0]
    order += [ROWS, ROWS + 1, ROWS + 2, ROWS + 3]
    random.shuffle(order)
    log, shuffled = load(more), load(taken(more, order))
    assert_same(log, shuffled)
    np.testing.assert_array_equal(np.signbit(log.observation), np.signbit(shuffled.observation))


@pytest.mark.parametrize("row", [0, 1, ROWS // 2, ROWS - 1])
def test_a_row_that_is_missing_changes_no_other(row):
    rest = load(taken(LOG, [i for i in range(ROWS) if i != row]))
    assert records(rest) + records(load(taken(LOG, [row]))) == WHOLE


DEFECTS = {
    **{f"{column} is {value}": (changed(column, 4, value), True)
       for column in ("reward", "observation_0", "behavior_prob", "target_prob", "action")
       for value in (math.nan, math.inf, 1e308, None)},
    "terminated is None": (changed("terminated", 4, None), True),
    "terminated is True": (changed("terminated", 4, True), False),
    **{f"behavior_prob is {p}": (changed("behavior_prob", 4, p), True) for p in (0.0, -0.25, 1.0000001)},
    **{f"{column} is {value}": (changed(column, 4, value), False)
       for column in ("t", "episode_id", "person_id", "truncated", "next_observation_0")
       for value in (None, True)},
    "a repeated row": ({k: [*v, v[4]] for k, v in LOG.items()}, False),
    "an unknown action": (changed("action", 4, 9), False),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_row_of_any_kind_changes_no_other(defect):
    log, broken = DEFECTS[defect]
    found = load(log)
    others = records(load(taken(LOG, [i for i in range(ROWS) if i != 4])))
    assert not others - records(found)
    assert int((~found.valid).sum()) == (1 if broken else 0)
    for name in PER_TRANSITION:
        assert np.isfinite(np.asarray(getattr(found, name), dtype=np.float64)).all()


def test_identifiers_and_steps_are_not_looked_at():
    """Nor need they be there, nor be of any type."""
    whole = load(LOG)
    assert_same(whole, load({k: v for k, v in LOG.items() if k not in OF_A_TRAJECTORY}))
    assert_same(whole, load({**LOG, **{name: [b"x"] * ROWS for name in OF_A_TRAJECTORY}}))
    assert_same(whole, load({**LOG, "person_id": [None] * ROWS, "t": [0] * ROWS}))


@pytest.mark.parametrize("column", ["next_observation_0", "next_observation_1"])
def test_a_next_state_that_is_unknown_is_not_bootstrapped_from(column):
    found = load(changed(column, 4, None))
    assert int((~found.has_next).sum()) == 1
    assert found.valid.all()


def test_a_log_in_every_form_and_an_empty_one(tmp_path):
    import pandas as pd
    import pyarrow.parquet as pq

    whole = load(LOG)
    table = pa.table(dict(LOG))
    pq.write_table(table, tmp_path / "log.parquet")
    pd.DataFrame(LOG).to_csv(tmp_path / "log.csv", index=False)
    for source in (table, tmp_path / "log.parquet", tmp_path / "log.csv", pd.DataFrame(LOG)):
        assert_same(whole, load(source))
    empty = load({name: [] for name in LOG})
    assert empty.units == empty.episodes == 0
    assert empty.observation.shape == (0, 2)
    assert_same(whole, load(LOG, bounds={**BOUNDS.as_dict(), "horizon": 1}))


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"next_observation_0": None, "next_observation_1": None}, {}, "needs next_observation in every row"),
        ({"next_observation_1": None}, {}, "1 columns next_observation_0"),
        ({"terminated": None}, {}, "no column 'terminated'"),
        ({"reward": None}, {}, "no column 'reward'"),
        ({}, {"person": "person_id"}, "The privacy unit is a transition, but a person column is named"),
        ({}, {"unit": "transitions"}, "unit must be one of trajectory, person, transition"),
    ],
)
def test_what_is_refused_before_a_row_is_read(changes, options, sentence):
    log = {name: values for name, values in LOG.items() if name not in changes}
    with pytest.raises(DprlError, match=sentence):
        load(log, **options)


def test_nobody_gets_this_unit_who_did_not_ask_for_it():
    for log, unit in ((LOG, "person"), ({k: v for k, v in LOG.items() if k != "person_id"}, "trajectory")):
        assert read_log(log, bounds=BOUNDS).unit == unit


def test_the_curator_sees_counts_of_rows():
    log = changed("reward", 4, None)
    log["behavior_prob"] = [0.0 if i == 9 else v for i, v in enumerate(log["behavior_prob"])]
    found = describe_log(log, BOUNDS, "transition", None)
    assert found["transitions"] == found["units"] == ROWS
    assert found["transitions_that_contribute"] == ROWS - 2
    assert found["transitions_that_contribute_nothing"] == 2
    reasons = {name: n for name, n in found.items() if name.startswith("because_of_") and n}
    assert reasons == {"because_of_cells_that_are_no_number": 1, "because_of_behavior_probability_not_positive": 1}
    assert not [name for name in found if "trajector" in name]
