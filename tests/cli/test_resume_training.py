"""``dprl train dp-pg --resume``: what is learned from a bandit's log goes on where it was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.environments.bandit import Bandit

from ..environments.visits import file_and_parts, visits
from ..interruption import interrupted
from .conftest import flags

SAYS_SO = "error: interrupted; what was charged stays charged; the same command with --resume goes on.\n"
PEOPLE = 400
BOUNDS = f"units = {PEOPLE}\nobservation = [[-1, 1], [-1, 1]]\nreward = [-1, 1]\nactions = 3\n"


@pytest.fixture
def request_of(tmp_path):
    file, parts = file_and_parts(tmp_path, visits(600, PEOPLE))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    Ledger.create(tmp_path / "l.db", "shop", Budget(2.0, 1e-4), "person", "zero out one")

    def arguments(in_parts: bool = False, **changes: object) -> list[str]:
        options = {
            "environment": f"bandit:{parts if in_parts else file}", "bounds": tmp_path / "bounds.toml", "epsilon": 1,
            "delta": 1e-5, "ledger": tmp_path / "l.db", "dataset": "shop", "out": tmp_path / "out", "steps": 20,
        } | changes  # fmt: skip
        return ["train", "dp-pg", *map(str, flags(options))]

    return arguments


def charges(tmp_path):
    return Ledger.open(tmp_path / "l.db").history()


def test_interrupted_and_resumed(dprl, request_of, tmp_path):
    with interrupted(Bandit, "entering"):
        found = dprl(*request_of())
    assert (found.code, found.err) == (130, SAYS_SO)
    assert (tmp_path / "out.run").is_dir()
    dprl(*request_of()).refused("go on with it by --resume")
    dprl(*request_of(resume=True, epsilon=0.5)).refused("the request is another one (")
    assert len(charges(tmp_path)) == 1
    dprl(*request_of(resume=True)).done()
    assert verification.verify(tmp_path / "out").private
    (charge,) = charges(tmp_path)
    assert charge.digest is not None
    assert not (tmp_path / "out.run").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resume": True}, "There is nothing to resume"),
        ({"resume": True, "seed": 1}, "all else begins anew each time"),
        ({"resume": True, "environment": "cart-pole", "bounds": None, "users": 100}, "all else begins anew each time"),
        ({"engine": "ray", "environment": "cart-pole", "bounds": None, "users": 100}, "needs users of a log in parts"),
        ({"engine": "ray"}, "needs users of a log in parts: make one with `dprl data partition FILE --by person_id"),
        ({"engine": "spark"}, "engine must be one of local, ray"),
        ({"shards": 2}, "those of the engine ray: add --engine ray, or leave them out"),
    ],
)
def test_what_is_wrong_is_said_before_the_charge(dprl, request_of, tmp_path, changes, words):
    dprl(*request_of(**changes)).refused(words)
    assert charges(tmp_path) == []
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.run").exists()


def test_a_folder_of_parts_stands_for_the_file(dprl, request_of, tmp_path):
    """The same bytes but for the time, by a seed."""
    made = {}
    for in_parts in (False, True):
        out = tmp_path / f"seeded {in_parts}"
        dprl(*request_of(in_parts, seed=1, out=out, ledger=None, dataset=None)).done()
        made[in_parts] = [(out / name).read_bytes() for name in ("training.json", "policy.safetensors")]
    assert made[True] == made[False]


@pytest.mark.slow
def test_the_driver_of_workers_is_killed(request_of, tmp_path):
    """By SIGKILL, in the middle of its batches; the engine local goes on."""
    command = [sys.executable, "-m", "dprl"]
    workers = {"engine": "ray", "shards": 2}
    process = subprocess.Popen([*command, *request_of(True, **workers)], stderr=subprocess.PIPE)
    journal, until = tmp_path / "out.run" / "journal", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until and not (journal.exists() and os.stat(journal).st_size):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert journal.exists()
    subprocess.run([*command, *request_of(True, resume=True)], check=True, stdout=subprocess.PIPE)
    assert verification.verify(tmp_path / "out").private
    (charge,) = charges(tmp_path)
    assert charge.digest is not None
