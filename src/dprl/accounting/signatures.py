"""Ed25519 signatures of certificates, made and checked with the cryptography package (imported when needed)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl.errors import DprlError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_SIGNING = b"dprl certificate digest "


def load_private(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file without a password; refuses anything else."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise DprlError(f"Cannot read the signing key {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise DprlError(f"The signing key {path} is not an Ed25519 private key in PEM without a password.")
    return key


def sign(digest_hex: str, sign_key: Path) -> dict[str, str]:
    """The signature of a certificate's digest, as it stands in the certificate."""
    key = load_private(sign_key)
    return {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "value": key.sign(_SIGNING + digest_hex.encode()).hex(),
    }


def check(path: Path, content: dict[str, Any], public_key: str | Path | None) -> bool:
    """Whether a certificate is signed; refuses a wrong signature, and a missing one where a public key is given."""
    if "signature" not in content:
        if public_key is not None:
            raise DprlError(f"{path} is not signed, though a public key was given.")
        return False
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = content["signature"]
    # Hexadecimal, not base64, whose last character has spare bits: one signature, one spelling.
    sound = (
        isinstance(signature, dict)
        and set(signature) == {"algorithm", "public_key", "value"}
        and signature["algorithm"] == "Ed25519"
        and isinstance(signature["public_key"], str)
        and isinstance(signature["value"], str)
        and re.fullmatch(r"[0-9a-f]{64}", signature["public_key"])
        and re.fullmatch(r"[0-9a-f]{128}", signature["value"])
    )
    if not sound:
        raise DprlError(f"The signature of {path} is not in the form that dprl writes.")
    raw = bytes.fromhex(signature["public_key"])
    if public_key is not None and _load_public(Path(public_key)).public_bytes_raw() != raw:
        raise DprlError(f"{path} was signed by another key than {public_key}.")
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(
            bytes.fromhex(signature["value"]), _SIGNING + content["digest"].encode()
        )
    except (InvalidSignature, ValueError) as error:
        raise DprlError(f"The signature of {path} is not valid.") from error
    return True


def _load_public(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise DprlError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise DprlError(f"{path} is not a PEM public key.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise DprlError(f"{path} is not an Ed25519 key.")
    return key
