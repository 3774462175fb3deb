"""The ledger: what was ever spent on a dataset, in a SQLite file that refuses an overspend.

A dataset is a name that the curator declares, with a budget; a ledger has one privacy unit and one neighbouring
relation. A charge is written before the first row is read and is never taken back: charged but unfinished counts as
spent. Releases compose by the sums of their epsilons and deltas, in exact decimals. Nothing that was computed from
rows is stored, except a keyed fingerprint by which the same rows are recognised under another name.

Two processes cannot spend the same budget: a charge reads and writes in one immediate transaction, and the table
itself refuses a second charge with the same sequence number, a sum above the budget, and any change or removal.
A killed process, a full disk or an older copy of the database does not give a budget back either: each entry stands in
the intents beside the database (:mod:`dprl.accounting.intents`) before it is committed.
"""

from __future__ import annotations

import decimal
import os
import sqlite3
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from dprl.accounting import ledger_file
from dprl.accounting.budget import Budget
from dprl.accounting.intents import Intent
from dprl.accounting.ledger_schema import RELATIONS, UNITS
from dprl.accounting.reward_relation import REWARD_FUNCTION, parse_relation
from dprl.accounting.schema import hexadecimal, text
from dprl.errors import DprlError, OverspendError, require

# Every finite double has a decimal of at most some 1100 digits: sums are exact, or this context raises.
_EXACT = decimal.Context(prec=2500, Emax=9999, Emin=-9999, traps=[decimal.Inexact, decimal.InvalidOperation])


@dataclass(frozen=True)
class Amount:
    """Exact pair of epsilon and delta; zero is allowed, as for a budget that is used up."""

    epsilon: Decimal
    delta: Decimal

    def as_text(self) -> tuple[str, str]:
        """Return epsilon and delta as the texts that the ledger stores."""
        return str(self.epsilon), str(self.delta)


@dataclass(frozen=True)
class Dataset:
    """Declared dataset: its name, whole budget, privacy unit and neighbouring relation."""

    name: str
    budget: Amount
    unit: str
    relation: str
    created: str


@dataclass(frozen=True)
class Charge:
    """Charge of one release.

    Attributes:
        digest: digest of the release's certificate; None while the release is unfinished.
        settled: time at which the charge was entered from the intents, because its process was interrupted before it
            was recorded, or because an older copy of the ledger was put back; None where it was recorded at once.
    """

    id: int
    dataset: str
    amount: Amount
    purpose: str
    token: str
    created: str
    settled: str | None
    digest: str | None
    finished: str | None


