"""A ledger's two files under one lock: the SQLite database, and beside it the intents.

Every entry is first inserted (so that the tables have accepted it), then written to the intents and synced, and only
then committed. Whoever takes the lock begins by entering what the intents hold and the database does not.
"""

from __future__ import annotations

import decimal
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from pathlib import Path

from dprl.accounting import intents as intent_file
from dprl.accounting.intents import Intent, Intents, Mark, intents_path, open_intents
from dprl.accounting.ledger_schema import APPLICATION, BINDING, DIFFERENCES, KNOWN, SCHEMA, VERSION
from dprl.errors import DprlError, explained, require

BUSY_SECONDS = 30.0


class OpenLedger:
    """Both files of a ledger, checked and open; the ``secret`` keys fingerprints and never leaves the process."""

    def __init__(self, path: Path, db: sqlite3.Connection, intents: Intents, secret: bytes) -> None:
        self.db, self.secret = db, secret
        self._path = path
        self._intents = intents
        self._entered: tuple[Mark, Mark] | None = None

    def enter(self, entry: Intent) -> int:
        """Insert an entry, make its intent durable, and return the row's number; the caller commits."""
        before = self._mark()
        row = self._insert(entry, None)
        after = self._intents.append(before, entry)
        self._entered = before, after
        self._advance(after)
        return row

    def check_tables(self) -> None:
        """Refuse tables that do not hold exactly the entries of the intents.

        So a database with a changed byte neither shows an amount nor spends one.
        """
        entered = self._intents.entered(self._mark())
        tables = DIFFERENCES if _version(self.db) > min(KNOWN) else DIFFERENCES[:-1]  # older ledgers have no bindings
        differs = any(self.db.execute(query, (entered,)).fetchone()[0] for query in tables)
        require(not differs, _explain(self._path))

    def replay_pending(self) -> None:
        """Enter what the intents hold and the database does not; needs the write lock."""
        self.check_tables()
        if _version(self.db) < VERSION:
            for statement in BINDING:
                self.db.execute(statement)
            self.db.execute(f"PRAGMA user_version = {VERSION}")
        before = self._mark()
        entries, after = self._intents.unmatched(before)
        if entries:  # a process was interrupted, or an older copy was put back
            _check_pages(self._path, self.db)
            for entry in entries:
                self._insert(entry, now())
            self._advance(after)

    def behind(self) -> bool:
        """Return whether the intents hold more than the database, or less; settling them finds out what is wrong."""
        return self._intents.size != self._mark().size

    def withdraw(self) -> None:
        """Take back the intent of a commit that found the disk full, unless another process has entered it already.

        A failed write leaves no valid commit record in the write-ahead log, so that the entry cannot come back.
        """
        if self._entered is None:
            return
        before, after = self._entered
        with suppress(sqlite3.Error, DprlError, OSError):
            self.db.execute("BEGIN IMMEDIATE")
            if self._mark().size <= before.size and self._intents.size == after.size:
                self._intents.cut(before.size)
            self.db.execute("ROLLBACK")

    def _mark(self) -> Mark:
        return Mark(*self.db.execute("SELECT entries, size, digest FROM book").fetchone())

    def _advance(self, mark: Mark) -> None:
        self.db.execute("UPDATE book SET entries = ?, size = ?, digest = ?", astuple(mark))

    def _insert(self, entry: Intent, settled: str | None) -> int:
        cursor = self.db.execute(_INSERT[entry.kind], asdict(entry) | {"settled": settled})
        assert cursor.lastrowid is not None
        return cursor.lastrowid


_INSERT = {
    "dataset": "INSERT INTO dataset VALUES (:dataset, :epsilon, :delta, :unit, :relation, :time)",
    "binding": "INSERT INTO binding VALUES ((SELECT id FROM charge WHERE token = :token), :content, :time)",
    "charge": (
        "INSERT INTO charge (dataset, sequence, token, epsilon, delta, purpose, created, settled) "
        "VALUES (:dataset, 1 + (SELECT count(*) FROM charge WHERE dataset = :dataset), :token, :epsilon, :delta, "
        ":purpose, :time, :settled)"
    ),
}
"""Statement that inserts an entry of each kind into its table."""


@contextmanager
def writing(path: Path) -> Iterator[OpenLedger]:
    """Open a ledger for one immediate transaction, and settle the ledger first.

    The transaction is committed when the block ends, and rolled back when the block raises.
    """
    with _opened(path) as opened:
        try:
            with _transaction(opened.db):
                opened.replay_pending()
                yield opened
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", None) == "SQLITE_FULL":
                opened.withdraw()
            raise


@contextmanager
def reading(path: Path, *, whole: bool = False) -> Iterator[OpenLedger]:
    """Open one snapshot of a settled ledger; ``whole`` checks every page of the database first."""
    with _opened(path) as opened:
        if whole:
            _check_pages(path, opened.db)
        opened.db.execute("BEGIN")
        if opened.behind():
            # another process is charging just now, or was interrupted: whoever has the lock knows which
            opened.db.execute("ROLLBACK")
            with writing(path):
                pass
            opened.db.execute("BEGIN")
        try:
            opened.check_tables()
            yield opened
        finally:
            opened.db.execute("ROLLBACK")


def create(path: Path) -> None:
    """Make an empty ledger (both files, mode 0600) where there is none; repeat a creation that was interrupted."""
    real = _real(path)
    if not os.path.exists(real):
        _check_not_gone(path, real)
        with explained(f"The ledger {path} cannot be created"), suppress(FileExistsError):
            os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with _connected(path, blank=True) as db, _transaction(db):
        if _is_blank(db):
            _check_not_gone(path, real)
            ledger, secret = os.urandom(16).hex(), os.urandom(32)
            for statement in SCHEMA:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            mark = intent_file.start(path, intents_path(real), ledger, secret)
            db.execute("INSERT INTO book VALUES (1, ?, ?, ?, ?, ?)", (ledger, secret, *astuple(mark)))


