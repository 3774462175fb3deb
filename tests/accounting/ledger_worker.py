"""Two processes that charge one ledger and are killed at random points, over and over; imports the ledger alone.

``python ledger_worker.py random FOLDER KILLS CYCLES SEED`` prints what happened as JSON; a life is long enough for so
many charges on average. Worker ``resuming`` charges again with the token that it had when it was killed; worker
``forgetful`` draws a new one and leaves what it had reserved. Each keeps its own synced record of what it asked for
and of what was acknowledged.

``python ledger_worker.py lines FOLDER EVERY`` kills a charge at every line of the ledger's own code, or at every so
many, looks at what is found and charges again with the same token.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import dprl.accounting.ledger
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError, OverspendError

CODE = str(Path(dprl.accounting.ledger.__file__).parent)
RELATION = "add or remove one"
SLOTS = ("resuming", "forgetful")
CHARGES_A_DATASET = 100  # of 0.01 each


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def cycle(ledger: Ledger, dataset: str, token: str, record: int) -> None:
    def note(*words: object) -> None:
        os.write(record, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(record)

    note("asked", token, dataset)
    charge = ledger.charge(dataset, Budget(0.01, 1e-8), "person", RELATION, "kill", token)
    note("charged", token, charge)
    ledger.commit(charge, digest_of(token))
    note("done", token, charge)


def work(ledger: Ledger, slot: str, names: list[str], record: Path) -> None:
    """Until killed, or left alone: charge and commit, on to the next dataset where one is used up."""
    parent = os.getppid()
    lines = [line.split() for line in record.read_text().splitlines() if line]
    asked = [line for line in lines if line[0] == "asked"]
    last = asked[-1][2] if asked else names[0]
    token = None
    if slot == "resuming" and asked and lines[-1][0] != "done":
        token = asked[-1][1]
    file = os.open(record, os.O_WRONLY | os.O_APPEND)
    for name in names[names.index(last) :]:
        try:
            while os.getppid() == parent:
                cycle(ledger, name, token or os.urandom(16).hex(), file)
                token = None
        except OverspendError:
            token = None
    while os.getppid() == parent:
        time.sleep(0.05)


def born(ledger: Ledger, slot: str, names: list[str], record: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(ledger, slot, names, record)
    except BaseException as error:
        os.write(2, f"{slot}: {type(error).__name__}: {error}\n".encode())
    os._exit(1)


def killed_at_random(folder: Path, kills: int, cycles: int, seed: int) -> None:
    chance = random.Random(seed)
    path = folder / "ledger.db"
    for i in range(2 * kills * cycles // CHARGES_A_DATASET + 1):
        Ledger.create(path, f"d{i}", Budget(1.0, 1e-5), "person", RELATION)
    ledger = Ledger.open(path)
    names = [d.name for d in ledger.datasets()]
    for slot in (*SLOTS, "probe"):
        (folder / f"{slot}.txt").touch()
    probe = os.open(folder / "probe.txt", os.O_WRONLY | os.O_APPEND)
    begun = time.monotonic()
    for _ in range(5):
        cycle(ledger, names[-1], os.urandom(16).hex(), probe)
    seconds_a_cycle = (time.monotonic() - begun) / 5

    live: dict[str, tuple[float, int]] = {}
    for _ in range(kills):
        for slot in SLOTS:
            if slot not in live:
                life = chance.uniform(0.0, 2 * len(SLOTS) * cycles * seconds_a_cycle)
                live[slot] = (time.monotonic() + life, born(ledger, slot, names, folder / f"{slot}.txt"))
        slot = min(live, key=lambda s: live[s][0])
        due, pid = live.pop(slot)
        time.sleep(max(due - time.monotonic(), 0.0))
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        if not os.WIFSIGNALED(status):
            sys.exit(f"{slot} ended by itself")
    for _, pid in live.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    foreign = [m for m in ("numpy", "jax", "scipy", "pyarrow", "dp_accounting") if m in sys.modules]
    print(json.dumps({"kills": kills, "foreign": foreign}))


def killed_after(lines: int, call: Callable[[], object]) -> bool:
    """Whether ``call``, in a process of its own, was killed before the given line of accounting code."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line":
            lines -= 1
            if lines < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    pid = os.fork()
    if not pid:
        sys.settrace(trace)
        call()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0
    return os.WIFSIGNALED(status)


def killed_at_lines(folder: Path, every: int) -> None:
    found = []
    for point in itertools.count(0, every):
        path = folder / f"{point}.db"
        create = partial(Ledger.create, path, "trial", Budget(10.0, 1e-4), "person", RELATION)
        killed = killed_after(point, create)
        with suppress(DprlError):  # it may be declared already
            create()
        assert [d.name for d in Ledger.open(path).datasets()] == ["trial"]
        if not killed:
            break
    ledger = Ledger.open(path)
    for point in itertools.count(0, every):
        token = os.urandom(16).hex()
        charge = partial(ledger.charge, "trial", Budget(0.001, 1e-8), "person", RELATION, "line", token)
        killed = killed_after(point, charge)
        seen = [c for c in ledger.history() if c.token == token]
        assert len(seen) <= 1
        found.append("nothing" if not seen else "settled" if seen[0].settled else "recorded")
        again = charge()
        assert [c.id for c in ledger.history() if c.token == token] == [again]
        assert not seen or seen[0].id == again
        if not killed:
            break
    for point in itertools.count(0, every):
        killed = killed_after(point, lambda: ledger.commit(1, digest_of("1")))
        assert ledger.history()[0].digest in (None, digest_of("1"))
        if not killed:
            break
    last = ledger.history()
    spent = float(ledger.spent("trial").epsilon)
    print(json.dumps({"found": found, "charges": len(last), "spent": spent, "digest": last[0].digest}))


if __name__ == "__main__":
    if sys.argv[1] == "random":
        killed_at_random(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        killed_at_lines(Path(sys.argv[2]), int(sys.argv[3]))
