"""Write a release into a new folder, all or nothing: every file first beside it, then one rename."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dprl.accounting.certificate import seal, write, write_atomically
from dprl.accounting.ledger import Ledger
from dprl.accounting.signatures import load_private
from dprl.errors import DprlError


def check_folder(folder: str | Path) -> Path:
    """Refuse, before anything is spent, a folder that a release could not be written into; returns it absolute."""
    path = Path(os.path.abspath(folder))
    try:
        if path.is_symlink() or path.is_mount():
            raise DprlError(f"{str(folder)!r} is a link or a mount point: name a new folder for the release.")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DprlError(f"The folder {str(folder)!r} is not empty: a release is never written over; name another.")
        parent = path.parent
        while not parent.exists():
            parent = parent.parent
        # permissions do not tell all: a full disk, a read-only file system
        os.rmdir(tempfile.mkdtemp(prefix=f".{path.name}.", dir=parent))
    except OSError as error:
        raise DprlError(
            f"Cannot write into {str(folder)!r}: {error.strerror or 'it is no folder that can be written'}."
        ) from error
    return path


def check_key(path: str | Path | None) -> None:
    """Refuse, before anything is spent, a signing key that cannot be read."""
    if path is not None:
        load_private(Path(path))


def save_release(
    name: str,
    content: Mapping[str, Any],
    others: Mapping[str, bytes],
    certificate: Mapping[str, Any],
    folder: str | Path,
    sign_key: str | Path | None = None,
    announce: Callable[[str, Path], None] | None = None,
) -> tuple[dict[str, Path], str]:
    """Write all artifacts; returns their paths and the digest of the certificate.

    Args:
        name, content: of the JSON file that says what was released, of which the report is made.
        others: the other files by name.
        announce: called with digest and folder before the folder appears.
    """
    path = check_folder(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        write_atomically(staging / name, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")
        for other, raw in others.items():
            write_atomically(staging / other, raw)
        write_atomically(staging / "report.html", _report(content, certificate).encode())
        names = [name, *others, "report.html"]
        sealed = seal(certificate, staging, names, None if sign_key is None else Path(sign_key))
        statement = write(sealed, staging).name
        staging.chmod(0o755)
        if announce is not None:
            announce(sealed["digest"], path)
        staging.rename(path)  # takes the place of an empty folder
        sync_folder(path.parent)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise DprlError(
            f"Cannot write the release into {str(folder)!r}: {error.strerror or 'the disk refused'}."
        ) from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return {each: path / each for each in [*names, statement]}, sealed["digest"]


def save_charged(charge: tuple[Ledger, int] | None, *arguments: Any) -> dict[str, Path]:
    """Paths of :func:`save_release` with these ``arguments``; commits the ledger's charge, if there is one."""
    paths, digest = save_release(*arguments)
    if charge is not None:
        ledger, number = charge
        ledger.commit(number, digest)
    return paths


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _report(content: Mapping[str, Any], certificate: Mapping[str, Any]) -> str:
    from dprl.report import render

    return render(dict(content), dict(certificate))
