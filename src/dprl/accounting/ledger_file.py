"""A ledger's two files under one lock: the SQLite database, and beside it the intents.

The order of every entry: it is inserted (so that the tables have accepted it), written to the intents and synced,
and only then committed. Whoever takes the lock first enters what the intents hold and the database does not.
"""

from __future__ import annotations

import decimal
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from dprl.accounting import intents as intent_file
from dprl.accounting.intents import Entry, Intents, Mark, intents_path, open_intents
from dprl.accounting.ledger_schema import APPLICATION, BINDING, DIFFERENCES, KNOWN, SCHEMA, VERSION
from dprl.errors import DprlError

BUSY_SECONDS = 30.0


class Books:
    """Both files, checked and open. ``secret`` keys fingerprints and never leaves the process."""

    def __init__(self, path: Path, db: sqlite3.Connection, intents: Intents, secret: bytes) -> None:
        self.db, self.secret = db, secret
        self._path = path
        self._intents = intents
        self._entered: tuple[Mark, Mark] | None = None

    def enter(self, entry: Entry) -> int:
        """Insert an entry and make its intent durable; the caller commits. Returns the row's number."""
        before = self._mark()
        row = self._insert(entry, None)
        after = self._intents.append(before, entry)
        self._entered = before, after
        self._advance(after)
        return row

    def check_tables(self) -> None:
        """Refuse tables that do not hold what the intents say, each entry of them and nothing else.

        So a database of which a byte is another one shows no amount, and spends none.
        """
        entered = self._intents.entered(self._mark())
        tables = DIFFERENCES if _version(self.db) > min(KNOWN) else DIFFERENCES[:-1]  # the older ones have no bindings
        if any(self.db.execute(differ, (entered,)).fetchone()[0] for differ in tables):
            raise DprlError(_explain(self._path))

    def settle(self) -> None:
        """Enter what the intents hold and the database does not; needs the write lock."""
        self.check_tables()
        if _version(self.db) < VERSION:
            for statement in BINDING:
                self.db.execute(statement)
            self.db.execute(f"PRAGMA user_version = {VERSION}")
        before = self._mark()
        entries, after = self._intents.unmatched(before)
        if entries:  # somebody was interrupted, or an older copy put back
            _check_pages(self._path, self.db)
        for entry in entries:
            self._insert(entry, now())
        if entries:
            self._advance(after)

    def behind(self) -> bool:
        """Whether the intents hold more than the database; refuses intents that do not belong to it."""
        mark = self._mark()
        self._intents.check(mark)
        return self._intents.size != mark.size

    def withdraw(self) -> None:
        """Take back the intent of a commit that found the disk full, unless another process has entered it already.

        A write that failed leaves no valid commit record in the log, so that the entry cannot come back.
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
        self.db.execute("UPDATE book SET entries = ?, size = ?, digest = ?", (mark.entries, mark.size, mark.digest))

    def _insert(self, entry: Entry, settled: str | None) -> int:
        if entry.kind == "dataset":
            row = (entry.dataset, entry.epsilon, entry.delta, entry.unit, entry.relation, entry.time)
            cursor = self.db.execute("INSERT INTO dataset VALUES (?, ?, ?, ?, ?, ?)", row)
        elif entry.kind == "binding":
            cursor = self.db.execute(
                "INSERT INTO binding VALUES ((SELECT id FROM charge WHERE token = ?), ?, ?)",
                (entry.token, entry.content, entry.time),
            )
        else:
            cursor = self.db.execute(
                "INSERT INTO charge (dataset, sequence, token, epsilon, delta, purpose, created, settled) "
                "VALUES (?1, 1 + (SELECT count(*) FROM charge WHERE dataset = ?1), ?2, ?3, ?4, ?5, ?6, ?7)",
                (entry.dataset, entry.token, entry.epsilon, entry.delta, entry.purpose, entry.time, settled),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


@contextmanager
def writing(path: Path) -> Iterator[Books]:
    """One immediate transaction, settled first: committed when the block ends, rolled back when it raises."""
    with _opened(path) as books:
        books.db.execute("BEGIN IMMEDIATE")
        try:
            books.settle()
            yield books
            books.db.execute("COMMIT")
        except BaseException as error:
            if books.db.in_transaction:
                books.db.execute("ROLLBACK")
            if getattr(error, "sqlite_errorname", None) == "SQLITE_FULL":
                books.withdraw()
            raise


@contextmanager
def reading(path: Path, *, whole: bool = False) -> Iterator[Books]:
    """One snapshot of a settled ledger; ``whole`` looks at every page of the database first."""
    with _opened(path) as books:
        if whole:
            _check_pages(path, books.db)
        books.db.execute("BEGIN")
        if books.behind():
            # somebody is charging just now, or was interrupted: whoever has the lock knows which
            books.db.execute("ROLLBACK")
            with writing(path):
                pass
            books.db.execute("BEGIN")
        try:
            books.check_tables()
            yield books
        finally:
            books.db.execute("ROLLBACK")


def create(path: Path) -> None:
    """Make an empty ledger (both files, mode 0600) where there is none; repeats a creation that was cut off."""
    real = _real(path)
    if not os.path.exists(real) and intent_file.has_entries(path, intents_path(real)):
        raise _gone(path)
    try:
        os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise DprlError(f"The ledger {path} cannot be created: {error.strerror or error}.") from error
    with _connected(path, blank=True) as db:
        db.execute("BEGIN IMMEDIATE")
        try:
            if _is_blank(db):
                if intent_file.has_entries(path, intents_path(real)):
                    raise _gone(path)
                ledger, secret = os.urandom(16).hex(), os.urandom(32)
                for statement in SCHEMA:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {VERSION}")
                mark = intent_file.start(path, intents_path(real), ledger, secret)
                row = (ledger, secret, mark.entries, mark.size, mark.digest)
                db.execute("INSERT INTO book VALUES (1, ?, ?, ?, ?, ?)", row)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def now() -> str:
    """Universal time, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _opened(path: Path) -> Iterator[Books]:
    with _connected(path) as db:
        ledger, secret = db.execute("SELECT ledger, secret FROM book").fetchone() or ("", None)
        if not isinstance(secret, bytes) or len(secret) != 32 or not isinstance(ledger, str):
            raise DprlError(_explain(path))
        with open_intents(path, intents_path(_real(path)), ledger, secret) as intents:
            yield Books(path, db, intents, secret)


