"""Which ledger a release is charged to, and under which name."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError


def open_account(ledger: str | Path | Ledger | None, dataset: str | None) -> tuple[Ledger, str] | None:
    """The ledger and the data's name in it; None where neither is given, refused where only one is."""
    if ledger is None:
        if dataset is not None:
            raise DprlError("A dataset is named, but no ledger: give --ledger FILE too.")
        return None
    if dataset is None:
        raise DprlError("A ledger is given, but not under which name this data's budget stands: give --dataset NAME.")
    return (ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)), dataset


def charge_learning(
    ledger: str | Path | Ledger | None, dataset: str | None, budget: Budget, unit: str, relation: str, name: str
) -> tuple[Ledger, int] | None:
    """Charge what learns without a log; the ledger and the charge's number, or None where no ledger is given.

    Args:
        unit, relation: as the ledger declares them.
        name: of the algorithm.
    """
    declare = f"`dprl ledger create`, --unit {unit!r} and --relation {relation!r}"
    if dataset is not None and isinstance(ledger, str | Path) and not (lexists(ledger) or lexists(f"{ledger}.intents")):
        raise DprlError(f"There is no ledger at {ledger}; make one with {declare}.")
    account = open_account(ledger, dataset)
    if account is None:
        return None
    book, data = account
    if data not in {declared.name for declared in book.datasets()}:
        raise DprlError(f"The ledger {book.path} has no dataset {data!r}; declare it with {declare}.")
    return book, book.charge(data, budget, unit, relation, f"train {name}")
