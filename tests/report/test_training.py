"""The pages of what was learned, a Q-function or a policy: sound, closed, never more certain than their artifacts, and
whole where these have gaps.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dprl.report import render
from dprl.report.charts import action_curves

from .conftest import SAMPLE
from .page import Page

RELATION, GRID = "reward functions at most 0.01 apart", [0.0, 0.25, 0.5, 0.75, 1.0]


def slices(values: list[list[float]], policy: list[int]) -> list[dict[str, Any]]:
    """Two components, along each of which the curves are these."""
    same = {"grid": GRID, "values": values, "policy": policy}
    return [{"component": i, "name": f"observation_{i}"} | same for i in range(2)]


REWARDS: dict[str, Any] = {
    "schema": "dprl.training/1", "status": "verified", "algorithm": "functional-q", "variant": "observed-reward",
    "epsilon": 0.9, "delta": 1e-4, "samples": 5000, "discount": 0.9, "returns": None,
    "q_function": {
        "network": "mlp:32", "size": 130, "actor": False,
        "slices": slices([[1.0, 2.0, 3.0, 2.0, 1.0], [2.0, 2.5, 2.75, 1.0, 0.5]], [1, 1, 0, 0, 0]),
    },
    "request": {"environment": "interval-walk", "samples": 5000},
    "environment": {"name": "interval-walk", "observation": [[0.0, 1.0], [0.0, 1.0]]},
}  # fmt: skip
OF_REWARDS: dict[str, Any] = json.loads((SAMPLE / "certificate.json").read_text(encoding="utf-8")) | {
    "epsilon": 0.9, "delta": 1e-4, "privacy_unit": "reward function", "neighbouring_relation": RELATION,
    "released": "Every reward with noise.", "not_protected": ["States, actions and transitions."],
    "mechanisms": [{
        "name": "Gaussian noise on observed rewards", "purpose": "rewards", "noise_multiplier": 247.0,
        "sensitivity": 0.01, "std": 2.47, "steps": 5000, "dimension": 1,
    }],
    "event": {"type": "SelfComposed", "count": 5000, "event": {"type": "Gaussian", "noise_multiplier": 247.0}},
    "assumed_public": {
        "environment": {"name": "interval-walk", "reward": [0.0, 0.5], "actions": 2, "observation": [[0.0, 1.0]] * 2},
        "hyper_parameters": {"round": {"value": 50, "provenance": "library default (public)"}},
    },
    "ledger": None,
}  # fmt: skip
PEOPLE: dict[str, Any] = {
    "schema": "dprl.training/1", "status": "verified", "algorithm": "dp-pg", "epsilon": 1.0, "delta": 1e-6,
    "users": 2000, "batch": 100, "steps": 20, "discount": 0.98,
    "policy": {
        "file": "policy.safetensors", "kind": "softmax", "size": 6, "continuous": False, "iterate": "last",
        "slices": slices([[0.25, 0.25, 0.5, 0.75, 0.75], [0.75, 0.75, 0.5, 0.25, 0.25]], [1, 1, 0, 0, 0]),
    },
    "returns": {"learned": 465.9, "before learning": 22.07},
    "curve": {"users": [0, 1000, 2000], "returns": [22.07, 300.0, 465.9]},
    "request": {"environment": "cart-pole", "noise": "square-root"},
    "environment": {"name": "cart-pole", "observation": [[0.0, 1.0]] * 2},
}  # fmt: skip
OF_PEOPLE: dict[str, Any] = OF_REWARDS | {
    "epsilon": 1.0, "delta": 1e-6, "privacy_unit": "person", "neighbouring_relation": "zero out one",
    "released": "Every iterate.", "not_protected": ["In which place."],
    "mechanisms": [{
        "name": "Gaussian noise on sums over users", "purpose": "gradients", "noise_multiplier": 4.22468,
        "sensitivity": 1.0, "noise": "square-root", "column_norm": 1.4, "std": 5.9, "steps": 20, "batch": 100,
        "dimension": 7, "relation": "zero-out",
    }],
    "event": {"type": "Gaussian", "noise_multiplier": 4.22468},
    "assumed_public": {"environment": PEOPLE["environment"], "hyper_parameters": {}, "reading": "People are named."},
}  # fmt: skip
KINDS = pytest.mark.parametrize(
    ("training", "certificate", "secret"),
    [(REWARDS, OF_REWARDS, "the rewards themselves"), (PEOPLE, OF_PEOPLE, "what these people said and did")],
    ids=["Q-function", "policy"],
)


def changed(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(REWARDS) | changes


def test_what_is_said_of_a_q_function():
    raw = render(REWARDS, OF_REWARDS)
    assert render(REWARDS, OF_REWARDS | {"created": "now", "digest": "00"}) == raw
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


def test_what_is_said_of_a_policy():
    found = Page(render(PEOPLE, OF_PEOPLE))
    for words in (
        "up to 2,000 people", "People came in 20 batches of 100", "Each person is protected by differential privacy",
        "in the other nobody does in that person's place", "learned from a neighbouring set of people",
        "everything that one person saw, did and was paid", "People are named.", "In which place.", "466",
        "how likely each one is", "A softmax of linear preferences (6 parameters)", "Column norm", "so that much of it "
        "cancels", "neighbouring sets of people; and it checks that not a byte of the certificate, the policy or",
        "that the person was counted at all", "two such steps apart", "other releases from the same people",
        "2.72", "7.39",  # the factor of one step between neighbours, and of two
    ):  # fmt: skip
        assert words in found.text, words
    assert found.names.count("svg") == 3 + 2  # returns, two measurements, and the key of two actions
    for other in ("reward function", "Q-function", "undefined"):
        assert other not in found.text


def test_replacing_one_is_one_step():
    found = Page(render(PEOPLE, OF_PEOPLE | {"neighbouring_relation": "replace one"}))
    assert "one person was exchanged for another in the same place" in found.text
    assert "of any statement about what is recorded of a given person" in found.text
    assert "7.39" not in found.text


@KINDS
@pytest.mark.parametrize(
    ("of_training", "of_certificate", "warning"),
    [
        ({"status": "not private"}, {}, "This is not a private release."),
        ({"status": "not private"}, {"status": "not private", "schema": "dprl.statement/1"}, "not a private release"),
        ({}, {"noise": {"secure": False}}, "can be reproduced by whoever knows the seed"),
        ({"status": "as published"}, {"status": "as published"}, "As published calibration: carries no guarantee."),
        ({}, {"schema": "dprl.statement/1"}, "This is not a private release."),
    ],
)
def test_one_doubt_is_enough(training, certificate, secret, of_training, of_certificate, warning):
    page = Page(render(training | of_training, certificate | of_certificate))
    assert warning in page.text
    assert secret in page.text
    assert "protected by differential privacy" not in page.text


@KINDS
def test_gaps_leave_gaps(training, certificate, secret):
    for name in training:
        if name not in ("schema", "policy"):
            Page(render({k: v for k, v in training.items() if k != name}, certificate))
            Page(render(training | {name: None}, certificate))
    for name in certificate:
        Page(render(training, {k: v for k, v in certificate.items() if k != name}))
        Page(render(training, certificate | {name: None}))


def test_broken_curves_leave_gaps():
    for wrong in (None, 3, "x", [1], {"a": None}):
        Page(render(changed(q_function=wrong, returns=wrong, environment=wrong), OF_REWARDS))
        for key in ("grid", "values", "policy"):
            broken = changed()
            broken["q_function"]["slices"][0][key] = wrong
            Page(render(broken, OF_REWARDS))
    for policy in ({}, {"slices": [{"grid": [0.0, None]}, 3]}, {"slices": None, "kind": "mlp:4"}):
        assert "hold no curves" in Page(render(PEOPLE | {"policy": policy}, OF_PEOPLE)).text
    curve = {"users": [0, 1], "returns": [1.0, None]}
    assert "public simulator after learning" not in Page(render(PEOPLE | {"curve": curve}, OF_PEOPLE)).text


def test_a_simulation_and_a_paper():
    text = Page(render(changed(returns={"learned": 19.5, "random": 10.9}), OF_REWARDS)).text
    assert re.search(r"learned *19\.50 *random *10\.90", text)
    conditions = [{"statement": "the theorem needs 2 > 3", "holds": False}, {"statement": "1 < 2", "holds": True}]
    assumed = OF_REWARDS["assumed_public"] | {"preconditions": conditions}
    published = {"status": "as published", "event": None, "mechanisms": [], "accountant": None}
    text = Page(render(changed(status="as published"), OF_REWARDS | published | {"assumed_public": assumed})).text
    assert "the theorem needs 2 > 3: this does not hold here" in text
    assert "1 < 2: this holds here" in text
    assert "No accountant was asked" in text


def test_names_are_text():
    attack = "</title></style><script>alert('x')</script>\u202e"
    training = changed(variant=attack, request={attack: attack}, returns={attack: 1.0})
    training["environment"]["name"] = training["q_function"]["network"] = attack
    training["q_function"]["slices"][0]["name"] = attack
    hostile = OF_REWARDS | {
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
    assert render(many, OF_REWARDS).count('class="curve best"') == 2


def test_continuous_actions_have_no_band():
    policy = PEOPLE["policy"] | {"kind": "gaussian", "continuous": True, "slices": slices([GRID], [0] * 5)}
    raw = render(PEOPLE | {"policy": policy}, OF_PEOPLE)
    assert "mean action" in raw
    assert 'class="band' not in raw
    assert "A Gaussian around a linear mean" in Page(raw).text
