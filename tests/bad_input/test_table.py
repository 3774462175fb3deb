"""Bad input, row by row: what each thing does, through both front doors and under each algorithm.

"Contributes zero", "clipped" and the like are shown on released numbers: with the same noise, the log with the defect
gives bit for bit what the log gives in which that episode is absent, or that cell is what the bounds make of it.

Elsewhere: bounds, budgets, formulas and hyper-parameters (test_requests.py); pickles (test_no_pickle.py); a checkpoint
that was tampered with, Ctrl-C and resuming (tests/release); that what is seen does not depend on the rows
(test_fuzzer.py, tests/cli/test_private_rows.py); missing flags (tests/cli/test_public_mistakes.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dprl as library

from ..sample_log import BOUNDS, Columns, rows_of_episode, without, write_csv
from .conftest import SETTINGS, TYPES
from .conftest import WITH_NEXT as LOG

EPISODE = next(e for e in LOG["episode_id"][20:] if len(rows_of_episode(LOG, e)) == 4)
ROWS = rows_of_episode(LOG, EPISODE)
FIRST, MIDDLE, LAST = ROWS[0], ROWS[1], ROWS[-1]
ABSENT = without(LOG, ROWS)


def changed(column: str, value: object, row: int = MIDDLE) -> Columns:
    return {**LOG, column: [value if i == row else v for i, v in enumerate(LOG[column])]}


# --- cells --------------------------------------------------------------------------------------------------------

# one of each kind; tests/data/test_bad_rows.py has every value of every column
ROW_ALONE = {
    "reward NaN": changed("reward", math.nan),
    "observation infinite": changed("observation_0", math.inf),
    "probability zero": changed("behavior_prob", 0.0),
    "action NaN": changed("action", math.nan),
}
ZERO: dict[str, Columns] = {
    **ROW_ALONE,
    "a step is missing": without(LOG, [MIDDLE]),
    "a step is repeated": {k: [*v, v[MIDDLE]] for k, v in LOG.items()},
    "it ends before its last step": changed("terminated", True),
    "an empty episode": {
        k: [None if i in ROWS and k != "episode_id" else x for i, x in enumerate(v)] for k, v in LOG.items()
    },
}


@pytest.mark.parametrize("defect", ZERO)
def test_the_episode_contributes_zero(evaluate, once, defect):
    found = evaluate(ZERO[defect])
    assert found.same(once("absent", lambda: evaluate(ABSENT)))
    assert not found.same(once("log", lambda: evaluate(LOG))), "the episode makes no difference: nothing is tested"


AT_ITS_BOUND = {
    "an importance ratio of a million": (changed("behavior_prob", 0.5e-6), changed("behavior_prob", 0.25)),
    "the smallest probability": (changed("behavior_prob", 5e-324), changed("behavior_prob", 0.25)),
    "reward above": (changed("reward", 99.0), changed("reward", 1.0)),
    "reward below": (changed("reward", -1e99), changed("reward", -1.0)),
    "observation above": (changed("observation_0", 1e6), changed("observation_0", 10.0)),
    "observation below": (changed("observation_1", -1e99), changed("observation_1", -5.0)),
}


@pytest.mark.parametrize("kind", AT_ITS_BOUND)
def test_what_is_out_of_bounds_counts_as_its_bound(evaluate, once, kind):
    log, expected = AT_ITS_BOUND[kind]
    found = evaluate(log)
    assert found.same(evaluate(expected))
    if not kind.startswith("observation"):
        assert not found.same(once("log", lambda: evaluate(LOG)))


@pytest.mark.parametrize("action", [2, 0.5])
def test_an_unknown_action_is_one_that_the_target_never_takes(evaluate, once, action):
    expected = {**LOG, "target_prob": [0.0 if i == MIDDLE else 0.5 for i in range(len(LOG["t"]))]}
    found = evaluate(changed("action", action))
    assert found.same(once("never taken", lambda: evaluate(expected, **{"target-policy": "column:target_prob"})))
    assert not found.same(once("log", lambda: evaluate(LOG)))


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.decimal128(9, 3), pa.uint64(), pa.int8()])
def test_every_type_of_number_is_a_number(tmp_path, kind):
    """Also for identifiers, but for decimals; also with missing cells."""
    n = len(LOG["t"])
    base = {k: pa.array(v, TYPES[k]) for k, v in LOG.items()}
    small = [None if i == 3 else Decimal(i % 100) if pa.types.is_decimal(kind) else i % 100 for i in range(n)]
    if kind == pa.float16():
        small = np.array([math.nan if x is None else x for x in small], np.float16)
    array = pa.array(small, kind)
    for column in ("episode_id", "person_id", "reward", "action", "observation_0", "t", "terminated"):
        pq.write_table(pa.table({**base, column: array}), tmp_path / "log.parquet")
        if pa.types.is_decimal(kind) and column.endswith("_id"):
            with pytest.raises(library.DprlError, match=f"Column '{column}' has type decimal"):
                library.read_log(tmp_path / "log.parquet", bounds=BOUNDS, person="person_id")
        else:
            library.read_log(tmp_path / "log.parquet", bounds=BOUNDS, person="person_id").load()


# --- episodes -----------------------------------------------------------------------------------------------------


def test_an_empty_log_releases_noise_alone(evaluate, fixed_noise):
    empty = {k: [] for k in LOG}
    broken = {**LOG, "reward": [math.nan] * len(LOG["t"])}
    found = evaluate(empty)
    assert found.same(evaluate(broken))
    fixed_noise(2)
    again = evaluate(empty)
    released = [0, *range(5, len(found.numbers))]  # the value, and theta
    assert (found.numbers[released] != again.numbers[released]).all(), "a release without noise"


@pytest.mark.parametrize("algorithm", ["gpope", "importance-sampling"])
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("estimator", ["trajectory", "per-decision", "self-normalised"])
def test_an_episode_without_a_transition_contributes_zero(fixed_noise, algorithm, place, estimator):
    """Only loaded trajectories can hold one."""
    # a range whose middle is not zero: there, nothing is not the same as a return of zero
    full = library.read_log(LOG, bounds=replace(BOUNDS, reward=(-1.0, 3.0)), unit="trajectory").load()
    at = 0 if place == "first" else full.episodes
    empty = replace(
        full,
        episode_offsets=np.insert(full.episode_offsets, at, full.episode_offsets[at]),
        unit_offsets=np.arange(full.units + 2),
        valid=np.insert(full.valid, at, True),
    )
    config = library.GPOPE(steps=2) if algorithm == "gpope" else library.ImportanceSampling(estimator=estimator)
    found, expected = (
        library.evaluate(t, "uniform", library.Budget(1.0, 1e-5), algorithm=config) for t in (empty, full)
    )
    assert found.estimate["targets"] == expected.estimate["targets"]
    if found.value_function is not None and expected.value_function is not None:
        assert (found.value_function.theta == expected.value_function.theta).all()


def test_an_empty_batch_releases_noise_alone(door, fixed_noise, monkeypatch):
    monkeypatch.setitem(SETTINGS, "gpope", ("steps=2", "sampling_rate=1e-9"))
    found, empty = door(LOG, "gpope"), door({k: [] for k in LOG}, "gpope")
    assert (found.numbers[5:] == empty.numbers[5:]).all()
    assert not (found.numbers[:5] == empty.numbers[:5]).all(), "the values are those of everybody"
    fixed_noise(2)
    assert (door(LOG, "gpope").numbers[5:] != found.numbers[5:]).all()


# --- people -------------------------------------------------------------------------------------------------------


def copies(log: Columns, rows: list[int], number: int) -> Columns:
    """``log``, and the episode of these rows once more ``number`` times, all of its person."""
    more = {k: [v[i] for _ in range(number) for i in rows] for k, v in log.items()}
    more["episode_id"] = [f"copy-{c}" for c in range(number) for _ in rows]
    return {k: [*v, *more[k]] for k, v in log.items()}


def test_a_person_counts_once_whatever_the_number_of_trajectories(evaluate, fixed_noise):
    mine = [i for i, p in enumerate(LOG["person_id"]) if p == LOG["person_id"][FIRST]]
    alone = without(LOG, [i for i in mine if i not in ROWS])
    many = copies(alone, rows_of_episode(alone, EPISODE), 400)
    once, often = evaluate(alone, unit="person"), evaluate(many, unit="person")
    np.testing.assert_allclose(often.numbers, once.numbers, rtol=2e-5, atol=2e-6)
    # while each of many trajectories counts where they are the units
    assert abs(evaluate(many).numbers[0] - evaluate(alone).numbers[0]) > 0.5


def test_a_person_moves_the_sum_by_no_more_than_the_clip(door, fixed_noise):
    """From values alone: the person's part of a value is at most reach / units."""
    worst = {**LOG, "reward": [1.0] * len(LOG["t"]), "behavior_prob": [1e-9] * len(LOG["t"])}
    person = worst["person_id"][FIRST]
    rest = without(worst, [i for i, p in enumerate(worst["person_id"]) if p == person])
    everybody = door(copies(worst, ROWS, 50), "importance-sampling", unit="person")
    nobody = door(rest, "importance-sampling", unit="person")
    low, high = BOUNDS.value_interval(0.99)
    reach = BOUNDS.cumulative_ratio * (high - low) / 2.0
    assert 0.0 < abs(everybody.numbers[0] - nobody.numbers[0]) <= reach / BOUNDS.units * (1 + 1e-9)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_log_of_people_protects_people_unless_told_otherwise(door, doors, dprl, tmp_path, fixed_noise, form):
    log = LOG
    if form == "csv":
        log = write_csv(LOG, tmp_path / "log.csv")
    found = door(log, "importance-sampling", unit=None)
    assert found.certificate["privacy_unit"] == "person"
    assert found.same(door(log, "importance-sampling", unit="person"))
    assert door(log, "importance-sampling", unit="trajectory").certificate["privacy_unit"] == "trajectory"
    plain = {k: v for k, v in LOG.items() if k != "person_id"}
    assert door(plain, "importance-sampling", unit=None).certificate["privacy_unit"] == "trajectory"


