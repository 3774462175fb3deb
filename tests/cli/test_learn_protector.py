"""``dprl learn-protector``, and what it made in a release: from the command to a certificate that verifies."""

from __future__ import annotations

import json

import pytest

from dprl.protectors import meta_training, tasks
from dprl.protectors.projector import Architecture, HandSchedule
from dprl.protectors.protector import Protector
from tests.protectors.small import new_protector

from ..interruption import interrupted
from .conftest import flags

MISTAKES = {
    "no tasks": ({"tasks": None}, "--tasks is missing"),
    "no epsilon": ({"epsilon": None}, "--epsilon is missing"),
    "no delta": ({"delta": None}, "--delta is missing"),
    "no folder": ({"out": None}, "--out is missing"),
    "unknown tasks": ({"tasks": "bowls"}, "no tasks 'bowls'"),
    "epsilon": ({"epsilon": 0}, "epsilon must be a finite number above 0"),
    "no part": ({"set": "tasks=3"}, "--set needs PART.NAME=VALUE"),
    "no value": ({"set": "training.tasks"}, "--set needs PART.NAME=VALUE"),
    "unknown option": ({"set": "training.magic=3"}, "training has no option 'magic'"),
    "wrong kind": ({"set": "training.tasks=many"}, "training.tasks must be a whole number"),
    "wrong list": ({"set": 'training.incremental=["a"]'}, "training.incremental must be a list of numbers"),
    "epochs": ({"epochs": 0}, "epochs must be a whole number from 1 to"),
    "scheduler": ({"scheduler": "magic"}, "scheduler must be"),
    "no schedule of its own": ({"set": "hand.decay=1"}, "have a hand schedule of their own"),
    "absent start": ({"start": "absent"}, "Cannot read a protector"),
    "full folder": ({"out": "full"}, "is not empty"),
}


def asked(changes: dict) -> list:
    options = {"tasks": "policy-evaluation", "epsilon": 0.5, "delta": 1e-5, "out": "made"} | changes
    return ["learn-protector", *flags(options)]


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_wrong_is_one_sentence(dprl, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").touch()
    changes, said = MISTAKES[name]
    dprl(*asked(changes)).refused(said)
    assert {p.name for p in tmp_path.iterdir()} == {"full"}


def test_an_interrupted_training_says_how_to_go_on(dprl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with interrupted(meta_training, "learn_protector"):
        found = dprl(*asked({}))
    assert (found.code, found.out) == (130, "")
    assert found.err == "error: interrupted; the same command with --resume goes on.\n"
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_from_the_command_to_a_protector_and_on(dprl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(tasks.REGISTERED, "bowl", "tests.protectors.small:Bowl")
    settings = ["training.tasks=2", "training.validation=4", "architecture.hidden=2", "family.units=30"]
    small = {"tasks": "bowl", "steps": 4, "epochs": 2, "seed": 3, "set": settings}
    made = dprl(*asked(small | {"json": True})).done()
    assert made.err == ""
    content, read = json.loads(made.out), Protector.load("made")
    assert content["fingerprint"] == read.fingerprint
    assert (content["epochs"], content["tasks"], content["path"]) == (2, "bowl", "made")
    assert read.hand.steps == 4
    assert read.provenance["training"]["seed"] == 3
    assert read.provenance["units"] == 30
    assert {p.name for p in tmp_path.iterdir()} == {"made"}
    assert {p.name for p in (tmp_path / "made").iterdir()} == {
        "protector.json", "protector.safetensors", "report.html", "training.json",
    }  # fmt: skip

    again = dprl(*asked(small | {"out": "again", "resume": True}))
    assert Protector.load("again") == read
    assert again.out.splitlines()[1] == (
        f"learned on public tasks alone: nothing was charged; fingerprint {read.fingerprint[:16]}"
    )
    dprl(*asked(small | {"out": "smaller", "epsilon": 0.3, "start": "made"})).done()
    other = dprl(*asked(small | {"out": "other", "start": "made", "scheduler": "public"}))
    assert "has another architecture" in other.err


@pytest.mark.slow
def test_a_release_with_a_protector_is_certified_and_verified(dprl, trial):
    """The algorithm need not be named: the protector knows whom it was learned for."""
    hand = HandSchedule(steps=5, sampling_rate=0.5, clip_norm=0.1, step_sizes=(0.2,))
    architecture = Architecture(hidden=2, layers=1, scheduler="adaptive")
    origin = {"public": True, "tasks": "bowl", "epsilon": 1.0, "delta": 1e-5}
    protector = new_protector(architecture, hand, algorithm="gpope", provenance=origin)
    folder = protector.save(trial.folder / "protector")
    dprl(*trial.arguments(algorithm=None, optimizer=folder)).done()
    certificate = json.loads((trial.out / "certificate.json").read_text())
    assert certificate["assumed_public"]["protector"]["fingerprint"] == protector.fingerprint
    assert certificate["event"]["type"] == "RenyiFilter"
    assert json.loads((trial.out / "estimate.json").read_text())["algorithm"] == "gpope"
    assert dprl("verify", trial.out).code == 0
    assert "a Renyi filter at order" in (trial.out / "report.html").read_text()
    planned = dprl(
        "plan", "--bounds", trial.bounds, "--epsilon", 1, "--delta", 1e-5, "--optimizer", folder, "--unit", "person"
    )
    assert "gpope" in planned.out
    refused = dprl(*trial.arguments(algorithm="td", optimizer=folder, out=trial.folder / "second"))
    assert "is an option of gpope, dptd" in refused.err
