"""Whatever the rows hold, a log is read, nothing is said, and nobody else's arrays change."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.data.trajectories import assemble

from .. import sample_log
from ..sample_log import BOUNDS, Columns, columns, in_lists, records, rows_of_episode, without

LOG = columns()
# an episode of full length, of a person with several, in the middle of the log
EPISODE = next(
    e
    for e in LOG["episode_id"][20:]
    if len(rows_of_episode(LOG, e)) == 4 and len({x for x in LOG["episode_id"] if x[:9] == e[:9]}) > 1
)
ROWS = rows_of_episode(LOG, EPISODE)
FIRST, MIDDLE, LAST = ROWS[0], ROWS[1], ROWS[-1]


def load(source, **options):
    chosen = {"bounds": BOUNDS, "person": "person_id", "target_columns": ["target_prob"]} | options
    return read_log(source, **chosen).load()


def changed(column: str, row: int, value) -> Columns:
    return {**LOG, column: [value if i == row else v for i, v in enumerate(LOG[column])]}


def doubled(row: int) -> Columns:
    return {k: [*v, v[row]] for k, v in LOG.items()}


# what is done to one episode, and whether it then contributes nothing
DEFECTS: dict[str, tuple[Columns, bool]] = {
    **{f"{column} is {value}": (changed(column, MIDDLE, value), True)
       for column in ("reward", "observation_0", "observation_1", "behavior_prob", "target_prob", "t", "action")
       for value in (math.nan, math.inf, -math.inf, 1e308, -1e308, None)},
    **{f"behavior_prob is {p}": (changed("behavior_prob", FIRST, p), True) for p in (0.0, -0.0, -0.25, 1.0000001, 7.0)},
    "a smallest probability": (changed("behavior_prob", FIRST, 5e-324), False),
    "a missing step": (without(LOG, [MIDDLE]), True),
    "a missing first step": (without(LOG, [FIRST]), True),
    "a repeated step": (doubled(MIDDLE), True),
    "a repeated last step": (doubled(LAST), True),
    "a step that is no whole number": (changed("t", MIDDLE, 0.5), True),
    "a negative step": (changed("t", FIRST, -1.0), True),
    "an end before the end": (changed("terminated", MIDDLE, True), True),
    "a cut before the end": (changed("truncated", FIRST, True), True),
    "an unknown action": (changed("action", MIDDLE, 2), False),
    "a negative action": (changed("action", MIDDLE, -1), False),
    "half an action": (changed("action", MIDDLE, 0.5), False),
    "a reward out of bounds": (changed("reward", MIDDLE, 99.0), False),
    "a state out of bounds": (changed("observation_0", MIDDLE, -1e9), False),
    "no episode": (changed("episode_id", MIDDLE, None), True),
    "no person": (changed("person_id", MIDDLE, None), True),
    "no flag": (changed("terminated", LAST, None), True),
    "no flag of being cut off": (changed("truncated", LAST, None), True),
    "nothing but names": (
        {k: [None if i in ROWS and k[-3:] != "_id" else x for i, x in enumerate(v)] for k, v in LOG.items()}, True),
}  # fmt: skip
WHOLE = records(load(LOG))


def everybody_but_the_episode() -> set[bytes]:
    start = sorted(set(LOG["episode_id"])).index(EPISODE)
    found = load(LOG)
    found.valid[start] = False
    return set(records(found))


EXPECTED = everybody_but_the_episode()


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("form", ["table", "lists", "csv", "frame"])
def test_a_defect_costs_its_own_episode_and_nothing_else(tmp_path, defect, form):
    log, zero = DEFECTS[defect]
    if form == "csv":
        source = sample_log.write_csv(
            {k: ["" if x is None else x for x in v] for k, v in log.items()}, tmp_path / "l.csv"
        )
    else:
        source = {"table": pa.table(log), "lists": log, "frame": pd.DataFrame(log)}[form]
    found = load(source)
    mine = set(records(found))
    assert mine >= EXPECTED, "somebody else's episode changed"
    assert len(mine - EXPECTED) == (0 if zero else 1)
    # and what is handed on is always a number inside the bounds
    for i, (low, high) in enumerate(BOUNDS.observation):
        for values in (found.observation, found.next_observation):
            assert ((values[:, i] >= min(low, 0.0)) & (values[:, i] <= high)).all()
    assert (np.abs(found.reward) <= 1.0).all()
    assert np.isfinite(found.behavior_prob).all()
    assert np.isfinite(found.target_prob["target_prob"]).all()
    assert set(found.action) <= {-1, 0, 1}


@pytest.mark.parametrize("as_read", [lambda cells: pd.array(cells, dtype="string"), np.array], ids=["pandas", "numpy"])
def test_a_text_that_makes_its_column_text_costs_its_own_episode(as_read):
    """Some libraries infer a column's type from all of its cells: that type is no public fact, and refuses nothing."""
    cells = ["n.a." if i == MIDDLE else str(x) for i, x in enumerate(LOG["reward"])]
    mine = set(records(load(pd.DataFrame({**LOG, "reward": as_read(cells)}))))
    assert mine == set(records(load({**LOG, "reward": as_read(cells)}))) >= EXPECTED
    assert len(mine - EXPECTED) == 0


