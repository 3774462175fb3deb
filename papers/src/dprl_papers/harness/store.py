"""What a reproduction has computed, on disk: one JSON file each, named after everything that determines it.

A file is complete or not there; a second run reads what is there and computes what is missing. Nothing in here is
private: there is nobody in a simulation.
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
    """The results of one paper under a folder.

    Raises:
        DprlError: the folder holds something else, or another paper.
    """

    def __init__(self, folder: Path, paper: str) -> None:
        self.folder = folder.absolute()
        # what :meth:`kept` gave in this process, by address, and how it was made
        self.asked: dict[str, dict[str, Any]] = {}
        self._within = 0.0  # seconds of the processor for what is computed within something else
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
        """Return all that is kept under ``key``, or None where it is missing or damaged."""
        found = read_json(self.folder / "cells" / f"{address(key)}.json")
        whole = isinstance(found, dict) and found.get("schema") == SCHEMA and found.get("key") == as_json(key)
        return found if whole else None

    def read(self, key: Mapping[str, Any]) -> Any:
        """Return the results that ``key`` determines, or None where they are missing or damaged."""
        return (self.cell(key) or {}).get("results")

    def save(self, key: Mapping[str, Any], results: Any, seconds: float) -> dict[str, Any]:
        """Keep results, all of them or none, with the commit that computed them and how long that took."""
        made = {"commit": commit(), "seconds": round(seconds, 3)}
        content = {"schema": SCHEMA, "key": as_json(key), "results": as_json(results), "made": made}
        self.write(f"cells/{address(key)}.json", json.dumps(content, sort_keys=True, allow_nan=False) + "\n")
        return content

    def kept(self, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` gives, or gave before, as JSON has it; others who want the same wait for it."""
        if not self.folder.is_dir():  # a worker on a machine that does not share the disk
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
    """Return what a JSON file holds, or None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def address(key: Mapping[str, Any]) -> str:
    """Return the name of what ``key`` determines, whatever the order of its entries."""
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
    return value.tolist() if hasattr(value, "tolist") else str(value)  # an array, or a number of one


def finite(values: Any) -> list[float | None]:
    """Return numbers as JSON can hold them: what is not finite is None.

    >>> finite([1.0, float("inf")])
    [1.0, None]
    """
    return [float(v) if math.isfinite(v) else None for v in values]
