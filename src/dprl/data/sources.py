"""Sources that can be read as a log, and how each is opened. Opening looks only at names and types.

Objects of other libraries are described by protocols, so that none of these libraries is imported.
"""

# ruff: noqa: D102 (members of a protocol say what they are by their names)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from dprl.data import csv_file, memory
from dprl.data.minari import minari_log, open_minari
from dprl.data.preparation import MARK
from dprl.data.schema import OpenedLog, check_once
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.data.readers import Log
    from dprl.data.trajectories import Trajectories


class ArrowStream(Protocol):
    """Table that gives an Arrow stream: of pyarrow, pandas, polars and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class LazyTable(Protocol):
    """Lazy frame of polars."""

    def clear(self) -> Any: ...

    def select(self, names: Any, /) -> Any: ...

    def collect(self) -> Any: ...


class DataFrame(Protocol):
    """Data frame of pandas."""

    @property
    def iloc(self) -> Any: ...

    @property
    def columns(self) -> Any: ...


class Episodes(Protocol):
    """Dataset of Minari."""

    @property
    def observation_space(self) -> Any: ...

    @property
    def action_space(self) -> Any: ...

    def iterate_episodes(self) -> Any: ...


LogSource: TypeAlias = (
    "Log | Trajectories | str | Path | Mapping[str, Any] | ArrowStream | LazyTable | DataFrame | Episodes"
)
"""Objects that can be read as a log."""


def open_source(source: Any) -> OpenedLog:
    """Return an opened log, or an opened table from which a log can be made; no row is read."""
    named = path_of(source)
    if is_minari(source):
        in_memory = "dataset in memory"
        return open_minari(named.removeprefix("minari:")) if named else minari_log(source, in_memory, in_memory)
    if hasattr(source, "to_arrow"):  # polars
        source = memory.told(source.to_arrow)
    if isinstance(source, pa.Table):
        return _of_schema("table in memory", source.schema, source.select)
    if isinstance(source, Mapping):
        return memory.from_mapping(source)
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # in this order: polars warns of columns of a lazy frame
        return memory.from_frame(source)
    later = memory.deferred(source)
    if later is not None:
        return later
    if not named:
        raise DprlError(
            "A log is a path, minari:DATASET-ID, a Minari dataset, a table of Arrow, pandas or polars, or a mapping of "
            "arrays."
        )
    path = Path(named)
    try:
        return _open_file(path)
    except OSError as error:
        raise DprlError(f"Cannot read the log {path.name!r}: {error.strerror or 'it is damaged'}.") from error
    except pa.ArrowException as error:
        raise DprlError(f"The log {path.name!r} is not a Parquet file.") from error


def is_minari(source: Any) -> bool:
    """Tell whether a source is a Minari dataset, or the name of one."""
    return path_of(source).startswith("minari:") or hasattr(source, "iterate_episodes")


def path_of(source: Any) -> str:
    """Return the path of a source, or the name of a dataset; an empty text for a source in memory."""
    return str(source) if isinstance(source, str | Path) else ""


def _open_file(path: Path) -> OpenedLog:
    if path.is_dir():
        raise DprlError(
            f"There is no log file {str(path)!r}, but a folder: `dprl data partition` makes a log in parts of the "
            "files in one."
        )
    if not path.is_file():
        raise DprlError(f"There is no log file {path.name!r} in {str(path.parent)!r}.")
    if path.suffix.lower() == ".csv":
        return OpenedLog(path.name, csv_file.read_header(path), None, partial(_rows_of_file, path))
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise DprlError(f"The log {path.name!r} must be a .parquet or .csv file.")
    schema = pq.read_schema(path)
    # whether pyarrow reads a file with a name twice depends on whether the file has rows
    check_once(schema.names, schema.names, "log")
    return _of_schema(path.name, schema, partial(_rows_of_file, path))


def _rows_of_file(path: Path, names: list[str]) -> pa.Table:
    with whole(path):
        if path.suffix.lower() == ".csv":
            # every cell is read as text: a bad cell then becomes a missing number instead of an error that quotes it
            return csv_file.read_cells(path, names)
        # read_table would import pandas, and take folders' names for columns
        with pq.ParquetFile(path) as file:
            return file.read(names).select(names)


def _of_schema(name: str, schema: pa.Schema, rows: Any) -> OpenedLog:
    mark = (schema.metadata or {}).get(MARK)
    return OpenedLog(name, schema.names, list(schema.types), rows, None if mark is None else mark.decode())


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Refuse a file that cannot be read to its end."""
    try:
        yield
    except (pa.ArrowException, OSError):
        # the cause may quote a cell: it is dropped
        raise DprlError(
            f"The log {path.name!r} is damaged and cannot be read to its end: put a whole copy there."
        ) from None
