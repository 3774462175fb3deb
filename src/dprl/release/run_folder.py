"""The folder of an unfinished release, so that it can be resumed: same key, same data, no second draw or charge.

The folder holds the run key, the public facts of the request (``run.json``), a MAC of everything private that enters
the mechanisms (``data``) and the journal of noisy steps. All of this is as private as the log, and is removed in the
end. Proof: docs/proofs/resume.md.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import hmac
import json
import os
import secrets
import shutil
import stat
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from dprl.accounting.certificate import canonical_json
from dprl.errors import DprlError, explained
from dprl.files import sync
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey
from dprl.release.journal import FolderJournal, tampered, write_all, writing

SCHEMA = "dprl.run/1"
KEY, FACTS, DATA, JOURNAL, FINISHED = "key", "run.json", "data", "journal", "finished.json"
_KINDS = {
    "request": "the request is another one",
    "versions": "dprl or a library that it uses has changed since",
    "device": "it was begun on another device or with other settings of it",
}

_OTHER_DATA = "it was begun on other data (rows, policies or features)"


class RunFolder:
    """A locked run folder, from :meth:`begin` or :meth:`resume`. Close it, or remove it when the release is out.

    Attributes:
        path: the folder, absolute.
        token: token of the charge, 32 hexadecimal digits.
        journal: the noisy steps, see :class:`~dprl.protocols.Journal`; set by :meth:`bind_noise_to_data`.
        bind_charge: binds the ledger's charge to the data too; set after the charge. It takes 64 hexadecimal digits and
            tells whether the charge is bound to them; an unbound charge is bound to them now.
    """

    path: Path
    token: str
    journal: FolderJournal
    bind_charge: Callable[[str], bool] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(f"{path} is not a run folder that can be opened"):
            self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self.close = weakref.finalize(self, os.close, self._lock)
        try:
            status = os.fstat(self._lock)
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
                raise DprlError(f"The run folder {path} is open to others: its mode is not 0700, so it is not used.")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.is_dir() or not os.path.samestat(os.stat(path), status):
                raise DprlError(f"The run folder {path} is gone: its release was finished meanwhile.")
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            why = "in use by a release that has not ended" if isinstance(error, BlockingIOError) else error.strerror
            raise DprlError(f"The run folder {path} cannot be locked: {why}.") from error
        self._key: RunKey | None = None

    @classmethod
    def begin(cls, path: Path, facts: Mapping[str, Any]) -> Self:
        """Make the folder, its key and its token, and write them to disk before returning."""
        with explained(f"The run folder {path} cannot be made"):
            path.parent.mkdir(parents=True, exist_ok=True)
            for rest in path.parent.glob(f".{glob.escape(path.name)}.*.removed"):
                shutil.rmtree(rest, ignore_errors=True)
            path.mkdir(mode=0o700)
            path.chmod(0o700)
            sync(path.parent)
        folder = cls(path)
        try:
            return folder._filled(facts)
        except DprlError:
            folder.remove()
            raise

    @classmethod
    def resume(cls, path: Path, facts: Mapping[str, Any]) -> Self:
        """Open the folder of an interrupted run.

        Raises DprlError if a bound fact differs from ``facts``. The message says of what kind the difference is, and
        names the facts.
        """
        folder = cls(path)
        try:
            if not os.path.lexists(path / FACTS):
                if any(os.path.lexists(path / name) for name in (DATA, JOURNAL, FINISHED)):
                    raise tampered(path)
                # interrupted while the folder was made, before anything was charged or drawn
                folder._remove_key()
                return folder._filled(facts)
            if os.path.lexists(path / KEY):
                folder._key = RunKey.load(path / KEY)
            stored = folder._read_facts()
            for kind, words in _KINDS.items():
                now = json.loads(canonical_json(facts[kind]))
                if stored[kind] != now:
                    # these names are all public facts
                    names = sorted(k for k in set(now) | set(stored[kind]) if now.get(k) != stored[kind].get(k))
                    raise _another(path, f"{words} ({', '.join(names)})")
            return folder
        except BaseException:
            folder.close()
            raise

    @property
    def key(self) -> RunKey:
        """The run key. Raises DprlError if it is gone, as after an interrupted removal of the folder."""
        if self._key is None:
            raise DprlError(
                f"The run folder {self.path} has lost its key, so the run cannot be resumed: delete it (its charge "
                "stays spent)."
            )
        return self._key

    def bind_noise_to_data(self, parts: Iterable[Any]) -> SecureNoise:
        """Bind the run and its charge to its private data: every array that enters a mechanism, in order.

        Returns the noise source that belongs to these data. A copy of this folder that is bound to other data has
        another noise source. Raises DprlError if a resumed run was begun on other data. That answer depends on the
        rows: it is for the curator, who has them.
        """
        found = self.key.mac(b"data\0" + self._binding + digest_of(parts))
        stored = self._read(DATA)
        if stored is None:
            if os.path.lexists(self.path / JOURNAL):
                raise tampered(self.path)
            self._write(DATA, found + self.key.mac(b"sealed\0" + found))
        elif not hmac.compare_digest(stored[32:], self.key.mac(b"sealed\0" + stored[:32])):
            raise tampered(self.path)
        elif not hmac.compare_digest(stored[:32], found):
            raise _another(self.path, _OTHER_DATA)
        # this folder may be a copy whose ``data`` was removed, but all copies share one charge
        if self.bind_charge is not None and not self.bind_charge(self.key.mac(b"charge\0" + found).hex()):
            raise _another(self.path, _OTHER_DATA)
        self.journal = FolderJournal(self.path / JOURNAL, self.key, found)
        return self.key.noise(found)

    def finish(self, digest: str, folder: Path) -> None:
        """Note the digest of the release's certificate, before the release appears in ``folder``."""
        self._write_sealed(FINISHED, b"finished\0", {"digest": digest, "folder": str(folder)})

    @property
    def finished(self) -> tuple[str, Path] | None:
        """Digest and folder of the release that this run was about to write, or None. The release need not be there."""
        raw = self._read(FINISHED)
        if raw is None:
            return None
        note, _ = self._unsealed(raw, b"finished\0", {"digest", "folder"})
        return str(note["digest"]), Path(str(note["folder"]))

    def remove(self) -> None:
        """Remove the folder: the key first, then all the rest at once."""
        if hasattr(self, "journal"):
            self.journal.close()
        try:
            self._remove_key()
            # one rename, so that nobody meets half a folder; without the key it holds no secret
            rest = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.removed")
            os.rename(self.path, rest)
            sync(rest.parent)
            self.path = rest
            shutil.rmtree(rest)
        except OSError as error:
            raise DprlError(
                f"The run folder {self.path} cannot be removed ({error.strerror or error}): delete it, for with its "
                "key the noise can be subtracted."
            ) from error
        self.close()

    @property
    def open(self) -> bool:
        """Whether the folder is still open: neither closed nor removed."""
        return self.close.alive

    def _filled(self, facts: Mapping[str, Any]) -> Self:
        self._key = RunKey.create(self.path / KEY)
        self.token = secrets.token_hex(16)
        content = {"schema": SCHEMA, "token": self.token, **{kind: facts[kind] for kind in _KINDS}}
        self._binding = self._write_sealed(FACTS, b"facts\0", content)
        return self

    def _read_facts(self) -> dict[str, Any]:
        content, self._binding = self._unsealed(self._read(FACTS) or b"", b"facts\0", {"schema", "token", *_KINDS})
        if content["schema"] != SCHEMA:
            raise tampered(self.path)
        self.token = str(content["token"])
        return content

    def _write_sealed(self, name: str, kind: bytes, note: Mapping[str, Any]) -> bytes:
        """Write a note with its MAC, and return the MAC."""
        mac = self.key.mac(kind + canonical_json(note))
        self._write(name, canonical_json({**note, "mac": mac.hex()}))
        return mac

    def _unsealed(self, raw: bytes, kind: bytes, names: set[str]) -> tuple[dict[str, Any], bytes]:
        """Return a note and its MAC. The MAC is checked while the key exists; :meth:`remove` deletes the key first."""
        try:
            note = json.loads(raw)
            mac = bytes.fromhex(note.pop("mac"))
            sound = self._key is None or hmac.compare_digest(self._key.mac(kind + canonical_json(note)), mac)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise tampered(self.path) from error
        if not sound or set(note) != names:
            raise tampered(self.path)
        return note, mac

    def _read(self, name: str) -> bytes | None:
        try:
            file = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as opened:
                return opened.read()
        except FileNotFoundError:
            return None
        except OSError as error:  # also a folder in place of the file
            raise tampered(self.path) from error

    def _write(self, name: str, content: bytes) -> None:
        """Write the whole file or nothing. It is on disk when this returns."""
        unfinished = self.path / f".{name}"
        with writing(self.path):
            file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            try:
                write_all(file, content)
                os.fsync(file)
            finally:
                os.close(file)
            os.replace(unfinished, self.path / name)
            sync(self.path)

    def _remove_key(self) -> None:
        (self.path / KEY).unlink(missing_ok=True)
        sync(self.path)


