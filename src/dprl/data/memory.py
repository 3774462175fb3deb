"""Logs that are already in memory: mappings of arrays and data frames.

A column whose Python values could be anything (a list, an array of objects) has no type that could be checked. Its
values are then read one by one, like the cells of a CSV file: a value that does not fit is missing, and nothing in one
row changes how another row is read. Entries that are not columns (the counts and names that other libraries keep beside
their arrays) are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dprl.data.schema import OpenedLog, Schema, column_of
from dprl.errors import DprlError
from dprl.user_code import quietly

UNTYPED = pa.null()
"""Type that stands for a column whose values may be anything."""
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
"""Pattern of a number in a cell of text."""
TRUTH, UNTRUTH = r"^\s*([tT]rue|TRUE)\s*$", r"^\s*([fF]alse|FALSE)\s*$"
"""Patterns of true and false in a cell of text, which count as 1 and 0."""


@dataclass(frozen=True)
class ColumnsInMemory(OpenedLog):
    """Columns of a log in memory: Arrow arrays, and lists of values of any kind."""

    columns: dict[str, Any] = field(repr=False, default_factory=dict)

    def check_lengths(self, names: Iterable[str]) -> None:
        """Refuse columns of different lengths."""
        if len({len(self.columns[name]) for name in names}) > 1:
            raise DprlError("The columns of the log differ in length; a log is one row per transition.")

    def read(self, schema: Schema) -> pa.Table:
        """Return the columns that play a part, as a table."""
        roles = {names[0]: (_row, pa.list_(pa.float64())) for names in schema.vectors.values() if len(names) == 1}
        for part in schema.scalars.keys() & {"episode_id", "person_id"}:
            roles[schema.scalars[part]] = (name_of, pa.string())
        return _read(self.columns, schema.columns(), roles, (_number, pa.float64()))


def open_deferred(source: Any) -> OpenedLog | None:
    """Return a log that reads its source on demand: a lazy frame of polars, or an Arrow stream; None for all else.

    Raises:
        DprlError: the source cannot tell its columns.
    """
    if hasattr(source, "collect") and hasattr(source, "clear"):
        schema = ask_library(lambda: source.clear().collect().to_arrow().schema)
        return _deferred_log(schema, lambda names: source.select(names).collect().to_arrow())
    if hasattr(source, "__arrow_c_stream__"):
        schema = _without_views(ask_library(lambda: pa.RecordBatchReader.from_stream(source).schema))
        return _deferred_log(schema, lambda names: pa.table(source).cast(schema).select(names))
    return None


def ask_library(call: Callable[[], Any]) -> Any:
    """Return what another library tells about the columns of its table; drop its error, which may quote a cell."""
    found = quietly(call, None)
    if found is None:
        raise DprlError(
            "The columns of the table cannot be told: the library that made it raised an error; called by itself it "
            "says which."
        )
    return found


def _deferred_log(schema: pa.Schema, rows: Callable[[list[str]], pa.Table]) -> OpenedLog:
    def read(names: list[str]) -> pa.Table:
        found = quietly(lambda: rows(names), None)  # whatever the other library raises may quote a cell
        if found is None:
            raise DprlError("The table cannot be read to its end: the library that made it raised an error.")
        return found

    return OpenedLog("table in memory", schema.names, list(schema.types), read)


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with ordinary text in place of views of text."""
    return pa.schema([
        each.with_type(pa.large_string()) if each.type == pa.string_view() else each for each in schema
    ])  # fmt: skip