@dataclass(frozen=True)
class Ledger:
    """Ledger file, by its path.

    The value holds only the path. Each call opens, checks, uses and closes the file, so that threads and processes may
    share the value. Every method raises DprlError, in one sentence, for a file that is missing, not a ledger, damaged,
    read-only, locked for long, written by another version, or without the intents that go with it.
    """

    path: Path

    @classmethod
    def create(cls, path: str | Path, dataset: str, budget: Budget, unit: str, relation: str) -> Ledger:
        """Declare a dataset with its whole budget, and return its ledger.

        Args:
            path: the ledger's file; it is made, with its intents (mode 0600), where there is none yet.
            dataset: the dataset's name.
            budget: all that may ever be spent on the dataset.
            unit: the privacy unit.
            relation: the neighbouring relation.

        Raises:
            DprlError: the dataset is already declared (a budget is never changed afterwards); the ledger keeps
                another privacy unit or relation; or the database is gone but its intents are not.
        """
        _check_text("dataset name", dataset, 200)
        plain = dataset == " ".join(unicodedata.normalize("NFKC", dataset).split())
        require(dataset, "A dataset needs a name.")
        require(plain, "A dataset's name has single spaces and Unicode form NFKC, so that no two names look the same.")
        _check_names(unit, relation)
        amount = _amount(budget)
        ledger = cls(Path(path))
        ledger_file.create(ledger.path)
        with ledger_file.writing(ledger.path) as opened:
            known = opened.db.execute("SELECT 1 FROM dataset WHERE name = ?", (dataset,)).fetchone()
            require(not known, f"The ledger {path} already has a dataset {dataset!r}; its budget is not changed.")
            others = "SELECT unit, relation FROM dataset WHERE unit <> ? OR relation <> ?"
            kept = opened.db.execute(others, (unit, relation)).fetchone()
            if kept is not None:
                keeps = f"The ledger {path} keeps the unit {kept[0]!r} and the relation {kept[1]!r}"
                raise DprlError(f"{keeps}; declare {dataset!r} by {unit!r} and {relation!r} in a ledger of its own.")
            try:
                opened.enter(Intent("dataset", dataset, *amount.as_text(), unit, relation, ledger_file.now()))
            except sqlite3.IntegrityError as error:  # nothing is declared in it yet, and its tables refuse the unit
                older = f"The ledger {path} was made before dprl knew the unit {unit!r}"
                raise DprlError(f"{older}: declare {dataset!r} in a new one.") from error
        return ledger

    @classmethod
    def open(cls, path: str | Path) -> Ledger:
        """Return the ledger at ``path``, after checking the file and entering what an interrupted process left."""
        ledger = cls(Path(path))
        with ledger_file.reading(ledger.path, whole=True):
            return ledger

    def charge(
        self, dataset: str, budget: Budget, unit: str, relation: str, purpose: str, token: str | None = None
    ) -> int:
        """Spend ``budget`` on ``dataset``, durably and in one immediate transaction, and return the charge's number.

        The charge is a reservation: it counts as spent from here on, whatever becomes of the release.

        Args:
            dataset: name of a declared dataset.
            budget: what the release may cost.
            unit: the release's privacy unit, which must be the ledger's.
            relation: the release's neighbouring relation, which must be the ledger's.
            purpose: a public note.
            token: 32 hexadecimal digits that the caller draws at random and keeps where a resumed run finds them.
                Charging the same token again, with the same dataset, amounts, unit and relation, returns the same
                number and spends nothing.

        Raises:
            OverspendError: the dataset's budget does not cover the release; the message says what is left.
            DprlError: an unknown dataset, another privacy unit or relation than the ledger's, or a token that
                belongs to another charge.
        """
        _check_text("purpose", purpose, 500)
        _check_names(unit, relation)
        token = os.urandom(16).hex() if token is None else token
        require(hexadecimal(32)(token), "A charge's token is 32 hexadecimal digits.")
        amount = _amount(budget)
        with ledger_file.writing(self.path) as opened:
            declared = self._find(opened.db, dataset)
            for name, asked, kept in (("privacy unit", unit, declared.unit), ("relation", relation, declared.relation)):
                keeps = f"The ledger keeps {dataset!r} by {name} {kept!r}; a release by {name} {asked!r} does not"
                require(asked == kept, f"{keeps} compose with it: ask for the ledger's own, or charge another ledger.")
            charged = "SELECT id, dataset, epsilon, delta FROM charge WHERE token = ?"
            known = opened.db.execute(charged, (token,)).fetchone()
            if known is not None:
                same = (known[1], _stored(*known[2:])) == (dataset, amount)
                other = f"The ledger {self.path} has this run's token on a charge of another dataset or amount"
                require(same, f"{other}: start a new run.")
                return known[0]
            left = _subtract(declared.budget, self._spent(opened.db, dataset))
            if amount.epsilon > left.epsilon or amount.delta > left.delta:
                raise OverspendError(
                    f"The ledger has epsilon {_show(left.epsilon)} and delta {_show(left.delta)} left for {dataset!r}; "
                    f"this release asks for epsilon {_show(amount.epsilon)} and delta {_show(amount.delta)}."
                )
            entry = Intent("charge", dataset, *amount.as_text(), unit, relation, ledger_file.now(), purpose, token)
            return opened.enter(entry)

    def commit(self, charge_id: int, digest: str) -> None:
        """Mark a charged release as finished, after its artifact was renamed into place.

        Args:
            charge_id: number of the charge.
            digest: digest of the release's certificate, 64 hexadecimal digits. The same digest may be committed
                twice; another one is refused.
        """
        sound = hexadecimal(64)(digest)
        require(sound, "A release is committed with the SHA-256 digest of its certificate, 64 hexadecimal digits.")
        with ledger_file.writing(self.path) as opened:
            row = opened.db.execute("SELECT digest FROM charge WHERE id = ?", (charge_id,)).fetchone()
            require(row, f"The ledger {self.path} has no charge {charge_id}.")
            other = f"Charge {charge_id} of the ledger {self.path} already belongs to another release."
            require(row[0] in (None, digest), other)
            if row[0] is None:
                finished = (digest, ledger_file.now(), charge_id)
                opened.db.execute("UPDATE charge SET digest = ?, finished = ? WHERE id = ?", finished)

    def bind(self, charge_id: int, content: str) -> bool:
        """Bind a charge to ``content``, unless an earlier call bound it, and return whether it is bound to ``content``.

        A run calls this after it has read its rows and before anything is drawn, so that no copy of the run folder
        makes a second release of other rows for the same charge.

        Args:
            charge_id: number of the charge.
            content: 64 hexadecimal digits that reveal nothing of what they stand for, such as a MAC.
        """
        require(hexadecimal(64)(content), "A charge is bound to 64 hexadecimal digits.")
        with ledger_file.writing(self.path) as opened:
            row = opened.db.execute(
                "SELECT dataset, token, content FROM charge LEFT JOIN binding ON charge = id WHERE id = ?", (charge_id,)
            ).fetchone()
            require(row, f"The ledger {self.path} has no charge {charge_id}.")
            if row[2] is None:
                opened.enter(Intent("binding", row[0], time=ledger_file.now(), token=row[1], content=content))
        return row[2] in (None, content)

    def claim(self, dataset: str, columns: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Note that these rows belong to ``dataset``, by a keyed fingerprint that never leaves the ledger's file.

        Call it as the rows are read, after the charge: ``log.load(inspect=partial(book.claim, dataset))``, also for a
        log that was opened from :class:`Trajectories`, or ``log.claim_in_blocks(partial(book.claim, dataset))`` for a
        log in parts. A name may claim several contents, as a dataset that grows does. An empty log claims nothing.

        Args:
            dataset: name of the dataset to which the rows belong.
            columns: columns of all rows, or of each block of rows: see
                :func:`dprl.accounting.fingerprint.fingerprint`.

        Raises:
            DprlError: another dataset of this ledger has claimed the same rows.
        """
        from dprl.accounting.fingerprint import fingerprint

        with ledger_file.reading(self.path) as opened:
            self._find(opened.db, dataset)
            secret = opened.secret
        blocks: Iterable[Any] = [columns] if isinstance(columns, Mapping) else columns
        content = fingerprint(blocks, secret)
        if content is None:
            return
        with ledger_file.writing(self.path) as opened:
            row = (content, dataset, ledger_file.now())
            opened.db.execute("INSERT INTO claim VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
            owner = opened.db.execute("SELECT dataset FROM claim WHERE fingerprint = ?", (content,)).fetchone()[0]
        stand = f"The rows of this log stand in the ledger {self.path} under another name than {dataset!r}"
        spent = f"whose budget they have; what was charged to {dataset!r} stays spent"
        require(owner == dataset, f"{stand}: release from them under that name, {spent}.")

    def datasets(self) -> list[Dataset]:
        """Return the declared datasets, in the order of their names."""
        with ledger_file.reading(self.path) as opened:
            return [_dataset(row) for row in opened.db.execute("SELECT * FROM dataset ORDER BY name")]

    def history(self, dataset: str | None = None) -> list[Charge]:
        """Return the charges of one dataset, or of all datasets, in the order in which they were made."""
        with ledger_file.reading(self.path) as opened:
            if dataset is not None:
                self._find(opened.db, dataset)
            rows = opened.db.execute(
                "SELECT id, dataset, epsilon, delta, purpose, token, created, settled, digest, finished FROM charge "
                "WHERE ?1 IS NULL OR dataset = ?1 ORDER BY id",
                (dataset,),
            )
            return [Charge(row[0], row[1], _stored(*row[2:4]), *row[4:]) for row in rows]

    def charge_of(self, number: int) -> tuple[Charge, Dataset]:
        """Return the charge of that number and the dataset to which it was charged; raise for an unknown number."""
        charge = next((one for one in self.history() if one.id == number), None)
        if charge is None:
            raise DprlError(f"The ledger {self.path} has no charge {number}.")
        return charge, next(one for one in self.datasets() if one.name == charge.dataset)

    def spent(self, dataset: str) -> Amount:
        """Return the sum of all charges to a dataset, finished or not, recorded at once or settled later."""
        with ledger_file.reading(self.path) as opened:
            self._find(opened.db, dataset)
            return self._spent(opened.db, dataset)

    def remaining(self, dataset: str) -> Amount:
        """Return what may still be charged to a dataset."""
        with ledger_file.reading(self.path) as opened:
            return _subtract(self._find(opened.db, dataset).budget, self._spent(opened.db, dataset))

    # --- private methods ------------------------------------------------------------------------------------------

    def _find(self, db: sqlite3.Connection, dataset: str) -> Dataset:
        known = isinstance(dataset, str) and dataset.isprintable()  # SQLite may not take anything else
        row = db.execute("SELECT * FROM dataset WHERE name = ?", (dataset,)).fetchone() if known else None
        if row is None:
            raise DprlError(f"The ledger {self.path} has no dataset {dataset!r}; declare it with `dprl ledger create`.")
        return _dataset(row)

    def _spent(self, db: sqlite3.Connection, dataset: str) -> Amount:
        epsilon = delta = Decimal(0)
        # equal amounts are counted before they are added, so that years of the same release are summed quickly
        amounts = "SELECT epsilon, delta, count(*) FROM charge WHERE dataset = ? GROUP BY epsilon, delta"
        for e, d, count in db.execute(amounts, (dataset,)):
            epsilon = _EXACT.add(epsilon, _EXACT.multiply(Decimal(e), count))
            delta = _EXACT.add(delta, _EXACT.multiply(Decimal(d), count))
        return Amount(epsilon, delta)


def _dataset(row: tuple[Any, ...]) -> Dataset:
    return Dataset(row[0], _stored(*row[1:3]), *row[3:6])


def _stored(epsilon: str, delta: str) -> Amount:
    return Amount(Decimal(epsilon), Decimal(delta))


def _amount(budget: Budget) -> Amount:
    # the shortest decimal that reads back as this float: what the user typed, so that 10 x 0.1 is 1
    return _stored(repr(float(budget.epsilon)), repr(float(budget.delta)))


def _subtract(whole: Amount, part: Amount) -> Amount:
    return Amount(_EXACT.subtract(whole.epsilon, part.epsilon), _EXACT.subtract(whole.delta, part.delta))


def _show(number: Decimal) -> str:
    # short enough to read, and rounded down, so that at least as much is left as a message says
    if number == 0:
        return "0"
    rounded = decimal.Context(prec=12, rounding=decimal.ROUND_DOWN).plus(number).normalize()
    return f"{rounded:f}" if abs(rounded.adjusted()) < 5 else f"{rounded:e}"


def _check_names(unit: str, relation: str) -> None:
    require(unit in UNITS, f"The privacy unit must be one of: {', '.join(UNITS)}.")
    if unit == REWARD_FUNCTION:
        known = isinstance(relation, str) and parse_relation(relation)
        words = "The neighbouring relation must be in words such as 'reward functions at most 0.01 apart'"
        require(known, f"{words}: `dprl train` says which words fit what it is asked for.")
    else:
        require(relation in RELATIONS, f"The neighbouring relation must be one of: {', '.join(RELATIONS)}.")


def _check_text(what: str, value: str, longest: int) -> None:
    sound = text(value) and len(value) <= longest
    require(sound, f"A {what} is one line of printable text of at most {longest} characters.")
