"""Which ledger a release is charged to, and under which name."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path

from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import RewardRelation, parse_relation
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


def learning_account(
    ledger: str | Path | Ledger | None, dataset: str | None, unit: str, relation: str
) -> tuple[Ledger, str] | None:
    """:func:`open_account` of what learns without a log, whose dataset must be declared before.

    Args:
        unit, relation: as the ledger is to declare them.
    """
    declare = f"`dprl ledger create`, --unit {unit!r} and --relation {relation!r}"
    if dataset is not None and isinstance(ledger, str | Path) and not (lexists(ledger) or lexists(f"{ledger}.intents")):
        raise DprlError(f"There is no ledger at {ledger}; make one with {declare}.")
    account = open_account(ledger, dataset)
    if account is not None and account[1] not in {declared.name for declared in account[0].datasets()}:
        raise DprlError(f"The ledger {account[0].path} has no dataset {account[1]!r}; declare it with {declare}.")
    return account


def declared_words(account: tuple[Ledger, str] | None, relation: RewardRelation) -> str:
    """The relation as the ledger declares it: a dataset keeps the words of the day on which it was declared."""
    words = relation.words()
    if account is None:
        return words
    (declared,) = (found for found in account[0].datasets() if found.name == account[1])
    return declared.relation if parse_relation(declared.relation) == relation else words
