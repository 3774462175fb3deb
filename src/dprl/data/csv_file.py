"""CSV logs, read so that nothing in one row can change how another row is read.

Every line stands alone: a quoted cell never extends beyond the end of its line. A line with more or fewer cells than
the header is dropped, and so is a line longer than :data:`LONGEST_LINE`. Cells are returned as text, so that the code
that turns them into numbers can judge each cell by itself.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dprl.errors import DprlError

LONGEST_LINE = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CHUNK = 1 << 20
_PLAIN = re.compile(rb'(?:[^",]*|"[^"]*")(?:,(?:[^",]*|"[^"]*"))*')


def read_header(path: Path) -> list[str]:
    """Return the column names, from the first line only.

    Raises:
        DprlError: there are no names, or the first line shows that the file is of another kind.
    """
    with path.open("rb") as file:
        line = file.readline(LONGEST_LINE)
    if line.startswith(_UTF_16):
        raise DprlError(f"The log {path.name!r} is in UTF-16: save it as UTF-8.")
    line = line.removeprefix(b"\xef\xbb\xbf").splitlines()
    try:
        text = line[0].decode() if line else ""
    except UnicodeDecodeError:
        text = line[0].decode("latin-1")
    if not text.strip():
        raise DprlError(f"The log {path.name!r} is empty, or its first line is: that has to name the columns.")
    try:
        names = [name.strip() for name in next(csv.reader([text]), [""])]
    except csv.Error:
        return [""]
    for sign, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and sign in text:
            raise DprlError(f"The first line of the log {path.name!r} has no commas but {called}: save it with commas.")
    return names


def read_cells(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return the named columns as text, null where a cell is empty; this succeeds whatever the rows hold."""
    return pa_csv.read_csv(**_reading(path, columns)).rename_columns(list(columns))


def cells_in_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of :func:`read_cells` in batches, whose columns have other names but the same order."""
    yield from pa_csv.open_csv(**_reading(path, columns))


def _reading(path: Path, columns: Sequence[str]) -> dict[str, Any]:
    """Return the arguments with which pyarrow reads the named columns."""
    header = read_header(path)
    places = [f"c{i}" for i in range(len(header))]
    return {
        "input_file": _Stream(_lines(path, ",".join(places).encode())),
        "read_options": pa_csv.ReadOptions(block_size=16 * LONGEST_LINE),
        "parse_options": pa_csv.ParseOptions(invalid_row_handler=lambda row: "skip"),
        "convert_options": pa_csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.string()),
            include_columns=[places[header.index(name)] for name in columns],
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        ),
    }


def _lines(path: Path, header: bytes) -> Iterator[bytes]:
    """Yield blocks of whole lines in UTF-8, after ``header`` in place of the file's own header."""
    yield header + b"\n"
    # the file's own header is skipped in the same way as a line that is too long
    rest, skipping = b"", True
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            # a lone carriage return ends a line too; one that a chunk splits from its line feed leaves an empty line
            whole, newline, tail = (rest + chunk.replace(b"\r", b"\n")).rpartition(b"\n")
            if newline:
                # only the first line can have begun in an earlier chunk; all others are shorter than a chunk
                first, _, others = whole.partition(b"\n")
                yield _clean(others if skipping or len(first) > LONGEST_LINE else whole)
                skipping = False
            skipping = skipping or len(tail) > LONGEST_LINE
            rest = b"" if skipping else tail
    if not skipping:
        yield _clean(rest)


def _clean(lines: bytes) -> bytes:
    if not lines.isascii():
        # whatever the encoding, each byte becomes one character, so that different identifiers stay different
        lines = lines.decode("latin-1").encode()
    if b'"' in lines:
        lines = b"\n".join(line if _PLAIN.fullmatch(line) else _requote(line) for line in lines.split(b"\n"))
    return lines + b"\n"


def _requote(line: bytes) -> bytes:
    """Return a line with irregular quotes (unbalanced, or inside a cell) in a form whose end no parser can run past."""
    try:
        cells = next(csv.reader([line.decode()]), [])
    except csv.Error:  # a cell beyond the reader's own limit
        return b""
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells).encode()


class _Stream(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._left = self._left or next(filter(None, self._blocks), b"")
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
