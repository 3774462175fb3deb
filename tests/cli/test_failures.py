"""What goes wrong late: code that panics at a row, signals, full disks and devices. Each says what is left."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from dprl import files
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.cli import _signals_as_ctrl_c
from dprl.data.readers import Log
from dprl.release.run_folder import RunFolder

SECRET = "PATIENT-ZERO"
PANICS = f"""
import sys
import threading
import numpy as np

class PanicException(BaseException):
    pass

def uniform(states, at=None):
    if len(states) not in (1, 64):  # not the public ones
        at(f"{SECRET} {{states[0]}}")
    return np.full((len(states), 2), 0.5)

def panics(states):
    def raised(text):
        raise PanicException(text)
    return uniform(states, raised)

def leaves(states):
    return uniform(states, sys.exit)
"""


@pytest.mark.parametrize("function", ["panics", "leaves"])
def test_a_policy_that_panics_at_rows_says_nothing(dprl, trial, function):
    """And they count for nothing, as with every policy that does not answer."""
    trial.policies.write_text(PANICS)
    found = dprl(*trial.arguments(target_policy=f"{trial.policies}:{function}")).done()
    assert SECRET not in found.out


class PanicError(BaseException):
    pass


@pytest.mark.parametrize("error", [PanicError, SystemExit, KeyError])
def test_whatever_is_raised_where_rows_are_is_not_printed(dprl, trial, monkeypatch, error):
    """But where the curator asks for it."""

    def load(*_):
        raise error(SECRET)

    monkeypatch.setattr(Log, "load", load)
    found = dprl(*trial.arguments())
    assert (found.code, found.out) == (70, "")
    assert SECRET not in found.err
    assert found.err.startswith(f"error: a defect of dprl ({error.__name__}, test_failures.py line ")
    assert found.err.count("\n") == 1
    if error is KeyError:
        monkeypatch.setenv("DPRL_DEBUG", "1")
        with pytest.raises(KeyError, match=SECRET):
            dprl(*trial.arguments(ledger=None, dataset=None, out=trial.folder / "other"))


# --- signals --------------------------------------------------------------------------------------------------------


def test_sigterm_says_how_to_go_on(dprl, trial, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Log, "load", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        found = dprl(*trial.arguments())
    assert (found.code, found.out) == (143, "")
    assert found.err == ("error: terminated; what was charged stays charged; the same command with --resume goes on.\n")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert dprl(*trial.arguments(resume=True)).code == 0
    assert trial.charges() == 1


# --- disks and devices ------------------------------------------------------------------------------------------------


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_the_end_names_the_folder_and_the_way_on(dprl, trial, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(files.tempfile, "mkstemp", full)
        found = dprl(*trial.arguments())
    found.refused(f"'{trial.out}': No space left on device: make room there, and go on by --resume")
    assert ".results." not in found.err
    assert {p for p in trial.files() if p.startswith((".results", "results"))} >= {"results.run"}
    assert not any(p.startswith(".results") for p in trial.files())
    gc.collect()  # a process that has ended holds no lock
    assert dprl(*trial.arguments(resume=True)).code == 0
    assert trial.charges() == 1


def test_a_run_folder_that_was_deleted_cannot_be_resumed(dprl, trial, monkeypatch):
    run, bind = trial.out.with_name("results.run"), RunFolder.bind_noise_to_data

    def gone(folder, parts):
        shutil.rmtree(run)
        return bind(folder, parts)

    monkeypatch.setattr(RunFolder, "bind_noise_to_data", gone)
    gone = f"error: The run folder {run} is gone, so the run cannot be resumed: what was charged stays spent.\n"
    dprl(*trial.arguments()).refused(gone)


def test_refused_rows_name_the_key_that_they_leave(dprl, trial, monkeypatch):
    """The ledger has these rows under another name, which is seen when they are read, after the charge."""
    Ledger.create(trial.ledger, "other", Budget(2.0, 2e-5), "person", "add or remove one")
    assert dprl(*trial.arguments(out=trial.folder / "first")).code == 0
    found = dprl(*trial.arguments(dataset="other"))
    run, key = trial.out.with_name("results.run"), "which holds the key to this release's noise.\n"
    found.refused("stand in the ledger")
    assert found.err.endswith(f"what was charged to 'other' stays spent. Delete {run}, {key}")
    assert found.err.count("stays spent") == found.err.count("\n") == 1
    assert (run / "key").exists()
    monkeypatch.chdir(trial.folder)
    assert dprl(*trial.arguments(dataset="other", out="again")).err.endswith(f"Delete again.run, {key}")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
@pytest.mark.parametrize("arguments", [["ledger", "show"], ["evaluate"]])
def test_a_full_device_for_output(trial, arguments):
    """The release is there, and that is said."""
    command = [*arguments, trial.ledger] if arguments[0] == "ledger" else trial.arguments()
    with open("/dev/full", "w") as out:
        found = subprocess.run(
            [sys.executable, "-m", "dprl", *map(str, command)], stdout=out, stderr=subprocess.PIPE, text=True
        )
    assert found.returncode == 1
    assert found.stderr.count("\n") == 1
    assert "cannot be printed (No space left on device)" in found.stderr
    if arguments[0] == "evaluate":
        assert f"the release is in {trial.out}, whole" in found.stderr
        assert verification.verify(trial.out).private


def test_ctrl_c_is_not_lost_while_garbage_is_collected():
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what a shell runs in the background ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _xla_gc_callback():
        signal.raise_signal(signal.SIGINT)
        calls.append("went on")

    def collected():
        with _signals_as_ctrl_c():
            _xla_gc_callback()
            threading.Event().wait(60.0)

    calls = []
    with pytest.raises(KeyboardInterrupt):
        collected()
    assert calls == ["went on"]
