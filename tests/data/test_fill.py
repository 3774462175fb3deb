"""A missing covariate becomes its public fill, row by row, in every form of a log; what is not declared does not."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.data.bounds_file import read_bounds
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.data.template import bounds_template
from dprl.errors import DprlError

from .. import sample_log
from ..sample_log import BOUNDS, BOUNDS_TOML, Columns, columns, in_lists, records, write_csv, write_parquet

LOG = columns()
GAPS = [i % 7 == 3 for i in range(len(LOG["t"]))]
FILL = 2.5
FILLED = replace(BOUNDS, fill=(None, FILL), flag_missing=(1,))


def with_gaps(value, component: int = 1) -> Columns:
    name = f"observation_{component}"
    return {**LOG, name: [value if gap else v for gap, v in zip(GAPS, LOG[name], strict=True)]}


def load(source, bounds=FILLED):
    return read_log(source, bounds=bounds, person="person_id", target_columns=["target_prob"]).load()


def by_hand() -> Columns:
    """The log with the fill and its flags written into it, as a log of three components."""
    flags = [float(gap) for gap in GAPS]
    return {**with_gaps(FILL), "observation_2": flags}


EXPECTED = load(by_hand(), replace(BOUNDS, observation=(*BOUNDS.observation, (0.0, 1.0))))


def frame(value):
    return pd.DataFrame(with_gaps(value)).astype({"observation_1": object if value is pd.NaT else "Float64"})


def in_parts(tmp_path):
    partition(write_parquet(with_gaps(None), tmp_path / "log.parquet"), "person_id", 3, tmp_path / "parts")
    return tmp_path / "parts"


FORMS = {
    "None": lambda tmp_path: with_gaps(None),
    "NaN": lambda tmp_path: with_gaps(math.nan),
    "NaT": lambda tmp_path: with_gaps(np.datetime64("NaT")),
    "arrow": lambda tmp_path: pa.table(with_gaps(None)),
    "frame": lambda tmp_path: frame(pd.NA),
    "frame with NaT": lambda tmp_path: frame(pd.NaT),
    "list": lambda tmp_path: pa.table(in_lists(with_gaps(None))),
    "parquet": lambda tmp_path: write_parquet(with_gaps(None), tmp_path / "log.parquet"),
    "csv": lambda tmp_path: write_csv(with_gaps(""), tmp_path / "log.csv"),
    "parts": in_parts,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_value_is_its_fill_in_every_form(tmp_path, form):
    assert sum(GAPS) > 20
    sample_log.assert_same(load(FORMS[form](tmp_path)), EXPECTED)


def test_without_a_fill_and_where_none_is_declared_a_trajectory_counts_as_zero():
    broken = load(with_gaps(None), BOUNDS)
    np.testing.assert_array_equal(load(with_gaps(None, 0)).valid, broken.valid)
    assert 0 < broken.valid.sum() < len(broken.valid)
    assert EXPECTED.valid.all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308])
def test_what_is_there_and_is_no_measurement_is_not_filled(value):
    np.testing.assert_array_equal(load(with_gaps(value)).valid, load(with_gaps(None), BOUNDS).valid)


def test_a_log_without_gaps_is_the_same_log():
    sample_log.assert_same(load(LOG, replace(BOUNDS, fill=(1.0, FILL))), load(LOG, BOUNDS))


def test_a_next_state_is_filled_unless_all_of_it_is_missing():
    rows = len(LOG["t"])
    following = {"next_observation_0": [1.0] * rows, "next_observation_1": [None] * rows}
    found = load({**LOG, **following})
    assert found.has_next.all()
    np.testing.assert_array_equal(found.next_observation, np.tile([1.0, FILL, 1.0], (len(found.reward), 1)))
    nothing = load(
        {**LOG, **following, "next_observation_0": [None] * rows}, replace(BOUNDS, fill=(1.0, FILL), flag_missing=(1,))
    )
    assert not nothing.has_next.any()


CELLS = st.one_of(st.none(), st.sampled_from([math.nan, math.inf, 0.0, 3.0]))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("xy"), CELLS, CELLS), max_size=8))
def test_nobody_elses_fill_depends_on_who_is_there(strangers):
    rows: Columns = {name: [] for name in LOG}
    for number, (person, first, second) in enumerate(strangers):
        row = {"person_id": person, "episode_id": f"{person}-{number}", "t": 0, "observation_0": first}
        row |= {"observation_1": second, "action": 0, "reward": 0.5, "behavior_prob": 0.5, "target_prob": 0.5}
        for name, values in rows.items():
            values.append((row | {"terminated": True, "truncated": False})[name])
    together = load({name: [*values, *rows[name]] for name, values in with_gaps(None).items()})
    assert not records(EXPECTED) - records(together)


@pytest.mark.parametrize(
    "said",
    [
        "fill = {1 = 2.5}\nflag_missing = [1]",
        'observation_names = ["age", "CD4 count"]\nfill = {"CD4 count" = 2.5}\nflag_missing = ["CD4 count"]',
    ],
)
def test_a_component_is_named_by_its_number_or_its_name(tmp_path, said):
    (tmp_path / "bounds.toml").write_text(BOUNDS_TOML + said)
    known = read_bounds(tmp_path / "bounds.toml")
    assert (known.fill, known.flag_missing) == (FILLED.fill, FILLED.flag_missing)
    assert known.state == (*BOUNDS.observation, (0.0, 1.0))
    assert read_bounds(known.as_dict()) == known  # as a certificate has it
    assert known.state_names[2] == f"{known.state_names[1]} is missing"


REFUSED = {
    "outside of the bounds": ({"fill": {1: 7.0}}, r"fill of observation component 1 must be a number from -5 to 5"),
    "no number": ({"fill": {1: "mean"}}, r"fill of observation component 1 must be a number from -5 to 5"),
    "not a number": ({"fill": [math.nan, None]}, r"fill of observation component 0 must be a number from 0 to 10"),
    "true": ({"fill": [True, None]}, r"fill of observation component 0 must be a number from 0 to 10"),
    "too few": ({"fill": [1.0]}, r"fill must have one value, or none, for each of the 2 observation components"),
    "one number": ({"fill": 1.0}, r"fill must have one value, or none, for each of the 2 observation components"),
    "unknown number": ({"fill": {2: 1.0}}, r"fill names no observation component 2; there are 0 to 1"),
    "unknown name": (
        {"fill": {"weight": 1.0}, "observation_names": ["age", "CD4"]},
        r"fill names no observation component 'weight'; there are age, CD4",
    ),
    "flag without fill": ({"fill": {0: 1.0}, "flag_missing": [1]}, r"flag_missing must list components that have a"),
    "flag alone": ({"flag_missing": [1]}, r"fill must have one value, or none"),
    "unknown flag": ({"fill": {0: 1.0}, "flag_missing": [5]}, r"flag_missing names no observation component 5"),
    "flag twice": ({"fill": {0: 1.0}, "flag_missing": [0, "0"]}, r"flag_missing lists a component twice"),
    "flag of no list": ({"fill": {0: 1.0}, "flag_missing": "0"}, r"flag_missing must list components"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bounds_that_fill_wrongly_are_refused(name):
    said, words = REFUSED[name]
    with pytest.raises(DprlError, match=rf"^bounds: {words}.*\.$"):
        read_bounds(tomllib.loads(BOUNDS_TOML) | said)


def test_a_template_shows_a_fill_that_can_be_read():
    (line,) = (line for line in bounds_template(LOG).splitlines() if "fill" in line)
    assert read_bounds(tomllib.loads(BOUNDS_TOML + line.removeprefix("# ").replace("35.0", "3.5"))).fill == (3.5, None)