def test_values_are_clamped_and_unknown_actions_marked():
    at = sorted(range(len(LOG["t"])), key=lambda i: (LOG["episode_id"][i], LOG["t"][i])).index(MIDDLE)
    assert load(changed("reward", MIDDLE, 99.0)).reward[at] == 1.0
    assert load(changed("reward", MIDDLE, -99.0)).reward[at] == -1.0
    assert load(changed("observation_1", MIDDLE, -99.0)).observation[at, 1] == -5.0
    assert [load(changed("action", MIDDLE, a)).action[at] for a in (0, 1, 2, -1, 0.5)] == [0, 1, -1, -1, -1]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_next_states_that_are_no_measurement_are_unknown(kind):
    """In every precision, and without a warning: clamped like any other, and nothing is bootstrapped from them."""
    largest = np.finfo(kind).max if kind is not np.float64 else 1e99
    following = np.array([[largest, 0.5], [np.inf, 0.5], [0.5, -np.inf], [np.nan, 0.5], [0.25, 0.75]], dtype=kind)
    bounds = Bounds(units=5, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),) * 2, actions=1)
    zeros, ones = np.zeros(5), np.ones(5)
    columns = {
        "episode": np.arange(5), "person": np.arange(5), "t": zeros, "observation": np.zeros((5, 2)),
        "next_observation": following, "action": zeros, "reward": zeros, "behavior_prob": ones,
        "terminated": zeros, "truncated": ones,
    }  # fmt: skip
    found = assemble(columns, bounds, "trajectory")
    assert found.has_next.tolist() == [True, False, False, False, True]
    expected = [[1.0, 0.5], [1.0, 0.5], [0.5, 0.0], [0.0, 0.5], [0.25, 0.75]]
    np.testing.assert_array_equal(found.next_observation, expected)
    assert found.valid.all()


LISTS = {
    "too short": [1.0], "too long": [1.0, 2.0, 3.0], "empty": [], "missing": None, "with a missing number": [1.0, None],
    "with NaN": [math.nan, 1.0],
}  # fmt: skip


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("form", ["table", "large table", "lists", "frame"])
def test_lists_of_a_wrong_length(kind, form):
    log = in_lists(LOG)
    log["observation"] = [LISTS[kind] if i == MIDDLE else v for i, v in enumerate(log["observation"])]
    table = pa.table(log)
    place = table.schema.get_field_index("observation")
    source = {
        "table": table,
        "large table": table.set_column(place, "observation", table["observation"].cast(pa.large_list(pa.float32()))),
        "lists": log,
        "frame": pd.DataFrame(log),
    }[form]
    found = load(source)
    assert found.valid.sum() == found.episodes - 1
    if form != "large table":
        assert set(records(found)) == EXPECTED


def test_a_missing_list_of_fixed_size():
    log = in_lists(LOG)
    fixed = pa.array([None if i == MIDDLE else v for i, v in enumerate(log["observation"])], pa.list_(pa.float64(), 2))
    assert set(records(load(pa.table({**log, "observation": fixed})))) == EXPECTED


class Awkward:
    """A foreign object that can be turned into nothing."""

    def __float__(self, *_):
        raise RuntimeError("PATIENT-ZERO")

    __str__ = __repr__ = __eq__ = __array__ = __iter__ = __float__
    __hash__ = object.__hash__


CELLS = ["PATIENT-ZERO", "", "1,5", "0x1p3", "1_0", "١", "nan", "inf", "1e400", b"1", [1.0, 2.0], (), {}, Awkward(),
         10**400, 1j, pd.NaT, pd.NA, "\ud800"]  # fmt: skip


@pytest.mark.parametrize("column", ["reward", "action", "t", "behavior_prob", "observation_0", "target_prob"])
@pytest.mark.parametrize("cell", CELLS, ids=[f"cell {i}" for i in range(len(CELLS))])
def test_a_value_of_any_kind_in_memory(column, cell):
    log = changed(column, MIDDLE, cell)
    assert set(records(load(log))) == EXPECTED
    objects = np.empty(len(log["t"]), dtype=object)
    for i, value in enumerate(log[column]):
        objects[i] = value
    arrays = {k: np.array(v) for k, v in log.items() if k != column}
    assert set(records(load({**arrays, column: objects}))) == EXPECTED


