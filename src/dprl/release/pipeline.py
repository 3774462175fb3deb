"""The one path that every release takes: check, charge, read and claim the rows, release and certify.

Wherever a release is interrupted, it has one charge and one certificate in the end (docs/proofs/resume.md).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dprl import machine
from dprl.accounting import events, verification
from dprl.accounting.accountant import RELATION, accountant_name
from dprl.accounting.budget import Budget
from dprl.accounting.certificate import versions
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import RewardRelation, parse_relation
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.registry import is_own
from dprl.release.results import Charge, ReleaseResults
from dprl.release.run_folder import RunFolder, check_run
from dprl.report.pages import Certificate
from dprl.user_code import suppress_warnings

if TYPE_CHECKING:
    from dprl.engine.plan import Plan
    from dprl.learning.learning_plan import LearningPlan
    from dprl.learning.policy_gradient.pg_plan import PGPlan

Account = tuple[Ledger, str]
"""A ledger, and the name of the dataset in it whose budget pays."""
ClaimRows = Callable[[Any], object]
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


def relation_as_declared(account: Account | None, relation: RewardRelation) -> str:
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


H = TypeVar("H", bound=ReleaseResults)


def release(
    request: ReleaseRequest,
    certificate: dict[str, Any],
    account: Account | None,
    purpose: Purpose,
    further_facts: Mapping[str, Any],
    *,
    read: Callable[[ClaimRows | None], Any] | None,
    make: Callable[[Any, RunFolder | None], H],
    restore: Callable[[Path], H] | None,
) -> H:
    """Carry out a checked and planned release: run folder, charge, claim, noise, certificate.

    Every release of rows takes this path, so no rows are read before they are charged, and none are released under a
    second name. If anything is raised, the run folder is closed; what was charged stays charged.

    Args:
        certificate: the unsealed certificate: public facts that are known before anything is charged.
        further_facts: further facts to which a run folder is bound.
        read: reads the rows, and first hands them to the claim if it gets one. None where there are no rows, but a
            simulator or people who have not come yet.
        make: makes the results from what was read, without their certificate; binds the run folder to the data, if
            there is one.
        restore: loads the results from a folder in which they were saved, and raises if they cannot be read. None for
            releases that have no run folder.
    """
    folder = _open_run(request, certificate, account, further_facts)
    try:
        finished = None if folder is None or restore is None else _finished_release(folder, restore)
        charge = _charge(request, account, purpose, folder, finished)
        if folder is not None and finished is not None:
            if charge is not None:
                charge.commit(finished.certificate["digest"])
            folder.remove()
            return finished
        with suppress_warnings():
            made = make(None if read is None else _read_and_claim(read, account), folder)
    except BaseException:
        if folder is not None:
            folder.close()
        raise
    if charge is not None and account is not None:
        spent = {"epsilon": request.budget.epsilon, "delta": request.budget.delta}
        certificate["ledger"] = {"dataset": account[1], "charge": charge.number, **spent}
    certificate["created"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(made, certificate=Certificate(certificate), _charge=charge, _run=folder)


def _open_run(
    request: ReleaseRequest, certificate: Mapping[str, Any], account: Account | None, further_facts: Mapping[str, Any]
) -> RunFolder | None:
    """Return the run folder, bound to the unsealed certificate and ``further_facts``; None if none was asked for."""
    if request.run is None:
        return None
    facts = {name: value for name, value in certificate.items() if name != "versions"}
    facts |= {
        **further_facts,
        "dataset": None if account is None else account[1],
        "ledger": None if account is None else str(account[0].path.absolute()),
    }
    bound = {"request": facts, "versions": machine.versions(), "device": machine.device() | machine.settings()}
    path = Path(os.path.abspath(request.run))
    check_run(path, request.resume)
    return RunFolder.resume(path, bound) if request.resume else RunFolder.begin(path, bound)


def _finished_release(folder: RunFolder, restore: Callable[[Path], H]) -> H | None:
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


def _charge(
    request: ReleaseRequest,
    account: Account | None,
    purpose: Purpose,
    folder: RunFolder | None,
    finished: ReleaseResults | None,
) -> Charge | None:
    """Charge the account and return the charge; None without an account. A resumed run is not charged again."""
    if folder is not None and finished is None:
        _ = folder.key  # raises if the key is gone: nothing is charged then
    if account is None:
        return None
    ledger, dataset = account
    try:
        number = ledger.charge(dataset, request.budget, *purpose, None if folder is None else folder.token)
    except DprlError:
        if folder is not None and not request.resume:
            folder.remove()
        raise
    charge = Charge(ledger, number)
    if folder is not None:
        folder.bind_charge = partial(ledger.bind, number)
        charge.refuse_another(None if finished is None else finished.certificate["digest"], folder)
    return charge


def _read_and_claim(read: Callable[[ClaimRows | None], Any], account: Account | None) -> Any:
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


# --- the certificate --------------------------------------------------------------------------------------------------


def status_of(plan: Plan | LearningPlan | PGPlan, secure: bool, simulated: bool) -> str:
    """Return the status of a release. Only a ``verified`` release gets a certificate.

    A release is ``not private`` if its noise is reproducible, or if its data are simulated and so may be shown. It is
    ``as published`` if it uses a paper's own mechanisms, and ``unreviewed`` if the algorithm is not one of dprl's,
    whatever its noise: nobody here has proved what such an algorithm protects.

    Args:
        plan: plan of the release; only its options, its program and its claim are read.
        secure: whether the noise is secure.
        simulated: whether the data are simulated.
    """
    if not secure or simulated:
        return "not private"
    if plan.claim is not None:
        return "as published"
    return "verified" if is_own(plan.config, getattr(plan, "program", None)) else "unreviewed"


def gaussian_accountant() -> str:
    """Return the accountant's name for releases of Gaussian noise only, whose neighbours are one sensitivity apart."""
    return accountant_name().replace(RELATION, "neighbours one sensitivity apart")


def certificate_from(plan: Plan | LearningPlan | PGPlan, noise: Any, status: str, **stated: Any) -> dict[str, Any]:
    """Return the unsealed certificate, from public facts that are known before anything private is read.

    Only a verified release gets a certificate; any other gets a statement, with a schema of its own. If the plan has no
    accounting event, the fields that state its cost are null.

    Args:
        noise: noise source of the release.
        status: see :func:`status_of`.
        stated: what the calling front door states about its kind of release, under the certificate's field names:
            ``privacy_unit``, ``neighbouring_relation``, ``released`` (what is handed out, in words), ``not_protected``
            (in sentences), ``mechanisms`` (one row for each), ``accountant`` (name of the accountant that computed
            epsilon) and ``assumed_public`` (everything that was taken as public).
    """
    costs = {
        "event": events.to_json(plan.event) if plan.event is not None else None,
        "accountant": stated.pop("accountant"),
        "epsilon_of_event": plan.epsilon_of_event if math.isfinite(plan.epsilon_of_event) else None,
        "delta_of_event": plan.delta_of_event,
        "delta_sampler": plan.delta_sampler,
    }
    return {
        "schema": "dprl.certificate/1" if status == "verified" else "dprl.statement/1",
        "status": status,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "noise": {"secure": noise.secure, "source": noise.describe()},
        "ledger": None,
        "versions": versions(),
        **stated,
        **(dict.fromkeys(costs) if plan.event is None else costs),
    }
