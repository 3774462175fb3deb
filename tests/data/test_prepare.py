"""Tables as people have them become logs: what was declared and nothing else, and each person's rows by themselves."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.data.table_to_log import moments, places
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.policies.loading import load_policy

from ..sample_log import assert_same

VISITS = {
    "patient": ["a", "b", "a", "b", "a", "c"],
    "when": ["2021-03-01", "2020-01-05", "2021-01-02", "2020-01-04", "2021-02-01", "2022-01-01"],
    "arm": ["drug", "placebo", "placebo", "drug", "drug", "placebo"],
    "site": ["Bern", "Basel", "Bern", "Basel", "Bern", "Basel"],
    "sex": ["f", "m", "f", "m", "f", "f"],
    "score": [3.0, 20.0, 1.0, 10.0, 2.0, 30.0],
}
LONG: dict[str, Any] = {
    "units": 3, "horizon": 3, "reward": [0, 100], "observation": [[0, 100], [0, 1], [0, 1], [0, 1], [0, 1]],
    "actions": 2, "max_importance_ratio": 4,
    "prepare": {
        "person": "patient", "step": "when", "reward": "score", "action": "arm",
        "observation": ["score", "site", {"previous": "arm"}],
        "behavior_prob": {
            "by": ["site", "arm"],
            "table": {"Bern": {"drug": 0.75, "placebo": 0.25}, "Basel": {"drug": 0.5, "placebo": 0.5}},
        },
        "codes": {"arm": ["placebo", "drug"], "site": ["Basel", "Bern"]},
    },
}  # fmt: skip
WIDE: dict[str, Any] = {
    "units": 3, "horizon": 2, "reward": [0, 100], "observation": [[0, 1], [0, 100]], "actions": 2,
    "max_importance_ratio": 2,
    "prepare": {
        "person": "id", "steps": [1, 2, 3], "observation": ["sex", "cd4_{step}"], "action": "arm{step}",
        "reward": "cd4_{next}", "behavior_prob": 0.5, "codes": {"sex": {"female": 0, "male": 1}},
    },
}  # fmt: skip
PEOPLE = {
    "id": [7, 8, 9], "sex": ["male", "female", "other"], "arm1": [0, 1, 1], "arm2": [1, None, 0],
    "cd4_1": [10.0, 20.0, 30.0], "cd4_2": [11.0, 21.0, 31.0], "cd4_3": [12.0, None, 32.0],
}  # fmt: skip


def declared(base: dict[str, Any], section: dict[str, Any] | None = None, **bounds: Any) -> dict[str, Any]:
    """The bounds with other facts and other entries of the section; None takes an entry away."""
    made = copy.deepcopy(base) | bounds
    for name, value in (section or {}).items():
        made["prepare"][name] = value
        if value is None:
            del made["prepare"][name]
    return made


def loaded(source: Any, bounds: Any, **how: Any) -> Trajectories:
    return read_log(source, bounds=bounds, **how).load()


def test_rows_of_a_person_in_the_order_of_their_dates():
    found = loaded(pa.table(VISITS), LONG)
    assert found.valid.all()
    np.testing.assert_array_equal(found.reward, [1, 2, 3, 10, 20, 30])
    np.testing.assert_array_equal(found.action, [0, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(found.behavior_prob, [0.25, 0.75, 0.75, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(found.terminated, [False, False, True, False, True, True])
    # score; Basel, Bern; the arm before was placebo, drug: at the first step neither
    bern, basel = [0, 1], [1, 0]
    assert found.observation.tolist() == [
        [1, *bern, 0, 0], [2, *bern, 1, 0], [3, *bern, 0, 1],
        [10, *basel, 0, 0], [20, *basel, 0, 1], [30, *basel, 0, 0],
    ]  # fmt: skip
    assert found.bounds.observation_names == (
        "score", "site = Basel", "site = Bern", "previous arm = placebo", "previous arm = drug",
    )  # fmt: skip


def test_one_row_for_each_person_becomes_one_for_each_step():
    made = dprl.prepare(pa.table(PEOPLE), WIDE)
    assert made.column("person_id").to_pylist() == [7, 7, 8, 9, 9]  # 8 left after the first step
    assert made.column("t").to_pylist() == [0, 1, 0, 0, 1]
    assert made.column("observation_0").to_pylist() == [1, 1, 0, None, None]  # `other` is not declared
    assert made.column("observation_1").to_pylist() == [10, 11, 20, 30, 31]
    assert made.column("reward").to_pylist() == [11, 12, 21, 31, 32]
    found = loaded(made, WIDE)
    np.testing.assert_array_equal(found.valid, [True, True, False])


def test_a_gap_in_the_middle_answers_nothing_and_one_at_the_end_is_an_end():
    table = pa.table({**PEOPLE, "arm1": [None, 1, 1], "cd4_2": [None, 21.0, 31.0]})
    found = loaded(table, WIDE)
    np.testing.assert_array_equal(found.lengths(), [2, 1, 2])
    np.testing.assert_array_equal(found.valid, [False, True, False])


@pytest.mark.parametrize("form", ["table", "parquet", "csv", "frame", "frame of objects", "lists", "prepared"])
def test_every_form_of_a_table_is_the_same_log(tmp_path, form):
    table, path = pa.table(VISITS), tmp_path / "visits.parquet"
    frame = table.to_pandas()
    source: Any = {"table": table, "frame": frame, "frame of objects": frame.astype(object), "lists": VISITS}.get(form)
    if form == "parquet":
        pq.write_table(table, source := path)
    elif form == "csv":
        pa_csv.write_csv(table, source := tmp_path / "visits.csv")
    elif form == "prepared":
        dprl.prepare(table, LONG, out=path)
        source = path
    assert_same(loaded(source, LONG), loaded(table, LONG))
    assert_same(loaded(source, LONG, person="patient"), loaded(table, LONG))


@pytest.mark.parametrize(
    "kind",
    [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), "number", "form"],
)
def test_steps_are_numbers_or_dates_of_every_kind(kind):
    dates, section = pd.to_datetime(pd.Series(VISITS["when"])), {}
    if kind == "number":
        when = pa.array((dates - dates.min()).dt.days / 2)
    elif kind == "form":
        when, section = pa.array(dates.dt.strftime("%d/%m/%Y")), {"step_format": "%d/%m/%Y"}
    else:
        when = pa.array(dates.dt.date, pa.date32()).cast(kind)
    bounds = declared(LONG, section)
    assert_same(loaded(pa.table({**VISITS, "when": when}), bounds), loaded(pa.table(VISITS), LONG))


def test_dates_of_text_with_and_without_a_clock_and_what_is_no_date():
    column = pa.chunked_array([["2021-01-02", " 2021-01-02T00:00:01 ", "2021-01-01T23:00:00-02:00", "soon", None, "5"]])
    day = moments(column, None)
    assert day[1] - day[0] == 1.0
    assert day[2] - day[0] == 3600.0
    np.testing.assert_array_equal(np.isnan(day), [False, False, False, True, True, False])


@pytest.mark.parametrize("when", ["2021-01-02", "someday", None])
def test_a_step_that_is_twice_or_none_answers_nothing(when):
    broken = {**VISITS, "when": [when, *VISITS["when"][1:]]}
    for section in ({}, {"outcome": "last"}, {"outcome": "sum"}):
        found = loaded(pa.table(broken), declared(LONG, section))
        np.testing.assert_array_equal(found.valid, [False, True, True])
    first = declared(LONG, {"outcome": "sum", "decisions": "first"}, horizon=1)
    np.testing.assert_array_equal(loaded(pa.table(broken), first).valid, [False, True, True])


def test_outcomes_of_a_whole_trajectory():
    for outcome, whole in (("sum", [6, 30, 30]), ("last", [3, 20, 30])):
        found = loaded(pa.table(VISITS), declared(LONG, {"outcome": outcome}))
        np.testing.assert_array_equal(found.reward, [0, 0, whole[0], 0, whole[1], whole[2]])
        first = loaded(pa.table(VISITS), declared(LONG, {"outcome": outcome, "decisions": "first"}, horizon=1))
        np.testing.assert_array_equal(first.reward, whole)
        np.testing.assert_array_equal(first.observation[:, 0], [1, 10, 30])
        assert (first.units, first.terminated.all()) == (3, True)


def test_what_is_more_than_before():
    made = dprl.prepare(pa.table(PEOPLE), declared(WIDE, {"reward_less": "cd4_{step}"}))
    assert made.column("reward").to_pylist() == [1, 1, 1, 1, 1]


def test_a_missing_outcome_leaves_no_sum():
    found = loaded(
        pa.table({**VISITS, "score": [3.0, 20.0, None, 10.0, 2.0, 30.0]}), declared(LONG, {"outcome": "sum"})
    )
    np.testing.assert_array_equal(found.valid, [False, True, True])


@pytest.mark.parametrize("column", ["arm", "site"])
def test_what_is_not_declared_is_missing_and_says_nothing(column, tmp_path):
    values = ["what", *VISITS[column][1:]]
    found = loaded(pa.table({**VISITS, column: values}), LONG)
    np.testing.assert_array_equal(found.valid, [False, True, True])


def test_ends_and_truncations():
    cut = loaded(pa.table(VISITS), declared(LONG, {"terminated": False}))
    assert cut.valid.all()
    assert not cut.terminated.any()
    died = pa.table({**VISITS, "died": ["yes", "no", "no", "no", "no", "no"]})
    some = loaded(
        died, declared(LONG, {"terminated": "died", "codes": {**LONG["prepare"]["codes"], "died": ["no", "yes"]}})
    )
    np.testing.assert_array_equal(some.terminated, [False, False, True, False, False, False])
    assert some.valid.all()


@pytest.mark.parametrize("cell", ["YES", "", None])
@pytest.mark.parametrize("flag", ["terminated", "censored"])
def test_a_flag_that_is_none_of_its_codes_answers_nothing(flag, cell):
    table = pa.table({**VISITS, "flag": ["no", cell, "no", "no", "no", "no"]})
    section = {flag: "flag", "codes": {**LONG["prepare"]["codes"], "flag": ["no", "yes"]}}
    facts = {"censoring_hazard": 0.2, "max_importance_ratio": 8} if flag == "censored" else {}
    np.testing.assert_array_equal(loaded(table, declared(LONG, section, **facts)).valid, [True, False, True])


def test_a_flag_is_whatever_is_not_zero():
    table = pa.table({**VISITS, "flag": [-1.0, 0.0, 0.0, 2.0, 1.0, 0.0]})
    facts = {"censoring_hazard": 0.2, "max_importance_ratio": 8}
    once = {"observation": ["score", "site", "sex"], "outcome": "last", "decisions": "first", "censored": "flag"}
    once["codes"] = {**LONG["prepare"]["codes"], "sex": ["f", "m"]}
    found = loaded(table, declared(LONG, once, **facts, observation=[[0, 100], *[[0, 1]] * 4], horizon=1))
    np.testing.assert_array_equal(found.stays, [0.0, 0.0, 0.8])
    assert found.valid.all()


def test_people_who_are_lost():
    """Said by a column, or by a reward that is missing; of a first decision, whether they ever were."""
    hazard = {"censoring_hazard": 0.2, "max_importance_ratio": 8}
    gone = {**VISITS, "gone": ["yes", "no", "no", "no", "no", "no"], "score": [None, 20.0, 1.0, 10.0, 2.0, 30.0]}
    codes, yes = LONG["prepare"]["codes"], {"gone": ["no", "yes"]}
    section: dict[str, Any] = {"observation": ["site", {"previous": "arm"}]}
    four = {"observation": [[0, 1]] * 4, **hazard}
    for said in ({"censored": "gone", "codes": codes | yes}, {"censored": True}):
        found = loaded(pa.table(gone), declared(LONG, section | said, **four))
        assert found.valid.all()
        np.testing.assert_array_equal(found.stays, [0.8, 0.8, 0.0, 0.8, 0.8, 0.8])
        np.testing.assert_array_equal(found.terminated, [False, False, False, False, True, True])
        once = section | said | {"outcome": "last", "decisions": "first", "observation": ["site", "sex"]}
        once["codes"] = said.get("codes", codes) | {"sex": ["f", "m"]}
        first = loaded(pa.table(gone), declared(LONG, once, **four, horizon=1))
        np.testing.assert_array_equal(first.stays, [0.0, 0.8, 0.8])
    with pytest.raises(DprlError, match="censored tells who was lost: say in the bounds how readily"):
        loaded(pa.table(gone), declared(LONG, section | said, observation=four["observation"]))


def test_probabilities_are_said_or_estimated_but_not_both():
    with pytest.raises(DprlError, match="strata are declared to estimate that: leave one out"):
        loaded(pa.table(PEOPLE), declared(WIDE, {"behavior_prob": 0.5}, strata=["observation_0"]))


def test_rows_without_an_order_are_decisions_of_their_own():
    section = {"step": None, "observation": ["score"]}
    found = loaded(pa.table(VISITS), declared(LONG, section, horizon=1, observation=[[0, 100]]))
    np.testing.assert_array_equal(np.diff(found.unit_offsets), [3, 2, 1])
    assert (found.lengths() == 1).all()
    assert found.valid.all()
    alone = loaded(pa.table(VISITS), declared(LONG, section | {"person": False}, horizon=1, observation=[[0, 100]]))
    assert (alone.units, alone.unit) == (6, "trajectory")
    by_row = loaded(pa.table(PEOPLE), declared(WIDE, {"person": False}))
    assert (by_row.units, by_row.unit) == (3, "trajectory")


def test_lags_of_numbers_and_trajectories_of_one_person():
    section = {"observation": [{"previous": "score", "lag": 2, "first": 7.0}], "episode": "site"}
    table = pa.table({**VISITS, "site": ["Basel", *VISITS["site"][1:]]})
    found = loaded(table, declared(LONG, section | {"codes": {"arm": ["placebo", "drug"]}}, observation=[[0, 100]]))
    np.testing.assert_array_equal(found.lengths(), [1, 2, 2, 1])
    assert (found.observation == 7.0).all()
    whole = declared(LONG, {"observation": section["observation"], "codes": {"arm": ["placebo", "drug"]}})
    found = loaded(table, whole | {"observation": [[0, 100]]})
    np.testing.assert_array_equal(found.observation.ravel(), [7, 7, 1, 7, 7, 7])


def test_actions_that_are_numbers_and_columns_that_are_kept():
    doses = pa.table({**PEOPLE, "oral1": [0.5, 1.0, 2.0], "oral2": [0.25, None, 1.0], "wanted": [0.1, 0.2, 0.3]})
    section = {"action": ["arm{step}", "oral{step}"], "keep": ["wanted"]}
    bounds = declared(WIDE, section, actions=None, action=[[0, 1], [0, 2]])
    del bounds["actions"]
    found = loaded(doses, bounds, target_columns=["wanted"])
    np.testing.assert_array_equal(found.action[:3], [[0, 0.5], [1, 0.25], [1, 1.0]])
    np.testing.assert_array_equal(found.target_prob["wanted"], [0.1, 0.1, 0.2, 0.3, 0.3])


def test_codes_are_text_numbers_and_truths():
    def found(values: Any, texts: list[str]) -> list[int]:
        return places(pa.chunked_array([values]), texts).tolist()

    assert found(pa.array([" a", "b ", "A", None, ""]), ["b", "a"]) == [1, 0, -1, -1, -1]
    assert found(pa.array([1, 2, 3]), ["1", "3.0"]) == [0, -1, 1]
    assert found(pa.array([1.0, np.nan]), ["1", "x"]) == [0, -1]
    assert found(pa.array(["1", "1.0", "01", "x"]), ["x", "1"]) == [1, 1, 1, 0]
    assert found(pa.array([True, False, None]), ["False", "true"]) == [1, 0, -1]
    assert found(pa.nulls(2), ["a"]) == [-1, -1]
    assert found(pa.array(["ja", "nein"]).dictionary_encode().cast(pa.string()), ["nein", "ja"]) == [1, 0]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_codes_with_accents_are_found_in_files_of_either_encoding(tmp_path, encoding):
    path = tmp_path / "visits.csv"
    lines = [",".join(VISITS), *(",".join(map(str, row)) for row in zip(*VISITS.values(), strict=True))]
    path.write_bytes("\n".join(lines).replace("Bern", "Zürich").encode(encoding))
    bounds = declared(LONG, {"codes": {"arm": ["placebo", "drug"], "site": ["Basel", "Zürich"]}})
    table = {
        "Zürich" if name == "Bern" else name: row for name, row in LONG["prepare"]["behavior_prob"]["table"].items()
    }
    bounds["prepare"]["behavior_prob"] = {"by": ["site", "arm"], "table": table}
    assert_same(loaded(path, bounds), loaded(pa.table(VISITS), LONG))


def test_bytes_that_are_no_text_are_missing(tmp_path):
    wild = pa.array([b"\xff\xfe", *map(str.encode, VISITS["site"][1:])]).view(pa.string())
    for column in ("site", "when", "arm"):
        values = (
            wild if column == "site" else pa.array([b"\xff1", *map(str.encode, VISITS[column][1:])]).view(pa.string())
        )
        found = loaded(pa.table({**VISITS, column: values}), LONG)
        np.testing.assert_array_equal(found.valid, [False, True, True])


def test_opening_a_table_reads_no_row(tmp_path):
    path = tmp_path / "visits.parquet"
    pq.write_table(pa.table(VISITS), path)
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + bytes(len(raw) // 4) + raw[4 + len(raw) // 4 :])
    log = read_log(path, bounds=LONG)
    with pytest.raises(DprlError, match="damaged"):
        log.load()


# --- each person's rows by themselves -------------------------------------------------------------------------------

CELLS = {
    "patient": st.sampled_from(["a", "b", "c", "7", None]),
    "when": st.sampled_from(["2021-01-01", "2021-01-02T10:00", "2021-01-03", "3", "later", "", None]),
    "arm": st.sampled_from(["placebo", "drug", " drug", "DRUG", "0", None]),
    "site": st.sampled_from(["Bern", "Basel", "Genf", "", None]),
    "sex": st.sampled_from(["f", "m"]),
    "score": st.sampled_from([0.1, 0.7, 1e16, -3.3, np.nan, np.inf, None]),
}
SECTIONS = {
    "each": {}, "sum": {"outcome": "sum"}, "last": {"outcome": "last"}, "cut off": {"terminated": False},
    "first": {"outcome": "sum", "decisions": "first"}, "by site": {"episode": "site", "outcome": "sum"},
    "no order": {"step": None, "observation": ["score", "site"]},
    "lags": {"observation": ["score", {"previous": "site", "lag": 2}, {"previous": "score"}]},
}  # fmt: skip


@st.composite
def tables(draw: Any, cells: dict[str, Any]) -> dict[str, list[Any]]:
    size = draw(st.integers(0, 8))
    return {name: draw(st.lists(values, min_size=size, max_size=size)) for name, values in cells.items()}


def of_people(made: pa.Table, people: list[Any]) -> dict[str, list[Any]]:
    """The rows of these people, in order, to the last bit."""
    rows = [i for i, person in enumerate(made.column("person_id").to_pylist()) if person in people]
    taken = made.take(pa.array(rows, pa.int64()))
    return {name: [repr(x) for x in taken.column(name).to_pylist()] for name in taken.schema.names}


def stands_alone(first: pa.Table, second: pa.Table, section: Any) -> None:
    """``prepare(A + B)`` restricted to A is ``prepare(A)``, wherever B's rows lie."""
    people = sorted({person for person in first.column(section["prepare"]["person"]).to_pylist() if person is not None})
    alone = dprl.prepare(first, section)
    for both in ([first, second], [second, first]):
        together = dprl.prepare(pa.concat_tables(both), section)
        assert together.schema == alone.schema
        assert of_people(together, people) == of_people(alone, people)


