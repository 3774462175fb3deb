"""Files that appear whole or not at all, also after a power cut, and temporary folders that are removed. A leaf.

A process that ends removes its own temporary folders. A process that is killed cannot: its folders are removed by the
next process that makes a folder with the same prefix in the same place. A folder in use is locked, and the kernel frees
the lock when the process is gone.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dprl.errors import explained

_LOCK = "dprl.lock"
_RANDOM = "[a-z0-9_]{8}"  # how tempfile ends a name


@contextmanager
def replacing(path: str | Path, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary file beside ``path``, which replaces ``path`` when the block ends and is removed if it fails.

    Args:
        path: path of the file.
        mode: mode of the finished file. Until then only its owner has access.

    Raises:
        DprlError: the file cannot be written; the sentence says the path and the reason.
    """
    path = Path(path)
    with explained(f"{path} cannot be written"):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        temporary = Path(name)
        try:
            yield temporary
            os.fchmod(handle, mode)
            os.fsync(handle)
            temporary.replace(path)
        finally:
            os.close(handle)
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either what it held before or all of ``content``."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def temporary_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """Yield a new folder in ``parent`` for this user only, whose name begins with ``prefix``; remove it at the end.

    First, folders with this prefix that killed processes of this user left in ``parent`` are removed.

    Raises:
        OSError: the folder cannot be made.
    """
    _remove_leftovers(prefix, parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = None
    try:
        with suppress(OSError):  # a file system without locks: nobody will remove the folder but this process
            lock = _locked(folder)
        yield folder
    finally:
        _remove(folder, lock)


def _locked(folder: Path) -> int:
    """Lock the folder, and return the descriptor of the lock.

    The lock file gets its name only when its lock is held, so that no other process ever finds it free.
    """
    fresh = folder / f"{_LOCK}.new"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fresh.rename(folder / _LOCK)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_leftovers(prefix: str, parent: Path) -> None:
    """Remove this user's folders whose lock is free, as far as that is possible."""
    name = re.compile(re.escape(prefix) + _RANDOM)
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in [entry for entry in entries if name.fullmatch(entry.name)]:
            # a folder without a lock may be one that another process is just making
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                    continue
                lock = os.open(Path(entry.path) / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:  # in use
                    os.close(lock)
                else:
                    _remove(Path(entry.path), lock)


def _remove(folder: Path, lock: int | None) -> None:
    """Remove the folder, whose lock is held, and free the lock."""
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)
        with suppress(OSError):  # NFS keeps the name of a file that is open, and so its folder, too
            folder.rmdir()