# --- transitions --------------------------------------------------------------------------------------------------

NOT_LOOKED_AT = {
    "its step": changed("t", math.nan),
    "an end before the end of its trajectory": changed("truncated", True),
    "its identifiers": {**changed("episode_id", None), "person_id": changed("person_id", None)["person_id"]},
}


@pytest.mark.parametrize("defect", [*ROW_ALONE, *NOT_LOOKED_AT])
def test_of_transitions_one_row_contributes_zero_and_no_other(door, once, defect):
    """Whichever it follows, and whatever its step and identifiers are."""
    if defect in ROW_ALONE:
        what, expected, log = "transitions without one", without(LOG, [MIDDLE]), ROW_ALONE[defect]
    else:
        what, expected, log = "transitions", LOG, NOT_LOOKED_AT[defect]
    found = door(log, "importance-sampling", unit="transition")
    assert found.same(once(what, lambda: door(expected, "importance-sampling", unit="transition")))
    assert found.certificate["privacy_unit"] == "transition"


# --- columns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, len(LOG["t"])])
@pytest.mark.parametrize("column", ["reward", "a comment"])
def test_a_column_that_is_there_twice_is_refused_with_and_without_rows(evaluate, tmp_path, rows, column):
    arrays = {k: pa.array(v[:rows], TYPES[k]) for k, v in LOG.items()} | {"a comment": pa.nulls(rows, pa.string())}
    names = [*arrays, column]
    pq.write_table(pa.Table.from_arrays([*arrays.values(), arrays[column]], names=names), tmp_path / "log.parquet")
    with pytest.raises(library.DprlError, match=f"The log has more than one column '{column}'"):
        evaluate(tmp_path / "log.parquet")
