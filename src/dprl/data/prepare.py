"""From a table as people have it to a log: what ``dprl data prepare`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dprl.data.bounds_file import read_public
from dprl.data.minari import MinariLog
from dprl.data.readers import open_source, raw_source, read_table
from dprl.data.schema import Schema
from dprl.errors import DprlError
from dprl.files import replacing


def prepare(source: Any, bounds: Mapping[str, Any] | str | Path, out: str | Path | None = None) -> pa.Table:
    """Return the log that a table becomes by the section ``[prepare]`` of the bounds, and write it to ``out``.

    Each person's rows become rows of that person, and depend on no other person's: to add or remove a person adds or
    removes that person's rows and changes none. So whatever a release of the log promises a person, it promises the
    person of the table. Nothing is learned from rows: a value that is not declared is missing, without a word, and its
    trajectory contributes nothing.

    Args:
        source: path of a ``.parquet`` or ``.csv`` file, a pyarrow Table, a data frame or a mapping of arrays.
        bounds: TOML file, or the table in it, with public bounds and a section ``[prepare]``.
        out: new Parquet file, which appears whole or not at all.

    Returns:
        One row for each transition, as :func:`dprl.read_log` reads it. As private as the table.

    Raises:
        DprlError: what is wrong with the section, a column that the table lacks, or a file that is there already.
    """
    _, preparation = read_public(bounds)
    if preparation is None:
        raise DprlError("The bounds have no section [prepare], which says how the table becomes a log.")
    if out is not None:
        _check_out(Path(out))
    found, _, names, types = open_source(source)
    if isinstance(found, MinariLog):
        raise DprlError("A Minari dataset is a log already.")
    raw = raw_source(found, names, types, preparation)
    table = read_table(raw, Schema({name: name for name in raw.written.names}, {}))
    if out is not None:
        with replacing(out) as temporary:
            pq.write_table(table, temporary)
    return table


def _check_out(out: Path) -> None:
    if out.suffix.lower() not in (".parquet", ".pq"):
        raise DprlError(f"{out.name!r} must be a .parquet file.")
    if out.exists():
        raise DprlError(f"{out.name!r} is there already: name another file with --out.")
