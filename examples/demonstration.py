"""Tools that the demonstrations share: a fresh ledger, and running commands one after another."""

from __future__ import annotations

import shutil
from pathlib import Path

from dprl.cli import main


def cleared(out: Path) -> tuple[Path, Path]:
    """Make the folder ``out`` without the files of an earlier run; return the paths of its ledger and its release."""
    out.mkdir(parents=True, exist_ok=True)
    ledger, results = out / "ledger.db", out / "release"
    shutil.rmtree(results, ignore_errors=True)
    for file in (ledger, out / "ledger.db-wal", out / "ledger.db-shm", out / "ledger.db.intents"):
        file.unlink(missing_ok=True)
    print("a fresh ledger for the demonstration; with people's data a charge is never taken back")
    return ledger, results


def run(*commands: list[str]) -> None:
    """Run commands of ``dprl``. The first command that fails ends the demonstration."""
    for arguments in commands:
        try:
            main(arguments)
        except SystemExit as stop:
            if stop.code:
                raise