def now() -> str:
    """Return the current time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _opened(path: Path) -> Iterator[OpenLedger]:
    with _connected(path) as db:
        ledger, secret = db.execute("SELECT ledger, secret FROM book").fetchone() or ("", None)
        if not isinstance(secret, bytes) or len(secret) != 32 or not isinstance(ledger, str):
            raise DprlError(_explain(path))
        with open_intents(path, intents_path(_real(path)), ledger, secret) as intents:
            yield OpenLedger(path, db, intents, secret)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def _connected(path: Path, *, blank: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a checked connection; ``blank`` also accepts an empty file, as an interrupted creation leaves it."""
    real = _real(path)
    _check_file(path, real)
    try:
        # mode=rw: never creates; autocommit, so that every BEGIN is ours
        db = sqlite3.connect(f"{real.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_SECONDS)
        with closing(db):
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA trusted_schema = OFF")
            if not (blank and _is_blank(db)):
                _check_content(path, db)
            ahead = f"The ledger {path} needs a file system with write-ahead logging; keep it on a local disk."
            require(_writes_ahead(db), ahead)
            yield db
    # a message of SQLite's that quotes a damaged page may not decode as text
    except (sqlite3.Error, decimal.DecimalException, UnicodeError) as error:
        raise DprlError(_explain(path, error)) from error


def _real(path: Path) -> Path:
    # the intents lie beside the file itself, whichever link leads to it
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise DprlError(f"The ledger {path} cannot be read: its path leads nowhere.") from error


def _check_file(path: Path, real: Path) -> None:
    # the file is never opened here: closing it would drop the locks that another thread's connection holds on it
    try:
        found = real.stat()
    except FileNotFoundError as error:
        _check_not_gone(path, real)
        raise DprlError(f"There is no ledger at {path}; make one with `dprl ledger create`.") from error
    except OSError as error:
        raise DprlError(f"The ledger {path} cannot be read: {error.strerror or error}.") from error
    require(stat.S_ISREG(found.st_mode), f"The ledger {path} cannot be read: it is not a file.")
    require(os.access(real, os.R_OK), f"The ledger {path} cannot be read: permission denied.")
    # a file that nobody may write is meant to be read-only, even where the user is root
    writable = found.st_mode & 0o222 and os.access(real, os.W_OK)
    require(writable, f"The ledger {path} is read-only, so nothing can be charged to it.")
    # each name of the file would have a separate write-ahead log and separate intents
    link = f"The ledger {path} has a second name, a hard link: remove that, or use a symbolic link."
    require(found.st_nlink == 1, link)


def _check_not_gone(path: Path, real: Path) -> None:
    """Refuse to begin a new ledger where the database is missing but its intents have entries."""
    gone = f"The ledger {path} is gone, but its intents are still there: put a copy of it back, however old"
    has_entries = intent_file.has_entries(path, intents_path(real))
    require(not has_entries, f"{gone}, and what was spent since is entered again.")


def _check_content(path: Path, db: sqlite3.Connection) -> None:
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    require(ours, f"{path} is not a dprl ledger.")
    version = _version(db)
    newer = f"The ledger {path} was written by a newer version of dprl; update dprl to use it."
    require(version <= VERSION, newer)
    early = f"The ledger {path} was written by a development version of dprl"
    require(not 0 < version < min(KNOWN), f"{early}: declare what is left of its budgets in a new one.")
    found = {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")}
    require(found in map(set, KNOWN.get(version, ())), _explain(path))


def _check_pages(path: Path, db: sqlite3.Connection) -> None:
    """Refuse a database with a damaged page, or with an index that does not agree with its table.

    This takes longer as the history grows, so only opening and settling do it. What a single call reads is checked as
    it is read.
    """
    sound = (
        db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
        and db.execute("PRAGMA foreign_key_check").fetchone() is None
    )
    require(sound, _explain(path))


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _writes_ahead(db: sqlite3.Connection) -> bool:
    """Switch a new database to write-ahead logging, and return whether that succeeded.

    This waits for another process that is making the database just now. SQLite does not wait here by itself, whatever
    its timeout.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return db.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal"
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
        time.sleep(0.01)


_EXPLANATIONS = (
    ("NOTADB", "{path} is not a dprl ledger."),
    ("READONLY PERM CANTOPEN AUTH", "The ledger {path} or its folder is read-only, so nothing can be charged to it."),
    ("BUSY LOCKED PROTOCOL", "The ledger {path} is in use by another process; try again when it has finished."),
    ("FULL IOERR", "The ledger {path} cannot be written: the disk is full or failing."),
    ("CONSTRAINT", "The ledger {path} refuses the entry: {error}."),
    ("", "The ledger {path} is damaged: put a copy of it back, however old, beside its newest intents."),
)
"""Sentences about a ledger that cannot be used, by SQLite's names for the error; the last is for all others."""


def _explain(path: Path, error: Exception | None = None) -> str:
    """Return one sentence that says what is wrong with a ledger."""
    name = (getattr(error, "sqlite_errorname", None) or "").removeprefix("SQLITE_")
    words = next(words for kinds, words in _EXPLANATIONS if name.startswith(tuple(kinds.split()) or ""))
    return words.format(path=path, error=error)


def _is_blank(db: sqlite3.Connection) -> bool:
    return (
        db.execute("PRAGMA application_id").fetchone()[0] == 0
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    )
