"""``dprl evaluate --resume``: real processes that are killed, and what the command line says about it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from dprl.accounting import verification
from dprl.accounting.ledger import Ledger
from dprl.data.readers import Log
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey

from ..interruption import interrupted

GPOPE = {"algorithm": "gpope", "set": "steps=5"}
SAYS_SO = "error: interrupted; what was charged stays charged; the same command with --resume goes on.\n"


@pytest.fixture
def stopped(dprl, trial):
    """A trial whose release was interrupted by Ctrl-C when its rows were to be read."""
    before = trial.files()
    with interrupted(Log, "load"):
        found = dprl(*trial.arguments(**GPOPE))
    assert (found.code, found.out, found.err) == (130, "", SAYS_SO)
    assert trial.files() == before | {"results.run", "results.run/key", "results.run/run.json"}
    trial.run = trial.out.with_name("results.run")
    return trial


def test_the_same_command_goes_on(dprl, stopped):
    dprl(*stopped.arguments(**GPOPE, resume=True)).done()
    assert verification.verify(stopped.out).private
    assert not stopped.run.exists()
    (charge,) = Ledger.open(stopped.ledger).history()
    assert charge.digest is not None
    again = dprl(*stopped.arguments(**GPOPE, resume=True))
    assert again.code == 2
    assert "nothing to resume" in again.err


def test_without_resume_it_is_refused(dprl, stopped):
    before = stopped.files()
    found = dprl(*stopped.arguments(**GPOPE))
    found.refused("--resume")
    assert "when nothing runs, delete it (what was charged stays spent)" in found.err
    assert stopped.files() == before
    assert stopped.charges() == 1
    assert "unfinished (counts as spent)" in dprl("ledger", "history", stopped.ledger).out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": "0.5"}, "the request is another one"),
        ({"seed": 1}, "--seed and --simulated begin anew"),
        ({"out": "elsewhere"}, "nothing to resume"),
        ({"bounds": "missing.toml"}, "missing.toml"),
        ({"out": "/"}, "cannot be the folder of a release"),
    ],
)
def test_a_wrong_request_is_refused_before_anything(dprl, stopped, monkeypatch, changes, words):
    monkeypatch.chdir(stopped.folder)
    before = {p: p.read_bytes() for p in stopped.run.iterdir()}
    dprl(*stopped.arguments(**GPOPE | changes, resume=True)).refused(words)
    assert {p: p.read_bytes() for p in stopped.run.iterdir()} == before
    assert stopped.charges() == 1


@pytest.mark.parametrize("changes", [{"seed": 3}, {"simulated": True}])
def test_what_is_not_private_has_no_run_folder(dprl, trial, monkeypatch, changes):
    seen = []
    load = Log.load
    monkeypatch.setattr(Log, "load", lambda *a: seen.append(trial.files()) or load(*a))
    assert dprl(*trial.arguments(**changes)).code == 0
    assert not any(f.startswith("results.run") for files in seen for f in files)


def test_interrupted_after_the_rename(dprl, trial):
    """The folder is there and the charge not committed: --resume says so, prints the result and ends well."""
    with interrupted(Ledger, "commit"):
        assert dprl(*trial.arguments(json=True)).code == 130
    before = {p.name: p.read_bytes() for p in trial.out.iterdir()}
    found = dprl(*trial.arguments(json=True, resume=True)).done()
    assert {p.name: p.read_bytes() for p in trial.out.iterdir()} == before
    printed, saved = json.loads(found.out), json.loads((trial.out / "estimate.json").read_text())
    assert (printed["value"], printed["targets"]) == (saved["value"], saved["targets"])
    assert set(printed["paths"]) == set(before)
    (charge,) = Ledger.open(trial.ledger).history()
    assert charge.digest == json.loads((trial.out / "certificate.json").read_text())["digest"]


# --- killed -------------------------------------------------------------------------------------------------------


def killed_until_it_is_done(trial, signals, wait) -> int:
    """Start the command, stop it, resume it, and so on; at last let it end. Returns how many journals were seen."""
    run, kept, journals, bound = trial.out.with_name("results.run"), trial.folder / "kept", [], b""
    left = list(signals)
    while run.exists() or not trial.out.exists():
        arguments = trial.arguments(**GPOPE | {"set": "steps=300"}, json=True, resume=True if run.exists() else None)
        process = subprocess.Popen(
            [sys.executable, "-m", "dprl", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        stop = left.pop(0) if left else None
        if stop is not None:
            wait(process, run)
            process.send_signal(stop)
        _, err = process.communicate(timeout=600)
        assert stop is not None or process.returncode == 0, err
        if run.exists():  # before and after there is nothing to say
            # Ctrl-C before the command itself has begun is Python's
            codes = (-signal.SIGKILL,) if stop == signal.SIGKILL else (130, -signal.SIGINT)
            assert process.returncode in codes, err
        if run.exists() and process.returncode == 130:
            assert err in (SAYS_SO, "error: interrupted.\n")
        assert trial.charges() <= 1
        if (run / "journal").exists() and (run / "key").exists():
            journals.append((run / "journal").read_bytes())
            shutil.copy(run / "key", kept)
            kept.chmod(0o600)
            bound = (run / "data").read_bytes()[:32]
    # the journals are beginnings of one another, but for a record that was torn
    for a, b in pairwise(journals):
        shorter = max(min(len(a), len(b)) - 100, 0)
        assert a[:shorter] == b[:shorter]
    (charge,) = Ledger.open(trial.ledger).history()
    assert charge.digest == verification.verify(trial.out).content["digest"]
    if journals:
        compare(trial, RunKey.load(kept).noise(bound))
    return len(journals)


def compare(trial, noise) -> None:
    """What was released is what an uninterrupted run with the same noise gives."""
    import dprl

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureNoise, "fresh", classmethod(lambda cls: noise))
        release = dprl.evaluate(
            str(trial.log), ["uniform"], dprl.Budget(1.0, 1e-5), bounds=str(trial.bounds), unit="person",
            person="person_id", algorithm=dprl.GPOPE(steps=300),
        )  # fmt: skip
    assert json.loads(json.dumps(release.estimate)) == json.loads((trial.out / "estimate.json").read_text())
    assert release.value_function.to_bytes() == (trial.out / "value_function.safetensors").read_bytes()


def when_the_journal_has(size):
    def wait(process, run):
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            try:
                if os.stat(run / "journal").st_size >= size:
                    return
            except OSError:
                pass
            time.sleep(0.001)

    return wait


def test_killed_in_the_middle(trial):
    """One SIGKILL while the steps are noised."""
    assert killed_until_it_is_done(trial, [signal.SIGKILL], when_the_journal_has(1000)) == 1


@pytest.mark.slow
def test_killed_and_interrupted_again_and_again(trial):
    kills = [signal.SIGKILL, signal.SIGINT, signal.SIGINT, signal.SIGKILL]
    waits = iter([when_the_journal_has(size) for size in (1, 1000, 5000, 20000)])
    assert killed_until_it_is_done(trial, kills, lambda *a: next(waits)(*a)) >= 3


@pytest.mark.slow
def test_fifty_kills_at_random_moments(tmp_path):
    from .conftest import Trial

    rng, kills, number, whole = random.Random(0), 0, 0, 8.0

    def wait(process, run):
        # half of the time anywhere, half of the time after the run folder was made
        if rng.random() < 0.5:
            while process.poll() is None and not run.exists():
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, whole / 4))
        else:
            time.sleep(rng.uniform(0.5, whole))

    while kills < 50:
        folder = tmp_path / str(number)
        folder.mkdir()
        signals = rng.choices([signal.SIGKILL, signal.SIGINT], [3, 1], k=3)
        killed_until_it_is_done(Trial(folder), signals, wait)
        kills, number = kills + len(signals), number + 1
