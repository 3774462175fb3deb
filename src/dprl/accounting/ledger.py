"""The ledger: what was ever spent on a dataset, in one SQLite file that refuses an overspend.

A dataset is a name that the curator declares, with a budget, a privacy unit and a neighbouring relation. A charge is
written before the first row is read and is never taken back: charged but unfinished counts as spent. Releases compose
by the sums of their epsilons and deltas, in exact decimals. Nothing that was computed from rows is stored.

Two processes cannot spend the same budget: a charge reads and writes in one immediate transaction, and the table
itself refuses a second charge with the same sequence number, a sum above the budget, and any change or removal.
"""

from __future__ import annotations

import decimal
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from dprl.accounting.budget import Budget
from dprl.errors import DprlError, OverspendError

UNITS = ("person", "trajectory")
RELATIONS = ("add or remove one", "zero out one", "replace one")

_APPLICATION, _VERSION, _BUSY_SECONDS = 0x6470726C, 1, 30.0  # "dprl"

# Every finite double has a decimal of at most some 1100 digits: sums are exact, or this context raises.
_EXACT = decimal.Context(prec=2500, Emax=9999, Emin=-9999, traps=[decimal.Inexact, decimal.InvalidOperation])

_SCHEMA = (
    f"""CREATE TABLE dataset (
  name TEXT PRIMARY KEY NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  epsilon TEXT NOT NULL CHECK (typeof(epsilon) = 'text' AND CAST(epsilon AS REAL) > 0),
  delta TEXT NOT NULL CHECK (typeof(delta) = 'text' AND CAST(delta AS REAL) > 0 AND CAST(delta AS REAL) < 1),
  unit TEXT NOT NULL CHECK (unit IN {UNITS}),
  relation TEXT NOT NULL CHECK (relation IN {RELATIONS}),
  created TEXT NOT NULL
)""",
    """CREATE TABLE charge (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dataset TEXT NOT NULL REFERENCES dataset (name),
  sequence INTEGER NOT NULL CHECK (sequence >= 1),
  epsilon TEXT NOT NULL CHECK (typeof(epsilon) = 'text' AND CAST(epsilon AS REAL) > 0),
  delta TEXT NOT NULL CHECK (typeof(delta) = 'text' AND CAST(delta AS REAL) > 0 AND CAST(delta AS REAL) < 1),
  purpose TEXT NOT NULL CHECK (length(purpose) <= 500),
  created TEXT NOT NULL,
  digest TEXT CHECK (digest IS NULL OR (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*')),
  finished TEXT CHECK ((finished IS NULL) = (digest IS NULL)),
  UNIQUE (dataset, sequence)
)""",
    # Decimal text is summed exactly in Python; in SQL its floating-point value, with room for rounding alone.
    """CREATE TRIGGER charge_within_budget BEFORE INSERT ON charge BEGIN
  SELECT RAISE(ABORT, 'a charge starts unfinished') WHERE NEW.digest IS NOT NULL;
  SELECT RAISE(ABORT, 'charges of a dataset are numbered without gaps')
    WHERE NEW.sequence <> 1 + (SELECT count(*) FROM charge WHERE dataset = NEW.dataset);
  SELECT RAISE(ABORT, 'overspend') FROM dataset WHERE name = NEW.dataset AND (
    CAST(epsilon AS REAL) * 1.000000001 < CAST(NEW.epsilon AS REAL)
      + (SELECT total(CAST(epsilon AS REAL)) FROM charge WHERE dataset = NEW.dataset)
    OR CAST(delta AS REAL) * 1.000000001 < CAST(NEW.delta AS REAL)
      + (SELECT total(CAST(delta AS REAL)) FROM charge WHERE dataset = NEW.dataset));
END""",
    """CREATE TRIGGER charge_is_kept BEFORE DELETE ON charge BEGIN
  SELECT RAISE(ABORT, 'a charge is never removed');
END""",
    """CREATE TRIGGER charge_is_final BEFORE UPDATE ON charge
WHEN OLD.digest IS NOT NULL OR NEW.id <> OLD.id OR NEW.dataset <> OLD.dataset OR NEW.sequence <> OLD.sequence
  OR NEW.epsilon <> OLD.epsilon OR NEW.delta <> OLD.delta OR NEW.purpose <> OLD.purpose OR NEW.created <> OLD.created
BEGIN
  SELECT RAISE(ABORT, 'a charge is never changed');
END""",
    """CREATE TRIGGER dataset_is_kept BEFORE DELETE ON dataset BEGIN
  SELECT RAISE(ABORT, 'a dataset is never removed');
END""",
    """CREATE TRIGGER dataset_is_final BEFORE UPDATE ON dataset BEGIN
  SELECT RAISE(ABORT, 'a dataset is never changed');
END""",
)


