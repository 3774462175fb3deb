"""Faults that only accidents show: an interruption, a copied folder, a damaged file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dprl import machine
from dprl.accounting.ledger import Ledger
from dprl.accounting.ledger_file import OpenLedger
from dprl.policies import loading
from dprl.release.journal import FolderJournal

from .planting import fault, gives

fault(
    "a charge is bound to nothing: a run folder's copy may forget its data",
    "one charge has one answer",
    (Ledger, "bind"),
)(gives(True))


fault("settings of JAX are not bound", "a run goes on with its own settings", (machine, "settings"))(gives({}))


@fault(
    "what was spent is computed again on resuming",
    "what a resumed stage has spent is read and never computed again",
    (FolderJournal, "step"),
)
def _(original: Any, self: Any, tag: bytes, step: int, dimension: int, compute: Callable[[], Any]) -> Any:
    computed = list[Any]()

    def once() -> Any:
        computed.append(compute())
        return computed[0]

    kept = original(self, tag, step, dimension, once)
    kept[:2] = (computed[0] if computed else compute())[:2]
    return kept


fault(
    "the ledger's tables are trusted over its intents", "a damaged ledger shows no amount", (OpenLedger, "check_tables")
)(gives(None))


@fault("only Exceptions of a policy are caught", "what user code raises is not heard", (loading, "quietly"))
def _(original: Any, call: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return call()
    except Exception:
        return otherwise