@pytest.mark.parametrize("cell", CELLS, ids=[f"cell {i}" for i in range(len(CELLS))])
def test_an_identifier_or_a_list_of_any_kind_in_memory(cell):
    assert set(records(load(changed("person_id", MIDDLE, cell)))) >= EXPECTED - set(records(load(rest_of_the_person())))
    log = in_lists(LOG)
    log["observation"][MIDDLE] = "x" if isinstance(cell, list) else cell
    assert set(records(load(log))) == EXPECTED


def rest_of_the_person() -> Columns:
    person = LOG["person_id"][MIDDLE]
    return {k: [v for p, v in zip(LOG["person_id"], values, strict=True) if p == person] for k, values in LOG.items()}


def test_identifiers_of_mixed_kinds_stay_apart():
    log = {
        "person_id": [1, "a", 2.0, None, math.nan, "1x", 2], "episode_id": [*"abcdefg"], "observation_0": [0.0] * 7,
        "observation_1": [0.0] * 7, "action": [0] * 7, "reward": [0.0] * 7, "behavior_prob": [1.0] * 7, "t": [0] * 7,
        "terminated": [1] * 7,
    }  # fmt: skip
    # 1, "a", 2 (twice), "1x"; the other two are nobody
    assert load(log, target_columns=()).units == 4


# --- properties ---------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.floats(width=64), st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0]), st.none())
CELL = {
    "person_id": st.sampled_from(["x", "y", None, ""]),
    "episode_id": st.sampled_from(["e", "f", "g", None]),
    "t": st.one_of(st.integers(-1, 5), st.none()),
    **dict.fromkeys(("observation_0", "observation_1", "action", "reward", "behavior_prob", "target_prob"), NUMBERS),
    "terminated": st.sampled_from([True, False, None]),
    "truncated": st.sampled_from([True, False, None]),
}
ROWS_OF_STRANGERS = st.lists(st.fixed_dictionaries(CELL), max_size=12)


@settings(max_examples=100)
@given(ROWS_OF_STRANGERS, st.randoms(use_true_random=False))
def test_adding_people_leaves_everybody_else_as_they_were(rows, random):
    log = {k: [*v, *(row[k] for row in rows)] for k, v in LOG.items()}
    order = list(range(len(log["t"])))
    random.shuffle(order)
    shuffled = {k: [v[i] for i in order] for k, v in log.items()}
    types = {k: pa.table(LOG).schema.field(k).type for k in LOG} | {"action": pa.float64(), "t": pa.float64()}
    found = load(pa.table({k: pa.array(v, types[k]) for k, v in shuffled.items()}))
    assert not WHOLE - records(found)
    sample_log.assert_same(found, load(shuffled))
    alone = load({k: [row[k] for row in rows] for k in LOG})
    assert records(found) == WHOLE + records(alone)
    check_invariants(found)


def check_invariants(log):
    n = len(log.reward)
    assert log.episode_offsets[0] == log.unit_offsets[0] == 0
    assert log.episode_offsets[-1] == n
    assert log.unit_offsets[-1] == log.episodes
    assert (log.lengths() >= 1).all()
    assert (log.lengths() <= BOUNDS.horizon).all()
    assert (np.diff(log.unit_offsets) >= 1).all()
    for name in ("observation", "next_observation", "reward", "behavior_prob"):
        assert np.isfinite(getattr(log, name)).all()
    usable = log.valid[log.episode_of()]
    assert ((log.behavior_prob[usable] > 0) & (log.behavior_prob[usable] <= 1)).all()


# --- CSV ----------------------------------------------------------------------------------------------------------

HEADER = ",".join(LOG).encode()
CLEAN = [",".join(str(v) for v in row).encode() for row in zip(*LOG.values(), strict=True)]


def csv_log(path, lines, header=HEADER, end=b"\n"):
    path.write_bytes(end.join([header, *lines]) + end)
    return path


