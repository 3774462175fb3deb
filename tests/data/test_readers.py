"""Readers: one log in many forms is one log, and only its schema may be complained about."""

from __future__ import annotations

import decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.errors import DprlError

from .. import sample_log
from ..sample_log import BOUNDS, assert_same, columns, in_arrays, in_lists

LOG = columns()
TABLE = pa.table(dict(LOG))
EXPECTED = read_log(TABLE, bounds=BOUNDS, person="person_id", target_columns=["target_prob"]).load()


def load(source, **options):
    chosen = {"bounds": BOUNDS, "person": "person_id", "target_columns": ["target_prob"]} | options
    return read_log(source, **chosen).load()


def test_the_sample_is_what_it_says():
    """The reader against the lists themselves, row by row."""
    order = sorted(range(len(LOG["t"])), key=lambda i: (LOG["person_id"][i], LOG["episode_id"][i], LOG["t"][i]))
    pick = lambda name: np.array([LOG[name][i] for i in order])  # noqa: E731
    np.testing.assert_array_equal(EXPECTED.observation, np.column_stack([pick("observation_0"), pick("observation_1")]))
    for name in ("action", "reward", "behavior_prob", "terminated"):
        np.testing.assert_array_equal(getattr(EXPECTED, name), pick(name))
    np.testing.assert_array_equal(EXPECTED.target_prob["target_prob"], pick("target_prob"))
    assert EXPECTED.units == len(set(LOG["person_id"]))
    assert EXPECTED.episodes == len(set(LOG["episode_id"])) > EXPECTED.units
    assert EXPECTED.valid.all()
    for e in range(EXPECTED.episodes):
        start, stop = EXPECTED.episode_offsets[e : e + 2]
        np.testing.assert_array_equal(
            EXPECTED.next_observation[start : stop - 1], EXPECTED.observation[start + 1 : stop]
        )
        np.testing.assert_array_equal(EXPECTED.has_next[start:stop], np.arange(start, stop) < stop - 1)
        np.testing.assert_array_equal(EXPECTED.time()[start:stop], np.arange(stop - start))


class Lazy:
    """What a lazy frame of polars promises; its rows are not there before they are asked for."""

    def __init__(self, table: pa.Table, broken: bool = False) -> None:
        self.table, self.broken = table, broken

    def clear(self) -> Lazy:
        return Lazy(self.table.slice(0, 0))

    def select(self, names: list[str]) -> Lazy:
        return Lazy(self.table.select(names), self.broken)

    def collect(self) -> SimpleNamespace:
        if self.broken and self.table.num_rows:
            raise ValueError("could not parse 'person-007'")
        return SimpleNamespace(to_arrow=lambda: self.table)


