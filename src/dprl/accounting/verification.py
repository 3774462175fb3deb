"""Checking a results folder against its own certificate or statement, and the claim against the accountant."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl.accounting import advisories, rows, signatures
from dprl.accounting.certificate import (
    CERTIFICATE,
    FILES,
    STATEMENT,
    canonical_json,
    digest,
    plain_name,
    sha256_file,
    to_bytes,
)
from dprl.accounting.field_verification import check_fields, check_units
from dprl.errors import DprlError
from dprl.strict_json import read_regular, shown, strict_object

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

_HEX = re.compile(r"[0-9a-f]{64}")
DATA = ("estimate.json", "training.json")
"""What says in numbers what was released: of an evaluation, or of learning in an environment."""
MOST_BYTES = 2**32
"""Of a file of a release: more is not digested."""
_MOST_PARTS = 64  # of an event that differ; each takes the accountant a second
MOVED = ("first-visit", "dp-sgda", "dp-gld", "dp-srm")
"""Certified until version 0.2, and proved: what was written stays valid. Now they are baselines of dprl-papers."""
EVALUATING = (
    "gpope", "importance-sampling", "recommended", "td", "return-regression", "adassp", "lstd", "noisy-counts",
    "doubly-robust", "constant", "dptd", "neural-td", *MOVED,
)  # fmt: skip
LEARNING = ("functional-q", "dp-pg")
"""Algorithms of dprl, by the file that names them; :mod:`dprl.registry` has the same."""


@dataclass(frozen=True)
class VerifiedCertificate:
    """What :func:`verify` read and found sound.

    Attributes:
        path: the file that was read.
        content: its JSON.
        private: True for a certificate; a statement does not stand for a private release.
        epsilon: epsilon recomputed from the event at ``delta_of_event``, or None where there is no event.
        signed: whether it carries a signature, which was valid; only a public key handed to :func:`verify` says whose.
        cautions: what advisories say of releases of its kind, where the certificate cannot tell whether it is one.
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

    The digests must match, every file be listed and unchanged, the fields be complete and in their ranges, the
    mechanisms agree with the privacy event, and ``estimate.json`` or ``training.json`` with both. For a verified
    status, epsilon and what the draws of noise cost are recomputed and must not exceed the claim; where reward
    functions are protected, or users who take part once, so is the sensitivity that their relation asks for. The
    algorithm must be one of dprl's, and no advisory may have withdrawn the certificate.

    A statement without an event makes no claim: there, only digests are checked.

    Args:
        directory: the results folder.
        public_key: a PEM file; the signature must be there and be made by that key.
        ledger: a ledger; it must hold the charge that the certificate names, for this release and this amount.

    Raises:
        WithdrawnError: the certificate was made by a version of dprl that is known to have certified too little.
        DprlError: anything else, in one sentence.
    """
    directory = Path(directory)
    path, content = _read_certificate(directory)
    check_fields(path, content)
    if content["digest"] != digest(content):
        raise DprlError(f"{path} does not match its own digest: it was changed after it was written.")
    signed = signatures.check(path, content, public_key)
    data = _check_artifacts(directory, path, content)
    epsilon = _check_claim(path, content)
    for file, stated in data.items():
        for name in ("status", "epsilon", "delta"):
            if name not in stated or stated[name] != content[name] or isinstance(stated[name], bool):
                raise DprlError(f"{name} in {directory / file} is not the {name} of {path}.")
    private, cautions = path.name == CERTIFICATE, ()
    if private:
        _check_algorithm(path, data)
        cautions = advisories.check(path, content)
    if ledger is not None:
        _check_ledger(path, content, ledger)
    return VerifiedCertificate(path, content, private, epsilon, signed, cautions)


def _read_certificate(directory: Path) -> tuple[Path, dict[str, Any]]:
    if not directory.is_dir():
        raise DprlError(f"There is no results folder {directory}.")
    there = [directory / name for name in (CERTIFICATE, STATEMENT) if os.path.lexists(directory / name)]
    if not there:
        raise DprlError(f"{directory} holds neither {CERTIFICATE} nor {STATEMENT}.")
    if len(there) > 1:
        raise DprlError(f"{directory} holds both {CERTIFICATE} and {STATEMENT}, so it is unclear what it claims.")
    path = there[0]
    raw = read_regular(path)
    content = strict_object(path, raw)
    schema = content.get("schema")
    if not isinstance(schema, str) or schema not in FILES:
        raise DprlError(f"{path} has a schema that this version of dprl does not know.")
    if FILES[schema] != path.name:
        raise DprlError(f"{path} has the schema of a {FILES[schema]}.")
    if raw != to_bytes(content):
        raise DprlError(f"{path} is not written the way dprl writes it: it was changed afterwards.")
    return path, content


def _check_artifacts(directory: Path, path: Path, content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every file is there, unchanged and listed; returns those of :data:`DATA`."""
    listed = content["artifacts"]
    if not listed:
        raise DprlError(f"{path} lists no artifact.")
    for name, value in listed.items():
        if not plain_name(name) or not isinstance(value, str) or not _HEX.fullmatch(value):
            raise DprlError(f"The artifacts of {path} must map plain file names to SHA-256 digests.")
        if not os.path.lexists(directory / name):
            raise DprlError(f"{directory / name} is missing, though {path.name} lists it.")
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.name == path.name:
            continue
        if entry.name not in listed:
            raise DprlError(f"{shown(entry.path)} is not listed in {path.name}: remove it, or do not rely on it.")
        if not entry.is_file(follow_symlinks=False):
            raise DprlError(f"{entry.path} is not a regular file.")
        if entry.stat(follow_symlinks=False).st_size > MOST_BYTES:
            raise DprlError(f"{entry.path} is larger than any file of a release.")
        if entry.name in DATA:
            continue
        try:
            same = sha256_file(entry.path) == listed[entry.name]
        except OSError as error:
            raise DprlError(f"{entry.path} cannot be read: {error.strerror or error}.") from error
        if not same:
            raise DprlError(f"{entry.path} was changed after {path.name} was written.")
    data = {}
    for name in DATA:
        if name not in listed:
            continue
        # read once: what is compared is what was digested
        raw = read_regular(directory / name)
        if hashlib.sha256(raw).hexdigest() != listed[name]:
            raise DprlError(f"{directory / name} was changed after {path.name} was written.")
        data[name] = strict_object(directory / name, raw)
    return data


