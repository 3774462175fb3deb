"""Checking a results folder against its own certificate or statement, and the claim against the accountant."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl.accounting import signatures
from dprl.accounting.accountant import RELATION
from dprl.accounting.certificate import (
    CERTIFICATE,
    FILES,
    NOT_A_TRAJECTORY,
    NOT_THE_TRANSITIONS,
    STATEMENT,
    STATUSES,
    digest,
    plain_name,
    sha256_file,
    to_bytes,
)
from dprl.accounting.ledger_schema import UNITS
from dprl.accounting.reward_relation import UNIT
from dprl.accounting.reward_verification import check_relation, check_sensitivities
from dprl.accounting.user_verification import check_users, counted, of_users
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

# Type of each top-level field; None is allowed where it is listed.
_NUMBER, _NOTHING = (int, float), type(None)
_FIELDS: dict[str, tuple[type, ...]] = {
    "schema": (str,),
    "status": (str,),
    "epsilon": (*_NUMBER, _NOTHING),
    "delta": (*_NUMBER, _NOTHING),
    "privacy_unit": (str,),
    "neighbouring_relation": (str,),
    "released": (str,),
    "not_protected": (list,),
    "mechanisms": (list,),
    "event": (dict, _NOTHING),
    "accountant": (str, _NOTHING),
    "epsilon_of_event": (*_NUMBER, _NOTHING),
    "delta_of_event": (*_NUMBER, _NOTHING),
    "delta_sampler": (*_NUMBER, _NOTHING),
    "noise": (dict,),
    "assumed_public": (dict,),
    "ledger": (dict, _NOTHING),
    "versions": (dict,),
    "created": (str,),
    "artifacts": (dict,),
    "digest": (str,),
}
_HEX = re.compile(r"[0-9a-f]{64}")
DATA = ("estimate.json", "training.json")
"""What says in numbers what was released: of an evaluation, or of learning in an environment."""


@dataclass(frozen=True)
class VerifiedCertificate:
    """What :func:`verify` read and found sound.

    Attributes:
        path: the file that was read.
        content: its JSON.
        private: True for a certificate; a statement does not stand for a private release.
        epsilon: epsilon recomputed from the event at ``delta_of_event``, or None where there is no event.
        signed: whether it carries a signature, which was valid; only a public key handed to :func:`verify` says whose.
    """

    path: Path
    content: Mapping[str, Any]
    private: bool
    epsilon: float | None
    signed: bool


def verify(directory: str | Path, public_key: str | Path | None = None) -> VerifiedCertificate:
    """Check a results folder against its own certificate or statement, and the claim against the accountant.

    The digests must match, every file be listed and unchanged, the fields be complete, the mechanisms agree with the
    privacy event, and ``estimate.json`` or ``training.json`` with both. For a verified status, epsilon is recomputed
    from the event and must not exceed the claim; where reward functions are protected, or users who take part once, so
    is the sensitivity that their relation asks for. With ``public_key``, a PEM file, the signature must be there and
    be made by that key. A statement without an event makes no claim: there, only digests are checked. Raises DprlError
    otherwise, in one sentence.
    """
    directory = Path(directory)
    path, content = _read_certificate(directory)
    _check_fields(path, content)
    if content["digest"] != digest(content):
        raise DprlError(f"{path} does not match its own digest: it was changed after it was written.")
    signed = signatures.check(path, content, public_key)
    data = _check_artifacts(directory, path, content)
    epsilon = _check_claim(path, content)
    for file, stated in data.items():
        for name in ("status", "epsilon", "delta"):
            if name not in stated or stated[name] != content[name]:
                raise DprlError(f"{name} in {directory / file} is not the {name} of {path}.")
    return VerifiedCertificate(path, content, path.name == CERTIFICATE, epsilon, signed)


def _read_certificate(directory: Path) -> tuple[Path, dict[str, Any]]:
    if not directory.is_dir():
        raise DprlError(f"There is no results folder {directory}.")
    there = [directory / name for name in (CERTIFICATE, STATEMENT) if os.path.lexists(directory / name)]
    if not there:
        raise DprlError(f"{directory} holds neither {CERTIFICATE} nor {STATEMENT}.")
    if len(there) > 1:
        raise DprlError(f"{directory} holds both {CERTIFICATE} and {STATEMENT}, so it is unclear what it claims.")
    path = there[0]
    raw = _read(path)
    content = _strict_json(path, raw)
    schema = content.get("schema")
    if not isinstance(schema, str) or schema not in FILES:
        raise DprlError(f"{path} has a schema that this version of dprl does not know.")
    if FILES[schema] != path.name:
        raise DprlError(f"{path} has the schema of a {FILES[schema]}.")
    if raw != to_bytes(content):
        raise DprlError(f"{path} is not written the way dprl writes it: it was changed afterwards.")
    return path, content


def _check_fields(path: Path, content: dict[str, Any]) -> None:
    for name, kinds in _FIELDS.items():
        if name not in content:
            raise DprlError(f"{path} lacks the field {name!r}.")
        value = content[name]
        if not isinstance(value, kinds) or isinstance(value, bool) or (isinstance(value, int) and abs(value) > 10**15):
            raise DprlError(f"The field {name!r} of {path} has the wrong type.")
    unknown = sorted(set(content) - set(_FIELDS) - {"signature"})
    if unknown:
        raise DprlError(f"{path} has an unknown field {unknown[0]!r}.")
    if content["status"] not in STATUSES:
        raise DprlError(f"The status of {path} must be one of: {', '.join(STATUSES)}.")
    if content["privacy_unit"] not in UNITS:
        raise DprlError(f"The privacy unit of {path} must be one of: {', '.join(UNITS)}.")
    if content["privacy_unit"] == "transition" and NOT_A_TRAJECTORY not in content["not_protected"]:
        raise DprlError(f"{path} protects transitions without saying that it does not protect a trajectory.")
    if content["privacy_unit"] == UNIT and NOT_THE_TRANSITIONS not in content["not_protected"]:
        raise DprlError(f"{path} protects reward functions without saying that it does not protect transitions.")
    if not isinstance(content["noise"].get("secure"), bool):
        raise DprlError(f"{path} does not say whether its noise was secure.")
    private = content["status"] == "verified" and content["noise"]["secure"]
    if private != (path.name == CERTIFICATE):
        raise DprlError(f"Only a verified release with secure noise has a {CERTIFICATE}: {path} contradicts itself.")


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
            raise DprlError(f"{entry.path} is not listed in {path.name}: remove it, or do not rely on it.")
        if not entry.is_file(follow_symlinks=False):
            raise DprlError(f"{entry.path} is not a regular file.")
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
        raw = _read(directory / name)
        if hashlib.sha256(raw).hexdigest() != listed[name]:
            raise DprlError(f"{directory / name} was changed after {path.name} was written.")
        data[name] = _strict_json(directory / name, raw)
    return data


def _check_claim(path: Path, content: dict[str, Any]) -> float | None:
    """Recompute epsilon from the event; compare it with the claim where the status makes one."""
    verified = content["status"] == "verified"
    if content["event"] is None:
        if verified:
            raise DprlError(f"{path} claims a verified release without a privacy event.")
        return None
    from dprl.accounting import accountant, events

    try:
        event = events.from_json(content["event"])
        if events.to_json(event) != content["event"]:
            raise DprlError(f"The privacy event of {path} is not one that dprl emits.")
    except (RecursionError, OverflowError) as error:
        raise DprlError(f"The privacy event of {path} is not one that dprl emits.") from error
    _check_mechanisms(path, content["mechanisms"], event)
    of_event, delta, sampler = (content[name] for name in ("epsilon_of_event", "delta_of_event", "delta_sampler"))
    if delta is None or not 0.0 < delta < 1.0 or (sampler is not None and not 0.0 <= sampler < 1.0):
        raise DprlError(f"delta_of_event and delta_sampler of {path} must be probabilities.")
    epsilon = accountant.epsilon_of(event, delta)
    if of_event is None:
        if verified or math.isfinite(epsilon):
            raise DprlError(f"{path} does not state the epsilon of its event.")
    elif not math.isclose(of_event, epsilon, rel_tol=1e-6, abs_tol=1e-9):
        raise DprlError(f"epsilon_of_event of {path} is not what the accountant finds for its event.")
    if verified:
        claim, whole = content["epsilon"], content["delta"]
        if claim is None or whole is None or not claim > 0.0 or not 0.0 < whole < 1.0 or sampler is None:
            raise DprlError(f"{path} claims a verified release without a positive epsilon and delta.")
        precision = 0.0
        if content["privacy_unit"] == UNIT:
            precision = check_sensitivities(path, content, check_relation(path, content))
        elif of_users(content):
            check_users(path, content)
        elif content["neighbouring_relation"] != RELATION:
            raise DprlError(f"The accountant answers for {RELATION!r}, which is not the relation that {path} claims.")
        # The tolerances are for the last digits of floating-point sums and transforms on another machine.
        if max(epsilon, of_event or 0.0) > claim * (1.0 + 1e-9) + 1e-9:
            raise DprlError(f"{path} claims a smaller epsilon than the accountant finds for its event.")
        draws = sum(int(m.get("dimension", 0)) * int(m.get("steps") or 1) for m in content["mechanisms"])
        least = max(precision, events.sampler_delta(claim, draws))
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
        numbers = [mechanism.get("sampling_rate"), noise, counted(mechanism)]
        row = [1 if number is None and i != 1 else number for i, number in enumerate(numbers)]
        stated.append(tuple(row if filtered == [None] * 3 else row + filtered))
    if stated != accounted:
        raise DprlError(f"The mechanisms of {path} are not those of its privacy event.")


def _strict_json(path: Path, raw: bytes) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("duplicate key")
        return found

    def constant(name: str) -> Any:
        raise ValueError(name)

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError("out of range")
        return value

    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant, parse_float=number)
    except (ValueError, RecursionError) as error:
        raise DprlError(f"{path} is not strict JSON.") from error
    if not isinstance(content, dict):
        raise DprlError(f"{path} is not a JSON object.")
    return content


def _read(path: Path) -> bytes:
    try:
        if path.is_symlink() and path.name in (CERTIFICATE, STATEMENT):
            raise DprlError(f"{path} is a link, not a file of the results folder.")
        return path.read_bytes()
    except OSError as error:
        raise DprlError(f"{path} cannot be read: {error.strerror or error}.") from error
