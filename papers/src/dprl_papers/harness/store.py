"""Finished cells on disk: one JSON file each, named after everything that determines it.

A cell is a method on a domain, at a number of units and an epsilon, for a range of trials. A file is complete or not
there; a second run reads what is there and computes what is missing. Nothing in here is private: there is nobody in a
simulation.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprl.errors import DprlError

SCHEMA = "dprl.reproduction-cell/1"
_MARK, _MARK_SCHEMA = "reproduction.json", "dprl.reproduction/1"


def address(key: Mapping[str, Any]) -> str:
    """The name of the cell that ``key`` determines, whatever the order of its entries."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """The cells of one paper under a folder.

    Raises:
        DprlError: the folder holds something else, or another paper.
    """

    def __init__(self, folder: Path, paper: str) -> None:
        self.folder = folder
        self._cells = folder / "cells"
        mark = folder / _MARK
        try:
            if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not mark.is_file())):
                raise DprlError(
                    f"{str(folder)!r} is not a folder of this command: name a new or an empty one with --out."
                )
            if mark.is_file():
                self._check(mark, paper)
            self._cells.mkdir(parents=True, exist_ok=True)
            if not mark.is_file():
                self.write(_MARK, json.dumps({"schema": _MARK_SCHEMA, "paper": paper}) + "\n")
        except OSError as error:
            raise DprlError(f"Cannot use {str(folder)!r}: {error.strerror or error}.") from error

    def _check(self, mark: Path, paper: str) -> None:
        try:
            found = json.loads(mark.read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("schema") != _MARK_SCHEMA:
            raise DprlError(f"{str(self.folder)!r} is not a folder of this command: name another with --out.")
        if found.get("paper") != paper:
            raise DprlError(f"{str(self.folder)!r} is of paper {found.get('paper')}: name another with --out.")

    def read(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The results of a cell, or None where it is missing or damaged."""
        try:
            found = json.loads((self._cells / f"{address(key)}.json").read_bytes())
        except (OSError, ValueError):
            return None
        whole = isinstance(found, dict) and found.get("schema") == SCHEMA and found.get("key") == dict(key)
        return found["results"] if whole and isinstance(found.get("results"), dict) else None

    def save(self, key: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Keep the results of a cell: all of them, or none."""
        content = {"schema": SCHEMA, "key": dict(key), "results": dict(results)}
        self.write(f"cells/{address(key)}.json", json.dumps(content, sort_keys=True, allow_nan=False) + "\n")

    def write(self, name: str, text: str) -> Path:
        """A file of this folder, atomically."""
        from dprl.accounting.certificate import write_atomically

        write_atomically(self.folder / name, text.encode())
        return self.folder / name


def finite(values: Any) -> list[float | None]:
    """Numbers as JSON can hold them: what is not finite is None.

    >>> finite([1.0, float("inf")])
    [1.0, None]
    """
    return [float(v) if math.isfinite(v) else None for v in values]
