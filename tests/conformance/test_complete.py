"""What an algorithm must bring along to be one; and that this suite notices what is missing."""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dprl.accounting import events
from dprl.audits.conformance.suite import Suite
from dprl.entry_points import VERIFIED
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Attack
from dprl.registry import LEARNING, evaluation_entries

ROOT = Path(__file__).parents[2]
HEADER = ("Privacy unit:", "Relation:", "Released:")


def lacking(entry: Any, root: Path = ROOT) -> list[str]:
    """What an entry of the registry lacks, in words; empty where it is complete."""
    algorithm, conformance, problems = entry.load(), entry.load_conformance(), []
    if not entry.summary:
        problems.append("a summary")
    header = inspect.getdoc(inspect.getmodule(entry.load_config())) or ""
    problems += [f"{word} in its module's header" for word in HEADER if word not in header]
    proof = root / "docs" / "proofs" / f"{entry.name}.md"
    if not proof.is_file() or len(proof.read_text().split()) < 200:
        problems.append("a proof page")
    if not re.search(rf"^\| `{re.escape(entry.name)}` \|", (root / "docs" / "algorithms.md").read_text(), flags=re.M):
        problems.append("a row in docs/algorithms.md")
    members = {name for name in vars(Suite) if not name.startswith("_")}
    absent = sorted(name for name in members if not hasattr(conformance, name))
    if absent:
        return problems + absent
    if algorithm.name != entry.name:
        problems.append("its own name")
    if not algorithm.settings:
        problems.append("a setting")
    for setting in algorithm.settings:
        try:
            events.to_json(conformance.plan(setting).event)
        except DprlError:
            problems.append(f"an event ({setting})")
    page = root / "docs" / "audits.md"
    audits = page.read_text() if page.is_file() else ""
    if not algorithm.attacks:
        problems.append("a standard attack")
    row = rf"^\| `{re.escape(entry.name)}` \| {entry.calibration.replace('-', ' ')} \|"
    if len(re.findall(row, audits, flags=re.MULTILINE)) < max(len(algorithm.attacks), 1):
        problems.append("rows in docs/audits.md")
    for attack in algorithm.attacks[:1]:  # that all of them have one: test_canaries.py
        canary = conformance.canary(attack)
        if canary is None or (canary.epsilon, canary.delta) != (attack.epsilon, attack.delta):
            problems.append("a canary")
        elif not canary.description or (entry.calibration != VERIFIED and not canary.preconditions):
            problems.append("words for its canary")
    return problems


@pytest.mark.parametrize("name", evaluation_entries())
def test_nothing_is_lacking(name):
    assert lacking(evaluation_entries()[name]) == []


# what the options of some attack are to be, for each learning algorithm
ATTACKED: dict[str, dict[str, set[Any]]] = {
    "functional-q": {"variant": {"functional", "observed-reward", "gradient", "output"}},
    "dp-pg": {
        "noise": {None, "independent", "banded:4"},
        "relation": {None, "replace-one"},
        "sampling": {None, "poisson"},
    },
}


@pytest.mark.parametrize("name", LEARNING)
def test_nothing_of_a_learning_algorithm_is_lacking(name):
    entry = LEARNING[name]
    suite, kind = entry.load_conformance(), entry.load_config()
    header = inspect.getdoc(inspect.getmodule(kind)) or ""
    assert all(word in header for word in (*HEADER, "Not protected:"))
    assert entry.summary
    assert suite.algorithm.name == kind.algorithm == name
    for setting in suite.algorithm.settings:
        event, mechanism = suite.plan(setting).event, suite.plan(setting).mechanism
        assert events.from_json(events.to_json(event)) == event
        assert event == mechanism.event()
        titles = ("batches", "updates") if isinstance(mechanism, GaussianSum) else ("answers",)
        row = mechanism.describe(*titles)
        assert {"name", "purpose", "noise_multiplier", "steps", "dimension"} <= set(row)
    for option, values in ATTACKED[name].items():
        assert {attack.options.get(option) for attack in suite.algorithm.attacks} == values


MEANINGLESS = [
    ("functional-q", {"units": 100}, "leave units out"),
    ("functional-q", {"options": {"unit": "person"}}, "leave units out"),
    ("dp-pg", {"options": {"unit": "person"}}, "leave unit out"),
    ("dp-pg", {"options": {"users": 100}}, "leave out users"),
    ("dp-pg", {"options": {"normalise_advantages": True}}, "normalise_advantages"),
    *((name, {"released": "last"}, "leave out released") for name in LEARNING),
    *((name, {"options": {"stepps": 3}}, "stepps") for name in LEARNING),
]


@pytest.mark.parametrize(("name", "options", "words"), MEANINGLESS)
def test_attacks_that_mean_nothing_are_refused(name, options, words):
    with pytest.raises(DprlError, match=words):
        LEARNING[name].load_canary(Attack(**{"epsilon": 0.9, "delta": 1e-6, **options}))


def entry_with(entry: Any, **changes: Any) -> Any:
    """An entry of the registry with some members of it or of its suite changed, or taken away for None."""
    known = {name: getattr(entry, name) for name in ("name", "summary", "load_config", "calibration")}
    fields = {field: changes.pop(field) for field in list(changes) if field in known}
    own = {field: changes.pop(field) for field in ("settings", "attacks") if field in changes}
    algorithm, inner = replace(entry.load(), **own), entry.load_conformance()
    members = {name: getattr(inner, name) for name in dir(inner) if not name.startswith("_")} | changes
    suite = types.SimpleNamespace(**{name: member for name, member in members.items() if member is not None})
    loads = {"load": lambda: algorithm, "load_conformance": lambda: suite}
    return types.SimpleNamespace(**known | fields, **loads)


class Silent:
    """The configuration of a module whose header says nothing."""


def planning(event: Any) -> Any:
    return lambda setting: types.SimpleNamespace(event=event)


LACKS = {
    "canary of nothing": ({"canary": lambda *a, **k: None}, "a canary"),
    "event": ({"plan": planning(None)}, "an event (full batches)"),
    "event that is no event of ours": ({"plan": planning(object())}, "an event (full batches)"),
    "attack": ({"attacks": ()}, "a standard attack"),
    "setting": ({"settings": ()}, "a setting"),
    "calibration that nobody has audited": ({"calibration": "improved"}, "rows in docs/audits.md"),
    "proof page": ({"name": "unproved"}, "a proof page"),
    "docs row": ({"name": "unheard-of"}, "a row in docs/algorithms.md"),
    "audits row": ({"name": "unaudited"}, "rows in docs/audits.md"),
    "summary": ({"summary": ""}, "a summary"),
    "header": ({"load_config": lambda: Silent}, "Privacy unit: in its module's header"),
}


@pytest.mark.parametrize("what", LACKS)
def test_whatever_is_lacking_is_noticed(what):
    changes, problem = LACKS[what]
    assert problem in lacking(entry_with(evaluation_entries()["gpope"], **changes))


def test_every_member_is_asked_for():
    members = [name for name in vars(Suite) if not name.startswith("_")]
    assert {"canary", "plan", "neighbours", "sources"} <= set(members)
    for member in members:
        assert member in lacking(entry_with(evaluation_entries()["gpope"], **{member: None}))
