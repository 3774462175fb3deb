"""What a run folder is bound to and who may use it: anything else is refused in one sentence, and changes nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import dprl
from dprl import machine
from dprl.data.readers import Log
from dprl.mechanisms.noise import SecureNoise
from dprl.policies.loading import UniformPolicy
from dprl.release.run_folder import RunFolder, noted_folder

from ..interruption import interrupted
from ..sample_log import BOUNDS
from .resumable import LOG, STEPS, Trial, other_log, refused


def mostly_first(states):
    return np.tile([0.9, 0.1], (len(states), 1))


REQUEST = {
    "budget": {"budget": dprl.Budget(0.9, 1e-5)},
    "delta": {"budget": dprl.Budget(1.0, 2e-5)},
    "algorithm": {"algorithm": dprl.ImportanceSampling()},
    "steps": {"algorithm": dprl.GPOPE(steps=STEPS + 1, sampling_rate=0.7)},
    "average": {"algorithm": dprl.GPOPE(steps=STEPS, sampling_rate=0.7, average="last")},
    "features": {"features": "fourier:1"},
    "policy": {"target_policy": ["uniform", "uniform"]},
    "outcome": {"outcome": "points"},
    "unit": {"person": None, "ledger": None, "dataset": None},
    "bounds": {"bounds": {**BOUNDS.as_dict(), "reward": (-1.0, 1.5)}},
    "no ledger": {"ledger": None, "dataset": None},
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A release that was interrupted after two updates."""
    trial = Trial(tmp_path_factory.mktemp("begun") / "trial")
    trial.stop_after(2)
    return trial


@pytest.fixture
def spoiled(begun, tmp_path):
    """The same release, whose folder a test may spoil: it is put back afterwards."""
    kept = shutil.copytree(begun.run, tmp_path / "kept")
    yield begun
    begun.run.unlink() if begun.run.is_symlink() else shutil.rmtree(begun.run)
    shutil.copytree(kept, begun.run)


@pytest.mark.parametrize("what", REQUEST)
def test_another_request_is_refused_before_anything(begun, no_row_is_read, what):
    no_row_is_read()
    refused(begun, "cannot be resumed: the request is another one", **REQUEST[what])


def test_other_versions_or_another_device_are_refused(begun, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(machine, "versions", lambda: {"numpy": "0"})
        refused(begun, "cannot be resumed: dprl or a library that it uses has changed since")
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " --xla_cpu_enable_fast_math=true")
        refused(begun, "cannot be resumed: it was begun on another device")
    for setting in ("JAX_DISABLE_JIT", "JAX_DEFAULT_MATMUL_PRECISION", "OMP_NUM_THREADS"):
        with monkeypatch.context() as patch:
            patch.setenv(setting, "7")
            refused(begun, rf"begun on another device or with other settings of it \({setting}\)")
    with jax.disable_jit():
        refused(begun, r"with other settings of it \(jax_disable_jit\)")
    if hasattr(os, "sched_getaffinity"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda _: range(1000))
            refused(begun, "cannot be resumed: it was begun on another device")


ROWS = {
    "a reward": {"log": other_log(reward=0.123)},
    "an observation": {"log": other_log(observation_0=LOG["observation_0"][5] / 2)},
    "a probability": {"log": other_log(behavior_prob=0.51)},
    "a person": {"log": other_log(person_id="zzz")},
    "fewer rows": {"log": {k: v[:-1] for k, v in LOG.items()}},
}


@pytest.mark.parametrize("what", ROWS)
def test_other_rows_are_refused(begun, what):
    """That depends on the rows, and is told to the curator alone."""
    sentence = refused(begun, "cannot be resumed: it was begun on other data", **ROWS[what])
    assert not any(c.isdigit() for c in sentence.replace(str(begun.run), ""))


def test_other_rows_are_refused_where_there_are_only_values(trial, monkeypatch):
    bind = RunFolder.bind_noise_to_data

    def bound(folder, parts):
        bind(folder, parts)
        raise KeyboardInterrupt

    sampling = dprl.ImportanceSampling()
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "bind_noise_to_data", bound)
        with pytest.raises(KeyboardInterrupt):
            trial.evaluate(algorithm=sampling)
    refused(trial, "begun on other data", algorithm=sampling, log=other_log(reward=0.123))
    trial.finish(algorithm=sampling)


