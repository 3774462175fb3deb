"""Key of a release that can be resumed: 32 secret bytes in a file, and the only way to turn them into noise.

Whoever has the key can subtract the noise: the file is as private as the log itself. Proof: docs/proofs/resume.md.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dprl.errors import explained, require
from dprl.files import sync
from dprl.mechanisms.keystream import KEY_BYTES, fresh_key
from dprl.mechanisms.noise import SecureNoise

SIZE = KEY_BYTES


@dataclass(frozen=True, eq=False)
class RunKey:
    """Key of a run folder. It is never printed, and two keys are never compared.

    Use :meth:`create` and :meth:`load`.
    """

    _key: bytes = field(repr=False)

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """Draw a key from the operating system and store it, durably, in a new file of mode 0600.

        Raises DprlError if the system has no secure randomness, or the file exists or cannot be written.
        """
        key, path = fresh_key(), Path(path)
        with explained(f"The run key {path} cannot be written"):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(file, 0o600)
                complete = os.write(file, key) == SIZE
                require(complete, f"The run key {path} cannot be written: the disk is full.")
                os.fsync(file)
            finally:
                os.close(file)
            sync(path.parent)
        return cls(key)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the key in ``path``.

        Raises DprlError unless it is a regular file of this user, of mode 0600, with 32 bytes and no other name.
        """
        path = Path(path)
        with explained(f"The run key {path} cannot be read"):
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(file)
                key = os.read(file, SIZE + 1)
            finally:
                os.close(file)
        for sound, wrong in (
            (stat.S_ISREG(status.st_mode) and status.st_nlink == 1, "is not a file with one name"),
            (status.st_uid == os.geteuid(), "belongs to another user"),
            (stat.S_IMODE(status.st_mode) == 0o600, "may be read by others: its mode is not 0600"),
            (len(key) == SIZE, f"does not hold {SIZE} bytes"),
            (any(key), "is all zero, which no secure source gave"),
        ):
            require(sound, f"The run key {path} {wrong}, so it is not used.")
        return cls(key)

    def noise(self, bound: bytes) -> SecureNoise:
        """Return the noise source of ``bound``: the same for an equal ``bound``, an independent one for any other.

        ``bound`` is a MAC of everything that the sums depend on, so that the same noise is never added to two different
        sums.
        """
        return SecureNoise(hashlib.blake2b(bound, key=self._subkey(b"dprl-run-noise"), digest_size=32).digest())

    def mac(self, message: bytes) -> bytes:
        """Return the keyed BLAKE2b of ``message``: 32 bytes that nobody can find without the key."""
        return hashlib.blake2b(message, key=self._subkey(b"dprl-run-mac"), digest_size=32).digest()

    def _subkey(self, purpose: bytes) -> bytes:
        return hashlib.blake2b(key=self._key, person=purpose, digest_size=32).digest()
