"""Write a release into a new folder, all or nothing: every file first beside it, then one rename."""

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
    """Refuse, before anything is spent, a folder that a release could not be written into; returns it absolute."""
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
        # permissions do not tell all: a full disk, a read-only file system; what a killed release left there goes too
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
    """Write all artifacts; returns their paths and the digest of the certificate.

    Args:
        name, content: of the JSON file that says what was released, of which the report is made.
        others: the other files by name.
        announce: called with digest and folder before the folder appears.
        unsaved: said besides where the disk refuses the release, of which nothing is left then but what is in memory
            and in its run folder.
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
    """Return ``call``; what the system refuses is raised as it is, for the files are beside their place and gone
    again.
    """
    try:
        return call(*arguments)
    except DprlError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
