"""The page of a Q-function: sound, closed, never more certain than its artifacts, and whole where they have gaps."""

from __future__ import annotations

import copy
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dprl.report import render
from dprl.report.charts import action_curves

from .page import Page

RELATION = "reward functions at most 0.01 apart"
TRAINING: dict[str, Any] = {
    "schema": "dprl.training/1", "status": "verified", "algorithm": "functional-q", "variant": "observed-reward",
    "epsilon": 0.9, "delta": 1e-4, "samples": 5000, "discount": 0.9, "returns": None,
    "q_function": {
        "network": "mlp:32", "size": 130, "actor": False,
        "slices": [
            {
                "component": i, "name": f"observation_{i}", "grid": [0.0, 0.25, 0.5, 0.75, 1.0],
                "values": [[1.0, 2.0, 3.0, 2.0, 1.0], [2.0, 2.5, 2.75, 1.0, 0.5]], "policy": [1, 1, 0, 0, 0],
            }
            for i in range(2)
        ],
    },
    "request": {"environment": "interval-walk", "samples": 5000},
    "environment": {"name": "interval-walk", "observation": [[0.0, 1.0], [0.0, 1.0]]},
}  # fmt: skip
CERTIFICATE: dict[str, Any] = {
    "schema": "dprl.certificate/1", "status": "verified", "epsilon": 0.9, "delta": 1e-4,
    "privacy_unit": "reward function", "neighbouring_relation": RELATION, "released": "Every reward with noise.",
    "not_protected": ["States, actions and transitions."],
    "mechanisms": [{
        "name": "Gaussian noise on observed rewards", "purpose": "rewards", "noise_multiplier": 247.0,
        "sensitivity": 0.01, "std": 2.47, "steps": 5000, "dimension": 1,
    }],
    "event": {"type": "SelfComposed", "count": 5000, "event": {"type": "Gaussian", "noise_multiplier": 247.0}},
    "accountant": "an accountant", "epsilon_of_event": 0.9, "delta_of_event": 9e-5, "delta_sampler": 1e-9,
    "noise": {"secure": True, "source": "ChaCha20"},
    "assumed_public": {
        "environment": {"name": "interval-walk", "reward": [0.0, 0.5], "actions": 2, "observation": [[0.0, 1.0]] * 2},
        "hyper_parameters": {"round": {"value": 50, "provenance": "library default (public)"}},
    },
    "ledger": None, "versions": {"dprl": "0.1.0"},
}  # fmt: skip