def _check_claim(path: Path, content: dict[str, Any]) -> float | None:
    """Recompute epsilon from the event; compare it with the claim where the status makes one."""
    verified = content["status"] == "verified"
    if content["event"] is None:
        if verified:
            raise DprlError(f"{path} claims a verified release without a privacy event.")
        return None
    from dprl.accounting import accountant, events
    from dprl.accounting.renyi_filter import RenyiFilterEvent

    try:
        event = events.from_json(content["event"])
        if canonical_json(events.to_json(event)) != canonical_json(content["event"]):
            raise DprlError(f"The privacy event of {path} is not one that dprl emits.")
    except (RecursionError, OverflowError) as error:
        raise DprlError(f"The privacy event of {path} is not one that dprl emits.") from error
    read = rows.read(path, content) if verified else []
    _check_mechanisms(path, content["mechanisms"], event)
    of_event, delta, sampler = (content[name] for name in ("epsilon_of_event", "delta_of_event", "delta_sampler"))
    if delta is None or not 0.0 < delta < 1.0 or (sampler is not None and not 0.0 <= sampler < 1.0):
        raise DprlError(f"delta_of_event and delta_sampler of {path} must be probabilities.")
    if not isinstance(event, RenyiFilterEvent) and len(accountant.parts_of(event)) > _MOST_PARTS:
        raise DprlError(f"The privacy event of {path} is not one that dprl emits.")
    try:
        epsilon = accountant.epsilon_of(event, delta)
    except (ValueError, ArithmeticError, MemoryError) as error:
        raise DprlError(f"The accountant finds no epsilon for the privacy event of {path}.") from error
    if of_event is None:
        if verified or math.isfinite(epsilon):
            raise DprlError(f"{path} does not state the epsilon of its event.")
    elif not math.isclose(of_event, epsilon, rel_tol=1e-6, abs_tol=1e-9):
        raise DprlError(f"epsilon_of_event of {path} is not what the accountant finds for its event.")
    if verified:
        claim, whole = content["epsilon"], content["delta"]
        if claim is None or whole is None or not claim > 0.0 or not 0.0 < whole < 1.0 or sampler is None:
            raise DprlError(f"{path} claims a verified release without a positive epsilon and delta.")
        precision = rows.check_noise(path, content, read, accountant.RELATION)
        check_units(path, content)
        rows.check_shares(path, read)
        if isinstance(event, RenyiFilterEvent):
            rows.check_filter(path, read, event)
        # The tolerances are for the last digits of floating-point sums and transforms on another machine.
        if max(epsilon, of_event or 0.0) > claim * (1.0 + 1e-9) + 1e-9:
            raise DprlError(f"{path} claims a smaller epsilon than the accountant finds for its event.")
        least = max(precision, events.sampler_delta(claim, rows.draws(content)))
        if content["noise"].get("secure") and sampler < least * (1.0 - 1e-9):
            raise DprlError(f"delta_sampler of {path} is less than its draws of noise cost.")
        if delta + sampler > whole * (1.0 + 1e-9):
            raise DprlError(f"delta_of_event and delta_sampler of {path} exceed the delta it claims.")
    return epsilon if math.isfinite(epsilon) else None


