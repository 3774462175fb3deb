"""Checking a results folder against its own certificate or statement, and the claim against the accountant."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from dprl.accounting import advisories, certificate, rows
from dprl.accounting.certificate import (
    CERTIFICATE,
    FILES,
    STATEMENT,
    check_content,
    digest,
    sha256_file,
    to_bytes,
)
from dprl.accounting.claim_verification import check_claim
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError, UnreadableError, explained, require
from dprl.untrusted_files import printable_name, read_regular, strict_object

DATA = ("estimate.json", "training.json")
"""Files with the released numbers: of an evaluation, and of learning in an environment."""
MOST_BYTES = 2**32
"""Largest size of a file of a release; a larger file is refused without being digested."""
FORMERLY_CERTIFIED = ("first-visit", "dp-sgda", "dp-gld", "dp-srm")
"""Algorithms that dprl certified until version 0.2. They are proved, so their certificates stay valid; now they are
baselines of dprl-papers."""
# names: written by make docs
EVALUATING = (
    "gpope", "importance-sampling", "recommended", "td", "return-regression", "adassp", "lstd", "noisy-counts",
    "doubly-robust", "stratified", "survival", "best-linear-projection", "constant", "dptd", "neural-td",
)  # fmt: skip
LEARNING = ("functional-q", "dp-pg")
# end
"""Algorithms of dprl that each of the two files may name: those of :mod:`dprl.registry`."""


@dataclass(frozen=True)
class VerifiedCertificate:
    """Certificate or statement that :func:`verify` read and found sound.

    Attributes:
        path: the file that was read.
        content: its JSON.
        private: True for a certificate; a statement does not stand for a private release.
        epsilon: epsilon recomputed from the event at ``delta_of_event``; None where there is no event, or no finite
            epsilon.
        signed: whether it carries a signature, which was valid; only a public key given to :func:`verify` says whose.
        cautions: what advisories say of this kind of certificate, where it does not show whether it is affected.
    """

    path: Path
    content: Mapping[str, Any]
    private: bool
    epsilon: float | None
    signed: bool
    cautions: tuple[str, ...] = ()


def verify(
    directory: str | Path, public_key: str | Path | None = None, ledger: str | Path | None = None
) -> VerifiedCertificate:
    """Check a results folder against its own certificate or statement, and the claim against the accountant.

    The digests must match, every file must be listed and unchanged, the fields must be complete and in their ranges,
    the mechanisms must agree with the privacy event, and ``estimate.json`` or ``training.json`` must agree with both.
    For a verified status, epsilon and the cost of the draws of noise are recomputed and must not exceed the claim.
    Where reward functions are protected, or users who take part once, the sensitivity that their relation asks for is
    recomputed too. The algorithm must be one of dprl's, and no advisory may have withdrawn the certificate.

    A statement without an event makes no claim, so nothing is recomputed for it.

    Args:
        directory: the results folder.
        public_key: a PEM file; the certificate must be signed with that key.
        ledger: a ledger; it must hold the charge that the certificate names, for this release and this amount.

    Raises:
        WithdrawnError: the certificate was made by a version of dprl that is known to have certified too little.
        UnreadableError: there is no certificate to judge.
        DprlError: any other check failed; the message says which, in one sentence.
    """
    directory = Path(directory)
    path, content = _read_certificate(directory)
    check_content(path, content)
    unchanged = content["digest"] == digest(content)
    require(unchanged, f"{path} does not match its own digest: it was changed after it was written.")
    signed = certificate.check_signature(path, content, public_key)
    data = _check_artifacts(directory, path, content)
    epsilon = check_claim(path, content)
    for file, stated in data.items():
        for name in ("status", "epsilon", "delta"):
            same = name in stated and stated[name] == content[name] and not isinstance(stated[name], bool)
            require(same, f"{name} in {directory / file} is not the {name} of {path}.")
    private, cautions = path.name == CERTIFICATE, ()
    if private:
        _check_algorithm(path, data)
        _check_choice(path, content, data)
        cautions = advisories.check(path, content)
    if ledger is not None:
        _check_ledger(path, content, ledger)
    return VerifiedCertificate(path, content, private, epsilon, signed, cautions)


# --- the files --------------------------------------------------------------------------------------------------------


def _read_certificate(directory: Path) -> tuple[Path, dict[str, Any]]:
    if os.path.isfile(directory):
        raise UnreadableError(f"{directory} is a file: name the folder {str(directory.parent)!r} that it is in.")
    if not os.path.isdir(directory):
        raise UnreadableError(f"There is no results folder {directory}.")
    there = [directory / name for name in (CERTIFICATE, STATEMENT) if os.path.lexists(directory / name)]
    if not there:
        raise UnreadableError(f"{directory} holds neither {CERTIFICATE} nor {STATEMENT}.")
    both = f"{directory} holds both {CERTIFICATE} and {STATEMENT}, so it is unclear what it claims."
    require(len(there) == 1, both)
    (path,) = there
    raw = read_regular(path)
    content = strict_object(path, raw)
    schema = content.get("schema")
    if not isinstance(schema, str) or schema not in FILES:
        raise DprlError(f"{path} has a schema that this version of dprl does not know.")
    require(FILES[schema] == path.name, f"{path} has the schema of a {FILES[schema]}.")
    as_written = raw == to_bytes(content)
    require(as_written, f"{path} is not written the way dprl writes it: it was changed afterwards.")
    return path, content


def _check_artifacts(directory: Path, path: Path, content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Refuse a file that is missing, changed or not listed; return the contents of the files in :data:`DATA`."""
    listed, data = content["artifacts"], {}
    for name in listed:
        there = os.path.lexists(directory / name)
        require(there, f"{directory / name} is missing, though {path.name} lists it.")
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.name == path.name:
            continue
        known, regular = entry.name in listed, entry.is_file(follow_symlinks=False)
        require(known, f"{printable_name(entry.path)} is not listed in {path.name}: remove it, or do not rely on it.")
        require(regular, f"{entry.path} is not a regular file.")
        size = entry.stat(follow_symlinks=False).st_size
        require(size <= MOST_BYTES, f"{entry.path} is larger than any file of a release.")
        if entry.name in DATA:
            raw = read_regular(entry.path)  # only once, so that the bytes that are compared were digested
            found = hashlib.sha256(raw).hexdigest()
        else:
            with explained(f"{entry.path} cannot be read"):
                found = sha256_file(entry.path)
        require(found == listed[entry.name], f"{entry.path} was changed after {path.name} was written.")
        if entry.name in DATA:
            data[entry.name] = strict_object(entry.path, raw)
    return data


