"""The ledger on disks that are full or read-only: real ones where this machine can mount them; and damaged files."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from dprl.accounting import ledger_file
from dprl.accounting.budget import Budget
from dprl.accounting.intents import Intent, intents_path
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError

from .test_ledger import RELATION, charge

PAGE = 4096
LONG = "é" * 500  # six bytes each in the intents


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no mount on this machine")
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def create(folder: Path) -> Ledger:
    return Ledger.create(folder / "ledger.db", "trial", Budget(1000.0, 0.1), "person", RELATION)


def fill(folder: Path, pages_left: int) -> None:
    """Leave so many free pages in the file system."""
    with open(folder / "filler", "wb", buffering=0) as file:
        free = os.statvfs(folder).f_bavail - pages_left
        assert file.write(bytes(PAGE * free)) == PAGE * free


def test_a_full_disk_is_one_sentence_and_spends_nothing(small_disk):
    ledger = create(small_disk)
    outcomes, told, said = [], [], []
    for pages in [*range(24), 64]:
        for purpose in ("", LONG):  # a long line needs a page of its own now and then
            fill(small_disk, pages)
            try:
                told.append(charge(ledger, purpose=purpose))
                outcomes.append((pages, True))
            except DprlError as error:
                said.append(str(error))
                outcomes.append((pages, False))
            (small_disk / "filler").unlink()
            assert [c.id for c in ledger.history()] == told
    assert all("cannot be written" in text and "\n" not in text for text in said)
    assert not outcomes[0][1]
    assert outcomes[-1][1]
    # refused at several depths: no room for the log, its index, the entry, the commit
    assert sum(not good for _, good in outcomes) >= 10
    assert [c.settled for c in ledger.history()] == [None] * len(told)


def test_a_full_disk_at_creation_leaves_what_can_be_repeated(small_disk):
    said = []
    for pages in range(40):
        fill(small_disk, pages)
        try:
            create(small_disk)
        except DprlError as error:
            said.append(str(error))
        else:
            break
        finally:
            (small_disk / "filler").unlink()
    else:
        raise AssertionError("never created")
    assert len(said) > 3
    assert all("cannot be" in text and "\n" not in text for text in said)
    assert charge(Ledger.open(small_disk / "ledger.db")) == 1


def test_a_read_only_file_system_is_one_sentence(small_disk):
    ledger = create(small_disk)
    charge(ledger)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for call in (lambda: charge(ledger), ledger.history, lambda: ledger.commit(1, "ab" * 32)):
        with pytest.raises(DprlError, match="is read-only"):
            call()
    with pytest.raises(DprlError, match="Read-only file system"):
        Ledger.create(small_disk / "other.db", "trial", Budget(1.0, 1e-5), "person", RELATION)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert charge(ledger) == 2


LIMITED = """
import resource, sys
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.errors import DprlError
ledger = Ledger.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    ledger.charge("trial", Budget(0.1, 1e-6), "person", "add or remove one", "é" * 500)
except DprlError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 1, 100, 3000])
def test_an_intent_that_is_cut_off_in_the_middle_is_taken_back(tmp_path, room):
    ledger = create(tmp_path)
    file = intents_path(ledger.path)
    while file.stat().st_size < 40_000:  # beyond what the database's own files need of the limit
        charge(ledger, purpose=LONG)
    before, charges = file.read_bytes(), ledger.history()
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(ledger.path), str(len(before) + room)], capture_output=True, text=True
    )
    assert ran.stdout.strip() == f"The intents {file} cannot be written: File too large."
    assert file.read_bytes() == before
    assert ledger.history() == charges
    assert charge(ledger) == len(charges) + 1


def test_opening_looks_at_every_page(tmp_path):
    """Also at those that no question about a budget reads."""
    path = create(tmp_path).path
    with ledger_file.writing(path) as opened:
        for i in range(150):
            token = f"{i:032x}"
            opened.enter(
                Intent("charge", "trial", "0.001", "1e-09", "person", RELATION, "2001-02-03T04:05:06Z", "", token)
            )
    sound = path.read_bytes()
    pages = range(4096, len(sound), 4096)
    assert len(pages) > 15
    for start in pages:
        path.write_bytes(sound[:start] + b"\xff" * 4096 + sound[start + 4096 :])
        with pytest.raises(DprlError, match="is damaged"):
            Ledger.open(path)
    path.write_bytes(sound)
    assert Ledger.open(path).spent("trial").epsilon == Decimal("0.15")


def test_an_index_that_lacks_a_charge_is_noticed(tmp_path):
    """SQLite may sum over an index alone: what it lacks would not be spent."""
    ledger = create(tmp_path)
    path = ledger.path
    charge(ledger)
    db = sqlite3.connect(path)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_charge_1'").fetchone()
    db.close()
    content = bytearray(path.read_bytes())
    cell = 4096 * (root - 1)
    content[cell + 3 : cell + 7] = bytes([0, 0, 0x10, 0])  # a leaf without cells
    path.write_bytes(bytes(content))
    with pytest.raises(DprlError, match="is damaged"):
        Ledger.open(path)
