"""Results of a release, and how they are saved: into a new folder, all or nothing, with the charge committed after.

Every file is written beside the folder first; then all of them are renamed at once.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from dprl.accounting.certificate import FILES, seal, write
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError
from dprl.files import sync, temporary_folder, write_atomically
from dprl.release.run_folder import RunFolder
from dprl.report import render
from dprl.report.pages import HasPage

T = TypeVar("T")


@dataclass(frozen=True)
class Charge:
    """One charge of a ledger; it belongs to one certificate, named by its digest."""

    ledger: Ledger
    number: int

    def refuse_another(self, digest: str | None, folder: RunFolder) -> None:
        """Refuse a run, such as a copy, whose charge already belongs to another certificate than ``digest``."""
        known = next((charge.digest for charge in self.ledger.history() if charge.id == self.number), None)
        if known is not None and known != digest:
            raise DprlError(
                f"The release of the run in {folder.path} is out already, says the ledger: delete the run folder, for "
                "with its key the noise can be subtracted."
            )

    def commit(self, digest: str) -> None:
        """Note in the ledger that the release with this certificate is out."""
        self.ledger.commit(self.number, digest)


@dataclass(frozen=True, kw_only=True)
class ReleaseResults(HasPage):
    """Results that every release has, and what they cost. A kind of release adds its own.

    Attributes:
        document: what was released, as plain data: the file ``document_name``, from which the report is made.
        certificate: the guarantee; sealed with digests when it is saved.
    """

    document_name: ClassVar[str]
    document: Mapping[str, Any] = field(repr=False)
    certificate: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _charge: Charge | None = field(default=None, repr=False)
    _run: RunFolder | None = field(default=None, repr=False)
    _saved: Path | None = field(default=None, repr=False)

    def _page(self) -> str:
        return render(dict(self.document), dict(self.certificate))

    @property
    @abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """Artifacts besides the document: name -> content."""

    def save(self, folder: str | Path, sign_key: str | Path | None = None) -> dict[str, Path]:
        """Write all that was released, its report and its certificate into a new folder, all or nothing.

        The first time, this finishes the release: its charge is committed and its run folder removed.

        Args:
            folder: new folder for the release.
            sign_key: file of the Ed25519 private key (PEM) that signs the certificate.

        Returns:
            Name of each artifact -> its path.

        Raises:
            DprlError: the folder cannot be written, or the key cannot be read.
        """
        if self._saved == Path(os.path.abspath(folder)):  # the release was saved before it was resumed
            if sign_key is not None and "signature" not in self.certificate:
                raise DprlError(f"The release in {folder} was finished without a signature, and is not signed again.")
            names = [*self.certificate["artifacts"], FILES[self.certificate["schema"]]]
            return {name: self._saved / name for name in names}
        run = self._run if self._run is not None and self._run.open else None

        def announce(digest: str, path: Path) -> None:
            if run is not None:
                if self._charge is not None:
                    self._charge.refuse_another(digest, run)
                run.finish(digest, path)

        content = self.document_name, self.document, self.files, self.certificate
        go_on = (
            ": make room there, and go on by --resume (in Python, save it again, or resume=True); it is charged once"
        )
        paths, digest = save_release(*content, folder, sign_key, announce, "" if run is None else go_on)
        if self._charge is not None:
            self._charge.commit(digest)
        if run is not None:
            run.remove()
        return paths


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
