"""Results of a reproduction on disk: one JSON file per result, named after everything that determines it.

A file is either complete or missing. A second run reads the files that exist and computes the missing ones. Nothing
here is private, because simulations have no people.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from dprl.errors import DprlError
from dprl.files import write_atomically
from dprl_papers.harness.versions import commit

SCHEMA = "dprl.reproduction-cell/2"
_MARK, _MARK_SCHEMA = "reproduction.json", "dprl.reproduction/1"


class Store:
    """Results of one paper in a folder.

    Raises:
        DprlError: the folder holds other files, or the results of another paper.
    """

    def __init__(self, folder: Path, paper: str) -> None:
        self.folder = folder.absolute()
        # what :meth:`kept` gave in this process: by address, the name and how it was made
        self.asked: dict[str, dict[str, Any]] = {}
        self._within = 0.0  # processor seconds of nested calls of :meth:`kept`
        mark = folder / _MARK
        try:
            if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not mark.is_file())):
                raise DprlError(
                    f"{str(folder)!r} is not a folder of this command: name a new or an empty one with --out."
                )
            if mark.is_file():
                self._check(mark, paper)
            for part in ("cells", "locks"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            if not mark.is_file():
                self.write(_MARK, json.dumps({"schema": _MARK_SCHEMA, "paper": paper}) + "\n")
        except OSError as error:
            raise DprlError(f"Cannot use {str(folder)!r}: {error.strerror or error}.") from error

    def _check(self, mark: Path, paper: str) -> None:
        found = read_json(mark)
        if not isinstance(found, dict) or found.get("schema") != _MARK_SCHEMA:
            raise DprlError(f"{str(self.folder)!r} is not a folder of this command: name another with --out.")
        if found.get("paper") != paper:
            raise DprlError(f"{str(self.folder)!r} is of paper {found.get('paper')}: name another with --out.")

    def cell(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return everything that is stored under ``key``, or None where it is missing or damaged."""
        found = read_json(self.folder / "cells" / f"{address(key)}.json")
        whole = isinstance(found, dict) and found.get("schema") == SCHEMA and found.get("key") == as_json(key)
        return found if whole else None

    def read(self, key: Mapping[str, Any]) -> Any:
        """Return the results that ``key`` determines, or None where they are missing or damaged."""
        return (self.cell(key) or {}).get("results")

    def save(self, key: Mapping[str, Any], results: Any, seconds: float) -> dict[str, Any]:
        """Store results, all of them or none, with the commit that computed them and the seconds that it took."""
        made = {"commit": commit(), "seconds": round(seconds, 3)}
        content = {"schema": SCHEMA, "key": as_json(key), "results": as_json(results), "made": made}
        self.write(f"cells/{address(key)}.json", json.dumps(content, sort_keys=True, allow_nan=False) + "\n")
        return content

    def kept(self, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` gives, or gave before, in JSON's types; other processes wait for the same result."""
        if not self.folder.is_dir():  # this worker's machine does not share the disk
            return as_json(compute())
        with FileLock(self.folder / "locks" / address(key)):
            if (found := self.cell(key)) is None:
                started, outside, self._within = time.process_time(), self._within, 0.0
                try:
                    results = compute()
                finally:
                    took, within = time.process_time() - started, self._within
                    self._within = outside + took
                found = self.save(key, results, took - within)
        self.asked[address(key)] = {"what": str(key.get("function", "")).rpartition(".")[2], **found["made"]}
        return found["results"]

    def write(self, name: str, text: str) -> Path:
        """Write a file of this folder atomically."""
        write_atomically(self.folder / name, text.encode())
        return self.folder / name


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file, or None where the file is missing or damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def address(key: Mapping[str, Any]) -> str:
    """Return the name under which the results of ``key`` are stored; the order of its entries does not matter."""
    text = json.dumps(key, default=_plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def as_json(value: Any) -> Any:
    """Return a value as JSON gives it back: lists for tuples and arrays, fields by name for dataclasses.

    >>> as_json({"a": (1, None)})
    {'a': [1, None]}
    """
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
        return {"type": type(value).__qualname__} | fields
    return value.tolist() if hasattr(value, "tolist") else str(value)  # an array, or a number of NumPy or JAX


def finite(values: Any) -> list[float | None]:
    """Return numbers as JSON can hold them: None replaces a number that is not finite.

    >>> finite([1.0, float("inf")])
    [1.0, None]
    """
    return [float(v) if math.isfinite(v) else None for v in values]
