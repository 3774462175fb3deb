"""Wrong input that is public: one sentence, exit code 2, nothing written, nothing charged."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from ..sample_log import columns

# what is changed in the request -> what the sentence must say; more of the sentences are tested where they are made
FLAGS = {
    "no log": ({"log": None}, "The log is missing"),
    "absent log": ({"log": "absent.parquet"}, "no log file 'absent.parquet'"),
    "folder for a log": ({"log": "."}, "no log file"),
    "other kind of file": ({"log": "policies.py"}, "must be a .parquet or .csv file"),
    "minari without its package": ({"log": "minari:a/b-v0"}, "[Mm]inari"),
    "no bounds": ({"bounds": None}, "--bounds is missing: TOML file with the public bounds"),
    "bounds to infer": ({"bounds": "infer"}, "never inferred"),
    "absent bounds": ({"bounds": "absent.toml"}, "Cannot read the bounds file"),
    "no policy": ({"target_policy": None}, "--target-policy is missing"),
    "unknown policy": ({"target_policy": "greedy"}, "Unknown policy 'greedy'"),
    "absent policy file": ({"target_policy": "absent.py:f"}, "no policy file"),
    "policy that raises": ({"target_policy": "policies.py:raises"}, "raised RuntimeError"),
    "absent policy column": ({"target_policy": "column:mine"}, "no column 'mine'"),
    "policy column of text": ({"target_policy": "column:episode_id"}, "'episode_id' has type string"),
    "no epsilon": ({"epsilon": None}, "--epsilon is missing"),
    "no delta": ({"delta": None}, "--delta is missing"),
    "endless epsilon": ({"epsilon": "1e999"}, "epsilon must be a finite number above 0"),
    "delta that is none": ({"delta": "nan"}, "delta must be above 0 and below 1"),
    "delta above one unit": ({"delta": "0.5"}, "at least 1/units"),
    "delta below the sampler's error": ({"delta": "1e-300"}, "delta is too small"),
    "unknown unit": ({"unit": "family"}, "unit must be one of trajectory, person"),
    "unit against column": ({"unit": "trajectory"}, "a person column is named"),
    "absent person column": ({"person_column": "patient"}, "no such column 'patient'"),
    "person column of numbers": ({"person_column": "terminated"}, "'terminated' has type bool"),
    "unknown algorithm": ({"algorithm": "magic"}, "no algorithm 'magic'; there are gpope"),
    "misspelt algorithm": ({"algorithm": "stratifed"}, "no algorithm 'stratifed': did you mean stratified[?]$"),
    "unknown features": ({"algorithm": "gpope", "features": "deep"}, "no features called 'deep'"),
    "unknown option": ({"set": "stepz=5"}, "--set: ImportanceSampling has no option 'stepz'"),
    "option without a value": ({"set": "variance_margin"}, "--set needs NAME=VALUE"),
    "option without a name": ({"set": "=5"}, "--set needs NAME=VALUE"),
    "option of a wrong type": ({"set": "variance_margin=high"}, "variance_margin of .* must be a number"),
    "option out of range": ({"set": "confidence=1"}, "confidence must be above 0.5"),
    "option of endless digits": ({"set": "caution=" + "9" * 5000}, "must be a number"),
    "steps without a number": ({"algorithm": "gpope", "set": "steps=0"}, "steps must be between 1"),
    "discount above one": ({"discount": "1.1"}, "discount must be between 0 and 1"),
    "noise that is none": ({"noise_multiplier": "nan"}, "noise.multiplier"),
    "noise that costs too much": ({"noise_multiplier": "0.5"}, "more than the budget"),
    "negative seed": ({"seed": "-1"}, "seed must be a whole number"),
    "unknown dataset": ({"dataset": "other"}, "no dataset 'other'"),
    "no dataset": ({"dataset": None}, "give --dataset NAME"),
    "no ledger": ({"ledger": None}, "give --ledger FILE"),
    "absent ledger": ({"ledger": "absent.db"}, "no ledger at"),
    "overspend": ({"epsilon": "1.5"}, "has epsilon 1 and delta 1e-5 left"),
    "other unit than the ledger's": ({"unit": "trajectory", "person_column": None}, "privacy unit"),
    "absent run file": ({"config": "absent.toml"}, "Cannot read the run file"),
    "no output": ({"out": None}, "--out is missing"),
    "output that is a file": ({"out": "policies.py"}, "'policies.py' is a file: name a folder that is new or empty"),
    "output that is full": ({"out": "full"}, "not empty"),
    "absent key": ({"sign": "absent.pem"}, "Cannot read the signing key"),
    "absent behaviour policy": ({"behavior_policy": "absent.py:f"}, "no policy file"),
    "behaviour policy of a column": ({"behavior_policy": "column:behavior_prob"}, "behaviour policy"),
}  # fmt: skip


@pytest.fixture
def place(trial, monkeypatch):
    monkeypatch.chdir(trial.folder)
    (trial.folder / "full").mkdir()
    (trial.folder / "full" / "notes.txt").write_text("keep me")
    return trial


def refused(dprl, place, words, more=(), **changes):
    """One sentence and exit code 2; no file more or less; nothing charged."""
    before = place.files()
    found = dprl(*place.arguments(**changes), *more)
    found.refused()
    assert found.err.endswith((".\n", "?\n", "`\n")), found.err
    assert len(found.err) < 600
    assert re.search(words, found.err), found.err
    assert place.files() == before
    assert place.charges() == 0


@pytest.mark.parametrize("mistake", FLAGS)
def test_a_wrong_flag(dprl, place, mistake):
    changes, words = FLAGS[mistake]
    refused(dprl, place, words, **changes)


UNREADABLE = {
    "log": "Cannot read the log 'log.csv': Permission denied",
    "bounds": "Cannot read the bounds file 'unread': Permission denied",
    "config": "Cannot read the run file 'unread': Permission denied",
    "sign": "Cannot read the signing key .*unread: Permission denied",
    "ledger": "The ledger .*unread cannot be read: permission denied",
    "target_policy": "Cannot read the policy .*unread': Permission denied",
}


@pytest.mark.parametrize("option", UNREADABLE)
def test_what_may_not_be_read(dprl, place, monkeypatch, option):
    """Without rights, whoever runs this: to root the system refuses nothing."""
    path = place.folder / ("log.csv" if option == "log" else "unread")
    path.mkdir() if option == "target_policy" else path.touch()
    access, calls = os.access, {name: getattr(Path, name) for name in ("open", "is_file")}

    def denying(call):
        def asked(self, *how, **more):
            if path in (self, self.parent):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
            return call(self, *how, **more)

        return asked

    monkeypatch.setattr(os, "access", lambda file, *how, **more: Path(file) != path and access(file, *how, **more))
    monkeypatch.setattr(Path, "open", denying(calls["open"]))
    if path.is_dir():
        monkeypatch.setattr(Path, "is_file", denying(calls["is_file"]))
    refused(dprl, place, UNREADABLE[option], **{option: path})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_missing_columns(dprl, place, kind):
    """Which sentence each has is tested with the readers."""
    place.write({"x": [1]}, kind)
    refused(dprl, place, "observation")
    place.write({k: v for k, v in columns().items() if k != "t"}, kind)
    refused(dprl, place, "'t'")


OTHER_FILES = {
    "empty": (b"", "'log.csv' is empty"),
    "nothing but its mark": (b"\xef\xbb\xbf", "'log.csv' is empty"),
    "an empty first line": (b"\r\nPATIENT-ZERO,777123.456\n", "or its first line is"),
    "semicolons": (b"PATIENT-ZERO;777123.456\n1;2\n", "'log.csv' has no commas but semicolons: save it with commas"),
    "tabs": (b"PATIENT-ZERO\t777123.456\n1\t2\n", "'log.csv' has no commas but tabs"),
    "UTF-16": ("PATIENT-ZERO,777123.456\n".encode("utf-16"), "'log.csv' is in UTF-16: save it as UTF-8"),
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_a_file_that_is_no_csv_as_dprl_reads_it(dprl, place, kind):
    content, words = OTHER_FILES[kind]
    log = place.folder / "log.csv"
    log.write_bytes(content)
    refused(dprl, place, words, log=log)
    for command in ("template", "describe"):
        out = () if command == "describe" else ("--out", place.folder / "new.toml")
        bounds = ("--bounds", place.bounds) if command == "describe" else ()
        found = dprl("data", command, log, *out, *bounds)
        found.refused()
        assert re.search(words, found.err)
        assert "PATIENT" not in found.err
    assert not (place.folder / "new.toml").exists()


RUN_FILES = {
    "not TOML": ("epsilon =", "not valid TOML: Invalid value"),
    "not text": (b"\xff", "is not text in UTF-8"),
    "with a mark of its encoding": (b"\xef\xbb\xbfstepz = 5", "run.toml: ImportanceSampling has no option 'stepz'"),
    "endless digits": ("epsilon = " + "9" * 5000, "not valid TOML"),
    "unknown option": ("stepz = 5", "run.toml: ImportanceSampling has no option 'stepz'"),
    "option of a wrong type": ("variance_margin = true", "run.toml: variance_margin of .* must be a number"),
    "table for an option": ("[variance_margin]\nx = 1", "variance_margin of .* must be a number"),
    **{f"{name} of a wrong type": (f"{name} = {value}", f"run.toml: {name} must be {kind}") for name, value, kind in (
        ("log", "5", "text"), ("unit", "[1]", "text"), ("person_column", "{}", "text"), ("algorithm", "[1]", "text"),
        ("features", "3", "text"), ("ledger", "true", "text"), ("dataset", "1", "text"), ("outcome", "1.5", "text"),
        ("behavior_policy", "1979-05-27", "text"), ("target_policy", "[]", "text"),
        ("target_policy", "[1]", "text, or"),
        ("bounds", "[1]", "text"), ("epsilon", "'one'", "a number"), ("delta", "true", "a number"),
        ("epsilon", "9" * 400, "a number"),
    )},
}  # fmt: skip


@pytest.mark.parametrize("kind", RUN_FILES)
def test_a_wrong_run_file(dprl, place, kind):
    text, words = RUN_FILES[kind]
    run = place.folder / "run.toml"
    run.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(dprl, place, words, config=run)


def test_a_name_that_is_written_as_a_flag_in_a_run_file(dprl, place):
    """It is that one mistake, though without it something would be missing; one in it is said as well."""
    run = place.folder / "run.toml"
    run.write_text("target-policy = 'uniform'")
    refused(dprl, place, "run.toml: write target_policy in place of 'target-policy'", target_policy=None, config=run)
    run.write_text("target-policy = 5")
    found = dprl(*place.arguments(target_policy=None, config=run))
    assert found.err.count("\n") == 2
    assert "run.toml: target_policy must be text" in found.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_may_not_be_written(dprl, place):
    locked = place.folder / "locked"
    locked.mkdir(mode=0o555)
    refused(dprl, place, "Permission denied", out=locked / "results")


# --- what is no option, or no value of one ------------------------------------------------------------------------

USAGE = {
    "epsilon that is no number": (["--epsilon", "abc"], "--epsilon must be a number"),
    "delta that is no number": (["--delta", ""], "--delta must be a number"),
    "seed that is no number": (["--seed", "1.5"], "--seed must be a whole number"),
    "flag without a value": (["--out"], "--out needs a value"),
    "unknown flag": (["--espilon", "1"], "has no option --espilon: did you mean --epsilon?"),
    "flag of another algorithm": (["--steps", "1"], "--steps is an option of gpope, .* not of importance-sampling"),
    "flag of another command": (
        ["--learner", "rules"],
        "--learner is an option of dprl learn, dprl plan: leave it out",
    ),
    "flag of the algorithm": (
        ["--variance-margin", "much"],
        "flag: variance_margin of .* must be a number",
    ),
    "second log": (["another.parquet"], "'another.parquet' is one too many"),
}


@pytest.mark.parametrize("kind", USAGE)
def test_a_usage_error(dprl, place, kind):
    flags, words = USAGE[kind]
    refused(dprl, place, words, more=flags)


def test_all_mistakes_are_said_at_once(dprl, place):
    """Of flags, settings and the run file, of the command and of its algorithm: one line per mistake."""
    run = place.folder / "run.toml"
    run.write_text("unit = 5\nstepz = 1\noffset = 'far'\n")
    before = place.files()
    changes = {"epsilon": "0", "delta": "x", "out": "full", "algorithm": "gpope", "unit": None, "sign": "absent.pem"}
    more = ["--espilon", "1", "--steps", "0", "--set", "clip_norm=-1", "--set", "x", "--variance-margin", "1"]
    found = dprl(*place.arguments(**changes, target_policy=None, config=run), *more)
    assert (found.code, found.out) == (2, "")
    lines = found.err.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    words = [
        "--delta must be a number.", "run.toml: unit must be text.", "--set needs NAME=VALUE",
        "--target-policy is missing", "absent.pem", "'full' is not empty", "epsilon must be a finite number above 0",
        "has no option --espilon: did you mean --epsilon?", "--variance-margin is an option of importance-sampling",
        "run.toml: GPOPE has no option 'stepz'", "run.toml: offset of GPOPE must be a number",
        "steps must be between 1", "clip_norm must be a positive",
    ]  # fmt: skip
    assert [sum(word in line for line in lines) for word in words] == [1] * len(words), found.err
    assert len(lines) == len(words)
    assert place.files() == before
    assert place.charges() == 0


OTHERS = {
    "unknown command": ("evaluat", "dprl has no command 'evaluat': did you mean evaluate?"),
    "unknown command of another distribution": ("reproduces", "'reproduces': did you mean reproduce?"),
    "calibrate nothing": ("calibrate --delta 1e-5", "The algorithm is missing"),
    "calibrate what is not there": (
        "calibrate magic --delta 1e-5 --epsilon 1", "no algorithm 'magic'"),
    **{f"calibrate with {flag} {value}": (
        f"calibrate gpope --delta 1e-5 --epsilon 1 --sampling-rate 0.1 --steps 5 {flag} {value}", "error: ")
       for flag, value in (("--epsilon", "nan"), ("--sampling-rate", "1.1"), ("--steps", "-5"))},
    "calibrate a multiplier of zero": ("calibrate gpope --delta 1e-5 --noise-multiplier 0", "error: "),
    "plan without bounds": ("plan --epsilon 1 --delta 1e-5", "--bounds is missing"),
    "plan without epsilon": ("plan --bounds bounds.toml --delta 1e-5", "--epsilon is missing"),
    "plan with a wrong unit": (
        "plan --bounds bounds.toml --epsilon 1 --delta 1e-5 --unit x", "unit must be one of"),
    "verify another folder": ("verify full", "holds neither"),
    "report of nothing": ("report absent", "error: "),
    "show no ledger": ("ledger show absent.db", "no ledger at"),
    "history of no dataset": ("ledger history ledger.db --dataset x", "no dataset 'x'"),
    "create twice": (
        "ledger create ledger.db --dataset trial --epsilon 1 --delta 1e-5 --unit person",
        "already has a dataset 'trial'"),
    "describe nothing": ("data describe absent.csv --bounds bounds.toml", "no log file"),
    "describe without bounds": ("data describe log.parquet", "bounds are missing"),
    "simulate nothing": ("simulate moon --out moon.parquet", "Unknown environment 'moon'"),
    "simulate to nowhere": ("simulate chain", "Missing option"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_the_other_commands(dprl, place, kind):
    arguments, words = OTHERS[kind]
    before = place.files()
    found = dprl(*arguments.split())
    assert found.code == 2
    assert found.out == ""
    assert "Traceback" not in found.err
    assert "Usage: " in found.err or (found.err.startswith("error: ") and found.err.count("\n") == 1)
    assert words in found.err
    assert place.files() == before
    assert place.charges() == 0
