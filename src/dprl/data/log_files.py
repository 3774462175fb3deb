"""The files of a log that is too large for memory: their columns, and their rows in batches.

Identifiers are read in a type in which they can be compared over all files, null where an identifier is missing, as in
:func:`dprl.data.cells.identifier_codes`. A column that may hold numbers keeps its type where all files agree on the
type; elsewhere it becomes what :func:`dprl.data.cells.numbers` makes of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dprl.data import cells, csv_file
from dprl.data import schema as schemas
from dprl.data.parts import MANIFEST
from dprl.data.sources import open_source, refuse_damaged
from dprl.errors import DprlError, explained

_BATCH_ROWS, _BATCH_BYTES = 1 << 17, 1 << 25


@dataclass(frozen=True)
class Column:
    """Column that is kept, of identifiers or of numbers, with the type in which its values are routed to parts."""

    name: str
    type: pa.DataType
    identifier: bool


@dataclass(frozen=True)
class Layout:
    """Columns of a log's files that are kept, and those that say to which unit a row belongs. Public.

    Attributes:
        by: column of the privacy unit.
        columns: the columns that are kept.
        left_out: names of the other columns.
        prepared: digest of the section ``[prepare]`` that made the files, if one did.
    """

    by: str
    columns: tuple[Column, ...]
    left_out: tuple[str, ...]
    prepared: str | None

    @property
    def units(self) -> list[str]:
        """Columns without whose values a row belongs to no unit: the unit's column, and the episode's."""
        names = [column.name for column in self.columns]
        return list(dict.fromkeys([self.by, schemas.column_of("episode_id", names) or self.by]))


def log_files(logs: Path) -> list[Path]:
    """Return the files of a log, in the order of their names; refuse a folder with anything else in it."""
    if not os.path.isdir(logs):
        return [logs]
    with explained(f"Cannot read the folder {str(logs)!r}"):
        names = sorted(os.listdir(logs))
    if MANIFEST in names:
        raise DprlError(f"The log {str(logs)!r} is in parts already: partition the files that they were made of.")
    files = [logs / name for name in names if name[0] not in "._"]  # Spark's _SUCCESS, among others
    for path in files:
        if not path.is_file() or path.suffix.lower() not in (".parquet", ".pq", ".csv"):
            raise DprlError(
                f"The folder {str(logs)!r} holds {path.name!r}, which is no .parquet or .csv file: a folder of a log "
                "holds its files alone."
            )
    if len({path.suffix.lower() == ".csv" for path in files}) != 1:
        raise DprlError(f"The folder {str(logs)!r} must hold .parquet files, or .csv files, of one log.")
    return files


# --- columns ------------------------------------------------------------------------------------------------------


def layout_of(files: Sequence[Path], by: str | None) -> Layout:
    """Return the layout of the files, from the names and types of their columns; no row is read."""
    opened = [open_source(path.absolute()) for path in files]
    for log in opened:
        if len(log.kinds) < len(log.names):
            raise DprlError(f"The log {log.name!r} has two columns of one name.")
        if set(log.names) != set(opened[0].names):
            raise DprlError(f"The files of a log have the same columns; {opened[0].name!r} and {log.name!r} have not.")
    of_files, marks = [log.kinds for log in opened], {log.prepared for log in opened}
    kinds = {column: [of_file[column] for of_file in of_files] for column in opened[0].names}
    hint = "give the column of the privacy unit with --by, such as person_id or episode_id"
    if by is None:
        raise DprlError(f"A log is partitioned by its privacy unit: {hint}.")
    if by not in kinds:
        raise DprlError(f"The log has no column {by!r}: {hint}.")
    played = {part: schemas.column_of(part, kinds) for part in schemas.ALIASES}
    measured = {c for part, c in played.items() if part not in schemas.IDENTIFIERS}
    measured |= {c for part in schemas.VECTORS for c in schemas.numbered(part, kinds)}
    if by in measured:
        raise DprlError(f"Column {by!r} says what happened, not to whom: {hint}.")
    columns, left_out = [], []
    for name, found in kinds.items():
        if name in (by, played["episode_id"], played["person_id"]):
            columns.append(Column(name, _identifier_type(name, found), True))
            continue
        try:
            columns.append(Column(name, _number_type(name, found), False))
        except DprlError:
            if name in measured:
                raise
            left_out.append(name)
    if len(marks) > 1:
        raise DprlError("The files of a log are prepared by different sections [prepare], or some by none.")
    return Layout(by, tuple(columns), tuple(left_out), marks.pop())


def _identifier_type(name: str, kinds: Sequence[pa.DataType | None]) -> pa.DataType:
    """Return the one type in which the identifiers of all files are compared."""
    for kind in kinds:
        schemas.check_identifier(name, kind)
    found = {schemas.comparable(kind) for kind in kinds} - {pa.null()}
    if len(found) > 1:
        raise DprlError(
            f"Column {name!r} holds identifiers of one type in one file of the log and of another elsewhere."
        )
    return found.pop() if found else pa.null()


def _number_type(name: str, kinds: Sequence[pa.DataType | None]) -> pa.DataType:
    """Return one type for a column in all files: their own type where they agree on a known type, and else float64."""
    for kind in kinds:
        schemas.check_number(name, kind.value_type if schemas.is_list(kind) else kind)
    typed = {kind for kind in kinds if kind is None or not pa.types.is_null(kind)}
    lists = {kind for kind in typed if schemas.is_list(kind)}
    if lists and lists != typed:
        raise DprlError(f"Column {name!r} holds lists in one file of the log and numbers in another one.")
    if not typed:
        return pa.null()
    values = {kind.value_type if schemas.is_list(kind) else kind for kind in typed}
    own = values.pop() if len(values) == 1 and None not in values else pa.float64()
    sizes = {kind.list_size if pa.types.is_fixed_size_list(kind) else None for kind in lists}
    if not lists:
        return own
    return pa.large_list(own) if len(sizes) > 1 or None in sizes else pa.list_(own, *sizes)


def _stored(values: pa.ChunkedArray, column: Column) -> pa.Array | pa.ChunkedArray:
    """Return some rows of a column in the type in which the column is routed; a missing identifier is null."""
    if column.identifier:
        return cells.identifiers(values, column.type)
    if values.type == column.type:
        return values
    if column.type == pa.float64():
        return pa.array(cells.numbers(values))
    return pc.cast(values, column.type, safe=False)


# --- rows ---------------------------------------------------------------------------------------------------------


def rows_of(files: Sequence[Path], columns: Sequence[Column]) -> Iterator[pa.Table]:
    """Yield these columns of all files in batches of rows, in the types in which the columns are routed."""
    names = [column.name for column in columns]
    for path in files:
        batches = csv_file.cells_in_batches if path.suffix.lower() == ".csv" else _parquet_batches
        with refuse_damaged(path):
            for batch in batches(path, names):
                table = pa.Table.from_batches([batch]).rename_columns(names)
                stored = [_stored(table.column(c.name), c) for c in columns]
                yield pa.table(stored, pa.schema([pa.field(c.name, c.type) for c in columns]))


def _parquet_batches(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # pages are read as they are needed: a group of rows may be larger than memory
    with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        wide = 1.0
        for i in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(i)
            cells = sum(group.column(j).num_values for j in range(group.num_columns))
            wide = max(wide, max(8 * cells, group.total_byte_size) / max(group.num_rows, 1))
        for batch in file.iter_batches(int(np.clip(_BATCH_BYTES / wide, 1, _BATCH_ROWS)), columns=list(names)):
            yield batch.select(list(names))
