"""Write a log in parts that are aligned to the privacy unit, for :mod:`dprl.data.parts` to read.

This takes two passes over the log's files, in bounded memory. The first pass samples the identifiers of the unit, whose
quantiles cut their range into parts. The second pass routes each row to its part. Each part is then sorted by
identifier, in memory, and written. The rows of a unit keep their order, so that a log read from the parts is, to the
last bit, the log read from the files. The folder appears whole or not at all: it is made in a hidden folder beside it,
and renamed when it is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dprl.data.cells import identifier_codes, one_array
from dprl.data.log_files import Layout, layout_of, log_files, rows_of
from dprl.data.parts import MANIFEST, SCHEMA, Part, Parts, lacks_value, sha256_of
from dprl.errors import DprlError
from dprl.files import sync, temporary_folder

MOST_PARTS = 512  # one file for each part is open at once

_ROW = "\0row"  # column with the number of the log's row; no other column has this name
_SAMPLE = 1 << 16  # identifiers that the first pass keeps, or up to twice as many


def partition(
    logs: str | Path, by: str | None, parts: int, out: str | Path, progress: Any = None
) -> tuple[Parts, Layout]:
    """Write the log in ``logs``, a Parquet or CSV file or a folder of such files, into the new folder ``out``.

    Args:
        by: column that identifies the privacy unit: a person, or an episode where there are no people.
        parts: number of parts; fewer are made where there are fewer units.
        progress: called with the number of rows done; its ``expect`` is called once with the number of all rows to do.

    Raises:
        DprlError: a file, a column or ``out`` is not as it must be; no file is left behind then.
    """
    if not 1 <= parts <= MOST_PARTS:
        raise DprlError(f"A log is written in 1 to {MOST_PARTS} parts.")
    folder = Path(os.path.abspath(out))
    if os.path.lexists(folder):
        raise DprlError(f"{str(out)!r} is already there, and parts are never written over: name a new folder.")
    files = log_files(Path(logs))
    layout = layout_of(files, by)
    try:
        with temporary_folder(f".{folder.name}.", folder.parent) as hidden:
            staging = hidden / folder.name
            staging.mkdir(0o700)
            _write(files, layout, parts, staging, progress)
            Parts.open(staging)
            staging.rename(folder)
        sync(folder.parent)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the disk refused"
        raise DprlError(f"Cannot write the parts of the log into {str(out)!r}: {reason}.") from None
    return Parts.open(folder), layout


def _write(files: Sequence[Path], layout: Layout, parts: int, folder: Path, progress: Any) -> None:
    """Write the whole folder: make both passes, write each part, and then the manifest that lists the parts."""
    cuts, rows = _cuts(files, layout, parts)
    tell = (lambda rows: None) if progress is None else progress
    if progress is not None:
        progress.expect(2 * rows)  # each row is routed, and then written
    _route(files, layout, cuts, folder, tell)
    done: list[Part] = []
    for number in range(len(cuts) + 1):
        done.append(_write_part(folder, number, layout, sum(part.units for part in done)))
        pa.default_memory_pool().release_unused()
        tell(rows + sum(part.rows for part in done))
    manifest = {
        "schema": SCHEMA,
        "by": layout.by,
        "prepared": layout.prepared,
        "columns": [{"name": field.name, "type": str(field.type)} for field in _schema(layout)],
        "parts": [asdict(part) for part in done],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    sync(folder / MANIFEST)
    sync(folder)


def _cuts(files: Sequence[Path], layout: Layout, parts: int) -> tuple[pa.Array, int]:
    """Make the first pass; return the identifiers with which parts begin, ascending, and the number of rows.

    The first part needs no such identifier, so there are at most ``parts - 1``.
    """
    units = [column for column in layout.columns if column.name in layout.units]
    kind = next(column.type for column in units if column.name == layout.by)
    sample, stride, seen, rows = pa.chunked_array([], kind), 1, 0, 0
    for table in rows_of(files, units):
        known, rows = table.drop_null().column(layout.by), rows + len(table)
        # one row in ``stride``: where the log is in the order of its units, these are their quantiles
        some = known.take(pa.array(np.arange(-seen % stride, len(known), stride)))
        sample = pa.chunked_array([*sample.chunks, *some.chunks], kind)
        seen += len(known)
        while len(sample) > 2 * _SAMPLE:
            sample, stride = sample.take(pa.array(np.arange(0, len(sample), 2))), 2 * stride
    return _quantiles(one_array(sample), parts), rows


def _quantiles(sample: pa.Array, parts: int) -> pa.Array:
    """Return values that cut a sample into parts of about equal size, with equal values in the same part."""
    if not len(sample):
        return sample
    counted = pc.value_counts(sample)  # type: ignore[attr-defined]
    values, counts = counted.field("values"), counted.field("counts").to_numpy()
    order = np.argsort(_ranks(values))
    until = np.cumsum(counts[order])
    starts, start = [], 0
    for left in range(min(parts, len(values)), 0, -1):
        starts.append(start)
        before = until[start] - counts[order[start]]
        goal = before + (until[-1] - before) / left
        stop = int(np.searchsorted(until, goal)) + 1
        # one value may hold more than a part's share: cut at the nearer end, but leave a value for each further part
        if stop - 2 >= start and goal - until[stop - 2] < until[stop - 1] - goal:
            stop -= 1
        start = int(np.clip(stop, start + 1, len(values) - left + 1))
    return values.take(pa.array(order[starts[1:]]))


def _ranks(values: pa.Array) -> np.ndarray:
    """Return ``(k,)`` ranks in ascending order, from 1, equal for equal values; all identifiers are ordered by them."""
    return pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]


def _route(files: Sequence[Path], layout: Layout, cuts: pa.Array, folder: Path, tell: Callable[[int], None]) -> None:
    """Make the second pass: write each row to the stream of its part, in the order of the log.

    Rows without an identifier go to the last part.
    """
    schema = pa.schema([*((column.name, column.type) for column in layout.columns), (_ROW, pa.int64())])
    seen = 0
    with ExitStack() as stack:
        streams = [
            stack.enter_context(pa.ipc.new_stream(stack.enter_context(pa.OSFile(str(path), "wb")), schema))
            for path in (_routed(folder, number) for number in range(len(cuts) + 1))
        ]
        for table in rows_of(files, layout.columns):
            table = table.append_column(_ROW, pa.array(np.arange(seen, seen + len(table))))
            seen += len(table)
            tell(seen)
            numbers = _part_of(table.select(layout.units), layout.by, cuts)
            order = np.argsort(numbers, kind="stable")
            if (np.diff(numbers) < 0).any():
                table = table.take(order)
            ends = np.searchsorted(numbers[order], np.arange(len(streams)), side="right")
            for stream, start, end in zip(streams, np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
                if start < end:
                    stream.write_table(table.slice(start, end - start))


def _part_of(identifiers: pa.Table, by: str, cuts: pa.Array) -> np.ndarray:
    """Return the ``(R,)`` number of each row's part."""
    if not len(cuts):
        return np.zeros(len(identifiers), dtype=np.int64)
    encoded = one_array(identifiers.column(by)).dictionary_encode()
    # one ranking of both, so that routing and sorting follow the same order
    ranks = _ranks(pa.concat_arrays([cuts, encoded.dictionary]))
    numbers = np.searchsorted(ranks[: len(cuts)], ranks[len(cuts) :], side="right")
    return np.where(
        lacks_value(identifiers), len(cuts), np.append(numbers, 0)[encoded.indices.fill_null(-1).to_numpy()]
    )