@dataclass(frozen=True)
class Amount:
    """An exact (epsilon, delta); zero is allowed, as for a budget that is used up."""

    epsilon: Decimal
    delta: Decimal


@dataclass(frozen=True)
class Dataset:
    """A declared dataset: its name, whole budget, privacy unit and neighbouring relation."""

    name: str
    budget: Amount
    unit: str
    relation: str
    created: str


@dataclass(frozen=True)
class Charge:
    """One release's charge; ``digest`` is its certificate's, None while the release is unfinished."""

    id: int
    dataset: str
    amount: Amount
    purpose: str
    created: str
    digest: str | None
    finished: str | None


@dataclass(frozen=True)
class Ledger:
    """A ledger file. The value holds the path alone: each call opens, checks, works and closes, so that it may be
    shared between threads and processes. Every method raises DprlError, in one sentence, for a file that is missing,
    not a ledger, damaged, read-only, locked for long, or written by a newer version.
    """

    path: Path

    @classmethod
    def create(cls, path: str | Path, dataset: str, budget: Budget, unit: str, relation: str) -> Ledger:
        """Declare ``dataset`` with its whole ``budget``; the file is made (mode 0600) where there is none yet.

        Raises DprlError where the dataset is already declared: a budget is never changed afterwards.
        """
        _text("dataset name", dataset, 200)
        if not dataset:
            raise DprlError("A dataset needs a name.")
        _known_names(unit, relation)
        ledger = cls(Path(path))
        try:
            os.close(os.open(ledger.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise DprlError(f"The ledger {ledger.path} cannot be created: {error.strerror or error}.") from error
        amount = _amount(budget)
        with ledger._transaction(blank=True) as db:
            if db.execute("SELECT 1 FROM dataset WHERE name = ?", (dataset,)).fetchone():
                raise DprlError(
                    f"The ledger {ledger.path} already has a dataset {dataset!r}; its budget is not changed."
                )
            row = (dataset, str(amount.epsilon), str(amount.delta), unit, relation, _now())
            db.execute("INSERT INTO dataset VALUES (?, ?, ?, ?, ?, ?)", row)
        return ledger

    @classmethod
    def open(cls, path: str | Path) -> Ledger:
        """The ledger at ``path``, after checking that it is one."""
        ledger = cls(Path(path))
        with ledger._connection():
            return ledger

    def charge(self, dataset: str, budget: Budget, unit: str, relation: str, purpose: str) -> int:
        """Spend ``budget`` on ``dataset``, durably and in one immediate transaction; returns the charge's id.

        ``purpose`` is a public note. Raises OverspendError, with what is left, when the budget does not cover it, and
        DprlError for an unknown dataset or another privacy unit or relation than the dataset's.
        """
        _text("purpose", purpose, 500)
        _known_names(unit, relation)
        amount = _amount(budget)
        with self._transaction() as db:
            declared = self._find(db, dataset)
            for name, asked, kept in (("privacy unit", unit, declared.unit), ("relation", relation, declared.relation)):
                if asked != kept:
                    raise DprlError(
                        f"The ledger keeps {dataset!r} by {name} {kept!r}; a release by {name} {asked!r} does not "
                        "compose with it."
                    )
            spent, count = self._spent(db, dataset)
            left = _subtract(declared.budget, spent)
            if amount.epsilon > left.epsilon or amount.delta > left.delta:
                raise OverspendError(
                    f"The ledger has epsilon {_show(left.epsilon)} and delta {_show(left.delta)} left for {dataset!r}; "
                    f"this release asks for epsilon {_show(amount.epsilon)} and delta {_show(amount.delta)}."
                )
            cursor = db.execute(
                "INSERT INTO charge (dataset, sequence, epsilon, delta, purpose, created) VALUES (?, ?, ?, ?, ?, ?)",
                (dataset, count + 1, str(amount.epsilon), str(amount.delta), purpose, _now()),
            )
            charge_id = cursor.lastrowid
        assert charge_id is not None
        return charge_id

    def commit(self, charge_id: int, digest: str) -> None:
        """Mark a charged release as finished; ``digest`` (64 hex digits) is that of its certificate.

        The same digest may be committed twice; another one is refused.
        """
        if not (isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
            raise DprlError("A release is committed with the SHA-256 digest of its certificate, 64 hexadecimal digits.")
        with self._transaction() as db:
            row = db.execute("SELECT digest FROM charge WHERE id = ?", (charge_id,)).fetchone()
            if row is None:
                raise DprlError(f"The ledger {self.path} has no charge {charge_id}.")
            if row[0] is None:
                db.execute("UPDATE charge SET digest = ?, finished = ? WHERE id = ?", (digest, _now(), charge_id))
            elif row[0] != digest:
                raise DprlError(f"Charge {charge_id} of the ledger {self.path} already belongs to another release.")

    def datasets(self) -> list[Dataset]:
        """What is declared, by name."""
        with self._connection() as db:
            return [_dataset(row) for row in db.execute("SELECT * FROM dataset ORDER BY name")]

    def history(self, dataset: str | None = None) -> list[Charge]:
        """Every charge in order, of one dataset or of all."""
        with self._connection() as db:
            if dataset is not None:
                self._find(db, dataset)
            rows = db.execute(
                "SELECT id, dataset, epsilon, delta, purpose, created, digest, finished FROM charge "
                "WHERE ?1 IS NULL OR dataset = ?1 ORDER BY id",
                (dataset,),
            )
            return [Charge(r[0], r[1], Amount(Decimal(r[2]), Decimal(r[3])), *r[4:]) for r in rows]

    def spent(self, dataset: str) -> Amount:
        """Sum of all charges, finished or not."""
        with self._connection() as db:
            self._find(db, dataset)
            return self._spent(db, dataset)[0]

    def remaining(self, dataset: str) -> Amount:
        """What may still be charged."""
        with self._connection() as db:
            return _subtract(self._find(db, dataset).budget, self._spent(db, dataset)[0])

    # --- below the floor ------------------------------------------------------------------------------------------

    def _find(self, db: sqlite3.Connection, dataset: str) -> Dataset:
        row = db.execute("SELECT * FROM dataset WHERE name = ?", (dataset,)).fetchone()
        if row is None:
            raise DprlError(f"The ledger {self.path} has no dataset {dataset!r}; declare it with `dprl ledger create`.")
        return _dataset(row)

    def _spent(self, db: sqlite3.Connection, dataset: str) -> tuple[Amount, int]:
        epsilon = delta = Decimal(0)
        count = 0
        for row in db.execute("SELECT epsilon, delta FROM charge WHERE dataset = ?", (dataset,)):
            epsilon, delta = _EXACT.add(epsilon, Decimal(row[0])), _EXACT.add(delta, Decimal(row[1]))
            count += 1
        return Amount(epsilon, delta), count

    @contextmanager
    def _transaction(self, *, blank: bool = False) -> Iterator[sqlite3.Connection]:
        """One immediate transaction: committed when the block ends, rolled back when it raises."""
        with self._connection(blank=blank) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                if blank and _is_blank(db):
                    for statement in _SCHEMA:
                        db.execute(statement)
                    db.execute(f"PRAGMA application_id = {_APPLICATION}")
                    db.execute(f"PRAGMA user_version = {_VERSION}")
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _connection(self, *, blank: bool = False) -> Iterator[sqlite3.Connection]:
        """A checked connection; ``blank`` also takes an empty file, which a creation that was cut off leaves behind."""
        self._check_file(blank)
        try:
            # mode=rw: never creates; autocommit, so that every BEGIN is ours
            db = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_BUSY_SECONDS
            )
            with closing(db):
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA foreign_keys = ON")
                db.execute("PRAGMA trusted_schema = OFF")
                if not (blank and _is_blank(db)):
                    self._check_content(db)
                if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                    raise DprlError(
                        f"The ledger {self.path} needs a file system with write-ahead logging; keep it on a local disk."
                    )
                yield db
        except (sqlite3.Error, decimal.DecimalException) as error:
            raise DprlError(self._explain(error)) from error

    def _check_file(self, blank: bool) -> None:
        try:
            with open(self.path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                magic = file.read(16)
        except FileNotFoundError as error:
            raise DprlError(f"There is no ledger at {self.path}; make one with `dprl ledger create`.") from error
        except OSError as error:
            raise DprlError(f"The ledger {self.path} cannot be read: {error.strerror or error}.") from error
        if magic != b"SQLite format 3\0" and not (blank and magic == b""):
            raise DprlError(f"{self.path} is not a dprl ledger.")
        # no write permission for anybody is meant as such, also where the user is root
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(self.path, os.W_OK):
            raise DprlError(f"The ledger {self.path} is read-only, so nothing can be charged to it.")

    def _check_content(self, db: sqlite3.Connection) -> None:
        if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise DprlError(f"{self.path} is not a dprl ledger.")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise DprlError(f"The ledger {self.path} was written by a newer version of dprl; update dprl to use it.")
        found = {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")}
        sound = (
            version == _VERSION
            and found == set(_SCHEMA)
            and db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            and db.execute("PRAGMA foreign_key_check").fetchone() is None
        )
        if not sound:
            raise DprlError(f"The ledger {self.path} is damaged; restore it from a backup before anything is charged.")

    def _explain(self, error: Exception) -> str:
        name = getattr(error, "sqlite_errorname", None) or ""
        if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN", "SQLITE_AUTH")):
            return f"The ledger {self.path} or its folder is read-only, so nothing can be charged to it."
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return f"The ledger {self.path} is in use by another process; try again when it has finished."
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return f"The ledger {self.path} cannot be written: the disk is full or failing."
        if name.startswith("SQLITE_CONSTRAINT"):
            return f"The ledger {self.path} refuses the entry: {error}."
        return f"The ledger {self.path} is damaged; restore it from a backup before anything is charged."


def _is_blank(db: sqlite3.Connection) -> bool:
    return (
        db.execute("PRAGMA application_id").fetchone()[0] == 0
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    )


def _dataset(row: tuple[Any, ...]) -> Dataset:
    return Dataset(row[0], Amount(Decimal(row[1]), Decimal(row[2])), row[3], row[4], row[5])


def _amount(budget: Budget) -> Amount:
    # the shortest decimal that reads back as this float: what the user typed, so that 10 x 0.1 is 1
    return Amount(Decimal(repr(float(budget.epsilon))), Decimal(repr(float(budget.delta))))


def _subtract(whole: Amount, part: Amount) -> Amount:
    return Amount(_EXACT.subtract(whole.epsilon, part.epsilon), _EXACT.subtract(whole.delta, part.delta))


def _show(number: Decimal) -> str:
    # to the reader's eye, and rounded down: what a message says is left, is left
    if number == 0:
        return "0"
    rounded = decimal.Context(prec=12, rounding=decimal.ROUND_DOWN).plus(number).normalize()
    return f"{rounded:f}" if abs(rounded.adjusted()) < 5 else f"{rounded:e}"


def _known_names(unit: str, relation: str) -> None:
    if unit not in UNITS:
        raise DprlError(f"The privacy unit must be one of: {', '.join(UNITS)}.")
    if relation not in RELATIONS:
        raise DprlError(f"The neighbouring relation must be one of: {', '.join(RELATIONS)}.")


def _text(what: str, value: str, longest: int) -> None:
    if not isinstance(value, str) or len(value) > longest or (value and not value.isprintable()):
        raise DprlError(f"A {what} is one line of printable text of at most {longest} characters.")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
