"""Write a release into a new folder, all or nothing: write every file beside the folder first, then rename once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dprl.accounting.certificate import seal, write
from dprl.errors import DprlError
from dprl.files import sync, temporary_folder, write_atomically
from dprl.report import render

T = TypeVar("T")


def check_folder(folder: str | Path) -> Path:
    """Refuse a folder that a release could not be written into, before anything is spent. Returns its absolute path."""
    path = Path(os.path.abspath(folder))
    try:
        if path.is_symlink() or path.is_mount():
            raise DprlError(f"{str(folder)!r} is a link or a mount point: name a new folder for the release.")
        if path.exists() and not path.is_dir():
            raise DprlError(f"{str(folder)!r} is a file: name a folder that is new or empty.")
        if path.exists() and any(path.iterdir()):
            raise DprlError(f"The folder {str(folder)!r} is not empty: a release is never written over; name another.")
        parent = path.parent
        while not parent.exists():
            parent = parent.parent
        # permissions do not show a full disk or a read-only file system; this also removes what a killed release left
        with temporary_folder(f".{path.name}.", parent):
            pass
    except OSError as error:
        raise DprlError(
            f"Cannot write into {str(folder)!r}: {error.strerror or 'it is no folder that can be written'}."
        ) from error
    return path


def save_release(
    name: str,
    content: Mapping[str, Any],
    others: Mapping[str, bytes],
    certificate: Mapping[str, Any],
    folder: str | Path,
    sign_key: str | Path | None = None,
    announce: Callable[[str, Path], None] | None = None,
    unsaved: str = "",
) -> tuple[dict[str, Path], str]:
    """Write all artifacts of a release and return their paths and the digest of the certificate.

    Args:
        name, content: of the JSON file that says what was released; the report is made from it.
        others: further files by name.
        announce: called with the certificate's digest and the folder before the folder appears.
        unsaved: added to the error message if the disk refuses the release; it then exists only in memory and in its
            run folder.
    """
    path = check_folder(folder)
    files = {name: json.dumps(content, indent=2, allow_nan=False).encode() + b"\n", **others}
    try:
        files["report.html"] = render(dict(content), dict(certificate)).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{path.name}.", path.parent) as around:
            staging = around / "release"
            staging.mkdir()
            for each, raw in files.items():
                _naming_no_file(write_atomically, staging / each, raw)
            sealed = seal(certificate, staging, [*files], None if sign_key is None else Path(sign_key))
            statement = _naming_no_file(write, sealed, staging).name
            staging.chmod(0o755)
            if announce is not None:
                announce(sealed["digest"], path)
            staging.rename(path)  # takes the place of an empty folder
            sync(path.parent)
    except OSError as error:
        why = error.strerror or "the disk refused"
        raise DprlError(f"Cannot write the release into {str(folder)!r}: {why}{unsaved}.") from error
    return {each: path / each for each in [*files, statement]}, sealed["digest"]


def _naming_no_file(call: Callable[..., T], *arguments: Any) -> T:
    """Return the result of ``call``. If the system refuses, raise the system's own error.

    The DprlError around it would name a temporary file, which is gone again by then.
    """
    try:
        return call(*arguments)
    except DprlError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
