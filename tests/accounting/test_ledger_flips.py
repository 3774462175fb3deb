"""One bit of a ledger's files is another one: that is said in one sentence, or no amount is another one."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError, OverspendError

FILES = ("ledger.db", "ledger.db.intents")
CHARGES = (("trial", 1.9, 1e-6), ("trial", 0.01, 1e-6), ("survey", 0.3, 2e-6), ("trial", 0.1, 3e-6))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """Both files of a ledger with two datasets, four charges, of which two are finished, and two claims."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ("trial", "survey"):
        ledger = Ledger.create(folder / FILES[0], name, Budget(2.5, 1e-5), "person", "add or remove one")
    for number, (name, epsilon, delta) in enumerate(CHARGES):
        ledger.charge(name, Budget(epsilon, delta), "person", "add or remove one", f"release {number}")
    for number in (1, 3):
        ledger.commit(number, f"{number:064x}")
    for number, name in enumerate(("trial", "survey")):
        column = {"observation": [0.5, number], "action": [0, 1], "reward": [1.0, 0.0]}
        ledger.claim(name, column)
    assert not (folder / f"{FILES[0]}-wal").exists()
    return {name: (folder / name).read_bytes() for name in FILES}


def amounts(ledger: Ledger) -> list[Any]:
    """All that is shown of what may be spent, was spent, and is left."""
    declared = [(d.name, d.budget, d.unit, d.relation) for d in ledger.datasets()]
    charges = [(c.id, c.dataset, c.amount, c.token) for c in ledger.history()]
    return [declared, charges, [(ledger.spent(name), ledger.remaining(name)) for name, *_ in declared]]


def after_a_flip(folder: Path, whole: dict[str, bytes], bit: int, expected: list[Any]) -> str:
    """Flip one bit of both files, counted through; then look at the ledger, and spend from it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in whole.items():
        raw = bytearray(content)
        if 0 <= bit < 8 * len(raw):
            raw[bit // 8] ^= 1 << bit % 8
        bit -= 8 * len(raw)
        (folder / name).write_bytes(raw)
    try:
        ledger = Ledger.open(folder / FILES[0])
        assert amounts(ledger) == expected
        with pytest.raises(OverspendError):  # 2.01 of 2.5 are gone
            ledger.charge("trial", Budget(0.5, 1e-7), "person", "add or remove one", "too much")
        ledger.charge("trial", Budget(0.4, 1e-7), "person", "add or remove one", "enough")
        spent = ledger.spent("trial").epsilon
        assert str(spent) == "2.41"
    except DprlError as error:
        return "refused" if str(error).isprintable() else "refused in more than a sentence"
    return "unchanged"


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_flipped_bit_changes_no_amount(whole, tmp_path, count):
    """So many bits of all, and each bit of the amount that is most of the budget."""
    rng, size = random.Random(0), 8 * sum(map(len, whole.values()))
    bits = [rng.randrange(size) for _ in range(count)]
    at = 0
    for content in whole.values():
        place = content.find(b"1.9")
        bits += [8 * (at + place) + i for i in range(24)]
        at += len(content)
    (tmp_path / "good").mkdir()
    for name, content in whole.items():
        (tmp_path / "good" / name).write_bytes(content)
    expected = amounts(Ledger.open(tmp_path / "good" / FILES[0]))
    found = Counter(after_a_flip(tmp_path / "flipped", whole, bit, expected) for bit in bits)
    assert found["refused"] >= 48
    assert found["refused"] + found["unchanged"] == len(bits), found