def test_a_policy_of_the_same_name_that_does_something_else_is_refused(trial):
    trial.stop_after(1, target_policy={"p": "uniform"})
    refused(trial, "cannot be resumed: (the request|it was begun on other data)", target_policy={"p": mostly_first})

    def nearly_uniform(states):
        return np.where(states[:, :1] == LOG["observation_0"][5], [[0.75, 0.25]], [[0.5, 0.5]])

    nearly_uniform.__doc__ = UniformPolicy.__doc__  # what a policy says of itself is a public fact
    # public facts of the two are the same: they differ at one person's state alone
    refused(trial, "cannot be resumed: it was begun on other data", target_policy={"p": nearly_uniform})


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("file", ["key", "run.json", "data", "journal"])
def test_a_changed_byte_is_refused(spoiled, file, place):
    path = spoiled.run / file
    flip(path, int(place * path.stat().st_size))
    refused(spoiled, "tampered with, so the run cannot be resumed")


@pytest.mark.parametrize(
    ("file", "words"), [("run.json", "tampered with"), ("data", "tampered with"), ("key", "lost its key")]
)
def test_a_missing_file_is_refused(spoiled, file, words):
    (spoiled.run / file).unlink()
    refused(spoiled, words)


def test_a_journal_of_another_run_is_refused(spoiled, trial):
    trial.stop_after(2)
    shutil.copy(trial.run / "journal", spoiled.run / "journal")
    refused(spoiled, "tampered with")


def test_a_lost_journal_gives_the_same_draws(trial, fixed_key, reference):
    """Taking records from the end undoes nothing: the same steps come back."""
    trial.stop_after(3)
    (trial.run / "journal").unlink()
    trial.finish()
    assert trial.contents() == reference.contents


def test_a_folder_that_others_may_open_is_refused(spoiled):
    spoiled.run.chmod(0o755)
    refused(spoiled, "mode is not 0700")
    spoiled.run.chmod(0o700)
    (spoiled.run / "key").chmod(0o644)
    refused(spoiled, "mode is not 0600")


def test_a_link_is_refused(spoiled, tmp_path):
    real = spoiled.run.rename(tmp_path / "elsewhere")
    spoiled.run.symlink_to(real, target_is_directory=True)
    with pytest.raises(dprl.DprlError, match="not a run folder"):
        spoiled.evaluate()


def test_two_at_once_are_refused(trial):
    def second(done):
        with pytest.raises(dprl.DprlError, match="in use by a release that has not ended"):
            trial.evaluate(resume=True)

    trial.evaluate(progress=second).save(trial.out)
    assert len(trial.ledger.history()) == 1


def test_nothing_there_and_something_there(trial):
    with pytest.raises(dprl.DprlError, match="nothing to resume"):
        trial.evaluate(resume=True)
    assert trial.ledger.history() == []
    trial.stop_after(1)
    refused(trial, "go on with it by --resume .*, or, when nothing runs, delete it", resume=False)
    shutil.rmtree(trial.run)
    trial.finish()
    assert len(trial.ledger.history()) == 2  # what was charged stays charged


@pytest.mark.parametrize("changes", [{"seed": 1}, {"simulated": True}, {"run": None, "resume": True}])
def test_what_cannot_be_resumed(trial, changes):
    with pytest.raises(dprl.DprlError, match="run folder"):
        trial.evaluate(**changes)
    assert trial.ledger.history() == []
    assert not trial.run.exists()


def test_a_refused_charge_leaves_no_folder(trial):
    with pytest.raises(dprl.OverspendError):
        trial.evaluate(budget=dprl.Budget(10.0, 1e-5))
    assert [p.name for p in trial.run.parent.iterdir() if "ledger" not in p.name] == []


def test_a_folder_that_cannot_be_made_costs_nothing(trial):
    with pytest.raises(dprl.DprlError, match="cannot be made: File name too long"):
        trial.evaluate(run=trial.run.with_name("x" * 300))
    assert trial.ledger.history() == []


# --- copies of the folder -----------------------------------------------------------------------------------------


def copy_of(run: Path) -> Path:
    copy = Path(shutil.copytree(run, run.with_name("copy.run")))
    copy.chmod(0o700)
    return copy


