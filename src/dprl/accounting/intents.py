"""The intents: an append-only file beside a ledger's database that says what is about to be entered there.

An entry is on disk before the database commits it. An entry that stands here but not in the database (because the
process was killed in between, or an older copy of the database was put back) therefore counts as spent. The next
process that holds the database's lock enters it. Each line is one entry: JSON and its keyed checksum. Line 0 names the
ledger.

The database keeps a :class:`Mark`: how much of this file it has entered, and the digest of exactly that much. A file
that is shorter, or whose beginning differs by one byte, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from io import FileIO
from pathlib import Path

from dprl.errors import DprlError, explained, require
from dprl.files import sync

_CHECKSUM = re.compile(rb" [0-9a-f]{32}\n")  # ends with the end of the line, which never occurs within JSON
_HEADER = b'{"n": 0, "kind": "ledger", "version": 2, "ledger": "'


@dataclass(frozen=True)
class Intent:
    """Line of the intents: a declared dataset, a charge, or a charge's binding; fields that do not apply are empty.

    Attributes:
        kind: ``dataset``, ``charge`` or ``binding``.
        dataset: name of the dataset.
        epsilon, delta: exact decimals, as text.
        token: 32 hexadecimal digits of a charge, by which an interrupted run finds the charge again.
        content: 64 hexadecimal digits to which the charge with that ``token`` is bound.
    """

    kind: str
    dataset: str
    epsilon: str = ""
    delta: str = ""
    unit: str = ""
    relation: str = ""
    time: str = ""
    purpose: str = ""
    token: str = ""
    content: str = ""


@dataclass(frozen=True)
class Mark:
    """Record of how much of the intents the database has entered: lines, bytes, and the digest of those bytes."""

    entries: int
    size: int
    digest: str


class Intents:
    """Open file of intents; whoever writes to it needs the database's write lock.

    The methods raise DprlError, in one sentence, for a file that is not the one that the database knows.
    """

    def __init__(self, shown: Path, file: FileIO, ledger: str, secret: bytes) -> None:
        self._shown, self._file, self._ledger = shown, file, ledger
        self._key = _key(secret)
        self._hash = hashlib.blake2b(digest_size=32)  # digest of what was read and written so far

    @property
    def size(self) -> int:
        """Return the size of the file, in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, mark: Mark) -> tuple[bytes, bytes]:
        """Return the bytes that the database has entered, and those beyond; refuse a file with another beginning."""
        self._file.seek(0)
        content = self._file.readall()
        self._hash = hashlib.blake2b(memoryview(content)[: mark.size], digest_size=32)
        if len(content) < mark.size or self._hash.hexdigest() != mark.digest:
            if content.startswith(_HEADER) and not content.startswith(_HEADER + self._ledger.encode()):
                file = intents_path(self._shown)
                raise DprlError(f"The file {file} belongs to another ledger than {self._shown}: put its own one back.")
            raise self._changed()
        return content[: mark.size], content[mark.size :]

    def entered(self, mark: Mark) -> str:
        """Return all entries up to ``mark``, in order, as a JSON list: exactly what the database must hold."""
        content, _ = self.read(mark)
        if not content.startswith(_header(self._ledger, self._key)) or content.count(b"\n") != mark.entries:
            raise self._changed()
        # the mark's digest proves all these lines, as the checksum of each line does beyond the mark
        return "[" + _CHECKSUM.sub(b",", content).decode()[:-1] + "]"

    def unmatched(self, mark: Mark) -> tuple[list[Intent], Mark]:
        """Return the entries that the database lacks, in order, and the mark after them; cut off a torn last line."""
        *lines, torn = self.read(mark)[1].split(b"\n")
        if lines and not torn and b"\0" in lines[-1]:
            torn = lines.pop()  # a power cut lost a block of this line, so nobody was told that it was written
        entries = [self._entry(line, mark.entries + i) for i, line in enumerate(lines)]
        whole = b"".join(line + b"\n" for line in lines)
        self._hash.update(whole)
        after = Mark(mark.entries + len(lines), mark.size + len(whole), self._hash.hexdigest())
        if torn:
            self.cut(after.size)
        elif entries:
            # their writer may have ended before the lines were on disk; the database must not be ahead of the intents
            os.fsync(self._file.fileno())
        return entries, after

    def append(self, mark: Mark, entry: Intent) -> Mark:
        """Write ``entry`` after ``mark``, wait until it is on disk, and return the mark after it.

        When writing fails, the file is cut back, and nothing was spent.
        """
        if self.size != mark.size or self._hash.hexdigest() != mark.digest:
            raise self._changed()
        body = {"n": mark.entries} | {name: text for name, text in asdict(entry).items() if text}
        line = _line(json.dumps(body).encode(), self._key)
        with explained(_failed("written", self._shown)):
            try:
                _write(self._file, line)
            except OSError:
                with suppress(OSError):
                    self.cut(mark.size)
                raise
        self._hash.update(line)
        return Mark(mark.entries + 1, mark.size + len(line), self._hash.hexdigest())

    def cut(self, size: int) -> None:
        """Cut the file to ``size`` bytes; nobody was told that the bytes beyond were written."""
        self._file.truncate(size)
        os.fsync(self._file.fileno())

    def _entry(self, line: bytes, number: int) -> Intent:
        body, _, checksum = line.rpartition(b" ")
        if checksum != _checksum(body, self._key):
            raise self._changed()
        found = json.loads(body)
        if found.pop("n") != number or not set(found) <= {f.name for f in fields(Intent)}:
            raise self._changed()
        return Intent(**found)

    def _changed(self) -> DprlError:
        return DprlError(
            f"The intents {intents_path(self._shown)} are not those that the ledger {self._shown} goes with "
            "(shortened, edited or older): put their newest copy back."
        )


