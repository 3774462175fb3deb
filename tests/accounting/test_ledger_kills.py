"""The ledger under ``kill -9``: at random points over two processes, and at every line of its code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dprl.accounting.ledger import Ledger

WORKER = Path(__file__).with_name("ledger_worker.py")
CHARGES_A_DATASET = 100


def told(*arguments: object) -> Any:
    """Run the worker, which meets no error, and return what it prints."""
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def records(folder: Path, slot: str) -> dict[str, dict[str, str]]:
    """Kind of line -> token -> what was noted."""
    found: dict[str, dict[str, str]] = {"asked": {}, "charged": {}, "done": {}}
    for line in (folder / f"{slot}.txt").read_text().splitlines():
        kind, token, what = line.split()
        found[kind][token] = what
    return found


def killed_at_random(folder: Path, kills: int, cycles: int, seed: int = 1) -> dict[str, int]:
    """Run the two workers, check what must hold, and return the figures."""
    assert told("random", folder, kills, cycles, seed) == {"kills": kills, "foreign": []}
    ledger = Ledger.open(folder / "ledger.db")
    history = ledger.history()
    by_token = {charge.token: charge for charge in history}
    assert len(by_token) == len(history) == len({charge.id for charge in history})
    slots = {slot: records(folder, slot) for slot in ("resuming", "forgetful", "probe")}
    asked = [token for slot in slots.values() for token in slot["asked"]]
    assert set(by_token) <= set(asked)  # nobody is charged who did not ask
    for slot in slots.values():
        for token, charge_id in slot["charged"].items():
            assert by_token[token].id == int(charge_id)
            assert by_token[token].dataset == slot["asked"][token]
        for token in slot["done"]:
            assert by_token[token].digest is not None
    for dataset in ledger.datasets():
        amounts = [charge.amount for charge in history if charge.dataset == dataset.name]
        assert sum((a.epsilon for a in amounts), Decimal(0)) == ledger.spent(dataset.name).epsilon
        assert sum((a.epsilon for a in amounts), Decimal(0)) <= dataset.budget.epsilon
        assert sum((a.delta for a in amounts), Decimal(0)) <= dataset.budget.delta
    unused = [charge.token for charge in history if charge.digest is None]
    assert len(slots["resuming"]["asked"].keys() & unused) <= 1  # the one that was under way when all was stopped
    return {
        "charges": len(history),
        "settled": sum(c.settled is not None for c in history),
        "used up": sum(count == CHARGES_A_DATASET for count in Counter(c.dataset for c in history).values()),
        "unused": len(unused),
    }


def test_thirty_kills_lose_and_overspend_nothing(tmp_path):
    killed_at_random(tmp_path, 30, cycles=2)


@pytest.mark.slow
def test_a_thousand_kills_lose_and_overspend_nothing(tmp_path):
    # ten ledgers, as every call reads the whole of one: lives would have to grow with it
    total: Counter[str] = Counter()
    for seed in range(10):
        (tmp_path / str(seed)).mkdir()
        total.update(killed_at_random(tmp_path / str(seed), 100, cycles=16, seed=seed))
    print(dict(total))
    assert total["unused"] < 0.1 * total["charges"]
    assert total["settled"] > 0
    assert total["used up"] >= 10


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_line_charges_once(tmp_path, every):
    seen = told("lines", tmp_path, every)
    # first nothing is found, then the intent, then the charge itself; never the other way round
    assert seen["found"] == sorted(seen["found"], key=["nothing", "settled", "recorded"].index)
    assert set(seen["found"]) == {"nothing", "settled", "recorded"}
    assert seen["charges"] == len(seen["found"])
    assert seen["spent"] == pytest.approx(0.001 * seen["charges"], rel=1e-12)
    assert seen["digest"] is not None
