"""A release that may be interrupted and resumed, for the tests of both."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dprl
from dprl.accounting.ledger import Ledger
from dprl.mechanisms import keystream, run_key
from dprl.mechanisms.run_key import RunKey
from dprl.release import private_rows

from ..interruption import interrupted
from ..sample_log import BOUNDS, columns, write_parquet

LOG = columns()
BUDGET = dprl.Budget(1.0, 1e-5)
STEPS = 5
KEY = bytes(range(32))


class Trial:
    """One request in one folder, which may be made again and again."""

    def __init__(self, folder: Path, log: Any = LOG, relation: str = "add or remove one") -> None:
        folder.mkdir(exist_ok=True)
        self.log = log
        self.run, self.out = folder / "results.run", folder / "results"
        self.ledger = Ledger.create(folder / "ledger.db", "trial", dprl.Budget(9.0, 9e-5), "person", relation)

    def evaluate(self, **changes):
        options = {
            "log": self.log, "target_policy": "uniform", "budget": BUDGET, "bounds": BOUNDS, "person": "person_id",
            "algorithm": dprl.GPOPE(steps=STEPS, sampling_rate=0.7), "ledger": self.ledger, "dataset": "trial",
            "run": self.run, "resume": os.path.lexists(self.run),
        }  # fmt: skip
        return dprl.evaluate(**options | changes)

    def finish(self, **changes):
        return self.evaluate(**changes).save(self.out)

    def stop_after(self, updates: int, **changes):
        """Interrupt the release after so many updates."""

        def progress(done):
            if done == updates:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.evaluate(progress=progress, **changes)
        gc.collect()  # a process that has ended holds no lock

    def contents(self) -> dict[str, object]:
        """What was released, but for the time and what follows from it."""
        found: dict[str, object] = {p.name: p.read_bytes() for p in self.out.iterdir()}
        (name,) = found.keys() & {"certificate.json", "statement.json"}
        sealed = json.loads(found.pop(name))
        return found | {k: v for k, v in sealed.items() if k not in ("created", "digest")}


class Learning(Trial):
    """A request to learn from a log, which may be made again: ``learn`` makes it of the log and of what is changed."""

    def __init__(self, folder: Path, log: Any, learn: Callable[..., dprl.Release]) -> None:
        super().__init__(folder, log)
        self.learn = learn

    def evaluate(self, **changes):
        options = {"ledger": self.ledger, "dataset": "trial", "run": self.run, "resume": self.run.exists()}
        return self.learn(changes.pop("log", self.log), **options | changes)

    def stop_before_values(self) -> None:
        """Interrupt where what was learned is on disk, and no value is."""
        with interrupted(private_rows, "release_total"), pytest.raises(KeyboardInterrupt):
            self.evaluate()


def records(journal: bytes) -> list[bytes]:
    """Stream, step and points of every whole record, without the MACs: those are tied to the folder."""
    found, at, length = [], 0, 16 + 8 * 5 + 32  # the values; then 3 features, primal and dual
    while at + length <= len(journal):
        found.append(journal[at : at + length - 32])
        at, length = at + length, 16 + 8 * 6 + 32
    return found


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def other_log(**cells):
    changed = {k: list(v) for k, v in LOG.items()}
    for name, value in cells.items():
        changed[name][5] = value
    return changed


def refused(trial: Trial, words: str, **changes) -> str:
    before = snapshot(trial.run)
    with pytest.raises(dprl.DprlError, match=words) as caught:
        trial.evaluate(**changes)
    assert snapshot(trial.run) == before
    assert len(trial.ledger.history()) == 1
    return str(caught.value)


def refused_before_the_charge(folder: Path, words: str, ask: Callable[..., Any], **changes) -> None:
    """With an account that could pay for it."""
    trial = Trial(folder / "trial")
    with pytest.raises(dprl.DprlError, match=words) as caught:
        ask(ledger=trial.ledger, dataset="trial", **changes)
    assert str(caught.value).count("\n") == 0
    assert trial.ledger.history() == []


def bounds_file(folder: Path, bounds: dprl.Bounds) -> Path:
    """What is said of a log in ``bounds``, as a file."""
    path, stated = folder / "bounds.toml", bounds.as_dict().items()
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in stated if value is not None))
    return path


def on_the_command_line(folder: Path, log: Any, bounds: dprl.Bounds, epsilon: float) -> list[Any]:
    """The log in a file, its bounds in another, and the budget, as commands take them."""
    stated = bounds_file(folder, bounds)
    return [write_parquet(log, folder / "log.parquet"), "--bounds", stated, "--epsilon", epsilon, "--delta", 1e-5]


def fix_key(patch: pytest.MonkeyPatch) -> None:
    """Every run key is the same one from now on, and so is its noise, whatever folder and token it is bound to."""
    patch.setattr(run_key, "fresh_key", lambda: KEY)
    noise = RunKey.noise
    patch.setattr(RunKey, "noise", lambda key, bound: noise(key, b""))


def check_no_key_on_file(folder: Path, key: bytes, *streams: bytes) -> None:
    """In no spelling, nor any of the keys that are made of it for these streams."""
    own = [keystream.subkey(key, b"dprl-stream", stream) for stream in streams]
    made = [keystream.subkey(one, b"dprl-purpose", bytes([purpose])) for one in own for purpose in range(6)]
    for content in (path.read_bytes() for path in folder.iterdir()):
        for one in (key, *own, *made):
            assert one not in content
            assert one.hex().encode() not in content
            assert str(np.frombuffer(one, "<u4")[0]).encode() not in content