def _schema(layout: Layout) -> pa.Schema:
    """Return the schema of the files that are written, with identifiers as int64."""
    return pa.schema([(column.name, pa.int64() if column.identifier else column.type) for column in layout.columns])


def _write_part(folder: Path, number: int, layout: Layout, before: int) -> Part:
    """Sort the rows that were routed to a part, whose first unit has the number ``before``, and write its files."""
    schema = _schema(layout)
    path, *arrays_of_units = (
        folder / name for name in (f"part-{number:05d}.arrow", f"units-{number:05d}.npy", f"came-{number:05d}.npy")
    )
    with pa.memory_map(str(_routed(folder, number))) as source:
        table = pa.ipc.open_stream(source).read_all()
        nobodys = lacks_value(table.select(layout.units))
        codes = identifier_codes(table.column(layout.by))
        codes[nobodys] = len(table)  # rows of nobody come after all others
        _, ranks, rows_of_units = np.unique(codes, return_inverse=True, return_counts=True)
        units = len(rows_of_units) - bool(nobodys.any())
        order = None if (np.diff(ranks) >= 0).all() else pa.array(np.argsort(ranks, kind="stable"))
        arrays = []
        for column in layout.columns:
            if column.name == layout.by:
                values = pa.array(ranks + before, mask=nobodys)
            elif column.identifier:
                found = identifier_codes(table.column(column.name))
                values = pa.array(found, mask=found < 0)
            else:
                values = one_array(table.column(column.name))
            arrays.append(values if order is None else values.take(order))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
        rows, offsets = len(table), np.append(0, np.cumsum(rows_of_units[:units])).astype(np.int64)
        came = table.column(_ROW).to_numpy()
        came = (came if order is None else came[order.to_numpy()])[offsets[:-1]]
    _routed(folder, number).unlink()
    for written, content in zip(arrays_of_units, (offsets, came), strict=True):
        np.save(written, content)
    data, begun, arrived = map(_described, (path, *arrays_of_units))
    return Part(*data, *begun, *arrived, rows, units)


def _described(path: Path) -> tuple[str, int, str]:
    """Return name, size and digest of a file, after making sure that it is on the disk."""
    sync(path)
    return path.name, path.stat().st_size, sha256_of(path)


def _routed(folder: Path, number: int) -> Path:
    return folder / f"routed-{number:05d}"