@pytest.fixture
def early(trial):
    """Interrupted after the charge and before a row was read: nothing is bound yet."""
    with interrupted(Log, "load"), pytest.raises(KeyboardInterrupt):
        trial.evaluate()
    return trial


def draws(path: Path, facts: dict, parts: list) -> np.ndarray:
    folder = RunFolder.resume(path, facts)
    try:
        return folder.bind_noise_to_data(parts).gaussian(0, 20, 2.0**30)
    finally:
        folder.journal.close()
        folder.close()


def test_the_noise_of_a_copy_for_other_data_is_another(tmp_path):
    """Else the difference of the two outputs would be that of the sums, without noise."""
    facts = {"request": {"epsilon": 1.0}, "versions": {}, "device": {}}
    run, rows = tmp_path / "run", np.arange(6.0)
    RunFolder.begin(run, facts).close()
    copy, third = copy_of(run), Path(shutil.copytree(run, tmp_path / "third"))
    third.chmod(0o700)
    first = draws(run, facts, [rows])
    np.testing.assert_array_equal(draws(copy, facts, [rows]), first)
    np.testing.assert_array_equal(draws(run, facts, [rows]), first)
    assert len(set(draws(third, facts, [rows + 1]).tolist()) & set(first.tolist())) == 0
    # what was bound and then forgotten is not bound to anything else with the same noise
    for name in ("data", "journal"):
        (run / name).unlink()
    assert len(set(draws(run, facts, [rows[::-1]]).tolist()) & set(first.tolist())) == 0


@pytest.mark.parametrize("log", [LOG, other_log(reward=0.123)], ids=["the same rows", "other rows"])
def test_a_copy_of_a_finished_run_gives_no_second_release(early, no_row_is_read, log):
    copy = copy_of(early.run)
    early.finish()
    no_row_is_read()
    with pytest.raises(dprl.DprlError, match=r"is out already, says the ledger: delete the run folder"):
        early.evaluate(run=copy, resume=True, log=log)
    assert len(early.ledger.history()) == 1


def test_of_two_copies_under_way_at_once_one_is_saved(early):
    copy = copy_of(early.run)
    first = early.evaluate()
    with pytest.raises(dprl.DprlError, match="begun on other data"):
        early.evaluate(run=copy, resume=True, log=other_log(reward=0.123))
    (copy / "data").unlink()
    second = early.evaluate(run=copy, resume=True)
    second.certificate["created"] = "2001-02-03T04:05:06Z"  # type: ignore[index]
    first.save(early.out)
    with pytest.raises(dprl.DprlError, match="is out already, says the ledger"):
        second.save(early.out.with_name("second"))
    assert sorted(p.name for p in early.out.parent.iterdir() if "ledger" not in p.name) == ["copy.run", "results"]
    first.save(early.out.with_name("again"))  # the same release may be saved as often as one likes


def test_a_copy_that_forgot_its_data_gives_no_second_answer(trial, monkeypatch):
    """Of other rows, for the same charge: the ledger knows what the charge was bound to."""
    trial.stop_after(2)
    copy = copy_of(trial.run)
    for name in ("data", "journal"):
        (copy / name).unlink()
    drawn = []
    gaussian = SecureNoise.gaussian
    monkeypatch.setattr(SecureNoise, "gaussian", lambda *asked: drawn.append(asked) or gaussian(*asked))
    with pytest.raises(dprl.DprlError, match="cannot be resumed: it was begun on other data"):
        trial.evaluate(run=copy, resume=True, log=other_log(reward=0.123))
    assert drawn == []
    # with the same rows it is the same release, and so is what goes on in the first folder
    (copy / "data").unlink()
    again = trial.evaluate(run=copy, resume=True)
    assert again.estimate == trial.evaluate().estimate
    assert len(trial.ledger.history()) == 1


@pytest.mark.parametrize("kind", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
@pytest.mark.parametrize("name", ["run.json", "data", "finished.json"])
def test_what_is_no_file_is_refused(spoiled, name, kind):
    (spoiled.run / name).unlink(missing_ok=True)
    kind(spoiled.run / name)
    assert noted_folder(spoiled.run) is None
    with pytest.raises(dprl.DprlError, match="tampered with"):
        spoiled.evaluate()
