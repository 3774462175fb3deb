"""A section ``[prepare]`` that is wrong: one sentence that says what, before a row is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dprl.data.bounds_file import read_bounds, read_bounds_and_preparation
from dprl.data.readers import read_log
from dprl.errors import DprlError

from .test_prepare import LONG, PEOPLE, VISITS, WIDE, declared

CODES = LONG["prepare"]["codes"]
SECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no person": (LONG, {"person": None}, "person is missing: name the column that tells people apart, or say"),
    "no action": (LONG, {"action": None}, "action is missing"),
    "no reward": (LONG, {"reward": None}, "reward is missing"),
    "no observation": (LONG, {"observation": None}, "observation is missing"),
    "an unknown name": (LONG, {"patient": "x"}, "unknown name 'patient'; known are action, "),
    "a number for a column": (LONG, {"reward": 3}, "reward must be the name of a column"),
    "true for a person": (LONG, {"person": True}, "person must be the name of a column"),
    "an empty list": (LONG, {"observation": []}, "observation must be a list that is not empty"),
    "a component twice": (LONG, {"observation": ["score", "score"]}, "observation names 'score' twice"),
    "an odd component": (LONG, {"observation": [{"lag": 1}]}, "an entry of observation is a name, or"),
    "a lag of none": (LONG, {"observation": [{"previous": "arm", "lag": 0}]}, "lag must be a whole number"),
    "a first that is none": (LONG, {"observation": [{"previous": "arm", "first": "a"}]}, "first must be a finite"),
    "a code twice": (LONG, {"codes": {**CODES, "arm": ["drug", "drug "]}}, "'arm' has the code 'drug' twice"),
    "a number twice": (LONG, {"codes": {**CODES, "arm": ["1", 1.0]}}, "'arm' has the code '1.0' twice"),
    "codes of nothing": (LONG, {"codes": {**CODES, "age": ["old"]}}, "declared for 'age', which plays no part"),
    "codes that are no list": (LONG, {"codes": {"arm": "drug"}}, "list of codes of 'arm' must be a list"),
    "codes that are no table": (LONG, {"codes": ["arm"]}, "codes must be a table"),
    "a code that is no text": (LONG, {"codes": {**CODES, "arm": [["a"]]}}, "codes of 'arm' must be text or numbers"),
    "a code that is no number": (LONG, {"codes": {**CODES, "arm": {"drug": "x"}}}, "a code of 'arm' must be a finite"),
    "a category for a reward": (LONG, {"codes": {**CODES, "score": ["low"]}}, "'score' must be a number"),
    "an unknown outcome": (LONG, {"outcome": "mean"}, "outcome must be one of each, sum, last"),
    "first decisions without an outcome": (LONG, {"decisions": "first"}, 'say which outcome first decisions have'),
    "an unknown decision": (LONG, {"decisions": "last"}, "decisions must be one of each, first"),
    "a sum without an order": (LONG, {"step": None, "outcome": "sum"}, "need an order: name the column step"),
    "a lag without an order": (LONG, {"step": None}, "need an order: name the column step"),
    "steps of nobody": (LONG, {"person": False}, "person is false: name the person's column"),
    "two kinds of steps": (LONG, {"steps": [1, 2]}, "step is for a table with one row for each step"),
    "steps of no column": (WIDE, {"action": "a", "reward": "b", "observation": ["c"]}, "no column has {step}"),
    "a column for each of none": (LONG, {"reward": "r{step}"}, "'r{step}' stands for one column for each step"),
    "one step with a next": (WIDE, {"steps": [1]}, "there must be two steps or more"),
    "a person for each step": (WIDE, {"person": "id{step}"}, "person is one column for all steps"),
    "a kept reward": (LONG, {"keep": ["wanted", "rewards"]}, "keep names 'rewards', which is what a part of a log is"),
    "a kept component": (LONG, {"keep": ["observation_9"]}, "keep names 'observation_9'"),
    "a format of no date": (LONG, {"step_format": "%H"}, "step_format must be the format of a date"),
    "a format of nothing": (WIDE, {"step_format": "%Y-%m-%d"}, "step_format is of the column step"),
    "a probability of zero": (LONG, {"behavior_prob": 0}, "must be above 0"),
    "a probability above one": (LONG, {"behavior_prob": 1.5}, "a behaviour probability is above 1"),
    "a table of too few levels": (
        LONG, {"behavior_prob": {"by": ["site", "arm"], "table": {"Bern": 0.5}}}, "must be 2 deep"),
    "a table of nothing": (LONG, {"behavior_prob": {"by": ["site"]}}, "behavior_prob is a column, a number, or"),
    "an odd table": (LONG, {"behavior_prob": {"by": ["site"], "table": {"1": 0.5, "1.0": 0.5}}}, "has '1.0' twice"),
}  # fmt: skip
SHORT = {"observation": ["score"]}
BOUNDS = {
    "of fewer actions": (
        {"observation": [[0, 1]]},
        {**SHORT, "codes": {"arm": ["a", "b", "c"]}},
        "'arm' are not among the 2 actions",
    ),
    "of whole actions": (
        {"observation": [[0, 1]]},
        {**SHORT, "codes": {"arm": {"a": 0.5}}},
        "'arm' are not among the 2 actions",
    ),
    "of another size": ({"observation": [[0, 1]]}, {}, r"has 5 components \(score; site = Basel; .*bounds describe 1"),
    "of one step": ({}, {"decisions": "first", "outcome": "last"}, "horizon is 3: name the column step"),
    "continuous": ({"actions": None, "action": [[0, 1]]}, {}, "a continuous action is a number"),
    "of two actions": ({"actions": None, "action": [[0, 1]] * 2}, {}, "the action has 1 component, the bounds"),
    "still asked": (
        {},
        {"codes": {**CODES, "arm": ["?"]}},
        r'The bounds still have "\?" at prepare.codes.arm: say what is public',
    ),
}


@pytest.mark.parametrize("mistake", SECTIONS)
def test_a_wrong_section(mistake):
    base, changes, words = SECTIONS[mistake]
    with pytest.raises(DprlError, match=r"^\[prepare\]: ") as error:
        read_bounds_and_preparation(declared(base, changes))
    assert words in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize("mistake", BOUNDS)
def test_bounds_of_another_log(mistake):
    bounds, changes, words = BOUNDS[mistake]
    changes = {"behavior_prob": 0.5} | changes  # which needs no codes
    made = {name: value for name, value in declared(LONG, changes, **bounds).items() if value is not None}
    with pytest.raises(DprlError, match=words):
        read_bounds(made)


def test_rewards_of_earlier_steps_are_within_the_bounds():
    """They are 0, and would be clamped to the least reward, once for each step."""
    with pytest.raises(DprlError, match="reward of the bounds must include 0"):
        read_bounds(declared(WIDE, {"outcome": "last"}, reward=[90, 200]))
    read_bounds(declared(WIDE, {"outcome": "last", "decisions": "first"}, reward=[90, 200], horizon=1))


def test_bounds_of_fewer_steps():
    with pytest.raises(DprlError, match="there are 2 steps, and the horizon of the bounds is 1"):
        read_bounds(WIDE | {"horizon": 1})


@pytest.mark.parametrize("section", [[], "x", 5, True])
def test_a_section_that_is_no_table(section):
    with pytest.raises(DprlError, match="it must be a table"):
        read_bounds_and_preparation(LONG | {"prepare": section})


TABLES: dict[str, tuple[Any, Any, str]] = {
    "a missing column": ({"when": None}, LONG, "no column 'when', which [prepare] names under step"),
    "a missing person": ({"patient": None}, LONG, "no column 'patient', which [prepare] names under person"),
    "text without codes": (
        {"score": ["x"] * 6},
        LONG,
        "'score' holds text: declare its values under [prepare.codes], or where it has numbers, save it as",
    ),
    "numbers for text": ({"arm": [0] * 6}, LONG, "'arm' has type int64, but the codes declared for it are text"),
    "lists": ({"score": [[1.0]] * 6}, LONG, "'score' has type list"),
    "truths for a person": ({"patient": [True] * 6}, LONG, "'patient' has type bool; an identifier must be"),
    "lists for steps": ({"when": [[1]] * 6}, LONG, "'when' has type list"),
    "dates for codes": ({"site": pa.array([0] * 6, pa.date32())}, LONG, "'site' has type date32"),
    "truths for a person who is also observed": (
        {"patient": [True] * 6},
        declared(LONG, {"observation": ["score", "site", "patient", {"previous": "score"}]}),
        "'patient' has type bool; an identifier must be",
    ),
    "a missing step": ({"cd4_3": None}, WIDE, "no column 'cd4_3', which [prepare] names under reward"),
}


@pytest.mark.parametrize("mistake", TABLES)
def test_a_table_that_does_not_fit(mistake):
    changes, bounds, words = TABLES[mistake]
    columns = {**(PEOPLE if bounds is WIDE else VISITS), **changes}
    with pytest.raises(DprlError) as error:
        read_log(pa.table({name: x for name, x in columns.items() if x is not None}), bounds=bounds)
    assert words in str(error.value)


@pytest.mark.parametrize("line", ["PATIENT-ZERO,777123.456", "Alice,drug,Bern"])
def test_a_first_line_that_may_be_a_row_is_not_quoted(line, tmp_path):
    (tmp_path / "visits.csv").write_text(f"{line}\n")
    with pytest.raises(DprlError, match=r"no column 'patient', which \[prepare\] names under person[.]$"):
        read_log(tmp_path / "visits.csv", bounds=LONG)


def test_columns_of_one_name_and_of_two_lengths():
    twice = pa.Table.from_arrays([*pa.table(VISITS).columns, pa.array([1.0] * 6)], names=[*VISITS, "score"])
    with pytest.raises(DprlError, match=r"more than one column 'score'"):
        read_log(twice, bounds=LONG)
    with pytest.raises(DprlError, match="differ in length"):
        read_log({**VISITS, "score": [1.0]}, bounds=LONG)


def test_bounds_without_a_section_are_what_they_were():
    plain = {name: value for name, value in LONG.items() if name != "prepare"}
    assert read_bounds_and_preparation(plain) == (read_bounds(plain), None)
    named = LONG | {"observation_names": list("abcde")}
    assert read_bounds(named).observation_names == tuple("abcde")


def test_what_is_missing_is_filled_by_the_names_of_the_table():
    """As strata, subgroups and cuts name its components."""
    filled = read_bounds(LONG | {"fill": {"score": 2.0}, "flag_missing": ["score"]})
    assert (filled.fill, filled.flag_missing) == ((2.0, None, None, None, None), (0,))
    with pytest.raises(DprlError, match="names no observation component 'scores'; there are score, site = "):
        read_bounds(LONG | {"fill": {"scores": 2.0}})
