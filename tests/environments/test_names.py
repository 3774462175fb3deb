"""What is no name answers nothing, in whatever type it is missing, wherever people's names are read."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dprl
from dprl.data.cells import identifier_codes
from dprl.data.memory import name_of

from ..release.people import BOUNDS, FACTS


class Other:
    """Differs from itself."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return False


class Hostile:
    def __hash__(self) -> int:
        raise RuntimeError

    __eq__ = __ne__ = __str__ = __float__ = __hash__  # type: ignore[assignment]


NOBODY: dict[str, Any] = {
    "None": lambda: None, "NA": lambda: pd.NA, "NaT": lambda: pd.NaT, "nan": lambda: float("nan"),
    "float32": lambda: np.float32("nan"), "float16": lambda: np.float16("nan"),
    "longdouble": lambda: np.longdouble("nan"),
    "infinite": lambda: np.float32("inf"), "Decimal": lambda: Decimal("NaN"), "signalling": lambda: Decimal("sNaN"),
    "datetime64": lambda: np.datetime64("NaT"), "timedelta64": lambda: np.timedelta64("NaT"),
    "complex": lambda: complex("nan"), "masked": lambda: np.ma.masked, "scalar": lambda: pa.scalar(None, pa.string()),
    "tuple": lambda: (float("nan"),), "bytes": lambda: b"a", "object": object, "differs": Other, "hostile": Hostile,
    "date": lambda: datetime.date(2020, 1, 1), "surrogate": lambda: "\ud800",
}  # fmt: skip


def answer(policy: Any) -> dprl.Interaction:
    return dprl.Interaction([(0.5, 0.5)], [policy((0.5, 0.5))], [1.0])


def act(observations: np.ndarray, *_: np.ndarray) -> np.ndarray:
    return np.zeros(len(observations), np.int32)


@pytest.mark.parametrize("make", NOBODY.values(), ids=NOBODY)
def test_who_is_missing_answers_nothing(make):
    """Twenty visits, each with a value of its own: of people who come, and of rows in memory."""
    assert name_of(make()) is None
    for named in (True, False):
        users = dprl.UserStream(FACTS, [(make(), answer) for _ in range(20)] + [("a", answer)], named=named)
        # where nobody is named, None alone says so
        assert users.batch(0, 21, act).length.sum() == (21 if not named and make() is None else 1)
    people = np.empty(21, object)
    people[:] = [*(make() for _ in range(20)), "a"]
    bandit = dprl.Bandit.of_arrays(np.zeros((21, 2)), np.ones((21, 3)), BOUNDS, people)
    assert bandit.count() == 1
    log = dprl.read_log(
        {"person_id": list(people), "state_0": np.zeros(21), "action": np.zeros(21), "reward": np.ones(21)},
        bounds={
            "units": 9,
            "horizon": 1,
            "reward": [0, 1],
            "observation": [[0, 1]],
            "actions": 2,
            "max_importance_ratio": 2,
        },
        behavior_policy="uniform",
    )
    assert len(log.load().unit_offsets) - 1 == 1


@pytest.mark.parametrize(
    "values", [["7", 7, 7.0, np.int8(7), np.float32(7.0), np.str_("7"), np.uint64(7)], ["a", np.str_("a")], ["", ""]]
)
def test_one_name_is_one_person_in_any_type(values):
    users = dprl.UserStream(FACTS, [(value, answer) for value in values], named=True)
    assert list(users.batch(0, len(values), act).length) == [1] + [0] * (len(values) - 1)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([float("nan"), None, 1.0, float("inf"), 1.0]),
        pa.array(np.array([np.nan, np.nan, 1.0, np.inf, 1.0], np.float16)),
        pa.array([float("nan"), None, 1.0, float("-inf"), 1.0], pa.float32()).dictionary_encode(),
        pa.array(["", None, "a", None, "a"]).dictionary_encode().take(pa.array([1, 3, 2, 1, 4])),
        pa.array(pd.array([pd.NA, pd.NA, 1, pd.NA, 1], dtype="Int64")),
    ],
)
def test_a_column_of_names_has_nobody_where_one_is_missing(column):
    found = identifier_codes(pa.chunked_array([column]))
    assert list(found >= 0) == [False, False, True, False, True]
    assert found[2] == found[4]