FORMS = {
    "parquet": lambda folder: sample_log.write_parquet(LOG, folder / "log.parquet"),
    "parquet as text": lambda folder: str(sample_log.write_parquet(LOG, folder / "log.pq")),
    "csv": lambda folder: sample_log.write_csv(LOG, folder / "log.csv"),
    "lists": lambda _: LOG,
    "lists of lists": lambda _: in_lists(LOG),
    "arrays": lambda _: in_arrays(LOG),
    "object arrays": lambda _: {k: np.array(v, dtype=object) for k, v in LOG.items()},
    "arrow arrays": lambda _: {k: pa.chunked_array([v[:7], v[7:]]) for k, v in LOG.items()},
    "table": lambda _: TABLE,
    "table with lists": lambda _: pa.table(in_lists(LOG)),
    "chunked table": lambda _: pa.concat_tables([TABLE.slice(0, 5), TABLE.slice(5)]),
    "data frame": lambda _: pd.DataFrame(LOG),
    "data frame of objects": lambda _: pd.DataFrame(in_lists(LOG)).astype(object),
    "polars frame": lambda _: SimpleNamespace(columns=tuple(LOG), to_arrow=lambda: TABLE),
    "lazy frame": lambda _: Lazy(TABLE),
    "data frame of categories": lambda _: pd.DataFrame(LOG).astype({"person_id": "category", "episode_id": "category"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_log_is_the_same_log(tmp_path, form):
    assert_same(load(FORMS[form](tmp_path)), EXPECTED)


class Stream:
    """A table of a library that nobody knows, which gives it away by Arrow's own protocol."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.given = table, 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.given += 1
        return self.table.__arrow_c_stream__(requested_schema)


def test_whatever_gives_an_arrow_stream_is_a_log():
    stream = Stream(TABLE)
    log = read_log(stream, bounds=BOUNDS, target_columns=["target_prob"])
    opened = stream.given
    assert_same(log.load(), EXPECTED)
    assert stream.given > opened
    assert_same(log.load(), EXPECTED)


def test_a_lazy_frame_that_cannot_be_read_quotes_no_cell():
    log = read_log(Lazy(TABLE, broken=True), bounds=BOUNDS)
    with pytest.raises(DprlError, match="cannot be read to its end") as refused:
        log.load()
    assert "person-007" not in str(refused.value)
    assert refused.value.__context__ is None


def test_a_lazy_frame_that_cannot_tell_its_columns():
    class Planless(Lazy):
        def clear(self):
            raise RuntimeError("could not parse 'person-007'")

    with pytest.raises(DprlError, match="columns of the table cannot be told") as refused:
        read_log(Planless(TABLE), bounds=BOUNDS)
    assert refused.value.__context__ is None


@pytest.mark.parametrize("odd", [7, b"person-007", "\ud800"], ids=ascii)
def test_a_name_of_another_kind_among_categories(odd):
    """It had the whole column refused, before anything was charged."""
    names = [odd if name == LOG["person_id"][0] else name for name in LOG["person_id"]]
    frame = pd.DataFrame({**LOG, "person_id": pd.Categorical(names)})
    assert_same(load(frame), load(pd.DataFrame({**LOG, "person_id": names})))


@pytest.mark.parametrize("method", ["to_arrow", "__arrow_c_stream__", "__array__"])
def test_a_table_that_raises_when_it_is_opened(method):
    """As a query engine does that begins to compute: its message may quote a cell."""

    def fails(*_, **asked):
        raise ValueError("could not convert 'person-007'")

    table = type("Relation", (), {method: fails})()
    with pytest.raises(DprlError, match="columns of the table cannot be told") as refused:
        read_log({**LOG, "reward": table} if method == "__array__" else table, bounds=BOUNDS)
    assert refused.value.__context__ is None


def test_a_lazy_frame_of_polars_itself():
    """Without a warning, for warnings are errors here; one whose plan is wrong is refused in a sentence."""
    pl = pytest.importorskip("polars")
    assert_same(load(pl.LazyFrame(LOG)), EXPECTED)
    for frame in (pl.LazyFrame(LOG).select("absent"), pl.scan_parquet("absent.parquet")):
        with pytest.raises(DprlError, match="columns of the table cannot be told"):
            read_log(frame, bounds=BOUNDS)


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(random):
    order = list(range(len(LOG["t"])))
    random.shuffle(order)
    assert_same(load(TABLE.take(order)), EXPECTED)


def number(identifier) -> int:
    return int("".join(c for c in identifier.as_py() if c.isdigit()))


KINDS = {
    "dictionary": lambda a: a.dictionary_encode(),
    "large text": lambda a: a.cast(pa.large_string()),
    "chunks": lambda a: pa.chunked_array([a[:3], a[3:]]),
    "whole numbers": lambda a: pa.array(map(number, a)),
    "floats": lambda a: pa.array([float(number(s)) for s in a]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["person_id", "episode_id"])
def test_identifiers_of_every_kind(kind, column):
    changed = TABLE.set_column(TABLE.schema.get_field_index(column), column, KINDS[kind](pa.array(LOG[column])))
    assert_same(load(changed), EXPECTED)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.int8(), pa.decimal128(20, 2)])
def test_numbers_of_every_kind(kind):
    rewards = [float(i % 3 - 1) for i in range(TABLE.num_rows)]
    values = pa.array([decimal.Decimal(r) for r in rewards] if pa.types.is_decimal(kind) else rewards).cast(kind)
    changed = TABLE.set_column(TABLE.schema.get_field_index("reward"), "reward", values)
    assert_same(load(changed), load({**LOG, "reward": rewards}))


# --- names of other libraries -----------------------------------------------------------------------------------

D3RLPY = {"observations": "observation", "actions": "action", "rewards": "reward", "terminals": "terminated",
          "timeouts": "truncated"}  # fmt: skip
MINARI = {"observations": "observation", "actions": "action", "rewards": "reward", "terminations": "terminated",
          "truncations": "truncated", "episode": "episode_id", "step": "t"}  # fmt: skip
SCOPE_RL = {"state": "observation", "done": "terminated", "pscore": "behavior_prob"}
BRITISH = {"behaviour_prob": "behavior_prob", "trajectory_id": "episode_id", "timestep": "t", "states": "observation"}


@pytest.mark.parametrize("names", [D3RLPY, MINARI, SCOPE_RL, BRITISH])
def test_names_of_other_libraries(names):
    log = in_lists(LOG)
    renamed = {theirs: log.pop(ours) for theirs, ours in names.items()}
    assert_same(load({**log, **renamed}), EXPECTED)


def test_scope_rl_means_the_step_limit_by_terminal():
    log = in_lists(LOG)
    assert_same(load({**log, "done": log.pop("terminated"), "terminal": [True] * len(LOG["t"])}), EXPECTED)


def test_columns_of_one_number_may_be_two_dimensional():
    """d3rlpy keeps rewards, flags and discrete actions as (N, 1)."""
    arrays = in_arrays(LOG)
    for name in ("action", "reward", "terminated"):
        arrays[name] = arrays[name].reshape(-1, 1)
    assert_same(load(arrays), EXPECTED)


# --- units ------------------------------------------------------------------------------------------------------


def test_a_person_may_have_several_trajectories():
    counts = [len({e for p, e in zip(LOG["person_id"], LOG["episode_id"], strict=True) if p == person})
              for person in sorted(set(LOG["person_id"]))]  # fmt: skip
    assert max(counts) > 1
    np.testing.assert_array_equal(np.diff(EXPECTED.unit_offsets), counts)


def test_by_trajectory_every_episode_is_a_unit():
    log = load(TABLE, person=None, unit="trajectory")
    assert log.units == log.episodes == EXPECTED.episodes


def test_one_episode_id_under_two_persons_is_two_episodes():
    log = {
        "person_id": ["a", "a", "b", "b"], "episode_id": [1, 1, 1, 1], "t": [0, 1, 0, 1],
        "observation": [[1, 0], [2, 0], [3, 0], [4, 0]], "action": [0] * 4, "reward": [0.1, 0.2, 0.3, 0.4],
        "behavior_prob": [0.5] * 4, "terminated": [0, 1, 0, 1],
    }  # fmt: skip
    found = read_log(log, bounds=BOUNDS, unit="person").load()
    assert (found.units, found.episodes) == (2, 2)
    assert found.valid.all()
    np.testing.assert_array_equal(found.next_observation[[0, 2], 0], [2.0, 4.0])
    # as one trajectory they would be a trajectory with every step twice
    together = read_log({k: v for k, v in log.items() if k != "person_id"}, bounds=BOUNDS).load()
    assert not together.valid.any()


def test_rows_without_an_episode_id_are_episodes_of_their_person():
    bounds = Bounds(units=5, horizon=1, reward=(-1, 1), observation=((0, 10),), actions=2, max_importance_ratio=2)
    log = {"person_id": ["b", "a", "b"], "observation": [1.0, 2.0, 3.0], "action": [0, 1, 0], "reward": [0.0, 0.5, 1.0],
           "behavior_prob": [0.5] * 3}  # fmt: skip
    found = read_log(log, bounds=bounds, unit="person").load()
    np.testing.assert_array_equal(np.diff(found.unit_offsets), [1, 2])
    np.testing.assert_array_equal(found.observation[:, 0], [2.0, 1.0, 3.0])


# --- next states, horizon, continuous actions ---------------------------------------------------------------------


@pytest.mark.parametrize("numbered", [True, False])
def test_next_observations_may_be_given(numbered):
    following = np.column_stack([np.linspace(0, 10, TABLE.num_rows), np.linspace(5, -5, TABLE.num_rows)])
    following[3] = np.nan
    given = (
        {f"next_observation_{i}": following[:, i] for i in range(2)} if numbered else {"next_observation": following}
    )
    log = load({**in_arrays(LOG), **given})
    np.testing.assert_array_equal(np.delete(log.next_observation, 3, axis=0), np.delete(following, 3, axis=0))
    np.testing.assert_array_equal(log.has_next, np.arange(TABLE.num_rows) != 3)


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_episodes_are_cut_at_the_public_horizon(horizon):
    from dataclasses import replace

    log = load(TABLE, bounds=replace(BOUNDS, horizon=horizon))
    np.testing.assert_array_equal(log.lengths(), np.minimum(EXPECTED.lengths(), horizon))
    assert log.valid.all()
    inside = EXPECTED.time() < horizon
    for name in ("observation", "next_observation", "reward", "terminated", "has_next"):
        np.testing.assert_array_equal(getattr(log, name), getattr(EXPECTED, name)[inside], err_msg=name)


def test_continuous_actions_are_vectors_with_densities():
    bounds = Bounds(
        units=4, horizon=1, reward=(0, 1), observation=((0, 1),), action=((-1, 1), (0, 2)), max_importance_ratio=3
    )
    log = {"observation": [0.5, 0.6, 0.7], "action": [[0.5, 1.5], [-7.0, 9.0], [0.1, np.nan]],
           "reward": [0.1, 0.2, 0.3], "behavior_prob": [2.5, 0.1, 1.0], "target_prob": [1.0, 7.0, 1.0]}  # fmt: skip
    found = read_log(log, bounds=bounds, target_columns=["target_prob"]).load()
    np.testing.assert_array_equal(found.action[:2], [[0.5, 1.5], [-1.0, 2.0]])
    np.testing.assert_array_equal(found.behavior_prob[:2], [2.5, 0.1])
    np.testing.assert_array_equal(found.valid, [True, True, False])
    flat = {"action_0": [a[0] for a in log["action"]], "action_1": [a[1] for a in log["action"]]}
    rest = {k: v for k, v in log.items() if k != "action"}
    assert_same(read_log({**rest, **flat}, bounds=bounds, target_columns=["target_prob"]).load(), found)


# --- no rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "typeless parquet", "csv", "csv without a line end", "lists", "frame"])
def test_a_log_without_rows_is_a_log(tmp_path, form):
    empty = {k: [] for k in LOG}
    path = tmp_path / ("log.csv" if form.startswith("csv") else "log.parquet")
    if form == "parquet":
        pq.write_table(TABLE.slice(0, 0), path)
    elif form == "typeless parquet":
        pd.DataFrame({k: pd.Series([], dtype=object) for k in in_lists(LOG)}).to_parquet(path)
    elif form.startswith("csv"):
        path.write_text(",".join(LOG) + ("" if "without" in form else "\n"))
    source = {"lists": empty, "frame": pd.DataFrame(empty)}.get(form, path)
    log = load(source)
    assert (log.units, log.episodes, len(log.reward)) == (0, 0, 0)
    assert log.observation.shape == log.next_observation.shape == (0, 2)
    np.testing.assert_array_equal(log.episode_offsets, [0])
    np.testing.assert_array_equal(log.unit_offsets, [0])


# --- what is public and wrong -------------------------------------------------------------------------------------

MISSING = ["observation_0", "action", "reward", "behavior_prob", "episode_id", "t", "terminated", "target_prob"]


@pytest.mark.parametrize("column", MISSING)
@pytest.mark.parametrize("form", ["parquet", "csv", "table", "lists"])
def test_a_missing_column_is_named(tmp_path, form, column):
    log = {k: v for k, v in LOG.items() if k != column}
    write = {"parquet": sample_log.write_parquet, "csv": sample_log.write_csv}.get(form)
    source = write(log, tmp_path / f"log.{form}") if write else (pa.table(log) if form == "table" else log)
    with pytest.raises(DprlError, match="observation_0" if column == "observation_0" else f"'{column}'"):
        load(source)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("reward", pa.array(["x"] * TABLE.num_rows), "'reward' has type string; it must hold numbers"),
        ("t", pa.array([0] * TABLE.num_rows, pa.timestamp("s")), "'t' has type timestamp"),
        ("terminated", pa.array(["no"] * TABLE.num_rows), "'terminated' has type string; it must hold true or false"),
        ("episode_id", pa.array([True] * TABLE.num_rows), "'episode_id' has type bool; an identifier"),
        ("person_id", pa.array([[1]] * TABLE.num_rows), "'person_id' has type list"),
        ("person_id", pa.array([0] * TABLE.num_rows, pa.date32()).dictionary_encode(), "'person_id' has type date32"),
        ("action", pa.array([[1]] * TABLE.num_rows), "'action' has type list"),
        ("observation_1", pa.array([{"x": 1}] * TABLE.num_rows), "'observation_1' has type struct"),
        ("target_prob", pa.array(["x"] * TABLE.num_rows), "'target_prob' has type string"),
    ],
)
def test_a_wrong_type_names_its_column(column, values, words):
    with pytest.raises(DprlError, match=words):
        load(TABLE.set_column(TABLE.schema.get_field_index(column), column, values))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation_2": [0.0] * TABLE.num_rows}, "3 columns observation_0.* bounds describe 2 components"),
        ({"observation_3": [0.0] * TABLE.num_rows}, "numbered without gaps"),
        ({"next_observation": [0.0] * TABLE.num_rows}, None),
        ({"next_observation": np.zeros(TABLE.num_rows)}, "'next_observation' holds one number a row"),
        ({"next_observation": np.zeros((TABLE.num_rows, 3))}, "'next_observation' holds 3 numbers a row"),
        ({"reward": np.zeros(TABLE.num_rows, dtype=complex)}, "'reward' has type complex128"),
        ({"reward": [0.0]}, "differ in length"),
    ],
)
def test_shapes_are_checked_against_the_bounds(change, words):
    if words is None:  # a list may hold anything: what does not fit is missing
        assert not load({**LOG, **change}).has_next.any()
        return
    with pytest.raises(DprlError, match=words):
        load({**LOG, **change})


def test_two_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays([*TABLE.columns, TABLE["reward"]], names=[*TABLE.schema.names, "reward"])
    pq.write_table(twice, tmp_path / "log.parquet")
    (tmp_path / "log.csv").write_text(",".join([*LOG, "reward"]) + "\n")
    for source in (twice, tmp_path / "log.parquet", tmp_path / "log.csv", twice.to_pandas()):
        with pytest.raises(DprlError, match="more than one column 'reward'"):
            load(source)
    # a column that plays no part may be there as often as it likes
    other = pa.Table.from_arrays([*TABLE.columns, TABLE["t"], TABLE["t"]], names=[*TABLE.schema.names, "x", "x"])
    assert_same(load(other), EXPECTED)


def file(name, content):
    def make(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return make


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: d / "absent.parquet", "no log file 'absent.parquet'"),
        (lambda d: d, "no log file"),
        (file("log.txt", b"x"), "must be a .parquet or .csv file"),
        *(
            (file("log.parquet", raw), "Parquet file|Cannot read")
            for raw in (b"episode_id,t", b"", b"PAR1" + bytes(100))
        ),
        (file("log.csv", b""), "'log.csv' is empty"),
        (lambda d: d / ("x" * 300 + ".csv"), "Cannot read the log"),
        (lambda d: sample_log.write_csv(in_lists(LOG), d / "log.csv"), "observation_0 to observation_1"),
        (lambda d: 5, "A log is a path"),
        (lambda d: None, "A log is a path"),
    ],
)
def test_what_is_no_log_is_refused_in_a_sentence(tmp_path, make, words):
    with pytest.raises(DprlError, match=words):
        load(make(tmp_path))


def test_a_file_without_a_header_is_refused_without_quoting_it(tmp_path):
    path = tmp_path / "log.csv"
    for content in ("PATIENT-ZERO,777123.456,1\nb,2,3\n", '"', "\0"):
        path.write_text(content)
        with pytest.raises(DprlError, match="no column 'observation'") as error:
            load(path)
        assert "PATIENT" not in str(error.value)
        assert "777123" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bounds": None}, "bounds are missing"),
        ({"bounds": "infer"}, "never inferred"),
        ({"unit": "family"}, "unit must be one of"),
        ({"unit": "trajectory"}, "a person column is named"),
        ({"person": "patient"}, "no such column 'patient'"),
        ({"person": None, "unit": "person"}, "--person-column"),
    ],
)
def test_a_request_that_does_not_fit(options, words):
    with pytest.raises(DprlError, match=words):
        load(TABLE.drop_columns(["person_id"]), **options)


def test_opening_reads_no_row(tmp_path):
    """A log is opened from names and types: the rows may even be damaged."""
    path = sample_log.write_parquet(LOG, tmp_path / "log.parquet")
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + bytes(len(raw) // 3) + raw[4 + len(raw) // 3 :])
    log = read_log(path, bounds=BOUNDS, person="person_id")
    with pytest.raises(DprlError, match="damaged"):
        log.load()


def test_private_arrays_are_not_printed():
    shown = repr(EXPECTED) + repr(read_log(LOG, bounds=BOUNDS, person="person_id"))
    assert "person-0" not in shown
    assert str(LOG["reward"][0])[:8] not in shown
