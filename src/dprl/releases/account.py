"""Which ledger a release is charged to, and under which name."""

from __future__ import annotations

from pathlib import Path

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
