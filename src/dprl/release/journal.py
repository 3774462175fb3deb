"""The journal of a run: noisy steps in a file, each on disk before the algorithm goes on, and none computed twice."""

from __future__ import annotations

import hashlib
import hmac
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dprl.errors import DprlError
from dprl.files import sync
from dprl.mechanisms.run_key import RunKey

_SECTOR = 512


class FolderJournal:
    """A file of noisy steps. Each step is on disk before it is handed out, and is then never computed again.

    A record is the stream's tag (8 bytes), the step (8), the grid points (8 each) and a MAC (32). The MAC covers the
    record and the MAC of the record before. Numbers are little-endian. Records are read back in the order in which they
    were written.
    """

    def __init__(self, path: Path, key: RunKey, origin: bytes) -> None:
        self._path, self._key, self._last, self._position = path, key, origin, 0
        with writing(path.parent):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            self.close = weakref.finalize(self, os.close, file)
            self._file, self._size = file, os.fstat(file).st_size
            sync(path.parent)

    def stream(self, name: str) -> _Stream:
        """Return the part of the journal that belongs to the mechanism ``name``."""
        return _Stream(self, hashlib.blake2b(name.encode(), digest_size=8).digest())

    def step(self, tag: bytes, step: int, dimension: int, compute: Callable[[], Any]) -> np.ndarray:
        """Return the grid points of a step: the kept ones, or those of ``compute``, which are written to disk first."""
        head = tag + step.to_bytes(8, "little")
        length = len(head) + 8 * dimension + 32
        if self._position < self._size:
            kept = self._replay(head, length)
            if kept is not None:
                return kept
        points = np.asarray(compute())
        if points.dtype != np.int64 or points.shape != (dimension,):
            raise TypeError("a noisy step is int64 grid points, of the declared dimension")
        body = head + points.astype("<i8").tobytes()
        mac = self._mac(body)
        with writing(self._path.parent):
            os.lseek(self._file, self._position, os.SEEK_SET)
            write_all(self._file, body + mac)
            os.fsync(self._file)
        self._position = self._size = self._position + length
        self._last = mac
        return points

    def _replay(self, head: bytes, length: int) -> np.ndarray | None:
        """Return the grid points of the next record; None if it is a torn last one.

        A torn record was never handed out, so it is cut off.
        """
        rest = self._size - self._position
        record = os.pread(self._file, length, self._position)
        body, mac = record[:-32], record[-32:]
        if len(record) == length and body[: len(head)] == head and hmac.compare_digest(self._mac(body), mac):
            self._position += length
            self._last = mac
            return np.frombuffer(body[len(head) :], dtype="<i8").astype(np.int64)
        if rest >= length and not (rest == length and self._has_hole(record)):
            raise tampered(self._path.parent)
        with writing(self._path.parent):
            os.ftruncate(self._file, self._position)
            os.fsync(self._file)
        self._size = self._position
        return None

    def _has_hole(self, record: bytes) -> bool:
        """Tell whether a sector of the record is all zeros: a power cut left the file's length, but not its content."""
        first = -self._position % _SECTOR
        cuts = [0, *range(first or _SECTOR, len(record), _SECTOR), len(record)]
        return any(not any(record[a:b]) for a, b in pairwise(cuts))

    def _mac(self, body: bytes) -> bytes:
        return self._key.mac(b"step\0" + self._last + body)


class _Stream:
    """Part of the journal that belongs to one mechanism; see :class:`~dprl.protocols.Journal`."""

    def __init__(self, journal: FolderJournal, tag: bytes) -> None:
        self._journal, self._tag = journal, tag

    def stream(self, name: str) -> _Stream:
        return self._journal.stream(f"{self._tag.hex()}/{name}")

    def step(self, step: int, dimension: int, compute: Callable[[], Any]) -> np.ndarray:
        return self._journal.step(self._tag, step, dimension, compute)


def write_all(file: int, content: bytes) -> None:
    """Write all of ``content``, also where the system takes only a part at a time."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def tampered(path: Path) -> DprlError:
    """Return the error for a damaged run folder."""
    return DprlError(
        f"The run folder {path} is damaged or was tampered with, so the run cannot be resumed: delete it (its charge "
        "stays spent)."
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a sentence: the run folder is gone, or it cannot be written."""
    try:
        yield
    except OSError as error:
        left = (
            f"cannot be written ({error.strerror or error}): what was charged stays charged, and the run can be resumed"
        )
        if not os.path.lexists(path):
            left = "is gone, so the run cannot be resumed: what was charged stays spent"
        raise DprlError(f"The run folder {path} {left}.") from error