def _check_mechanisms(path: Path, mechanisms: list[Any], event: DpEvent) -> None:
    """Each listed mechanism must be one part of the event, in the same order, with the same numbers."""
    from dp_accounting import dp_event as dpe

    from dprl.accounting.renyi_filter import RenyiFilterEvent

    def flatten(node: Any, steps: int) -> Iterable[tuple[Any, ...]]:
        match node:
            case dpe.ComposedDpEvent() if steps == 1:
                for inner in node.events:
                    yield from flatten(inner, 1)
            case dpe.SelfComposedDpEvent():
                yield from flatten(node.event, steps * int(node.count))
            case dpe.PoissonSampledDpEvent(event=dpe.GaussianDpEvent() as inner):
                yield (float(node.sampling_probability), float(inner.noise_multiplier), steps)
            case dpe.GaussianDpEvent():
                yield (1.0, float(node.noise_multiplier), steps)
            case RenyiFilterEvent() if steps == 1 and node is event:
                yield from ((1.0, multiplier, 1) for multiplier in node.before)
                levels, rate = list(node.noise_multipliers), node.sampling_probability
                yield (rate, levels, node.steps, node.norm_multiplier, node.order, node.budget)
            case _:
                raise DprlError(f"The privacy event of {path} is not a plain list of its mechanisms.")

    accounted, stated = list(flatten(event, 1)), []
    for mechanism in mechanisms:
        if not isinstance(mechanism, dict):
            raise DprlError(f"The mechanisms of {path} must be objects.")
        # everybody, once, where nothing is said
        filtered = [mechanism.get(name) for name in ("norm_multiplier", "order", "budget")]
        noise = mechanism.get("noise_multiplier" if filtered == [None] * 3 else "levels")
        numbers = [mechanism.get("sampling_rate"), noise, rows.counted(mechanism)]
        row = [1 if number is None and i != 1 else number for i, number in enumerate(numbers)]
        stated.append(tuple(row if filtered == [None] * 3 else row + filtered))
    if stated != accounted:
        raise DprlError(f"The mechanisms of {path} are not those of its privacy event.")


def _check_algorithm(path: Path, data: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a certificate for an algorithm that is none of dprl's: nobody has proved that it protects anybody."""
    if len(data) != 1:
        raise DprlError(
            f"{path} must come with one of {' and '.join(DATA)}, which says by which algorithm it was made."
        )
    ((file, stated),) = data.items()
    known = EVALUATING if file == DATA[0] else LEARNING
    if stated.get("algorithm") not in known:
        raise DprlError(
            f"{path} certifies an algorithm that this version of dprl does not have: only its own are proved, and "
            "anything else comes with a statement."
        )


def _check_ledger(path: Path, content: Mapping[str, Any], ledger: str | Path) -> None:
    """The ledger's own record of the charge that a certificate names is that of this release."""
    from decimal import Decimal

    from dprl.accounting.ledger import Ledger

    block = content["ledger"]
    if block is None:
        raise DprlError(f"{path} names no charge, though a ledger was given.")
    book = Ledger.open(ledger)
    declared = [one for one in book.datasets() if one.name == block["dataset"]]
    charges = [one for one in book.history() if (one.id, one.dataset) == (block["charge"], block["dataset"])]
    if not declared or not charges:
        raise DprlError(f"The ledger {ledger} has no charge {block['charge']} to the dataset {block['dataset']!r}.")
    (charge,), (dataset,) = charges, declared
    amounts = charge.amount.epsilon, charge.amount.delta
    if amounts != tuple(Decimal(repr(float(content[name]))) for name in ("epsilon", "delta")):
        raise DprlError(f"The ledger {ledger} has another epsilon or delta for the charge of {path}.")
    if (dataset.unit, dataset.relation) != (content["privacy_unit"], content["neighbouring_relation"]):
        raise DprlError(f"The ledger {ledger} keeps another privacy unit or relation than {path} states.")
    if charge.digest is None:
        raise DprlError(
            f"The ledger {ledger} has the charge of {path} as unfinished: finish the release with --resume, or do not "
            "rely on it."
        )
    if charge.digest != content["digest"]:
        raise DprlError(f"The ledger {ledger} has the charge of {path} for another release.")