def check_run(path: Path, resume: bool) -> None:
    """Refuse an existing folder without ``resume``, and ``resume`` without an existing folder."""
    if resume and not os.path.lexists(path):
        raise DprlError(f"There is nothing to resume: no run folder {path}.")
    if not resume and os.path.lexists(path):
        raise DprlError(
            f"{path} belongs to a release that is running or was interrupted: go on with it by --resume (in Python, "
            "resume=True), or, when nothing runs, delete it (what was charged stays spent)."
        )


def noted_folder(path: Path) -> Path | None:
    """Return the folder that the run at ``path`` was about to write, or None.

    This is a hint, read without a check; :attr:`RunFolder.finished` checks it.
    """
    try:
        # reading a pipe would never end
        return Path(json.loads((path / FINISHED).read_bytes())["folder"]) if (path / FINISHED).is_file() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def digest_of(parts: Iterable[Any]) -> bytes:
    """Return the SHA-256 digest of arrays, whole numbers and texts in order, each with its type and shape."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, int | str):
            digest.update(f"{type(part).__name__} {len(str(part))} {part}\n".encode())
            continue
        array = np.ascontiguousarray(part)
        digest.update(f"array {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.digest()


def _another(path: Path, words: str) -> DprlError:
    return DprlError(
        f"The run in {path} cannot be resumed: {words}; make it what it was, or delete the folder (its charge "
        "stays spent)."
    )
