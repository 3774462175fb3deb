"""The one way of a release: charged, its rows read and claimed, released, certified and saved. Wherever it is
interrupted, there is one charge and one certificate (docs/proofs/resume.md).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from dprl import machine
from dprl.accounting import certificate as certificates
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.engine.shards import suppress_warnings
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.release.run_folder import RunFolder, open_run
from dprl.release.save import UnsavedError, save_release

Account = tuple[Ledger, str]
Charge = tuple[Ledger, int]
Claim = Callable[[Any], object]
"""Told the raw rows of a log before anything is made of them; what it raises ends the release."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every front door is asked besides its own question; refused at once where it contradicts itself.

    Attributes:
        budget, seed, simulated, progress, run, resume: see :func:`dprl.evaluate`.
        certifies: whether the noise can be that of a private release.
    """

    budget: Budget
    seed: int | None = None
    simulated: bool = False
    progress: Callable[[int], None] | None = None
    run: str | Path | None = None
    resume: bool = False
    certifies: bool = True

    def __post_init__(self) -> None:
        if self.resume and self.run is None:
            raise DprlError("Name the run folder of the release to resume.")
        if self.run is not None and (self.seed is not None or self.simulated or not self.certifies):
            raise DprlError("Only a private release can be resumed: leave the run folder out, or seed and simulated.")
        if not isinstance(self.budget, Budget):
            raise DprlError("budget must be a dprl.Budget(epsilon, delta).")

    def noise(self) -> SecureNoise | SeededNoise:
        """A source of fresh noise, or of that of the seed."""
        return SecureNoise.fresh() if self.seed is None else SeededNoise.from_seed(self.seed)

    def expect(self, steps: int | None) -> None:
        """Tell the progress how much there is to do, if it listens."""
        if hasattr(self.progress, "expect"):
            self.progress.expect(steps)  # type: ignore[union-attr]


@dataclass(frozen=True, kw_only=True)
class Handout(ABC):
    """What every release hands out, and what it cost.

    Attributes:
        document: what was released, as plain data: the file ``document_name``, of which the report is made.
        certificate: the guarantee; sealed with digests when it is saved.
    """

    document_name: ClassVar[str]
    document: Mapping[str, Any] = field(repr=False)
    certificate: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _charge: Charge | None = field(default=None, repr=False)
    _run: RunFolder | None = field(default=None, repr=False)
    _saved: Path | None = field(default=None, repr=False)

    @property
    @abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """Artifacts besides the document, by name."""

    def save(self, folder: str | Path, sign_key: str | Path | None = None) -> dict[str, Path]:
        """Write all that was released, its report and its certificate into a new folder, all or nothing.

        The first time, this finishes the release: its charge is committed and its run folder removed.

        Returns:
            Name of each artifact -> its path.
        """
        done = _paths_of(self._saved, folder, self.certificate, sign_key)
        if done is not None:
            return done
        content = self.document_name, self.document, self.files, self.certificate
        return _save_finished(self._charge, self._run, *content, folder, sign_key)


T = TypeVar("T")
H = TypeVar("H", bound=Handout)


class Purpose(NamedTuple):
    """What a release is charged for, as the ledger declares it."""

    unit: str
    relation: str
    words: str


def release(
    asked: Asked,
    certificate: dict[str, Any],
    account: Account | None,
    purpose: Purpose,
    request: Mapping[str, Any],
    *,
    read: Callable[[Claim | None], Any] | None,
    make: Callable[[Any, RunFolder | None], H],
    restore: Callable[[Path], H],
) -> H:
    """Take a checked and planned release all the way: run folder, charge, claim, noise, certificate.

    Args:
        certificate: public facts, before anything is charged.
        request: what else binds a run folder.
        read: see :func:`read_and_release`.
        make: what is handed out, but for its certificate, of what was read; binds the run folder, if there is one.
        restore: the same from a folder in which it was saved.
    """
    folder = _open_run(asked, certificate, account, request)
    charge, finished, made = read_and_release(
        account,
        folder,
        asked.resume,
        asked.budget,
        purpose,
        restore=lambda path, sealed: replace(restore(path), certificate=sealed, _saved=path),
        read=read,
        release=lambda rows: make(rows, folder),
    )
    if finished is not None:
        return finished
    if charge is not None and account is not None:
        certificate["ledger"] = {
            "dataset": account[1],
            "charge": charge[1],
            "epsilon": asked.budget.epsilon,
            "delta": asked.budget.delta,
        }
    certificate["created"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(made, certificate=certificate, _charge=charge, _run=folder)


def _open_run(
    asked: Asked, certificate: Mapping[str, Any], account: Account | None, request: Mapping[str, Any]
) -> RunFolder | None:
    """The run folder that was asked for, bound to public facts: the unsealed certificate, and the ``request``."""
    if asked.run is None:
        return None
    facts = {name: value for name, value in certificate.items() if name != "versions"}
    facts |= {
        **request,
        "dataset": None if account is None else account[1],
        "ledger": None if account is None else str(account[0].path.absolute()),
    }
    device = machine.device() | machine.settings()
    return open_run(asked.run, asked.resume, {"request": facts, "versions": machine.versions(), "device": device})


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


def _save_finished(charge: Charge | None, run: RunFolder | None, *arguments: Any) -> dict[str, Path]:
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


def _paths_of(
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
