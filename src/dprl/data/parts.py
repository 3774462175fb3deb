"""A log in parts: memory-mapped Arrow files that are aligned to the privacy unit, with offsets and an index of units.

A folder holds ``parts.json`` and, for each part, ``part-00000.arrow`` (one uncompressed record batch, so that columns
are views of the file), ``units-00000.npy`` (``(U + 1,)`` int64: the rows at which the part's units begin, and where the
last unit ends) and ``came-00000.npy`` (``(U,)`` int64: the row of the log in which each unit came first). Units are in
the order of their identifiers, over all parts and within each part, and the rows of a unit are contiguous. Identifiers
are int64 codes in the order of the values that they stand for. Rows that lack an identifier come after the last unit of
the last part, outside of every unit. :mod:`dprl.data.partition` writes such folders. A folder is as private as the log.

Before :meth:`Parts.check`, only names, types and sizes are looked at.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from dprl.data.schema import Schema, column_of
from dprl.errors import DprlError
from dprl.untrusted_files import read_regular, strict_object
from dprl.user_code import suppress_warnings

SCHEMA = "dprl.parts/2"
MANIFEST = "parts.json"

_MOST_BYTES = 2**28  # largest size of the manifest, which has some 600 bytes per part
_SORTED = 1 << 22  # about this many units are put in order at a time


@dataclass(frozen=True)
class Part:
    """Entry of one part in the manifest: its three files, and how much is in them. Private."""

    file: str
    bytes: int
    sha256: str
    offsets: str
    offsets_bytes: int
    offsets_sha256: str
    came: str
    came_bytes: int
    came_sha256: str
    rows: int
    units: int

    @property
    def files(self) -> tuple[tuple[str, int, str], ...]:
        """Name, size and digest of each file."""
        return (
            (self.file, self.bytes, self.sha256),
            (self.offsets, self.offsets_bytes, self.offsets_sha256),
            (self.came, self.came_bytes, self.came_sha256),
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """Opened folder of parts. Each process maps a file when it first reads it; pickling keeps only path and digest.

    Attributes:
        folder: absolute path of the folder.
        by: column of the privacy unit.
        names, types: names and types of all columns.
        units: number of units; private.
        digest: SHA-256, 64 hexadecimal digits, of the digests of all files.
        parts: the manifest's entries, in the order of their units.
        prepared: digest of the section ``[prepare]`` that made the log, if one did.
    """

    folder: Path
    by: str
    names: list[str]
    types: list[pa.DataType] = field(repr=False)
    units: int = field(repr=False)
    digest: str
    parts: tuple[Part, ...] = field(repr=False)
    prepared: str | None = None
    _maps: dict[int, tuple[pa.RecordBatch, np.ndarray, tuple[mmap.mmap, ...]]] = field(repr=False, default_factory=dict)

    @property
    def name(self) -> str:
        """Public name, which is the folder's name."""
        return self.folder.name

    @property
    def kinds(self) -> dict[str, pa.DataType | None]:
        """Type of each column."""
        return dict(zip(self.names, self.types, strict=True))

    def read(self, schema: Schema) -> pa.Table:
        """Return all rows of the columns in ``schema``."""
        columns = schema.columns()
        return pa.concat_tables([self._schema(columns).empty_table(), *self.columns_in_blocks(columns)])

    @classmethod
    def open(cls, folder: str | Path, known: str | None = None) -> Parts:
        """Return the parts in ``folder``, after checking manifest, file sizes and Arrow schemas; no row is read.

        Args:
            folder: a folder that ``dprl data partition`` made.
            known: digest that the parts must have; None for any.

        Raises:
            DprlError: there are no parts, a file is missing, cut short or not what the manifest says, or the parts
                have another digest.
        """
        path = Path(os.path.abspath(folder))
        if not os.path.lexists(path / MANIFEST):
            raise DprlError(
                f"There is no log in parts in {str(folder)!r}: `dprl data partition` makes one of a log's files."
            )
        with _refuse_damaged(path):
            manifest = strict_object(path / MANIFEST, read_regular(path / MANIFEST, _MOST_BYTES, links=True))
        if manifest.get("schema") != SCHEMA:
            raise DprlError(
                f"The log in parts in {str(path)!r} was not written by this version of dprl: partition the log again."
            )
        with _refuse_damaged(path):
            by, columns, parts, prepared = _parsed(manifest)
            for part in parts:
                files = [(path / name, size) for name, size, _ in part.files]
                _require(all(file.is_file() and file.stat().st_size == size for file, size in files))
                with pa.memory_map(str(path / part.file)) as file:
                    schema = pa.ipc.open_file(file).schema
                _require([(f.name, str(f.type)) for f in schema] == columns and schema.field(by).type == pa.int64())
                types = list(schema.types)
        digests = [by, *(digest for part in parts for _, _, digest in part.files)]
        digest = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
        if known not in (None, digest):
            raise DprlError(f"The log in parts in {str(path)!r} is another one than when it was opened: begin again.")
        names, units = [name for name, _ in columns], sum(part.units for part in parts)
        return cls(path, by, names, types, units, digest, parts, prepared)

    def __reduce__(self) -> tuple[Any, ...]:
        return Parts.open, (str(self.folder), self.digest)

    def rows_of(self, units: np.ndarray) -> np.ndarray:
        """Return the ``(k,)`` int64 numbers of rows of ``(k,)`` units, given by their numbers in ascending order."""
        found = [np.zeros(0, dtype=np.int64)]
        for part, mine in self._by_part(units):
            offsets = self._opened(part)[1]
            found.append(offsets[mine + 1] - offsets[mine])
        return np.concatenate(found)

    def arrivals(self) -> np.ndarray:
        """Return ``(U,)`` numbers of all units, in the order in which they came first in the log; private."""
        few = sum(part.rows for part in self.parts) < 2**32  # then uint32 halves the memory
        came, start = np.empty(self.units, dtype=np.uint32 if few else np.int64), 0
        for part in self.parts:
            came[start : start + part.units] = self._array(part.came, part.units)[0]
            start += part.units
        # some units are sorted at a time, because the indices of a sort take more memory than the result
        order, start = np.empty(self.units, dtype=np.uint32 if self.units < 2**32 else np.int64), 0
        edges = np.linspace(0, sum(part.rows for part in self.parts), 2 + self.units // _SORTED).astype(np.int64)
        for low, high in pairwise(edges.tolist()):
            some = np.flatnonzero((came >= low) & (came < high))
            order[start : start + len(some)] = some[np.argsort(came[some])]
            start += len(some)
        return order

    def table(self, units: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Return the rows of ``(k,)`` units, given by their numbers in ascending order.

        No page of any other unit is needed. Where the numbers are consecutive, the columns are views of the files,
        whose pages :meth:`release_pages` gives back. Elsewhere they are copies.
        """
        schema, found = self._schema(columns), []
        for part, mine in self._by_part(units):
            batch, offsets, _ = self._opened(part)
            batch, starts, stops = batch.select(columns), offsets[mine], offsets[mine + 1]
            if mine[-1] - mine[0] == len(mine) - 1:
                found.append(batch.slice(int(starts[0]), int(stops[-1] - starts[0])))
            else:
                lengths = stops - starts
                rows = np.repeat(stops - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
                found.append(batch.take(pa.array(rows)))
                self.release_pages()
        return pa.Table.from_batches(found, schema)

    def columns_in_blocks(self, columns: Sequence[str], rows: int = 1 << 16, check: bool = False) -> Iterator[pa.Table]:
        """Yield all rows, also those without an identifier, ``rows`` at a time, as views of the files.

        Args:
            check: check each part as :meth:`check` does, before its first row is yielded.
        """
        schema, last = self._schema(columns), -1
        for part in range(len(self.parts)):
            if check:
                last = self._check_part(part, last)
            batch = self._opened(part)[0].select(columns)
            for start in range(0, batch.num_rows, rows):
                yield pa.Table.from_batches([batch.slice(start, rows)], schema)
            self.release_pages()

    def release_pages(self) -> None:
        """Give back the memory of pages that were read; pages that are needed again are read again from the files."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in chain.from_iterable(maps for _, _, maps in self._maps.values()):
                mapped.madvise(mmap.MADV_DONTNEED)  # no page is lost, because the file is only read

    def check(self) -> None:
        """Read everything once, and check that the files are those of the manifest and that no unit is split.

        This needs memory for the identifiers of one part.

        Raises:
            DprlError: a file was changed, or the rows of a unit are not in one place; the message names no unit.
        """
        for _ in self.columns_in_blocks([], check=True):
            continue

    # --- private methods ------------------------------------------------------------------------------------------

    def _check_part(self, number: int, last: int) -> int:
        """Refuse a part whose files are not those of the manifest, or whose units are not those of its identifiers.

        Return the part's last identifier of a unit, or ``last``, that of the parts before, where the part has none.
        """
        with _refuse_damaged(self.folder):
            _require(all(sha256_of(self.folder / name) == digest for name, _, digest in self.parts[number].files))
        batch, offsets, _ = self._opened(number)
        episode = column_of("episode_id", self.names) or self.by
        nobodys = np.flatnonzero(lacks_value(pa.Table.from_batches([batch.select([self.by, episode])])))
        end, rows = int(offsets[-1]), batch.num_rows
        if end != rows and not (0 <= end < rows and number == len(self.parts) - 1):
            raise self._split()
        if not np.array_equal(nobodys, np.arange(end, rows)):  # rows of nobody come after all units
            raise self._split()
        codes = np.append(last, codes_in_parts(batch.column(self.by).slice(0, end)))
        steps = np.diff(codes)
        # the offsets are exactly the rows at which another identifier begins
        if (steps < 0).any() or not np.array_equal(np.flatnonzero(steps), offsets[:-1]):
            raise self._split()
        return int(codes[-1])

    def _split(self) -> DprlError:
        return DprlError(
            f"The log in parts in {str(self.folder)!r} cannot be used: a unit's rows lie in more than one place. "
            "Partition the log again."
        )

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        for name in columns:
            if name not in self.names:
                raise DprlError(f"The log in parts has no column {name!r}.")
        return pa.schema([(name, self.kinds[name]) for name in columns])

    def _by_part(self, units: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each part that has some of these units, with their numbers within it."""
        units = np.asarray(units, dtype=np.int64)
        if len(units) and (units[0] < 0 or units[-1] >= self.units or (np.diff(units) <= 0).any()):
            raise ValueError("units are numbers of units in ascending order")
        first = np.cumsum([0, *(part.units for part in self.parts)])
        cuts = np.searchsorted(units, first)
        for part, (start, stop) in enumerate(pairwise(cuts)):
            if start < stop:
                yield part, units[start:stop] - first[part]

    def _opened(self, number: int) -> tuple[pa.RecordBatch, np.ndarray, tuple[mmap.mmap, ...]]:
        """Return the rows of a part, its offsets ``(U + 1,)`` and the maps of both files."""
        found = self._maps.get(number)
        if found is None:
            part = self.parts[number]
            with _refuse_damaged(self.folder):
                mapped: Any = np.memmap(self.folder / part.file, mode="r").base
                reader = pa.ipc.open_file(pa.py_buffer(mapped))
                batch = reader.get_batch(0)
                batch.validate()  # its buffers hold what its header claims
                _require(reader.num_record_batches == 1 and batch.num_rows == part.rows)
            offsets, also = self._array(part.offsets, part.units + 1)
            found = self._maps[number] = (batch, offsets, (mapped, also))
        return found

    def _array(self, name: str, count: int) -> tuple[np.ndarray, mmap.mmap]:
        """Return the ``count`` int64 numbers in a file, and the map of the file."""
        path = self.folder / name
        with _refuse_damaged(self.folder), suppress_warnings():  # about a header that is odd Python
            found: Any = npy.open_memmap(path, mode="r")  # this never unpickles
            _require(found.dtype == np.int64 and found.shape == (count,) and len(found.base) == path.stat().st_size)
        return np.asarray(found), found.base


def codes_in_parts(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return the ``(R,)`` int64 codes in a column of identifiers of a log in parts, -1 for missing."""
    filled = column.fill_null(-1) if column.null_count else column
    return filled.to_numpy()


def lacks_value(identifiers: pa.Table) -> np.ndarray:
    """Return ``(R,)`` whether a row lacks a value in any of these columns."""
    return np.logical_or.reduce([column.is_null().to_numpy() for column in identifiers.columns])


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _refuse_damaged(folder: Path) -> Iterator[None]:
    """Refuse a folder as damaged for whatever readers raise over false headers, and what :func:`_require` raises."""
    try:
        yield
    except Exception:
        raise DprlError(
            f"The log in parts in {str(folder)!r} is damaged: put a whole copy there, or partition the log again."
        ) from None


def _require(sound: bool) -> None:
    if not sound:
        raise ValueError


def _parsed(manifest: dict[str, Any]) -> tuple[str, list[tuple[str, str]], tuple[Part, ...], str | None]:
    """Return the manifest's unit column, names and types of columns, parts, and digest of the log's preparation."""
    by, prepared = manifest["by"], manifest.get("prepared")
    columns = [(column["name"], column["type"]) for column in manifest["columns"]]
    parts = tuple(Part(**part) for part in manifest["parts"])
    _require(by in dict(columns) and len(parts) > 0 and len(dict(columns)) == len(columns))
    _require(isinstance(prepared, str | None))
    for part in parts:
        _require(all(type(getattr(part, f.name)).__name__ == f.type for f in fields(Part)))
        _require(all(Path(name).name == name for name, _, _ in part.files) and 0 <= part.units <= part.rows)
    return by, columns, parts, prepared
