"""The certificate: what a release claims, in JSON that can be checked later without the data.

``certificate.json`` stands for a verified, secure release; any other release has ``statement.json`` with the same
fields. Both list the SHA-256 of every other file of the results folder and a digest of themselves, which guards
against accidents. A signature (Ed25519) guards against tampering. The checks of the fields and of the signature stand
here; ``verification.py`` makes these and all others.

Each content is written in one way only (:func:`to_bytes`), so that a single changed byte is a changed file.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from dprl import __version__
from dprl.accounting.ledger_schema import UNITS
from dprl.accounting.reward_relation import REWARD_FUNCTION
from dprl.accounting.schema import Check, check_fields, hexadecimal, mapping_of, text, whole
from dprl.errors import DprlError, explained, require
from dprl.files import write_atomically

CERTIFICATE, STATEMENT = "certificate.json", "statement.json"
FILES = {"dprl.certificate/1": CERTIFICATE, "dprl.statement/1": STATEMENT}
STATUSES = ("verified", "as published", "unreviewed", "not private")
NOT_A_TRAJECTORY = (
    "A trajectory or a person as a whole: one visited state sits in two transitions, and every further transition of "
    "the same trajectory or person has a guarantee of its own."
)
"""Statement of what a guarantee for transitions does not protect; every such certificate must have it."""
NOT_THE_TRANSITIONS = (
    "States, actions and transitions, and how often a reward was asked for: only what the rewards are is protected."
)
"""Statement of what a guarantee for reward functions does not protect; every such certificate must have it."""

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_SIGNING = b"dprl certificate digest "
# Hexadecimal, not base64, whose last character has spare bits: one signature, one spelling.
_FORM = mapping_of(
    {"algorithm": lambda value: value == "Ed25519", "public_key": hexadecimal(64), "value": hexadecimal(128)}
)


def canonical_json(obj: Any) -> bytes:
    """Return the bytes that are digested: sorted keys, no whitespace, ASCII, no NaN or infinity.

    >>> canonical_json({"b": [1, 0.5], "a": None})
    b'{"a":null,"b":[1,0.5]}'
    """
    return _dump(obj, None, (",", ":"))


def to_bytes(certificate: Mapping[str, Any]) -> bytes:
    """Return the bytes of the file, indented for the reader; no other spelling of the same content is accepted."""
    return _dump(certificate, 2, (",", ": ")) + b"\n"


def digest(certificate: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of all but ``digest`` and ``signature``, in hexadecimal."""
    content = {name: value for name, value in certificate.items() if name not in ("digest", "signature")}
    return hashlib.sha256(canonical_json(content)).hexdigest()


def sha256_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python, dprl and the packages on which the numbers of a release depend."""
    # dprl states its version itself, because the metadata beside a checkout may be from an earlier installation
    found = {"python": platform.python_version(), "dprl": __version__}
    return found | {name: metadata.version(name) for name in ("jax", "dp_accounting", "numpy")}


def seal(
    certificate: Mapping[str, Any], directory: str | Path, artifacts: Iterable[str], sign_key: Path | None = None
) -> dict[str, Any]:
    """Return a copy of ``certificate`` that lists the artifacts by their SHA-256, with its digest. Nothing is written.

    Args:
        certificate: a certificate or statement.
        directory: the results folder.
        artifacts: names of files there.
        sign_key: a PEM file with an unencrypted Ed25519 private key, with which the digest is signed too.

    Raises:
        DprlError: an artifact's name is not a plain file name, a file cannot be read, or ``sign_key`` holds no such
            key.
    """
    sealed = {name: value for name, value in certificate.items() if name not in ("digest", "signature")}
    sealed["artifacts"] = {}
    for name in artifacts:
        plain = plain_name(name)
        require(plain, f"{name!r} cannot be certified: an artifact is a plain file name of the results folder.")
        with explained(f"{Path(directory) / name} cannot be certified"):
            sealed["artifacts"][name] = sha256_file(Path(directory) / name)
    sealed["digest"] = digest(sealed)
    if sign_key is not None:
        sealed["signature"] = sign(sealed["digest"], sign_key)
    return sealed


def write(sealed: Mapping[str, Any], directory: str | Path) -> Path:
    """Write a sealed certificate or statement into ``directory``, atomically, under the name its schema asks for."""
    path = Path(directory) / FILES[sealed["schema"]]
    write_atomically(path, to_bytes(sealed))
    return path


def _dump(obj: Any, indent: int | None, separators: tuple[str, str]) -> bytes:
    try:
        text = json.dumps(obj, sort_keys=True, indent=indent, separators=separators, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DprlError("A certificate holds plain JSON only: text, finite numbers, lists and objects.") from error
    return text.encode("ascii")


def plain_name(name: Any) -> bool:
    """Return whether ``name`` can be the name of an artifact."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..", CERTIFICATE, STATEMENT)
        and len(name) <= 200
        and name.isprintable()  # no control characters and no lone surrogates, which no file name has
        and not any(c in name for c in "/\\")
    )