def from_mapping(source: Mapping[Any, Any]) -> ColumnsInMemory:
    """Return the columns of a mapping; add episode numbers and time steps where episodes have a public fixed length."""
    density = source.get("pscore")
    if source.get("action_type") == "continuous" and isinstance(density, np.ndarray) and density.ndim == 2:
        # SCOPE-RL has one density for each component of an action, and draws the components independently
        source = {**source, "pscore": np.prod(density, axis=1)}
    found = _collect("arrays in memory", ((str(name), values) for name, values in source.items()))
    length = source.get("step_per_trajectory")
    numbered = column_of("episode_id", found.names) or column_of("t", found.names)
    if isinstance(length, int | np.integer) and length > 0 and "reward" in found.names and not numbered:
        rows = np.arange(len(found.columns["reward"]))
        return _collect(found.name, [*source.items(), ("episode_id", rows // length), ("t", rows % length)])
    return found


def from_frame(frame: Any) -> ColumnsInMemory:
    """Return the columns of a pandas data frame."""
    return _collect("data frame in memory", ((str(name), frame.iloc[:, i]) for i, name in enumerate(frame.columns)))


def _collect(what: str, items: Iterable[tuple[str, Any]]) -> ColumnsInMemory:
    found = [(name, *column) for name, values in items if (column := _column(name, values)) is not None]
    columns = {name: values for name, _, values in found}
    # for [prepare] these columns are a table whose cells are text, as in CSV
    cells = partial(_read, columns, roles={}, usual=(_cell, pa.string()))
    return ColumnsInMemory(what, [name for name, *_ in found], [kind for _, kind, _ in found], cells, columns=columns)


def _column(name: str, values: Any) -> tuple[pa.DataType, Any] | None:
    """Return the type of a column, and its values as an Arrow array or a list; None where there is no column."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.type, values
    if not isinstance(values, list | tuple):
        if not hasattr(values, "__array__"):
            return None
        values = values if hasattr(values, "iloc") else ask_library(lambda: np.asarray(values))
        categories = getattr(values.dtype, "categories", values)  # of pandas, which may be of any kind, too
        # one cell can turn a column of numbers into text: such a type is not a public fact, so cells are judged later
        text = values.ndim == 1 and (getattr(values.dtype, "kind", "") in "US" or str(values.dtype).startswith("str"))
        if not text and np.dtype(object) not in (values.dtype, categories.dtype):
            if values.ndim not in (1, 2):
                return None
            values = _typed(name, values)
            return values.type, values
    return UNTYPED, list(values)


_Role = tuple[Callable[[Any], Any], pa.DataType]
"""Function that converts each value of a column, and the type of the converted values."""


def _read(columns: Mapping[str, Any], names: Iterable[str], roles: Mapping[str, _Role], usual: _Role) -> pa.Table:
    """Return some columns as a table; each value of a column without a type is converted by its role, or ``usual``."""
    table = {}
    for name in names:
        values = columns[name]
        if isinstance(values, list):
            convert, kind = roles.get(name, usual)
            values = pa.array(map(convert, values), kind)
        table[name] = values
    return pa.table(table)


def _typed(name: str, values: Any) -> Any:
    try:
        if values.ndim == 2:
            values = np.ascontiguousarray(values)
            if values.shape[1] > 1:
                return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            values = values.ravel()
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # the cause may quote a value: it is dropped
        raise DprlError(f"Column {name!r} has type {values.dtype}; it must hold numbers or text.") from None


def _none_on_error(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        # a foreign type may raise anything, and its error may tell about the rows
        return quietly(lambda: convert(value), None)

    return converted


@_none_on_error
def _number(value: Any) -> float | None:
    if isinstance(value, str):
        if re.match(f"{TRUTH}|{UNTRUTH}", value, re.ASCII):
            return float(re.match(TRUTH, value, re.ASCII) is not None)
        return float(value) if re.match(NUMBER, value, re.ASCII) else None
    return None if isinstance(value, bytes) else float(value)


@_none_on_error
def _row(value: Any) -> list[float | None]:
    return [_number(x) for x in value] if isinstance(value, list | tuple | np.ndarray) else [_number(value)]


@_none_on_error
def _cell(value: Any) -> str | None:
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    named = name_of(value)
    return named if named is not None or isinstance(value, bytes) else name_of(float(value))


@_none_on_error
def name_of(value: Any) -> str | None:
    """Return the name that a value gives a person or an episode: text, or a number as text; None if it names nobody.

    A value that is missing in any spelling (None, NA, NaT, NaN of any type) names nobody, and so does a value of any
    other type: a value that differs from itself would name somebody new each time.

    >>> [name_of(value) for value in ("7", 7, 7.0, np.float32("nan"), np.datetime64("NaT"))]
    ['7', '7', '7', None, None]
    """
    if isinstance(value, float | np.floating):
        value = int(value) if float(value).is_integer() else (float(value) if math.isfinite(value) else None)
    if isinstance(value, int | float | np.integer) and not isinstance(value, np.timedelta64):  # an integer to numpy
        value = str(value)
    return str.encode(value).decode() if isinstance(value, str) else None
