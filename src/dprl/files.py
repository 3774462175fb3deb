"""Files that appear whole or not at all, also after a power cut. A leaf."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dprl.errors import DprlError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file beside ``path``, which takes its place when the block ends, and is gone if it fails.

    Raises:
        DprlError: the file cannot be written, in one sentence with its path and why.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        temporary = Path(name)
        try:
            yield temporary
            os.fchmod(handle, 0o644)
            os.fsync(handle)
            temporary.replace(path)
        finally:
            os.close(handle)
            temporary.unlink(missing_ok=True)
        sync(path.parent)
    except OSError as error:
        raise DprlError(f"{path} cannot be written: {error.strerror or error}.") from error


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either what it held before or all of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