# --- the fields --------------------------------------------------------------------------------------------------


def check_content(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse missing, unknown, mistyped and contradictory fields of a certificate or statement.

    Args:
        path: the file, for messages.
        content: its JSON.

    Raises:
        DprlError: one sentence that names the field.
    """
    check_fields(str(path), FIELDS | {"signature": _anything} if "signature" in content else FIELDS, content)
    public = content["assumed_public"]
    check_fields(f"What {path} assumes to be public", {name: PUBLIC.get(name, _anything) for name in public}, public)
    status, unit, unprotected = content["status"], content["privacy_unit"], content["not_protected"]
    require(status in STATUSES, f"The status of {path} must be one of: {', '.join(STATUSES)}.")
    require(unit in UNITS, f"The privacy unit of {path} must be one of: {', '.join(UNITS)}.")
    for narrow, what, others, words in (
        ("transition", "transitions", "a trajectory", NOT_A_TRAJECTORY),
        (REWARD_FUNCTION, "reward functions", "transitions", NOT_THE_TRANSITIONS),
    ):
        told = unit != narrow or words in unprotected
        require(told, f"{path} protects {what} without saying that it does not protect {others}.")
    secure = content["noise"].get("secure")
    require(isinstance(secure, bool), f"{path} does not say whether its noise was secure.")
    consistent = (status == "verified" and secure) == (path.name == CERTIFICATE)
    require(consistent, f"Only a verified release with secure noise has a {CERTIFICATE}: {path} contradicts itself.")
    if content["ledger"] is not None:
        _check_ledger_block(path, content)


def check_units(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a delta of 1/units or more, which would allow giving one unit away entirely, and undeclared units."""
    public = content["assumed_public"]
    if content["privacy_unit"] == REWARD_FUNCTION:
        units = public.get("hyper_parameters", {}).get("people", {"value": None})["value"]
        if units is None:  # reward functions that are not means over people
            return
    else:
        units = public["bounds"].get("units") if "bounds" in public else public.get("units")
    require(whole(units), f"{path} does not declare how many privacy units there are.")
    small = content["delta"] < 1.0 / units
    require(small, f"The delta of {path} is at least one over its {units} declared units: it protects nobody.")


def _check_ledger_block(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a charge whose epsilon or delta is not the one that the certificate claims."""
    block = content["ledger"]
    check_fields(f"The ledger block of {path}", _LEDGER, block)
    for name in ("epsilon", "delta"):
        same = block[name] == content[name]
        require(same, f"The {name} in the ledger block of {path} is not the {name} that it claims.")


def _anything(value: Any) -> bool:
    return True


def _is_a(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


_text, _list, _mapping = map(_is_a, (str, list, dict))


def _number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= 10**15)


def _or_nothing(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _date(value: Any) -> bool:
    """Return whether ``value`` is an existing time in UTC, from 2024 on, written YYYY-MM-DDThh:mm:ssZ."""
    try:
        found = datetime.strptime(value, _TIME_FORMAT)
    except (TypeError, ValueError):
        return False
    # written again, the time has every digit, and none of another script
    return found.year >= 2024 and found.strftime(_TIME_FORMAT) == value


FIELDS: dict[str, Check] = {
    "schema": _text,
    "status": _text,
    "epsilon": _or_nothing(_number),
    "delta": _or_nothing(_number),
    "privacy_unit": _text,
    "neighbouring_relation": _text,
    "released": _text,
    "not_protected": lambda value: _list(value) and all(map(text, value)),
    "mechanisms": _list,
    "event": _or_nothing(_mapping),
    "accountant": _or_nothing(_text),
    "epsilon_of_event": _or_nothing(_number),
    "delta_of_event": _or_nothing(_number),
    "delta_sampler": _or_nothing(_number),
    "noise": lambda value: _mapping(value) and not set(value) - {"secure", "source"} and text(value.get("source", "")),
    "assumed_public": _mapping,
    "ledger": _or_nothing(_mapping),
    "versions": lambda value: _mapping(value) and all(map(text, value.values())),
    "created": _date,
    "artifacts": lambda value: (
        _mapping(value) and len(value) > 0 and all(map(plain_name, value)) and all(map(hexadecimal(64), value.values()))
    ),
    "digest": _text,
}
"""Check of each field of a certificate or statement; a field ``signature`` may be added."""

PUBLIC: dict[str, Check] = {
    "bounds": _mapping,
    "environment": _mapping,
    "protector": _mapping,
    "hyper_parameters": lambda value: _mapping(value) and all(map(_STATED, value.values())),
    "policies": _list,
    "preconditions": _list,
    "reading": text,
    "units": whole,
}
"""Check of each known field of ``assumed_public``; any of them may be left out, and other fields may be added."""

_STATED = mapping_of({"value": _anything, "provenance": text})
_LEDGER = {"dataset": lambda value: text(value) and value != "", "charge": whole, "epsilon": _number, "delta": _number}


# --- the signature ----------------------------------------------------------------------------------------------


def load_private(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file without a password; refuse anything else."""
    parse = partial(load_pem_private_key, password=None)
    refusal = f"The signing key {path} is not an Ed25519 private key in PEM without a password."
    return _load(path, f"Cannot read the signing key {path}", parse, Ed25519PrivateKey, refusal)


def sign(digest_hex: str, sign_key: Path) -> dict[str, str]:
    """Return the signature of a certificate's digest, as the field ``signature`` holds it."""
    key = load_private(sign_key)
    return {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "value": key.sign(_SIGNING + digest_hex.encode()).hex(),
    }


def check_signature(path: Path, content: dict[str, Any], public_key: str | Path | None) -> bool:
    """Return whether a certificate is signed; refuse a wrong signature.

    Args:
        path: the certificate's file, for messages.
        content: the certificate.
        public_key: a PEM file; where one is given, the certificate must be signed with that key.
    """
    if "signature" not in content:
        require(public_key is None, f"{path} is not signed, though a public key was given.")
        return False
    signature = content["signature"]
    require(_FORM(signature), f"The signature of {path} is not in the form that dprl writes.")
    raw = bytes.fromhex(signature["public_key"])
    if public_key is not None:
        refusal = f"{public_key} is not a PEM public key, or not one of Ed25519."
        parse, kind = load_pem_public_key, Ed25519PublicKey
        given = _load(Path(public_key), f"{public_key} cannot be read", parse, kind, refusal)
        require(given.public_bytes_raw() == raw, f"{path} was signed by another key than {public_key}.")
    try:
        signed = _SIGNING + content["digest"].encode()
        Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(signature["value"]), signed)
    except (InvalidSignature, ValueError) as error:
        raise DprlError(f"The signature of {path} is not valid.") from error
    return True


def _load(path: Path, failure: str, parse: Callable[[bytes], Any], kind: type, refusal: str) -> Any:
    """Return the key in a PEM file, which must be of class ``kind``."""
    with explained(failure):
        raw = path.read_bytes()
    try:
        key = parse(raw)
    except (ValueError, TypeError):
        key = None
    require(isinstance(key, kind), refusal)
    return key
