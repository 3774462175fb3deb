"""A small trial on disk, and the command line called in this process."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.cli import main

from ..sample_log import BOUNDS_TOML, Columns, columns, write_csv, write_parquet

POLICIES = """
import numpy as np

def first(states):
    return np.tile([1.0, 0.0], (len(states), 1))

def mostly(states):
    p = np.where(states[:, 0] < 5.0, 0.9, 0.2)
    return np.stack([p, 1.0 - p], axis=1)

def raises(states):
    raise RuntimeError("no")
"""


get_command = functools.cache(typer.main.get_command)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def done(self) -> Outcome:
        """Check that it went well, and return it."""
        assert (self.code, self.err) == (0, ""), self
        return self

    def json(self) -> Any:
        """Check that it went well, and return the one JSON object that is all it printed."""
        assert self.done().out.count("\n") == 1, self
        return json.loads(self.out)

    def refused(self, words: str = "") -> None:
        """Check that it is exit code 2 and one sentence with these words, and nothing else."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("error: "), self
        assert self.err.count("\n") == 1, self
        assert words in self.err, self


@pytest.fixture
def dprl(capsys, monkeypatch):
    """``dprl ARGUMENTS`` in this process: exit code, standard output and standard error."""
    # building the tree of commands takes longer than most of what they do here
    monkeypatch.setattr(typer.main, "get_command", get_command)

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        code = stop.value.code
        return Outcome(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    return run


def flags(options: Mapping[str, object]) -> list[object]:
    """Options as they are typed; None takes one out, True gives it without a value, a list repeats it."""
    found: list[object] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            found += [] if one is None else [flag] if one is True else [flag, one]
    return found


@dataclass
class Trial:
    """Files of a trial, and the arguments that evaluate a policy on it."""

    folder: Path
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.bounds, self.ledger, self.out = (self.folder / n for n in ("bounds.toml", "ledger.db", "results"))
        self.policies = self.folder / "policies.py"
        self.bounds.write_text(BOUNDS_TOML)
        self.policies.write_text(POLICIES)
        Ledger.create(self.ledger, "trial", Budget(1.0, 1e-5), "person", "add or remove one")
        self.write(columns())

    def write(self, log: Columns, kind: str = "parquet") -> None:
        write = {"parquet": write_parquet, "csv": write_csv}[kind]
        self.log = write(log, self.folder / f"log.{kind}")

    def arguments(self, **changes: object) -> list[object]:
        """``dprl evaluate`` with these options changed, as :func:`flags` takes them."""
        options: dict[str, object] = {
            "bounds": self.bounds, "unit": "person", "person_column": "person_id", "epsilon": "1", "delta": "1e-5",
            "target_policy": "uniform", "algorithm": "importance-sampling", "ledger": self.ledger, "dataset": "trial",
            "out": self.out,
        }  # fmt: skip
        log = changes.pop("log", self.log)
        return ["evaluate", *([] if log is None else [log]), *flags(options | changes)]

    def files(self) -> set[str]:
        """Everything below the folder, but for what is kept beside the ledger."""
        found = {str(p.relative_to(self.folder)) for p in self.folder.rglob("*")}
        return {f for f in found if not f.endswith(("-wal", "-shm", ".intents")) and "__pycache__" not in f}

    def charges(self) -> int:
        return len(Ledger.open(self.ledger).history())


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path)