def _check_algorithm(path: Path, data: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a certificate for an algorithm that is not dprl's: nobody has proved that it protects anybody."""
    which = f"{path} must come with one of {' and '.join(DATA)}, which says by which algorithm it was made."
    require(len(data) == 1, which)
    ((file, stated),) = data.items()
    own = stated.get("algorithm") in ((*EVALUATING, *FORMERLY_CERTIFIED) if file == DATA[0] else LEARNING)
    foreign = f"{path} certifies an algorithm that this version of dprl does not have"
    require(own, f"{foreign}: only its own are proved, and anything else comes with a statement.")


def _check_choice(path: Path, content: Mapping[str, Any], data: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse parts of the people without a stated choice that fits them, and a stated choice without parts.

    The first part must choose among the stated policies, or learn a policy as stated, and the values must be of that
    policy. Nothing else is proved to use each person in only one part.
    """
    event, public = content["event"], content["assumed_public"]
    stated: Any = next(iter(data.values())).get("choice")
    parts = event.get("events", []) if event is not None and event.get("type") == "Parallel" else []
    learner, of_first = public.get("learner"), parts[0].get("type") if parts else None
    one = of_first == "Pure" if learner is None else of_first in ("Gaussian", "SelfComposed")  # a single mechanism
    two = len(parts) == 2 and one
    require(two or not (parts or stated), f"{path} has parts of the people of which none makes a choice.")
    if not two:
        return
    try:
        row, policies, options = content["mechanisms"][0], public["policies"], public["hyper_parameters"]
        share = options["choosing_share"]["value"]
        same = learner is not None or (row["candidates"] == stated["of"] and row["spread"] in rows.SPREADS)
        same = same and stated["share"] == share and type(share) is float and 0.0 < share < 1.0
        same = same and type(stated["policy"]) is str
        rules = public.get("rules")  # a declared class of rules, beside the analyst's own policies
        if learner is not None:
            same = same and row["steps"] == learner["rounds"] and stated["learner"] == learner
        elif rules is None:
            same = same and stated["of"] == len(policies) and stated["policy"] in policies
        else:
            counts = [*rules["levels"].values(), rules["own"]]
            same = same and all(type(count) is int and count >= 0 for count in counts) and sum(counts) == stated["of"]
            same = same and stated["rules"] == rules and rules["own"] == len(policies)
    except (AttributeError, KeyError, TypeError):
        same = False
    require(same, f"The choice in the release of {path} is not the one that the certificate states.")


def _check_ledger(path: Path, content: Mapping[str, Any], ledger: str | Path) -> None:
    """Refuse a certificate whose charge is, by the ledger's own record, not for this release."""
    block = content["ledger"]
    require(block is not None, f"{path} names no charge, though a ledger was given.")
    charge, dataset = Ledger.open(ledger).charge_of(block["charge"])
    other = f"The ledger {ledger} has no charge {block['charge']} to the dataset {block['dataset']!r}."
    require(dataset.name == block["dataset"], other)
    amounts = charge.amount.epsilon, charge.amount.delta
    same = amounts == tuple(Decimal(repr(float(content[name]))) for name in ("epsilon", "delta"))
    require(same, f"The ledger {ledger} has another epsilon or delta for the charge of {path}.")
    same = (dataset.unit, dataset.relation) == (content["privacy_unit"], content["neighbouring_relation"])
    require(same, f"The ledger {ledger} keeps another privacy unit or relation than {path} states.")
    unfinished = f"The ledger {ledger} has the charge of {path} as unfinished"
    require(charge.digest, f"{unfinished}: finish the release with --resume, or do not rely on it.")
    require(charge.digest == content["digest"], f"The ledger {ledger} has the charge of {path} for another release.")
