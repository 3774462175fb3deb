"""The one way of a release: charged, its rows read and claimed, and released. Wherever it is interrupted, there is one
charge and one certificate (docs/proofs/resume.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dprl import machine
from dprl.accounting import certificate as certificates
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.engine.shards import suppress_warnings
from dprl.errors import DprlError
from dprl.release.run_folder import RunFolder, open_run
from dprl.release.save import UnsavedError, save_release

Account = tuple[Ledger, str]
Charge = tuple[Ledger, int]
Claim = Callable[[Any], object]
"""Told the raw rows of a log before anything is made of them; what it raises ends the release."""
T = TypeVar("T")


class Purpose(NamedTuple):
    """What a release is charged for, as the ledger declares it."""

    unit: str
    relation: str
    words: str


def open_run_of(
    path: str | Path | None,
    resume: bool,
    certificate: Mapping[str, Any],
    account: Account | None,
    request: Mapping[str, Any],
) -> RunFolder | None:
    """The run folder at ``path``, bound to public facts: the certificate before it is sealed, and the ``request``."""
    if path is None:
        return None
    asked = {name: value for name, value in certificate.items() if name != "versions"}
    asked |= {
        **request,
        "dataset": None if account is None else account[1],
        "ledger": None if account is None else str(account[0].path.absolute()),
    }
    device = machine.device() | machine.settings()
    return open_run(path, resume, {"request": asked, "versions": machine.versions(), "device": device})


def read_and_release(
    account: Account | None,
    folder: RunFolder | None,
    resume: bool,
    budget: Budget,
    purpose: Purpose,
    *,
    restore: Callable[[Path, Mapping[str, Any]], T],
    read: Callable[[Claim | None], Any] | None,
    release: Callable[[Any], Any],
) -> tuple[Charge | None, T | None, Any]:
    """Charge the account, read the rows and claim them for it, and release what is made of them.

    Every release of rows goes this way, so that none is read before it is charged, and none released under a second
    name. Where anything is raised the run folder is closed; what was charged stays charged.

    Args:
        restore: the release of a folder and its certificate; raises if it cannot be read.
        read: reads the rows, and hands them to the claim that it is given, if it is given one. None where there are no
            rows, but a simulator, or people who have not come yet.
        release: makes of what was read what is to be released.

    Returns:
        The charge; the finished release, where all was done but the end, and nothing was read; else what was released.
    """
    try:
        charge, finished = _charged(account, folder, resume, budget, purpose, restore)
        if finished is not None:
            return charge, finished, None
        with suppress_warnings():
            return charge, None, release(None if read is None else _claimed(read, account))
    except BaseException:
        if folder is not None:
            folder.close()
        raise


def _claimed(read: Callable[[Claim | None], Any], account: Account | None) -> Any:
    """What was read, and claimed where there is an account."""
    if account is None:
        return read(None)
    ledger, dataset = account
    claims = 0

    def claim(rows: Any) -> None:
        nonlocal claims
        ledger.claim(dataset, rows)
        claims += 1

    rows = read(claim)
    if not claims:  # a mistake of ours, and nothing may come of it
        raise RuntimeError("The rows were read without being claimed.")
    return rows


def _charged(
    account: Account | None,
    folder: RunFolder | None,
    resume: bool,
    budget: Budget,
    purpose: Purpose,
    restore: Callable[[Path, Mapping[str, Any]], T],
) -> tuple[Charge | None, T | None]:
    """Charge the account, once for all that are begun in one run folder.

    Returns:
        The charge, and the release where all was done but the end: then it is finished now.
    """
    found = None if folder is None else _finished(folder, restore)
    if folder is not None and found is None:
        _ = folder.key  # without it nothing is charged
    charge = None
    if account is not None:
        try:
            token = None if folder is None else folder.token
            charge = account[0], account[0].charge(account[1], budget, *purpose, token)
        except DprlError:
            if folder is not None and not resume:
                folder.remove()
            raise
        if folder is not None:
            folder.recorded = partial(charge[0].bind, charge[1])
    _check_unfinished(charge, None if found is None else found[0]["digest"], folder)
    if folder is None or found is None:
        return charge, None
    if charge is not None:
        charge[0].commit(charge[1], found[0]["digest"])
    folder.remove()
    return charge, found[1]


def save_finished(charge: Charge | None, run: RunFolder | None, *arguments: Any) -> dict[str, Path]:
    """Paths of :func:`~dprl.release.save.save_release` with these ``arguments``.

    Commits the ledger's charge and removes the run folder, if there are such.
    """
    run = run if run is not None and run.open else None

    def announce(digest: str, path: Path) -> None:
        _check_unfinished(charge, digest, run)
        if run is not None:
            run.finish(digest, path)

    try:
        paths, digest = save_release(*arguments, announce=announce)
    except UnsavedError as error:
        if run is None:
            raise
        again = "make room there, and go on by --resume (in Python, save it again, or resume=True)"
        raise UnsavedError(f"{str(error).removesuffix('.')}: {again}; it is charged once.") from error
    if charge is not None:
        charge[0].commit(charge[1], digest)
    if run is not None:
        run.remove()
    return paths


def paths_of(
    saved: Path | None, folder: str | Path, certificate: Mapping[str, Any], sign_key: str | Path | None
) -> dict[str, Path] | None:
    """The artifacts of a release that was ``saved`` in this very ``folder`` before it was resumed; else None."""
    if saved is None or saved != Path(os.path.abspath(folder)):
        return None
    if sign_key is not None and "signature" not in certificate:
        raise DprlError(f"The release in {folder} was finished without a signature, and is not signed again.")
    return {name: saved / name for name in [*certificate["artifacts"], certificates.FILES[certificate["schema"]]]}


def _check_unfinished(charge: Charge | None, digest: str | None, folder: RunFolder | None) -> None:
    """One charge, one release: refuse a run, such as a copied one, whose charge belongs to another certificate."""
    if charge is None or folder is None:
        return
    ledger, number = charge
    known = next((c.digest for c in ledger.history() if c.id == number), None)
    if known is not None and known != digest:
        raise DprlError(
            f"The release of the run in {folder.path} is out already, says the ledger: delete the run folder, for with "
            "its key the noise can be subtracted."
        )


def _finished(folder: RunFolder, restore: Callable[[Path, Mapping[str, Any]], T]) -> tuple[Mapping[str, Any], T] | None:
    """Certificate and release of this very run, if it reached its folder before the run was interrupted."""
    if folder.finished is None:
        return None
    digest, path = folder.finished
    try:
        content = verification.verify(path).content
        return (content, restore(path, content)) if content["digest"] == digest else None
    except (DprlError, OSError, ValueError):
        return None
