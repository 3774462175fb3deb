"""A protector as an artifact: the same after a round trip, refused where it is damaged or of unknown origin."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from dprl import entry_points
from dprl.errors import DprlError
from dprl.protectors.projector import Architecture, HandSchedule
from dprl.protectors.protector import FACTS, WEIGHTS, Protector
from dprl.protectors.tasks import find_family
from tests.bad_input.hostile import no_files
from tests.protectors.small import new_protector

HAND = HandSchedule(steps=8, sampling_rate=0.5, clip_norm=0.1, step_sizes=(0.2, 0.3))


def protector(**changes) -> Protector:
    architecture = Architecture(hidden=2, layers=1, scheduler="public", learned_clip=True)
    facts = {"algorithm": "gpope", "ranges": {"horizon": (1.0, 9.0)}, "provenance": {"public": True, "tasks": "bowl"}}
    return new_protector(architecture, HAND, **facts | changes)


def test_a_round_trip_keeps_every_fact_and_each_one_counts_in_the_fingerprint(tmp_path):
    first = protector()
    read = Protector.load(first.save(tmp_path / "p"))
    assert read == first
    assert hash(read) == hash(first)
    assert (read.hand, read.architecture, read.ranges) == (first.hand, first.architecture, first.ranges)
    for name, array in first.weights.items():
        np.testing.assert_array_equal(read.weights[name], array)
    moved = dict(first.weights) | {"log_clip": np.float32(0.1)}
    others = [
        replace(first, weights=moved), replace(first, hand=replace(HAND, tail=0.0)), protector(algorithm="dptd"),
        protector(ranges={}), protector(provenance={"public": True}), protector(features="rbf:4"),
    ]  # fmt: skip
    assert len({p.fingerprint for p in [first, *others]}) == 7
    assert all(p != first for p in [*others, first.fallback()])
    assert others[0].clip_norm == pytest.approx(0.1 * np.exp(0.1))
    assert others[0].fallback().clip_norm == 0.1
    assert first.profile is not None
    assert first.fallback().profile is None


def test_what_it_serves_follows_from_public_facts():
    known = protector(ranges={"horizon": (1.0, 9.0), "strength": (2.0, 3.0)})
    assert known.reason_not_to_serve({"horizon": 9.0, "strength": 2.0, "units": 5.0}) is None
    assert (
        known.reason_not_to_serve({"horizon": 9.5, "strength": 2.0})
        == "it was trained for horizon between 1 and 9, and it is 9.5"
    )
    assert known.reason_not_to_serve({"strength": 1.9}) == "it was trained for strength between 2 and 3, and it is 1.9"
    bumps = protector(features="rbf:4")
    assert bumps.reason_not_to_serve({}, "rbf:4") is None
    assert bumps.reason_not_to_serve({}, "tabular") == "it was trained for the features rbf:4, and there are tabular"
    single = new_protector(Architecture(layers=0, dense=1, dimension=4), HAND)
    assert single.reason_not_to_serve({"dimension": 4.0}) is None
    assert single.reason_not_to_serve({"dimension": 6.0}) == "it was trained for 4 parameters, and there are 6"


@pytest.mark.parametrize("said", [{}, {"public": False}, {"public": "yes"}, {"charged": " "}, {"charged": 1}])
def test_nothing_said_of_its_origin_is_refused_for_private_data(said):
    with pytest.raises(DprlError, match="train it on public tasks, or charge its training"):
        protector(provenance=said).check_provenance()
    for vague in ("epsilon 0.1", "charge 0 of trial", "charge 3 of "):
        with pytest.raises(DprlError, match="name the ledger's entry in its provenance"):
            protector(provenance={"charged": vague}).check_provenance()
    protector(provenance={"charged": "charge 3 of trial"}).check_provenance()


def test_what_is_damaged_is_refused(tmp_path):
    folder = protector().save(tmp_path / "p")
    facts, weights = (folder / FACTS).read_text(), (folder / WEIGHTS).read_bytes()

    def refused(sentence: str) -> None:
        with pytest.raises(DprlError, match=sentence):
            Protector.load(folder)

    content = json.loads(facts)
    for changes in (
        {"schema": "dprl.protector/9"}, {"hand": {}}, {"hand": content["hand"] | {"steps": "many"}}, {"ranges": []},
        {"ranges": {"horizon": [1.0, float("inf")]}}, {"architecture": content["architecture"] | {"magic": 1}},
        {"algorithm": 3}, {"features": None}, {"provenance": 1},
    ):  # fmt: skip
        (folder / FACTS).write_text(json.dumps(content | changes))
        refused("damaged|version")
    (folder / FACTS).write_text(json.dumps(content | {"architecture": content["architecture"] | {"hidden": 3}}))
    refused("damaged")
    (folder / FACTS).write_text(facts[:-20])
    refused("missing or damaged")
    (folder / FACTS).write_text(facts)
    (folder / WEIGHTS).write_bytes(weights[:-4] + b"\0\0\0\x41")
    refused("weights are not")
    (folder / WEIGHTS).unlink()
    refused("missing or damaged")
    with pytest.raises(DprlError, match="not finite"):
        replace(protector(), weights=dict(protector().weights) | {"log_clip": np.float32("nan")})


def deep(levels: int) -> object:
    return {} if not levels else {"more": deep(levels - 1)}


TYPES = {
    "steps that are no whole number": {"hand": {"steps": 12.0}},
    "steps as text": {"hand": {"steps": "12"}},
    "a rate that is a truth": {"hand": {"sampling_rate": True}},
    "an infinite clip": {"hand": {"clip_norm": 1e999}},
    "one step size": {"hand": {"step_sizes": 0.2}},
    "step sizes of text": {"hand": {"step_sizes": "12"}},
    "layers that are no whole number": {"architecture": {"layers": 1.0}},
    "a truth that is a number": {"architecture": {"signal": 1}},
    "another scheduler": {"architecture": {"scheduler": ["public"]}},
    "a range of three": {"ranges": {"horizon": [1.0, 2.0, 3.0]}},
    "a range of truths": {"ranges": {"horizon": [False, True]}},
    "deep provenance": {"provenance": deep(50)},
    "very deep provenance": {"provenance": deep(900)},
    "provenance without end": {"provenance": {"epsilon": 1e999}},
    "a number as long as a book": {"provenance": {"seed": 10**400}},
    "half a character": {"provenance": {"tasks": "\ud800"}},
}


@pytest.mark.parametrize("what", TYPES)
def test_facts_of_another_type_are_refused_when_they_are_read(tmp_path, what):
    folder = protector().save(tmp_path / "p")
    content = json.loads((folder / FACTS).read_text())
    for section, changes in TYPES[what].items():
        content[section] = {**content[section], **changes}
    (folder / FACTS).write_text(json.dumps(content))
    with pytest.raises(DprlError, match=r"damaged") as caught:
        Protector.load(folder)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", [FACTS, WEIGHTS])
def test_files_that_are_none_are_refused_and_not_waited_for(tmp_path, name):
    path = protector().save(tmp_path / "p") / name
    for _ in no_files(path):
        with pytest.raises(DprlError, match="missing or damaged"):
            Protector.load(path.parent)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(DprlError, match="missing or damaged"):
        Protector.load(path.parent)


def test_the_families_by_name(monkeypatch):
    with pytest.raises(DprlError, match=r"no tasks 'bowl'.*policy-evaluation"):
        find_family("bowl")
    assert find_family("policy-evaluation").name == "policy-evaluation"
    # a family that an installed distribution adds
    entry = EntryPoint("bowl", "tests.protectors.small:Bowl", entry_points.TASKS)
    monkeypatch.setattr(metadata, "entry_points", lambda **asked: EntryPoints([entry]).select(**asked))
    assert find_family("bowl").name == "bowl"