def intents_path(ledger: Path) -> Path:
    """Return the path of a ledger's intents."""
    return ledger.with_name(ledger.name + ".intents")


def has_entries(shown: Path, real: Path) -> bool:
    """Return whether the file at ``real`` holds more than the first line, which an interrupted creation may leave."""
    if not os.path.lexists(real):
        return False
    with explained(_failed("opened", shown)), _open(shown, real) as file:
        content = file.readall()
    return not _HEADER.startswith(content[: len(_HEADER)]) or content.count(b"\n") > 1


def start(shown: Path, real: Path, ledger: str, secret: bytes) -> Mark:
    """Begin the intents of a new ledger, in a file of mode 0600, and return their mark.

    The caller must have checked with :func:`has_entries` that no other ledger's intents lie there.

    Args:
        shown: path of the ledger as the user gave it.
        real: path of the intents' file.
        ledger: the ledger's own name, 32 hexadecimal digits.
        secret: 32 bytes, from which the key of the checksums is made.
    """
    line = _header(ledger, _key(secret))
    with explained(_failed("written", shown)):
        with _open(shown, real, os.O_CREAT) as file:
            file.truncate(0)
            _write(file, line)
        sync(real.parent)
    return Mark(1, len(line), hashlib.blake2b(line, digest_size=32).hexdigest())


@contextmanager
def open_intents(shown: Path, real: Path, ledger: str, secret: bytes) -> Iterator[Intents]:
    """Open the intents at ``real``, of the ledger that the user calls ``shown``."""
    there = os.path.lexists(real)
    require(there, f"The intents {intents_path(shown)} of the ledger {shown} are missing: put their newest copy back.")
    with explained(_failed("opened", shown)):
        file = _open(shown, real)
    with file, explained(_failed("written", shown)):
        yield Intents(shown, file, ledger, secret)


def _open(shown: Path, real: Path, flags: int = 0) -> FileIO:
    flags |= os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    file = FileIO(os.open(real, flags, 0o600), "r+")
    found = os.fstat(file.fileno())
    reason = None
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        reason = "must be a plain file without a second name"
    elif not found.st_mode & 0o222:
        # a file that nobody may write is meant to be read-only, even where the user is root
        reason = f"are read-only, so nothing can be charged to {shown}"
    if reason is not None:
        file.close()
        raise DprlError(f"The intents {intents_path(shown)} {reason}.")
    return file


def _write(file: FileIO, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def _failed(done: str, shown: Path) -> str:
    return f"The intents {intents_path(shown)} cannot be {done}"


def _key(secret: bytes) -> bytes:
    return hashlib.blake2b(key=secret, digest_size=32, person=b"dprl intents").digest()


def _header(ledger: str, key: bytes) -> bytes:
    return _line(_HEADER + ledger.encode() + b'"}', key)


def _line(body: bytes, key: bytes) -> bytes:
    return body + b" " + _checksum(body, key) + b"\n"


def _checksum(body: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(body, key=key, digest_size=16).hexdigest().encode()