@contextmanager
def _connected(path: Path, *, blank: bool = False) -> Iterator[sqlite3.Connection]:
    """A checked connection; ``blank`` also takes an empty file, which a creation that was cut off leaves behind."""
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
            if not _writes_ahead(db):
                raise DprlError(
                    f"The ledger {path} needs a file system with write-ahead logging; keep it on a local disk."
                )
            yield db
    # a message of SQLite's that quotes a damaged page is no text either
    except (sqlite3.Error, decimal.DecimalException, UnicodeError) as error:
        raise DprlError(_explain(path, error)) from error


def _real(path: Path) -> Path:
    # the intents lie beside the file itself, whichever link leads to it
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise DprlError(f"The ledger {path} cannot be read: its path leads nowhere.") from error


def _check_file(path: Path, real: Path) -> None:
    # never opened here: closing it would drop the locks that another thread's connection holds on it
    try:
        found = real.stat()
    except FileNotFoundError as error:
        if intent_file.has_entries(path, intents_path(real)):
            raise _gone(path) from error
        raise DprlError(f"There is no ledger at {path}; make one with `dprl ledger create`.") from error
    except OSError as error:
        raise DprlError(f"The ledger {path} cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise DprlError(f"The ledger {path} cannot be read: it is not a file.")
    if not os.access(real, os.R_OK):
        raise DprlError(f"The ledger {path} cannot be read: permission denied.")
    # no write permission for anybody is meant as such, also where the user is root
    if not found.st_mode & 0o222 or not os.access(real, os.W_OK):
        raise DprlError(f"The ledger {path} is read-only, so nothing can be charged to it.")
    if found.st_nlink != 1:
        # each name would have a write-ahead log and intents of its own
        raise DprlError(f"The ledger {path} has a second name, a hard link: remove that, or use a symbolic link.")


def _check_content(path: Path, db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise DprlError(f"{path} is not a dprl ledger.")
    version = _version(db)
    if version > VERSION:
        raise DprlError(f"The ledger {path} was written by a newer version of dprl; update dprl to use it.")
    if 0 < version < min(KNOWN):
        raise DprlError(
            f"The ledger {path} was written by a development version of dprl: declare what is left of its budgets in "
            "a new one."
        )
    found = {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")}
    if found not in map(set, KNOWN.get(version, ())):
        raise DprlError(_explain(path))


def _check_pages(path: Path, db: sqlite3.Connection) -> None:
    """Refuse a database of which a page is damaged, or an index does not agree with its table.

    Grows with the history, so it is for opening and settling; what a single call reads is checked as it is read.
    """
    sound = (
        db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
        and db.execute("PRAGMA foreign_key_check").fetchone() is None
    )
    if not sound:
        raise DprlError(_explain(path))


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _writes_ahead(db: sqlite3.Connection) -> bool:
    """Switch a new database to write-ahead logging; waits for another process that is making it just now.

    SQLite does not wait here by itself, whatever its timeout.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return db.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal"
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _gone(path: Path) -> DprlError:
    return DprlError(
        f"The ledger {path} is gone, but its intents are still there: put a copy of the ledger back, however old, and "
        "what was spent since is entered again."
    )


def _explain(path: Path, error: Exception | None = None) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith("SQLITE_NOTADB"):
        return f"{path} is not a dprl ledger."
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN", "SQLITE_AUTH")):
        return f"The ledger {path} or its folder is read-only, so nothing can be charged to it."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return f"The ledger {path} is in use by another process; try again when it has finished."
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return f"The ledger {path} cannot be written: the disk is full or failing."
    if name.startswith("SQLITE_CONSTRAINT"):
        return f"The ledger {path} refuses the entry: {error}."
    return f"The ledger {path} is damaged: put a copy of it back, however old, beside its newest intents."


def _is_blank(db: sqlite3.Connection) -> bool:
    return (
        db.execute("PRAGMA application_id").fetchone()[0] == 0
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    )
