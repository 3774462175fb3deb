"""A release that is interrupted anywhere is resumed: one charge, one draw for each step, and the same bytes."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.accounting.ledger import Ledger
from dprl.engine import loop
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey
from dprl.release import results, run_folder
from dprl.release.run_folder import RunFolder

from ..interruption import interrupted
from .resumable import KEY, STEPS, Trial, records, refused, snapshot

# --- what stays the same ------------------------------------------------------------------------------------------


def test_a_run_folder_changes_no_number(trial, reference, monkeypatch, tmp_path):
    key = RunKey(KEY)
    monkeypatch.setattr(SecureNoise, "fresh", classmethod(lambda cls: key.noise(b"")))
    other = Trial(tmp_path / "other")
    other.finish(run=None, resume=False)
    assert other.contents() == reference.contents


def test_the_folder_is_private_and_removed_at_the_end(trial):
    release = trial.evaluate()
    assert trial.run.stat().st_mode & 0o777 == 0o700
    assert {p.name for p in trial.run.iterdir()} == {"key", "run.json", "data", "journal"}
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in trial.run.iterdir())
    assert not trial.out.exists()
    release.save(trial.out)
    assert not trial.run.exists()
    assert sorted(p.name for p in trial.run.parent.iterdir() if "ledger" not in p.name) == ["results"]


def test_without_a_ledger(trial, fixed_key, reference):
    trial.stop_after(2, ledger=None, dataset=None)
    trial.finish(ledger=None, dataset=None)
    for name in ("estimate.json", "value_function.safetensors"):
        assert trial.contents()[name] == reference.contents[name]


def test_importance_sampling_too(trial):
    sampling = dprl.ImportanceSampling()
    release = trial.evaluate(algorithm=sampling)
    value = release.value
    assert isinstance(release._run, RunFolder)
    del release  # the program ends before it saves, and lets go of the folder
    gc.collect()
    trial.finish(algorithm=sampling)
    assert json.loads((trial.out / "estimate.json").read_text())["value"] == value
    assert len(trial.ledger.history()) == 1


# --- interrupted anywhere -----------------------------------------------------------------------------------------


class CrashError(BaseException):
    """The process is gone."""


class Machine:
    """Counts what is done to the files below a folder, and stops before any of it; nothing is done afterwards.

    A write that is stopped is half done.
    """

    BY_PATH = ("mkdir", "replace", "rename", "unlink", "rmdir", "link", "chmod")
    BY_FILE = ("write", "fsync", "ftruncate", "fchmod")

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, stop_at: int | None = None) -> None:
        self.count, self._folder, self._stop_at, self._dead = 0, str(folder), stop_at, False
        for name in self.BY_PATH + self.BY_FILE:
            patch.setattr(os, name, self._watched(getattr(os, name), name))

    def _watched(self, real, name):
        def call(target, *arguments, **options):
            if name in self.BY_FILE:
                path = os.readlink(f"/proc/self/fd/{target}")
            else:
                path = os.fsdecode(target)
                if options.get("dir_fd") is not None:
                    path = os.readlink(f"/proc/self/fd/{options['dir_fd']}") + "/" + path
            if path.startswith(self._folder):
                if self._dead or self.count == self._stop_at:
                    if name == "write" and not self._dead:
                        real(target, arguments[0][: len(arguments[0]) // 2])
                    self._dead = True
                    raise CrashError
                self.count += 1
            return real(target, *arguments, **options)

        return call


def crash(trial: Trial, stop_at: int | None) -> int:
    """Run until something is done to a file for the ``stop_at``-th time; returns how often that was."""
    with pytest.MonkeyPatch.context() as patch:
        watched = Machine(trial.run.parent, patch, stop_at)
        with suppress(CrashError):
            trial.finish()
    gc.collect()
    return watched.count


def check_after_crash(trial: Trial, reference, stop_at: int) -> None:
    journal = trial.run / "journal"
    begun = records(journal.read_bytes()) if journal.exists() else []
    # what is there is the beginning of the one journal that this key and these data have
    assert begun == records(reference.journal)[: len(begun)], stop_at
    if trial.run.exists() or not trial.out.exists():
        trial.finish()
    assert trial.contents() == reference.contents, stop_at
    verification.verify(trial.out)
    (charge,) = trial.ledger.history()
    assert charge.digest == json.loads((trial.out / "certificate.json").read_text())["digest"], stop_at
    assert not trial.run.exists(), stop_at


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_interrupted_anywhere(tmp_path, fixed_key, reference, everywhere):
    """A sample of the places; all of them in the slow suite."""
    places = crash(Trial(tmp_path / "counted"), None)
    assert places > 40
    sample = [*range(3, places - 12, 23), *range(places - 12, places, 3)]
    for stop_at in range(places) if everywhere else sample:
        trial = Trial(tmp_path / str(stop_at))
        assert crash(trial, stop_at) == stop_at
        check_after_crash(trial, reference, stop_at)


@pytest.mark.slow
def test_interrupted_again_and_again(tmp_path, fixed_key, reference):
    """Every attempt gets a little further, until one comes through."""
    trial, attempts = Trial(tmp_path / "trial"), 0
    while trial.run.exists() or not trial.out.exists():
        crash(trial, 12 + attempts)
        attempts += 1
    assert attempts > 3
    assert trial.contents() == reference.contents
    assert len(trial.ledger.history()) == 1


def test_a_step_in_the_journal_is_neither_summed_nor_drawn_again(trial, monkeypatch):
    summed, drawn = [], Counter()
    accumulate, gaussian = loop._accumulate, SecureNoise.gaussian

    def counted(*arguments):
        summed.append(1)
        return accumulate(*arguments)

    def watched(noise, step, dimension, std):
        drawn[noise._key, step] += 1
        return gaussian(noise, step, dimension, std)

    monkeypatch.setattr(loop, "_accumulate", counted)
    monkeypatch.setattr(SecureNoise, "gaussian", watched)
    trial.stop_after(3)
    first = len(summed)
    assert first >= 3
    trial.stop_after(3)  # on the way through the journal
    assert len(summed) == first
    seen = []
    trial.evaluate(progress=seen.append).save(trial.out)
    assert len(summed) > first
    assert len(drawn) == STEPS + 1
    assert set(drawn.values()) == {1}
    assert seen == list(range(1, STEPS + 1))


def test_the_disk_is_full_at_a_step(trial, monkeypatch, fixed_key, reference):
    write, left = os.write, [4]

    def full(file, content):
        if os.readlink(f"/proc/self/fd/{file}").endswith("journal"):
            left[0] -= 1
            if left[0] < 0:
                write(file, content[:20])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(dprl.DprlError, match=r"cannot be written \(No space left on device\).* can be resumed"):
            trial.evaluate()
    assert not trial.out.exists()
    trial.finish()
    assert trial.contents() == reference.contents


def test_the_disk_is_full_when_it_is_saved(trial, monkeypatch, fixed_key, reference):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    release = trial.evaluate()
    with monkeypatch.context() as patch:
        patch.setattr(results, "write_atomically", full)
        with pytest.raises(dprl.DprlError, match="No space left"):
            release.save(trial.out)
    assert trial.run.exists()
    release.save(trial.out)  # there is room again
    assert not trial.run.exists()
    assert trial.contents() == reference.contents


# --- the end ------------------------------------------------------------------------------------------------------


def test_saved_but_not_committed(trial, no_row_is_read):
    """The release is in its folder already: it is recognised, and no row is read."""
    with interrupted(Ledger, "commit"), pytest.raises(KeyboardInterrupt):
        trial.finish()
    gc.collect()
    before = trial.contents(), snapshot(trial.out)
    assert trial.run.exists()
    assert trial.ledger.history()[0].digest is None

    no_row_is_read()
    release = trial.evaluate()
    paths = release.save(trial.out)
    assert set(paths) == {p.name for p in trial.out.iterdir()}
    assert (trial.contents(), snapshot(trial.out)) == before
    assert release.value == json.loads((trial.out / "estimate.json").read_text())["value"]
    (charge,) = trial.ledger.history()
    assert charge.digest == release.certificate["digest"]
    assert not trial.run.exists()


def test_the_key_is_removed_first(trial, monkeypatch):
    """Interrupted then, the run needs no key any more."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    release = trial.evaluate()
    with monkeypatch.context() as patch:
        rename = os.rename
        patch.setattr(os, "rename", lambda a, b: interrupted() if Path(a) == trial.run else rename(a, b))
        with pytest.raises(KeyboardInterrupt):
            release.save(trial.out)
    del release
    gc.collect()
    assert {p.name for p in trial.run.iterdir()} == {"run.json", "data", "journal", "finished.json"}
    before = snapshot(trial.out)
    refused(trial, "the request is another one", budget=dprl.Budget(0.5, 1e-5))
    finished = trial.evaluate()
    with pytest.raises(dprl.DprlError, match="finished without a signature"):
        finished.save(trial.out, sign_key=trial.out.parent / "signing.pem")
    finished.save(trial.out)
    assert snapshot(trial.out) == before
    assert not trial.run.exists()
    assert len(trial.ledger.history()) == 1


