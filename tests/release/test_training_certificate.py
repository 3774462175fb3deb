"""The certificate of a release that protects reward functions, and what is refused in its place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dprl
from dprl.accounting import certificate as certificates
from dprl.accounting import events
from dprl.accounting.reward_relation import RewardRelation, parse_relation
from dprl.accounting.verification import verify
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning import planned_q
from dprl.learning.learning_plan import make_learning_plan
from dprl.mechanisms.noise import SecureNoise
from dprl.release.learning_artifacts import q_certificate_of

BUDGET, KEY = dprl.Budget(0.9, 1e-4), bytes(range(7, 39))
SMOOTH = RewardRelation(0.01, 0.04)
VARIANTS = {
    "state": {"shared_path": True}, "observed-reward": {}, "gradient": {}, "output": {},
    "off the grid": {"reward_lipschitz": 0.03},
    "functional": {}, "people": {"people": 40, "reward_radius": None}, "plane": {"mixed_derivatives": True},
}  # fmt: skip


def planned(name: str) -> dict[str, Any]:
    """The certificate of a variant, before it is sealed: nothing is learned here."""
    facts = replace(IntervalWalk(dimensions=2 if name == "plane" else 1).facts, reward_of="state-action")
    facts = replace(facts, on_grid=name != "off the grid")
    variant = name if name in ("observed-reward", "gradient", "output") else "functional"
    options = {"reward_radius": 0.01, "variant": variant} | VARIANTS[name]
    model = IntervalWalk().transition_matrix(planned_q.POINTS) if name == "output" else None
    plan = make_learning_plan(dprl.FunctionalQ(**options), facts, BUDGET, model)
    return q_certificate_of(plan, SecureNoise(KEY), "verified") | {"created": "2026-11-22T04:00:00Z"}


def sealed(content: dict[str, Any], folder: Any) -> Any:
    folder.mkdir(exist_ok=True)
    stated = {name: content[name] for name in ("status", "epsilon", "delta")} | {"algorithm": "functional-q"}
    (folder / "training.json").write_text(json.dumps(stated))
    certificates.write(certificates.seal(content, folder, ["training.json"]), folder)
    return folder


@pytest.mark.parametrize(
    "name", [n if i < 5 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(VARIANTS)]
)
def test_every_variant_has_a_certificate_that_holds(tmp_path, name):
    """And none that states a hair less noise, another sensitivity or another relation."""
    content = planned(name)
    found = verify(sealed(content, tmp_path / "good"))
    assert found.private
    (mechanism,) = content["mechanisms"]
    assert events.to_json(events.from_json(content["event"])) == content["event"]

    def refused(change: Any, message: str = "mechanism .*of |not the relation|states less noise") -> None:
        wrong = json.loads(json.dumps(content))
        change(wrong, wrong["mechanisms"][0])
        with pytest.raises(dprl.DprlError, match=message):
            verify(sealed(wrong, tmp_path / "wrong"))

    for field_, factor in (("sensitivity", 0.999), ("std", 0.999)):
        refused(lambda _, m, n=field_, f=factor: m.update({n: m[n] * f}))
    relation = parse_relation(content["neighbouring_relation"])
    assert relation is not None
    earlier = content | {"neighbouring_relation": relation.earlier_words()}
    assert verify(sealed(earlier, tmp_path / "earlier")).private  # certificates are readable for ever
    wider = replace(relation, radius=1.001 * relation.radius).words()
    refused(lambda c, _: c.update(neighbouring_relation=wider))
    refused(lambda c, _: c.update(neighbouring_relation="reward functions"), "does not say how far apart")
    refused(lambda c, _: c.update(neighbouring_relation="add or remove one"), "does not say how far apart")
    refused(lambda c, _: c.update(privacy_unit="person"), "not the relation that")
    refused(lambda c, _: c.update(not_protected=c["not_protected"][1:]), "does not protect transitions")
    refused(lambda c, _: c.update(delta_sampler=c["delta_sampler"] / 2.0), "less than its draws of noise cost")
    refused(lambda _, m: m.update(noise_multiplier=m["noise_multiplier"] * 1.01), "not those of its privacy event")
    refused(lambda _, m: m.update(name="Gaussian vector"))
    refused(lambda c, _: c["assumed_public"].pop("environment"), "in which environment")
    for wrong in (-1.0, True, "x", None, {}):
        refused(lambda _, m, w=wrong: m.update(sensitivity=w))
        refused(lambda _, m, w=wrong: m.update(name=w))
    if mechanism["name"] == "Gaussian noise on reward gradients":
        for wrong in (-1.0, 1.1, None):
            refused(lambda _, m, w=wrong: m.update(clip_norm=w))
    if mechanism["name"] != "Gaussian process":
        return
    assert mechanism["paths"] == (1 if name == "state" else 4 if name == "plane" else 2)
    assert (mechanism["spread"] > 0.0) == (name == "off the grid")

    def smaller(m: dict[str, Any], n: str) -> None:  # the sensitivity that would follow from it
        m.update({n: m[n] * 0.9, "sensitivity": m["sensitivity"] * 0.99, "std": m["std"] * 0.99})

    refused(lambda _, m: smaller(m, "sup"))
    refused(lambda _, m: smaller(m, "lipschitz"))
    refused(lambda _, m: m.update(largest_reward=0.1))
    refused(lambda _, m: m.update(decay=1e9))
    refused(lambda _, m: m.update(dimension=True))
    if name == "off the grid":
        refused(lambda _, m: m.update(spread=0.0))
    if name == "state":  # one path for all actions hides nothing of what depends on them
        for words in (SMOOTH.words(), SMOOTH.earlier_words()):
            refused(lambda c, _, w=words: c.update(neighbouring_relation=w))
    if name == "functional":
        root = np.sqrt(2.0)
        refused(lambda _, m: m.update(paths=1, sensitivity=m["sensitivity"] / root, std=m["std"] / root))
    if name == "output":
        refused(lambda c, _: c["assumed_public"]["environment"].update(transition_rate=9.0))
        for wrong in (1.0, 2.0, None):
            refused(lambda c, _, w=wrong: c["assumed_public"]["hyper_parameters"]["discount"].update(value=w))
