"""The one path that every release takes: charge, read and claim the rows, release, certify and save.

Wherever a release is interrupted, it has one charge and one certificate in the end (docs/proofs/resume.md).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from os.path import lexists
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from dprl import machine
from dprl.accounting import certificate as certificates
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import RewardRelation, parse_relation
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.release.run_folder import RunFolder, check_run
from dprl.release.save import save_release
from dprl.report import render
from dprl.report.pages import Certificate, HasPage
from dprl.user_code import suppress_warnings

Account = tuple[Ledger, str]
"""A ledger, and the name of the dataset in it whose budget pays."""
Claim = Callable[[Any], object]
"""A function that gets the raw rows of a log before anything is computed from them; its errors end the release."""


@dataclass(frozen=True)
class ReleaseRequest:
    """The part of a request that all front doors share. A request that contradicts itself is refused at once.

    Attributes:
        budget, ledger, dataset, seed, simulated, progress, run, resume: see :func:`dprl.evaluate`.
        certifies: whether the noise can be that of a private release; floating-point noise is not.

    Raises:
        DprlError: there is nothing to resume, a release that is not private has a run folder, or the budget is not a
            :class:`dprl.Budget`.
    """

    budget: Budget
    ledger: str | Path | Ledger | None = None
    dataset: str | None = None
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

    @cached_property
    def noise(self) -> SecureNoise | SeededNoise:
        """Source of fresh noise, or of reproducible noise if a seed is given."""
        if self.seed is not None:
            return SeededNoise.from_seed(self.seed)
        fresh = SecureNoise.fresh()
        return fresh if self.certifies else SeededNoise.from_seed(int(fresh.uniform_index(0, 2**31 - 1)))

    @property
    def draw_variation(self) -> float:
        """Total variation per noise draw, which a plan pays for; 0 for noise that protects nobody."""
        return self.noise.total_variation_per_draw if self.noise.secure else 0.0

    def expect(self, steps: int | None) -> None:
        """Tell ``progress`` the total number of steps, if it has a method for that."""
        if hasattr(self.progress, "expect"):
            self.progress.expect(steps)  # type: ignore[union-attr]

    def account(self) -> Account | None:
        """Return the account that pays; None if neither ledger nor dataset is given. Refuses one without the other."""
        if self.ledger is None:
            if self.dataset is not None:
                raise DprlError("A dataset is named, but no ledger: give --ledger FILE too.")
            return None
        if self.dataset is None:
            raise DprlError(
                "A ledger is given, but not under which name this data's budget stands: give --dataset NAME."
            )
        return (self.ledger if isinstance(self.ledger, Ledger) else Ledger.open(self.ledger)), self.dataset

    def declared_account(self, unit: str, relation: str) -> Account | None:
        """Return the account that pays for learning without a log; its dataset must have been declared before.

        Args:
            unit: privacy unit that the ledger should declare for the dataset.
            relation: neighbouring relation that the ledger should declare for it.
        """
        declare = f"`dprl ledger create`, --unit {unit!r} and --relation {relation!r}"
        path, dataset = self.ledger, self.dataset
        if dataset is not None and isinstance(path, str | Path) and not (lexists(path) or lexists(f"{path}.intents")):
            raise DprlError(f"There is no ledger at {path}; make one with {declare}.")
        account = self.account()
        if account is not None and account[1] not in {declared.name for declared in account[0].datasets()}:
            raise DprlError(f"The ledger {account[0].path} has no dataset {account[1]!r}; declare it with {declare}.")
        return account


def declared_words(account: Account | None, relation: RewardRelation) -> str:
    """Return the relation in words: in the ledger's own words if its dataset declares the same relation.

    A dataset keeps the words with which it was declared, so older datasets may word one relation differently.
    """
    words = relation.words()
    if account is None:
        return words
    (declared,) = (found for found in account[0].datasets() if found.name == account[1])
    return declared.relation if parse_relation(declared.relation) == relation else words


class Purpose(NamedTuple):
    """Purpose of a charge, as the ledger declares it."""

    unit: str
    relation: str
    words: str


@dataclass(frozen=True)
class Charge:
    """One charge of a ledger; it belongs to one certificate, named by its digest."""

    ledger: Ledger
    number: int

    def refuse_another(self, digest: str | None, folder: RunFolder) -> None:
        """Refuse a run, such as a copy, whose charge already belongs to another certificate than ``digest``."""
        known = next((charge.digest for charge in self.ledger.history() if charge.id == self.number), None)
        if known is not None and known != digest:
            raise DprlError(
                f"The release of the run in {folder.path} is out already, says the ledger: delete the run folder, for "
                "with its key the noise can be subtracted."
            )

    def commit(self, digest: str) -> None:
        """Note in the ledger that the release with this certificate is out."""
        self.ledger.commit(self.number, digest)


@dataclass(frozen=True, kw_only=True)
class Handout(HasPage):
    """Results that every release hands out, and what they cost.

    Attributes:
        document: what was released, as plain data: the file ``document_name``, from which the report is made.
        certificate: the guarantee; sealed with digests when it is saved.
    """

    document_name: ClassVar[str]
    document: Mapping[str, Any] = field(repr=False)
    certificate: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _charge: Charge | None = field(default=None, repr=False)
    _run: RunFolder | None = field(default=None, repr=False)
    _saved: Path | None = field(default=None, repr=False)

    def _page(self) -> str:
        return render(dict(self.document), dict(self.certificate))

    @property
    @abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """Artifacts besides the document: name -> content."""

    def save(self, folder: str | Path, sign_key: str | Path | None = None) -> dict[str, Path]:
        """Write all that was released, its report and its certificate into a new folder, all or nothing.

        The first time, this finishes the release: its charge is committed and its run folder removed.

        Args:
            folder: new folder for the release.
            sign_key: file of the Ed25519 private key (PEM) that signs the certificate.

        Returns:
            Name of each artifact -> its path.

        Raises:
            DprlError: the folder cannot be written, or the key cannot be read.
        """
        if self._saved == Path(os.path.abspath(folder)):  # the release was saved before it was resumed
            if sign_key is not None and "signature" not in self.certificate:
                raise DprlError(f"The release in {folder} was finished without a signature, and is not signed again.")
            names = [*self.certificate["artifacts"], certificates.FILES[self.certificate["schema"]]]
            return {name: self._saved / name for name in names}
        run = self._run if self._run is not None and self._run.open else None

        def announce(digest: str, path: Path) -> None:
            if run is not None:
                if self._charge is not None:
                    self._charge.refuse_another(digest, run)
                run.finish(digest, path)

        content = self.document_name, self.document, self.files, self.certificate
        go_on = (
            ": make room there, and go on by --resume (in Python, save it again, or resume=True); it is charged once"
        )
        paths, digest = save_release(*content, folder, sign_key, announce, "" if run is None else go_on)
        if self._charge is not None:
            self._charge.commit(digest)
        if run is not None:
            run.remove()
        return paths


H = TypeVar("H", bound=Handout)


def release(
    asked: ReleaseRequest,
    certificate: dict[str, Any],
    account: Account | None,
    purpose: Purpose,
    request: Mapping[str, Any],
    *,
    read: Callable[[Claim | None], Any] | None,
    make: Callable[[Any, RunFolder | None], H],
    restore: Callable[[Path], H] | None,
) -> H:
    """Carry out a checked and planned release: run folder, charge, claim, noise, certificate.

    Every release of rows takes this path, so no rows are read before they are charged, and none are released under a
    second name. If anything is raised, the run folder is closed; what was charged stays charged.

    Args:
        certificate: the unsealed certificate: public facts that are known before anything is charged.
        request: further facts to which a run folder is bound.
        read: reads the rows, and first hands them to the claim if it gets one. None where there are no rows, but a
            simulator or people who have not come yet.
        make: makes the results from what was read, without their certificate; binds the run folder to the data, if
            there is one.
        restore: loads the results from a folder in which they were saved, and raises if they cannot be read. None for
            releases that have no run folder.
    """
    folder = _open_run(asked, certificate, account, request)
    try:
        finished = None if folder is None or restore is None else _finished(folder, restore)
        charge = _charged(asked, account, purpose, folder, finished)
        if folder is not None and finished is not None:
            if charge is not None:
                charge.commit(finished.certificate["digest"])
            folder.remove()
            return finished
        with suppress_warnings():
            made = make(None if read is None else _claimed(read, account), folder)
    except BaseException:
        if folder is not None:
            folder.close()
        raise
    if charge is not None and account is not None:
        spent = {"epsilon": asked.budget.epsilon, "delta": asked.budget.delta}
        certificate["ledger"] = {"dataset": account[1], "charge": charge.number, **spent}
    certificate["created"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(made, certificate=Certificate(certificate), _charge=charge, _run=folder)


def _open_run(
    asked: ReleaseRequest, certificate: Mapping[str, Any], account: Account | None, request: Mapping[str, Any]
) -> RunFolder | None:
    """Return the run folder, bound to the unsealed certificate and the ``request``; None if no folder was asked for."""
    if asked.run is None:
        return None
    facts = {name: value for name, value in certificate.items() if name != "versions"}
    facts |= {
        **request,
        "dataset": None if account is None else account[1],
        "ledger": None if account is None else str(account[0].path.absolute()),
    }
    bound = {"request": facts, "versions": machine.versions(), "device": machine.device() | machine.settings()}
    path = Path(os.path.abspath(asked.run))
    check_run(path, asked.resume)
    return RunFolder.resume(path, bound) if asked.resume else RunFolder.begin(path, bound)


def _finished(folder: RunFolder, restore: Callable[[Path], H]) -> H | None:
    """Return the release of this run if it reached its folder before the run was interrupted; None if not."""
    if folder.finished is None:
        return None
    digest, path = folder.finished
    try:
        sealed = verification.verify(path).content
        return (
            replace(restore(path), certificate=Certificate(sealed), _saved=path) if sealed["digest"] == digest else None
        )
    except (DprlError, OSError, ValueError):
        return None


def _charged(
    asked: ReleaseRequest, account: Account | None, purpose: Purpose, folder: RunFolder | None, finished: Handout | None
) -> Charge | None:
    """Charge the account and return the charge; None without an account. A resumed run is not charged again."""
    if folder is not None and finished is None:
        _ = folder.key  # raises if the key is gone: nothing is charged then
    if account is None:
        return None
    ledger, dataset = account
    try:
        number = ledger.charge(dataset, asked.budget, *purpose, None if folder is None else folder.token)
    except DprlError:
        if folder is not None and not asked.resume:
            folder.remove()
        raise
    charge = Charge(ledger, number)
    if folder is not None:
        folder.recorded = partial(ledger.bind, number)
        charge.refuse_another(None if finished is None else finished.certificate["digest"], folder)
    return charge


def _claimed(read: Callable[[Claim | None], Any], account: Account | None) -> Any:
    """Read the rows, and claim them in the ledger if there is an account."""
    if account is None:
        return read(None)
    ledger, dataset = account
    claims = 0

    def claim(rows: Any) -> None:
        nonlocal claims
        ledger.claim(dataset, rows)
        claims += 1

    rows = read(claim)
    if not claims:  # a defect of dprl: nothing may be released then
        raise RuntimeError("The rows were read without being claimed.")
    return rows
