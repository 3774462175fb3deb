"""Logs and requests of every kind of wrongness: no traceback, one sentence, nothing spilled, nothing half done.

Each case is asked twice, of two different sets of rows: exit code, messages, files and certificate are the same. What
is planted in the rows is found nowhere.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import struct
import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import typer.main

import dprl as library
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.cli import main
from dprl.errors import DprlError
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey

from ..cli.conftest import get_command
from .cases import POLICIES, Case, make_case
from .rows import DIGITS, SENTINELS, make_rows, source

FAST, SLOW = 30, 5000  # cases; twice as many logs
MASK = re.compile(r"-?\d[\d.]*(?:e[-+]?\d+)?")
BYTES = [
    struct.pack(order + width, x)
    for x in SENTINELS
    for order in "<>"
    for width in "df"
    if width == "d" or abs(x) < 1e38
]


def masked(text: str) -> str:
    """What is printed, without the numbers, which are noised, and the widths that follow from them."""
    numbers = re.sub(r"\s+", " ", MASK.sub("#", text))
    return numbers.replace("sampling error about #, at most #", "sampling error at most #")  # noise may hide the first


@dataclass(frozen=True)
class Seen:
    """What one request shows to the world."""

    code: object
    out: str
    err: str
    warned: tuple[str, ...]
    logged: tuple[str, ...]
    files: frozenset[str]
    charges: int
    certificate: str
    structure: str

    def spilled(self, everything: bytes) -> bool:
        text = everything.decode("latin-1")
        bare = re.sub(r"[,_\s.']", "", text)
        few = re.sub(r"[,_\s.']", "", self.err + "".join(self.warned) + "".join(self.logged))
        printed = re.sub(r"[,_\s.]", "", self.out)
        # the fewer random digits there are, the fewer of the planted ones are enough
        digits = DIGITS in bare or DIGITS[:8] in printed or DIGITS[:5] in few
        return "PATIENT" in text or digits or any(b in everything for b in BYTES)


class Place:
    """A folder in which requests are made, one after the other."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.ledgers, self.ledger = folder, {}, folder
        self.numbers = itertools.count()
        self.policies = folder / "policies.py"
        self.policies.write_text(POLICIES)
        self.monkeypatch = monkeypatch
        self.renew()

    def renew(self) -> None:
        """New ledgers, so that none is ever exhausted."""
        number = next(self.numbers)
        for unit in ("person", "trajectory", "transition"):
            path = self.folder / f"{unit}{number}.db"
            self.ledgers[unit] = Ledger.create(path, "trial", Budget(1e3, 1e-2), unit, "add or remove one")

    def ask(self, case: Case, seed: int) -> Seen:
        key = bytes([1 + case.seed % 255, 1 + seed % 255, *range(30)])
        self.monkeypatch.setattr(SecureNoise, "fresh", classmethod(lambda cls: cls(key)))
        self.monkeypatch.setattr(RunKey, "noise", lambda self, bound: SecureNoise(key))
        work = self.folder / "work"
        work.mkdir()
        (work / "bounds.toml").write_bytes(case.bounds)
        if case.run_file is not None:
            (work / "run.toml").write_bytes(case.run_file)
        unit = (case.options.get("unit") or ["person"])[0]
        ledger = self.ledgers.get(unit, self.ledgers["person"])
        self.ledger = ledger.path
        log = source(case, make_rows(case, seed), work, seed)
        before, charged = files(work), len(ledger.history())
        self.monkeypatch.chdir(work)
        out, err, records = io.StringIO(), io.StringIO(), Records()
        logging.getLogger().addHandler(records)
        try:
            with (
                warnings.catch_warnings(record=True) as warned,
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                warnings.simplefilter("always")
                in_memory = not isinstance(log, Path)
                python = in_memory and case.command == "evaluate"
                code = self.call(case, log, err) if python else self.command(case, log, in_memory)
        finally:
            logging.getLogger().removeHandler(records)
        added = files(work) - before
        content = {name: (work / name).read_bytes() for name in added if (work / name).is_file()}
        seen = Seen(
            code, out.getvalue(), err.getvalue(), tuple(str(w.message) for w in warned), tuple(records.texts),
            frozenset(masked(n) for n in added), len(ledger.history()) - charged, *facts(content),
        )  # fmt: skip
        everything = b"".join([*content.values(), *(n.encode("utf-8", "surrogateescape") for n in added)])
        everything += (seen.out + seen.err + "".join(seen.warned) + "".join(seen.logged)).encode("utf-8", "replace")
        if case.command != "data describe":  # that one is for the curator
            assert not seen.spilled(everything), f"case {case.seed}: something of the rows is seen\n{seen}"
        self.monkeypatch.chdir(self.folder)
        shutil.rmtree(work)
        return seen

    def command(self, case: Case, log: Any, in_memory: bool) -> object:
        """The command line; a log in memory goes there as none."""
        options: dict[str, list[str] | None] = {**case.options}
        if case.command == "evaluate":
            options = {"out": ["results"], **options}
            if case.ledger:
                options = {"ledger": [str(self.ledger)], "dataset": ["trial"], **options}
        where = options.pop("log", [] if in_memory else [str(log)])
        options = {"bounds": ["bounds.toml"], **options}
        if case.run_file is not None:
            options = {"config": ["run.toml"], **options}
        if case.command == "data describe":
            options = {k: v for k, v in options.items() if k in ("bounds", "unit", "person-column", "json")}
        elif case.command == "plan":
            options = {
                k: v
                for k, v in options.items()
                if k not in ("ledger", "dataset", "out", "seed", "simulated", "sign", "outcome")
            }
        arguments = [*case.command.split(), *(where or [])]
        for name, values in options.items():
            if values is None:
                continue
            if not values:
                arguments.append(f"--{name}")
            for value in values:
                arguments += [f"--{name}", value.replace("POLICIES", str(self.policies))]
        if case.command != "data describe":
            for setting in case.settings:
                arguments += ["--set", setting]
        try:
            main(arguments)
        except SystemExit as stop:
            return stop.code or 0
        return 0

    def call(self, case: Case, log: Any, err: Any) -> object:
        """The same request in Python: a refusal is one sentence there, too."""
        import tomllib

        from dprl.cli.requests import Settings
        from dprl.config import merge
        from dprl.registry import find

        def one(name: str, default: Any = None) -> Any:
            values = case.options.get(name, [default])
            return values[0] if values else default

        def number(name: str, kind: Any = float) -> Any:
            try:
                return None if one(name) is None else kind(one(name))
            except ValueError:
                raise DprlError(f"{name} is no number.") from None  # typer's part in the command line

        try:
            settings = dict(Settings.parse_setting(s) for s in case.settings)
            chosen = {k.replace("-", "_"): number(k) for k in ("discount", "noise-multiplier") if one(k) is not None}
            kind = find(one("algorithm", "gpope") or "gpope").load_config()
            config = merge(kind, [(settings, "code"), (chosen, "code")])
            try:
                bounds: Any = tomllib.loads(case.bounds.decode())
            except (ValueError, RecursionError):
                bounds = Path("bounds.toml")
            targets = [t.replace("POLICIES", str(self.policies)) for t in case.options.get("target-policy") or []]
            behavior = one("behavior-policy")
            release = library.evaluate(
                log,
                targets,
                Budget(number("epsilon"), number("delta")),
                algorithm=config,
                bounds=bounds,
                unit=one("unit"),
                person=one("person-column"),
                features=one("features", "columns"),
                behavior_policy=None if behavior is None else behavior.replace("POLICIES", str(self.policies)),
                ledger=self.ledger if case.ledger else None,
                dataset="trial" if case.ledger else None,
                seed=number("seed", int),
                simulated="simulated" in case.options,
                outcome=one("outcome"),
            )
        except DprlError as error:
            print(f"error: {error}", file=err)
            return 2
        release.save("results")
        return 0


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def files(folder: Path) -> set[str]:
    found = {
        os.path.relpath(os.path.join(root, name), folder)
        for root, folders, names in os.walk(folder)
        for name in [*folders, *names]
    }
    return {f for f in found if not f.endswith(("-wal", "-shm")) and "__pycache__" not in f}


def facts(content: dict[str, bytes]) -> tuple[str, str]:
    """Certificate without digests, date and number of the charge; estimate without its numbers and cautions."""
    certificate = estimate = ""
    for name, data in content.items():
        if name.endswith(("certificate.json", "statement.json")):
            found = json.loads(data)
            found = {k: v for k, v in found.items() if k not in ("created", "digest", "artifacts", "signature")}
            if found["ledger"]:
                found["ledger"]["charge"] = "#"
            certificate = json.dumps(found, sort_keys=True)
        if name.endswith("estimate.json"):
            found = json.loads(data)
            found["cautions"] = None
            for target in found["targets"]:
                target["notes"] = None  # what the noisy numbers say
            estimate = masked(json.dumps(found))
    return certificate, estimate


def check(place: Place, seed: int) -> Seen:
    case = make_case(seed)
    first, second = place.ask(case, 0), place.ask(case, 1)
    for seen in (first, second):
        what = f"case {seed}: {seen}"
        assert seen.code in (0, 2), what
        assert "Traceback" not in seen.out + seen.err, what
        if seen.code == 0:
            assert seen.err == "", what
            assert seen.charges == (1 if case.ledger and case.command == "evaluate" else 0), what
        else:
            assert not seen.files, what
            assert seen.charges == 0, what
            assert seen.out == "" or "Usage" in seen.out, what
            assert seen.err.startswith("error: ") or "Usage: " in seen.err, what
            if seen.err.startswith("error: "):
                lines = seen.err.splitlines()
                assert all(line.startswith("error: ") and len(line) < 1500 for line in lines), what
                assert len(set(lines)) == len(lines), what
    if case.command == "data describe":  # what it prints is private
        first, second = replace(first, out=""), replace(second, out="")
    elif case.command == "evaluate":
        first, second = replace(first, out=masked(first.out)), replace(second, out=masked(second.out))
    for part in fields(Seen):
        one, other = getattr(first, part.name), getattr(second, part.name)
        assert one == other, f"case {seed}: {part.name} depends on the rows:\n{one}\n{other}"
    return first


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(typer.main, "get_command", get_command)
    return Place(tmp_path, monkeypatch)


def run(place: Place, cases: range) -> dict[object, int]:
    counts: dict[object, int] = {}
    for i, seed in enumerate(cases):
        if i % 50 == 49:
            place.renew()
        code = check(place, seed).code
        counts[code] = counts.get(code, 0) + 1
    return counts


def test_sixty_logs(place):
    counts = run(place, range(FAST))
    assert counts[0] > FAST / 5
    assert counts[2] > FAST / 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_logs(place, part):
    each = SLOW // 10
    counts = run(place, range(10_000 + part * each, 10_000 + (part + 1) * each))
    assert min(counts[0], counts[2]) > each / 5
