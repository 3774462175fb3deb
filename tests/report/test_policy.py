"""The page of a policy: never more certain than its artifacts, in words of people, and whole where there are gaps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dprl.report import render

from .page import Page

GRID = [0.0, 0.5, 1.0]
TRAINING: dict[str, Any] = {
    "schema": "dprl.training/1", "status": "verified", "algorithm": "dp-pg", "epsilon": 1.0, "delta": 1e-6,
    "users": 2000, "batch": 100, "steps": 20, "discount": 0.98,
    "policy": {
        "file": "policy.safetensors", "kind": "softmax", "size": 6, "continuous": False, "iterate": "last",
        "slices": [
            {"component": i, "name": f"observation_{i}", "grid": GRID, "policy": [1, 0, 0],
             "values": [[0.25, 0.5, 0.75], [0.75, 0.5, 0.25]]}
            for i in range(2)
        ],
    },
    "returns": {"learned": 465.9, "before learning": 22.07},
    "curve": {"users": [0, 1000, 2000], "returns": [22.07, 300.0, 465.9]},
    "request": {"environment": "cart-pole", "noise": "square-root"},
    "environment": {"name": "cart-pole", "observation": [[0.0, 1.0]] * 2},
}  # fmt: skip
CERTIFICATE: dict[str, Any] = {
    "schema": "dprl.certificate/1", "status": "verified", "epsilon": 1.0, "delta": 1e-6, "privacy_unit": "person",
    "neighbouring_relation": "zero out one", "released": "Every iterate.", "not_protected": ["In which place."],
    "mechanisms": [{
        "name": "Gaussian noise on sums over users", "purpose": "gradients", "noise_multiplier": 4.22468,
        "sensitivity": 1.0, "noise": "square-root", "column_norm": 1.4, "std": 5.9, "steps": 20, "batch": 100,
        "dimension": 7, "relation": "zero-out",
    }],
    "event": {"type": "Gaussian", "noise_multiplier": 4.22468}, "accountant": "an accountant", "epsilon_of_event": 1.0,
    "delta_of_event": 9e-7, "delta_sampler": 1e-12, "noise": {"secure": True, "source": "ChaCha20"},
    "assumed_public": {"environment": TRAINING["environment"], "hyper_parameters": {}, "reading": "People are named."},
    "ledger": None, "versions": {},
}  # fmt: skip


def page(training: dict[str, Any] | None = None, certificate: dict[str, Any] | None = None) -> Page:
    return Page(render(TRAINING | (training or {}), CERTIFICATE | (certificate or {})))


def test_what_is_said():
    found = page()
    for words in (
        "up to 2,000 people", "People came in 20 batches of 100", "Each person is protected by differential privacy",
        "in the other nobody does in that person's place", "learned from a neighbouring set of people",
        "everything that one person saw, did and was paid", "People are named.", "In which place.", "466",
        "how likely each one is", "A softmax of linear preferences (6 parameters)", "Column norm", "so that much of it "
        "cancels", "neighbouring sets of people; and it checks that not a byte of the certificate, the policy or",
        "that the person was counted at all", "two such steps apart", "other releases from the same people",
    ):  # fmt: skip
        assert words in found.text, words
    assert found.names.count("svg") == 3 + 2  # returns, two measurements, and the key of two actions
    for other in ("reward function", "Q-function", "undefined"):
        assert other not in found.text
    # the factor of one step between neighbours, and of two
    assert "2.72" in found.text
    assert "7.39" in found.text


def test_replacing_one_is_one_step():
    found = page(certificate={"neighbouring_relation": "replace one"})
    assert "one person was exchanged for another in the same place" in found.text
    assert "of any statement about what is recorded of a given person" in found.text
    assert "7.39" not in found.text


@pytest.mark.parametrize(
    ("training", "certificate", "words"),
    [
        ({"status": "not private"}, {}, "This is not a private release."),
        ({}, {"noise": {"secure": False}}, "This is not a private release."),
        ({"status": "as published"}, {"status": "as published"}, "As published calibration: carries no guarantee."),
        ({}, {"schema": "dprl.statement/1"}, "This is not a private release."),
    ],
)
def test_never_more_certain_than_the_artifacts(training, certificate, words):
    found = page(training, certificate)
    assert words in found.text
    assert "what these people said and did" in found.text
    assert "Each person is protected" not in found.text


def test_continuous_actions_have_no_band():
    policy = copy.deepcopy(TRAINING["policy"]) | {"kind": "gaussian", "continuous": True}
    for piece in policy["slices"]:
        piece["values"], piece["policy"] = [[-1.0, 0.0, 2.0]], [0, 0, 0]
    raw = render(TRAINING | {"policy": policy}, CERTIFICATE)
    assert "mean action" in raw
    assert 'class="band' not in raw
    assert "A Gaussian around a linear mean" in Page(raw).text


def test_gaps_are_no_errors():
    for name in TRAINING:
        if name not in ("schema", "policy"):
            page({name: None})
    for name in CERTIFICATE:
        page(certificate={name: None})
    for policy in ({}, {"slices": [{"grid": [0.0, None]}, 3]}, {"slices": None, "kind": "mlp:4"}):
        assert "hold no curves" in page({"policy": policy}).text
    assert "public simulator after learning" not in page({"curve": {"users": [0, 1], "returns": [1.0, None]}}).text
