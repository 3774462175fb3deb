"""A bounds file to fill in: valid TOML from names and types alone, refused until it is filled in, enough afterwards."""

from __future__ import annotations

import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.data.bounds_file import read_bounds
from dprl.data.preparation import Preparation
from dprl.data.readers import read_log
from dprl.data.template import bounds_template
from dprl.errors import DprlError

ONE_STEP = {"observation": [0.5, 0.25], "action": [0, 1], "reward": [0.0, 1.0], "pscore": [0.5, 0.5]}
STEPS = {
    "episode": [0, 0], "step": [0, 1], "state_0": [0.0, 1.0], "state_1": [3.0, 2.0], "actions": [1, 0],
    "rewards": [1.0, 0.0], "propensity": [0.5, 0.5], "done": [False, True], "patient": ["a", "a"], "site": [1, 2],
}  # fmt: skip
LISTS = {**ONE_STEP, "observation": pa.array([[1.0, 2.0, 3.0]] * 2, pa.list_(pa.float64(), 3))}
CONTINUOUS = {**ONE_STEP, "action": [0.5, 0.25]}


def filled_in(template: str) -> str:
    """Every interval [0, 1], every ratio 1, and every count 2."""
    text = template.replace('["?", "?"]', "[0, 1]").replace('max_importance_ratio = "?"', "max_importance_ratio = 1")
    return text.replace('"?"  #', "2  #")


@pytest.mark.parametrize("columns", [ONE_STEP, STEPS, LISTS, CONTINUOUS], ids=["one", "steps", "lists", "continuous"])
def test_a_log_opens_with_what_was_filled_in(columns, tmp_path):
    log, bounds = tmp_path / "log.parquet", tmp_path / "bounds.toml"
    pq.write_table(pa.table(columns), log)
    bounds.write_text(bounds_template(str(log)))
    with pytest.raises(DprlError, match=r'still has "\?" at units, .*reward.*: say what is public'):
        read_bounds(bounds)
    bounds.write_text(filled_in(bounds.read_text()))
    found = read_log(str(log), bounds=bounds).bounds
    assert found.horizon == (2 if columns is STEPS else 1)
    assert len(found.observation) == {id(STEPS): 2, id(LISTS): 3}.get(id(columns), 1)
    assert (found.actions is None) == (columns is CONTINUOUS)


def test_rows_say_nothing():
    other = {name: pa.array(values).take(pa.array([1, 0, 1, 1])) for name, values in STEPS.items()}
    other["rewards"] = pa.array([7.0, -1e9, np.nan, 3.0])
    assert bounds_template(pa.table(STEPS)) == bounds_template(pa.table(other))


def test_it_says_what_each_column_is_and_what_is_missing():
    text = bounds_template(pa.table(STEPS), person="patient")
    assert "# not used         site\n" in text
    assert "# person_id        patient\n" in text
    assert "MISSING" not in text
    few = bounds_template(pa.table({"x": [1.0], "reward": [1.0]}))
    assert [line.split()[1] for line in few.splitlines() if "MISSING" in line] == [
        "observation", "action", "behavior_prob",
    ]  # fmt: skip
    with pytest.raises(DprlError, match="no column 'nobody'"):
        bounds_template(pa.table(STEPS), person="nobody")


WIDE = {
    "id": ["a"],
    "sex": ["f"],
    "age": [30],
    "arm1": ["x"],
    "arm2": ["y"],
    "score1": [1.0],
    "score2": [2.0],
    "score3": [3.0],
}


def test_a_table_that_is_no_log_gets_a_section_to_fill_in():
    text = bounds_template(pa.table(WIDE), person="id")
    section = text[text.index("# [prepare]") :].replace("# [prepare]", "[prepare]").replace("\n# ", "\n")
    found = tomllib.loads(section)["prepare"]
    assert found["person"] == "id"
    assert found["steps"] == ["1", "2", "3"]
    assert "arm{step}, score{step}" in section
    assert found["codes"] == {"sex": ["?"], "arm1": ["?"], "arm2": ["?"]}
    assert 'horizon = "?"' in text
    assert set(found) <= set(Preparation.__dataclass_fields__)


def test_a_log_gets_no_section_unless_a_part_of_it_is_text():
    assert "[prepare]" not in bounds_template(pa.table(STEPS))
    assert "[prepare]" in bounds_template(pa.table({**STEPS, "actions": ["a", "b"]}))
    assert "[prepare]" in bounds_template(pa.table({**STEPS, "actions": pa.array(["a", "b"]).dictionary_encode()}))


@settings(max_examples=50, deadline=None)
@given(names=st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True), text=st.booleans())
def test_whatever_columns_are_called_it_is_toml(names, text):
    table = pa.table([pa.array(["a"] if text else [1.0])] * len(names), names=names)
    text = bounds_template(table)
    assert set(tomllib.loads(text)) >= {"units", "reward", "observation"}
    if "\n# [prepare]\n" in text:
        section = text[text.rindex("\n# [prepare]\n") :].replace("\n# ", "\n")
        assert set(tomllib.loads(section)["prepare"]) <= set(Preparation.__dataclass_fields__)