def changed(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(TRAINING) | changes


def test_what_it_says():
    raw = render(TRAINING, CERTIFICATE)
    assert render(TRAINING, CERTIFICATE | {"created": "now", "digest": "00"}) == raw
    text = Page(raw).text
    for words in (
        "What is each decision worth in interval-walk?", "learned from 5,000 steps",
        "The reward function is protected by differential privacy with ε = 0.9, δ = 10⁻⁴",
        "States and transitions are not",
        "Reward functions at most 0.01 apart. Two reward functions are neighbours",
        "the odds that it was one of two neighbouring reward functions and not the other by a factor of at most 2.46",
        "States, actions and transitions.", "5,000 times: one Gaussian release with noise multiplier 247",
        "A neural network with one layer of 32 hidden units (130 weights)", "Sensitivity", "Reward of one transition",
        "none: other releases from the same rewards were not counted",
    ):  # fmt: skip
        assert words in text.replace("\xa0", " "), words
    for words in ("log", "trajectory", "Mean undiscounted return"):
        assert not re.search(rf"\b{words}\b", text), words


@pytest.mark.parametrize(
    ("training", "certificate", "warning"),
    [
        ({"status": "not private"}, {"status": "not private", "schema": "dprl.statement/1"}, "not a private release"),
        ({}, {"noise": {"secure": False}}, "can be reproduced by whoever knows the seed"),
        ({"status": "as published"}, {"status": "as published"}, "carries no guarantee"),
        ({}, {"schema": "dprl.statement/1"}, "not a private release"),
    ],
)
def test_one_doubt_is_enough(training, certificate, warning):
    page = Page(render(changed(**training), CERTIFICATE | certificate))
    assert warning in page.text
    assert "is protected by differential privacy" not in page.text


def test_a_simulation_and_a_paper():
    text = Page(render(changed(returns={"learned": 19.5, "random": 10.9}), CERTIFICATE)).text
    assert re.search(r"learned *19\.50 *random *10\.90", text)
    conditions = [{"statement": "the theorem needs 2 > 3", "holds": False}, {"statement": "1 < 2", "holds": True}]
    assumed = CERTIFICATE["assumed_public"] | {"preconditions": conditions}
    published = {"status": "as published", "event": None, "mechanisms": [], "accountant": None}
    text = Page(render(changed(status="as published"), CERTIFICATE | published | {"assumed_public": assumed})).text
    assert "the theorem needs 2 > 3: this does not hold here" in text
    assert "1 < 2: this holds here" in text
    assert "No accountant was asked" in text


def test_gaps_leave_gaps():
    for name in TRAINING:
        if name not in ("schema",):
            Page(render({k: v for k, v in TRAINING.items() if k != name}, CERTIFICATE))
    for name in CERTIFICATE:
        Page(render(TRAINING, {k: v for k, v in CERTIFICATE.items() if k != name}))
    for wrong in (None, 3, "x", [1], {"a": None}):
        Page(render(changed(q_function=wrong, returns=wrong, environment=wrong), CERTIFICATE))
        for key in ("grid", "values", "policy"):
            broken = changed()
            broken["q_function"]["slices"][0][key] = wrong
            Page(render(broken, CERTIFICATE))


def test_names_are_text():
    attack = "</title></style><script>alert('x')</script>\u202e"
    training = changed(variant=attack, request={attack: attack}, returns={attack: 1.0})
    training["environment"]["name"] = training["q_function"]["network"] = attack
    training["q_function"]["slices"][0]["name"] = attack
    hostile = CERTIFICATE | {
        "released": attack, "accountant": attack, "not_protected": [attack], "ledger": {attack: attack},
        "neighbouring_relation": "reward functions " + attack, "versions": {attack: attack},
        "assumed_public": {
            "environment": {attack: attack}, "reading": attack, "preconditions": [{"statement": attack}],
        },
    }  # fmt: skip
    page = Page(render(training, hostile))
    assert "script" not in page.names
    assert page.text.count("<script>alert('x')</script>\ufffd") > 10


def test_the_band_changes_colour_where_the_action_does():
    grid, policy = [0.0, 1.0, 2.0, 4.0], [0, 0, 7, 1]
    svg = ET.fromstring(action_curves(grid, [[0.0] * 4, [1.0] * 4], policy, "x", (0.0, 1.0), "Q"))
    bands = [(float(r.attrib["x"]), float(r.attrib["width"]), r.attrib["class"]) for r in svg.iter("rect")]
    assert [kind for *_, kind in bands] == ["band a0", "band a1", "band a1"]  # of six colours
    assert [t.text for t in svg.iter("text") if t.attrib["class"] == "band-label"] == ["0", "7", "1"]
    (first, one, _), (second, two, _), (third, three, _) = bands
    whole = one + two + three
    assert (one / whole, two / whole, three / whole) == pytest.approx((1.5 / 4, 1.5 / 4, 1.0 / 4), abs=1e-3)
    assert (second, third) == pytest.approx((first + one, second + two), abs=0.02)
    assert sum(p.attrib["class"].startswith("curve") for p in svg.iter("path")) == 2
    many = changed()
    for piece in many["q_function"]["slices"]:
        piece["values"] = [[float(a)] * 5 for a in range(9)]
    assert render(many, CERTIFICATE).count('class="curve best"') == 2