BAD_LINES = {
    "too few cells": b"person-zzz,visit,0",
    "too many cells": CLEAN[0] + b",1,2,3",
    "a quote that never ends": b'person-zzz,"visit,0,1,1,0,0,0.5,True,False,0.25',
    "a quote inside a cell": b'person-zzz,vi"sit,0,1,1,0,0,0.5,True,False,0.25',
    "a quote that opens late": b'person-zzz,vi"sit,"0,1,1,0,0,0.5,True,False,0.25',
    "a quoted line end": b'"person-zzz\n",visit,0,1,1,0,0,0.5,True,False,0.25',
    "a carriage return": b"person-zzz,vis\rit,0,1,1,0,0,0.5,True,False,0.25",
    "a NUL": b"person-\x00,visit,0,1,1,0,0,0.5,True,False,0.25",
    "latin-1": "person-é,visit-ß,0,1,1,0,0,0.5,True,False,0.25".encode("latin-1"),
    "a bad number": b"person-zzz,visit,0,PATIENT-ZERO,1,0,777123.456x,0.5,True,False,0.25",
    "a number beyond floats": b"person-zzz,visit,0,1e999,1,0,1e-999,0.5,True,False,0.25",
    "an empty line": b"",
    "commas alone": b"," * 10,
    "a cell of two million bytes": b"person-zzz," + b"x" * 2_000_000 + b",0,1,1,0,0,0.5,True,False,0.25",
    "quotes of two million bytes": b'person-zzz,"' + b'x"' * 1_000_000 + b",0,1,1,0,0,0.5,True,False,0.25",
    "nothing but a quote": b'"',
}


@pytest.mark.parametrize("kind", BAD_LINES)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_bad_line_changes_no_other(tmp_path, kind, place):
    at = {"first": 0, "middle": len(CLEAN) // 2, "last": len(CLEAN)}[place]
    found = load(csv_log(tmp_path / "log.csv", [*CLEAN[:at], BAD_LINES[kind], *CLEAN[at:]]))
    assert not WHOLE - records(found)
    check_invariants(found)


@settings(max_examples=150)
@given(st.binary(max_size=60), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.integers(0, len(CLEAN)))
def test_any_bytes_in_a_line_change_no_other(tmp_path_factory, junk, end, at):
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    header_end = b"\n" if end == b"\r" else end
    path.write_bytes(HEADER + header_end + end.join([*CLEAN[:at], b"zz" + junk, *CLEAN[at:]]))
    assert not WHOLE - records(load(path))


@pytest.mark.parametrize("cell", ["n/a", "", "0x1p3", "1,5", "nan", "-inf", "1e999", '"', "PATIENT-ZERO", "١"])
def test_a_cell_that_is_no_number(tmp_path, cell):
    for column in ("reward", "observation_1", "behavior_prob", "t"):
        source = sample_log.write_csv(changed(column, MIDDLE, cell), tmp_path / "log.csv")
        assert set(records(load(source))) == EXPECTED


def test_quotes_spaces_and_marks_of_a_sound_file(tmp_path):
    header = b'\xef\xbb\xbf"person_id" , episode_id,' + HEADER.split(b",", 2)[2]
    quoted = [b",".join(b'"' + c + b'"' for c in line.split(b",")) for line in CLEAN]
    spaced = [b",".join([*line.split(b",")[:2], *(b" " + c + b" " for c in line.split(b",")[2:])]) for line in CLEAN]
    for lines, end in itertools.product((CLEAN, quoted, spaced), (b"\n", b"\r\n")):
        assert records(load(csv_log(tmp_path / "log.csv", lines, header, end))) == WHOLE


def test_commas_and_quotes_inside_quoted_identifiers(tmp_path):
    renamed = [line.replace(b"person-0", b'"person, ""0""\xe9').replace(b",visit", b'",visit', 1) for line in CLEAN]
    assert records(load(csv_log(tmp_path / "log.csv", renamed))) == WHOLE


def test_a_file_larger_than_a_block(tmp_path, monkeypatch):
    from dprl.data import csv_file

    monkeypatch.setattr(csv_file, "_CHUNK", 37)
    for end in (b"\n", b"\r\n"):
        assert records(load(csv_log(tmp_path / "log.csv", CLEAN, end=end))) == WHOLE
    path = tmp_path / "log.csv"
    path.write_bytes(b"\n".join([HEADER, *CLEAN]))  # no end of the last line
    assert records(load(path)) == WHOLE


TRUTHS = {"True": 1, "true": 1, "TRUE": 1, "1": 1, "1.0": 1, "False": 0, "false": 0, "0": 0, "": 0, "maybe": 0}


def test_flags_and_numbers_as_text(tmp_path):
    rewards = ["1", "+1", "-.5", "1.", "5e-1", "1E0", "00", " 0.25 ", "-0", "1"]
    pairs = enumerate(zip(TRUTHS, rewards, strict=True))
    rows = [f"p,e{i},0,0,0,0,{reward},1,{flag},0,0".encode() for i, (flag, reward) in pairs]
    found = load(csv_log(tmp_path / "log.csv", rows))
    np.testing.assert_array_equal(found.terminated, [bool(x) for x in TRUTHS.values()])
    np.testing.assert_array_equal(found.reward, [1, 1, -0.5, 1, 0.5, 1, 0, 0.25, 0, 1])
    np.testing.assert_array_equal(found.valid, [flag not in ("", "maybe") for flag in TRUTHS])
