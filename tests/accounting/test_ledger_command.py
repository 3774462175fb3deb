"""``dprl ledger``: declare, show and tell, for people and as JSON."""

from __future__ import annotations

import json
import os
import shutil

from typer.testing import CliRunner

from dprl.accounting.ledger import Ledger
from dprl.cli.ledger import ledger_app
from dprl.errors import DprlError

from .test_ledger import DIGEST, charge


def run(*arguments: object):
    return CliRunner().invoke(ledger_app, [str(a) for a in arguments])


def test_command_creates_shows_and_tells_the_history(path):
    made = run("create", path, "--dataset", "trial", "--epsilon", 1, "--delta", "1e-5", "--unit", "person")
    assert made.exit_code == 0, made.output
    assert "Nothing was charged" in run("history", path).stdout
    ledger = Ledger.open(path)
    ledger.commit(charge(ledger), DIGEST)
    charge(ledger, purpose="second")
    (row,) = json.loads(run("show", path, "--json").stdout)["datasets"]
    assert (row["epsilon"], row["epsilon_spent"], row["epsilon_left"]) == (1.0, 0.2, 0.8)
    assert (row["releases"], row["unfinished"], row["interrupted"]) == (2, 1, 0)
    assert "left    epsilon 0.8  delta 8e-06" in run("show", path).stdout
    charges = json.loads(run("history", path, "--dataset", "trial", "--json").stdout)["charges"]
    assert [(c["digest"], c["purpose"]) for c in charges] == [(DIGEST, "test"), (None, "second")]
    assert "unfinished (counts as spent)" in run("history", path).stdout


def test_command_refuses(path):
    assert isinstance(run("show", path).exception, DprlError)
    bad = ["create", path, "--dataset", "trial", "--epsilon", 1, "--delta", "1e-5", "--unit", "patient"]
    assert isinstance(run(*bad).exception, DprlError)
    assert not path.exists()


def test_command_shows_what_was_interrupted(ledger, path):
    charge(ledger)
    shutil.copy(path, path.with_name("copy"))
    charge(ledger)
    os.replace(path.with_name("copy"), path)
    (row,) = json.loads(run("show", path, "--json").stdout)["datasets"]
    assert (row["releases"], row["unfinished"], row["interrupted"], row["epsilon_left"]) == (2, 2, 1, 0.8)
    assert "1 interrupted before recorded" in run("show", path).stdout
    charges = json.loads(run("history", path, "--json").stdout)["charges"]
    assert [(c["interrupted"], c["settled"] is None) for c in charges] == [(False, True), (True, False)]
    (line,) = [x for x in run("history", path).stdout.splitlines() if "interrupted" in x]
    assert "unfinished (counts as spent), interrupted before it was recorded" in line
