"""Ed25519 signatures of certificates, made and checked with the cryptography package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from dprl.accounting.schema import hexadecimal, mapping_of
from dprl.errors import DprlError, explained, require

_SIGNING = b"dprl certificate digest "
# Hexadecimal, not base64, whose last character has spare bits: one signature, one spelling.
_FORM = mapping_of(
    {"algorithm": lambda value: value == "Ed25519", "public_key": hexadecimal(64), "value": hexadecimal(128)}
)


def load_private(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file without a password; refuse anything else."""
    key = _load(path, f"Cannot read the signing key {path}", lambda raw: load_pem_private_key(raw, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise DprlError(f"The signing key {path} is not an Ed25519 private key in PEM without a password.")
    return key


def sign(digest_hex: str, sign_key: Path) -> dict[str, str]:
    """Return the signature of a certificate's digest, as it stands in the certificate."""
    key = load_private(sign_key)
    return {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "value": key.sign(_SIGNING + digest_hex.encode()).hex(),
    }


def check(path: Path, content: dict[str, Any], public_key: str | Path | None) -> bool:
    """Return whether a certificate is signed; refuse a wrong signature.

    Args:
        path: the certificate's file, for messages.
        content: the certificate.
        public_key: a PEM file; where it is given, the signature must be there and be made by that key.
    """
    if "signature" not in content:
        require(public_key is None, f"{path} is not signed, though a public key was given.")
        return False
    signature = content["signature"]
    require(_FORM(signature), f"The signature of {path} is not in the form that dprl writes.")
    raw = bytes.fromhex(signature["public_key"])
    if public_key is not None:
        same = _load_public(Path(public_key)).public_bytes_raw() == raw
        require(same, f"{path} was signed by another key than {public_key}.")
    try:
        signed = _SIGNING + content["digest"].encode()
        Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(signature["value"]), signed)
    except (InvalidSignature, ValueError) as error:
        raise DprlError(f"The signature of {path} is not valid.") from error
    return True


def _load_public(path: Path) -> Ed25519PublicKey:
    key = _load(path, f"{path} cannot be read", load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise DprlError(f"{path} is not a PEM public key, or not one of Ed25519.")
    return key


def _load(path: Path, failure: str, parse: Callable[[bytes], Any]) -> Any:
    """Return the key in a PEM file, or None where there is none."""
    with explained(failure):
        raw = path.read_bytes()
    try:
        return parse(raw)
    except (ValueError, TypeError):
        return None