def unchecked(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Bounds with a section, fitted to it."""
    from dprl.data.prepare_section import read_preparation

    made = declared(base, changes)
    found = read_preparation(made["prepare"])
    return made | {"observation": [[0, 1]] * len(found.components()), "horizon": 3 if found.stepwise else 1}


@pytest.mark.parametrize("kind", SECTIONS)
@settings(max_examples=60, deadline=None)
@given(first=tables(CELLS), second=tables(CELLS))
def test_nobody_changes_what_another_persons_rows_become(kind, first, second):
    schema = pa.schema({name: pa.float64() if name == "score" else pa.string() for name in CELLS}.items())
    others = {name: [value and f"other {value}" if name == "patient" else value for value in values]
              for name, values in second.items()}  # fmt: skip
    stands_alone(pa.table(first, schema), pa.table(others, schema), unchecked(LONG, SECTIONS[kind]))


@settings(max_examples=100, deadline=None)
@given(
    first=tables(dict.fromkeys(PEOPLE, st.sampled_from(["0", "1", "male", "NA", "", "0.1", None]))),
    second=tables(dict.fromkeys(PEOPLE, st.sampled_from(["0", "1", "female", None]))),
    outcome=st.sampled_from(["each", "sum", "last"]),
)
def test_nobody_changes_what_another_persons_columns_become(first, second, outcome):
    # text where numbers are declared, as in CSV
    bounds = declared(WIDE, {"outcome": outcome})
    lists = {
        name: [value and f"{value}!" if name == "id" else value for value in values] for name, values in second.items()
    }
    people = sorted({str(x) for x in first["id"] if x is not None})
    alone = dprl.prepare(first, bounds)
    for both in (({n: first[n] + lists[n] for n in first}), ({n: lists[n] + first[n] for n in first})):
        assert of_people(dprl.prepare(both, bounds), people) == of_people(alone, people)


# --- what is written -------------------------------------------------------------------------------------------------


def test_a_log_of_another_section_is_refused(tmp_path):
    dprl.prepare(pa.table(VISITS), LONG, out=tmp_path / "log.parquet")
    with pytest.raises(DprlError, match="prepared by another section"):
        read_log(tmp_path / "log.parquet", bounds=declared(LONG, {"outcome": "last"}))
    plain = {name: value for name, value in LONG.items() if name != "prepare"}
    assert loaded(tmp_path / "log.parquet", plain).valid.all()


def test_a_log_that_is_written_is_its_owners_alone(tmp_path):
    dprl.prepare(pa.table(VISITS), LONG, out=tmp_path / "log.parquet")
    assert (tmp_path / "log.parquet").stat().st_mode & 0o777 == 0o600


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path):
    out = tmp_path / "log.parquet"
    table = pa.table(VISITS)
    for source, bounds, to, words in [
        (table.drop_columns(["score"]), LONG, out, "no column 'score', which"),
        (table, {name: LONG[name] for name in LONG if name != "prepare"}, out, "no section"),
        (table, LONG, tmp_path / "log.csv", "must be a .parquet file"),
        ("minari:a", LONG, out, "[Mm]inari"),
    ]:
        with pytest.raises(DprlError, match=words):
            dprl.prepare(source, bounds, out=to)
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    with pytest.raises(DprlError, match="is there already"):
        dprl.prepare(table, LONG, out=out)
    assert out.read_text() == "mine"


def text(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


WILD = {
    "text": text(b"\xff\xfe", None, b"", b"1e999", b" 3 ", b"2021-13-45"),
    "large text": pa.array(["x", None, "-0", "nan", "9" * 400, "2021-W01-1"], pa.large_string()),
    "categories": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0, 1]), pa.array(["a", None, "b"])),
    "categories of numbers": pa.array([1, 2, None, 1, 1, 3]).dictionary_encode(),
    "whole numbers": pa.array([2**64 - 1, 0, None, 1, 2, 3], pa.uint64()),
    "halves": pa.array(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 65504], np.float16)),
    "floats": pa.array([np.nan, np.inf, -np.inf, None, 1e308, 5e-324]),
    "decimals": pa.array([None, 1, 2, 3, 4, 5], pa.decimal128(38, 3)),
    "nothing": pa.nulls(6),
    "truths": pa.array([True, False, None, True, True, False]),
    "days": pa.array([-(2**31), 2**31 - 1, None, 0, 1, 2], pa.int32()).view(pa.date32()),
    "instants": pa.array([-(2**62), 2**62, None, 0, 1, 2], pa.int64()).view(pa.timestamp("s")),
}


@pytest.mark.parametrize("kind", WILD)
@pytest.mark.parametrize("column", VISITS)
@pytest.mark.parametrize("section", [{}, {"outcome": "sum"}, {"step_format": "%Y-%m-%d", "reward_less": "score"}])
def test_whatever_the_cells_hold_it_succeeds(kind, column, section):
    """A type may be refused, which is public; what it holds may not."""
    table = pa.table({**VISITS, column: WILD[kind]})
    try:
        log = read_log(table, bounds=declared(LONG, section))
    except DprlError:
        return
    log.load()
    assert loaded(table.slice(0, 0), declared(LONG, section)).units == 0


def test_python_values_of_every_kind():
    class Odd:
        def __float__(self) -> float:
            raise RuntimeError

    odd = [Odd(), b"a", {}, [1], True, pd.NaT]
    for column in VISITS:
        found = loaded({**VISITS, column: odd}, LONG)
        assert not found.valid.any() or column in ("patient", "sex", "when")


@pytest.mark.parametrize("outcome", ["each", "sum"])
@pytest.mark.parametrize("decisions", ["each", "first"])
def test_rows_without_a_name_are_nobodys(outcome, decisions):
    """Also by the unit trajectory: together they would be one, in which one more row changes the others."""
    named = {name: [*values, values[0]] for name, values in VISITS.items()} | {"patient": [*VISITS["patient"], None]}
    section = {"outcome": outcome, "decisions": decisions, "observation": ["score", "site"]}
    bounds = declared(LONG, section, observation=[[0, 100], [0, 1], [0, 1]], horizon=3 if decisions == "each" else 1)
    found = [read_log(pd.DataFrame(t), bounds=bounds, unit="trajectory").load() for t in (VISITS, named)]
    assert_same(*found)


def test_parts_of_a_table_that_was_not_prepared_are_refused(tmp_path):
    table, log = tmp_path / "table.parquet", tmp_path / "log.parquet"
    raw = pa.table({"id": [1, 1, 2], "x": [0.1, 0.2, 0.3], "arm": [0, 1, 0], "y": [1.0, 2.0, 3.0]})
    bounds = {
        "units": 2, "horizon": 1, "reward": [0, 4], "observation": [[0, 1]], "actions": 2, "max_importance_ratio": 2,
        "prepare": {"person": "id", "observation": ["x"], "action": "arm", "reward": "y", "behavior_prob": 0.5},
    }  # fmt: skip
    pq.write_table(raw, table)
    partition(table, "id", 1, tmp_path / "raw")
    with pytest.raises(DprlError, match="A table is prepared first, and then partitioned"):
        read_log(tmp_path / "raw", bounds=bounds)
    dprl.prepare(table, bounds, log)
    partition(log, "person_id", 1, tmp_path / "parts")
    assert read_log(tmp_path / "parts", bounds=bounds).unit == "person"
    bounds["prepare"]["behavior_prob"] = 0.25
    with pytest.raises(DprlError, match="another section"):
        read_log(tmp_path / "parts", bounds=bounds)


def test_actions_are_known_by_the_names_of_their_codes():
    log = read_log(pd.DataFrame(VISITS), bounds=LONG)
    assert log.bounds.action_names == ("placebo", "drug")
    assert load_policy("always:drug", 2, log.bounds.action_names) == load_policy("always:1", 2)
    with pytest.raises(DprlError, match="always:placebo, always:drug"):
        load_policy("always:surgery", 2, log.bounds.action_names)