def test_without_key_and_release_nothing_is_resumed(trial):
    trial.finish()
    other = Trial(trial.run.parent.parent / "other")
    release = other.evaluate()
    release._run.finish("0" * 64, trial.out)
    del release
    gc.collect()
    (other.run / "key").unlink()
    refused(other, "lost its key")


def test_somebody_else_s_release_is_not_mistaken_for_this_one(trial, tmp_path):
    with interrupted(Path, "rename"), pytest.raises(KeyboardInterrupt):
        trial.finish()
    gc.collect()
    other = Trial(tmp_path / "other")
    other.finish()
    shutil.copytree(other.out, trial.out)
    release = trial.evaluate()
    with pytest.raises(dprl.DprlError, match="not empty"):
        release.save(trial.out)
    assert trial.run.exists()
    release.save(trial.out.with_name("elsewhere"))
    assert not trial.run.exists()
    assert len(trial.ledger.history()) == 1


def test_a_release_may_be_saved_twice(trial):
    release = trial.evaluate()
    release.save(trial.out)
    release.save(trial.out.with_name("copy"))
    digests = [verification.verify(p).content["digest"] for p in (trial.out, trial.out.with_name("copy"))]
    assert len(set(digests)) == 1
    assert trial.ledger.history()[0].digest == digests[0]


def test_the_curator_s_facts_hold_nothing_of_the_rows(trial):
    trial.stop_after(1)
    facts = (trial.run / "run.json").read_text()
    assert "person-0" not in facts
    assert set(json.loads(facts)) == {"schema", "token", "request", "versions", "device", "mac"}
    assert {"numpy", "jax", "jaxlib", "cryptography", "code"} <= set(json.loads(facts)["versions"])
    assert json.loads(facts)["token"] == trial.ledger.history()[0].token


def test_digests_tell_arrays_apart():
    x = np.arange(6.0)
    parts = [
        [x], [x.reshape(2, 3)], [x.astype(np.float32)], [x.view(np.int64)], [x[::-1]], [x[:3], x[3:]], [x, 6], [x, "6"],
        [6, x], [np.zeros((0, 2))], [np.zeros((2, 0))], [], [x.reshape(2, 3).T],
    ]  # fmt: skip
    assert len({run_folder.digest_of(p) for p in parts}) == len(parts)
    assert run_folder.digest_of([x]) == run_folder.digest_of([np.array(list(x))])
