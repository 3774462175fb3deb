"""A certificate for users who take part once, and every way to state less noise than their relation asks for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dprl.accounting import accountant, events
from dprl.accounting.certificate import seal, write
from dprl.accounting.user_relation import RELATION_WORDS, USER_SUMS
from dprl.accounting.verification import verify
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.step_noise import Correlation

from .test_verification import sample

DELTA = 1e-6


def user_sum(**changes: Any) -> GaussianSum:
    given = {"parts": ((8, 0.9), (1, 0.2)), "steps": 10, "batch": 30, "noise_multiplier": 4.5}
    given = {"relation": "zero-out"} | given | changes
    correlation = Correlation(given.pop("noise", "square-root"))
    return GaussianSum(**given, correlation=correlation)


def certificate(mechanism: GaussianSum) -> dict[str, Any]:
    """As a release fills it in, before sealing."""
    event, sampler = mechanism.event(), mechanism.delta(2.0)
    return sample() | {
        "epsilon": 2.0,
        "delta": DELTA,
        "neighbouring_relation": RELATION_WORDS[mechanism.relation],
        "mechanisms": [mechanism.describe(USER_SUMS, "gradients")],
        "event": events.to_json(event),
        "epsilon_of_event": accountant.epsilon_of(event, DELTA - sampler),
        "delta_of_event": DELTA - sampler,
        "delta_sampler": sampler,
        "assumed_public": {"units": 300},
    }


def learned(folder: Path, content: dict[str, Any]) -> Path:
    """A folder of a release by dp-pg around ``content``; returns the folder."""
    folder.mkdir(exist_ok=True)
    stated = {name: content[name] for name in ("status", "epsilon", "delta")} | {"algorithm": "dp-pg"}
    (folder / "training.json").write_text(json.dumps(stated))
    write(seal(content, folder, ["training.json"]), folder)
    return folder


VARIANTS = {
    "square-root": {},
    "replaced": {"relation": "replace one", "noise": "banded:3"},
    "epochs": {"noise": "independent", "epochs": 2, "noise_multiplier": 9.0},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_less_noise_than_the_relation_asks_for_is_refused(tmp_path, name):
    content = certificate(user_sum(**VARIANTS[name]))
    verify(learned(tmp_path, content))

    def refused(change: Any, message: str = "mechanism .*of ") -> None:
        wrong = json.loads(json.dumps(content))
        change(wrong, wrong["mechanisms"][0])
        with pytest.raises(DprlError, match=message):
            verify(learned(tmp_path, wrong))

    def less(m: dict[str, Any], field: str, factor: float) -> None:  # and the deviation that would follow
        m.update({field: m[field] * factor, "std": m["std"] * factor})

    refused(lambda _, m: m.update(std=m["std"] * 0.999), "states less noise")
    refused(lambda _, m: less(m, "sensitivity", 0.999), "states less noise")
    refused(lambda _, m: less(m, "column_norm", 0.999), "states less noise")
    refused(lambda _, m: m["parts"][0].update(clip_norm=0.91), "states less noise")
    refused(lambda _, m: m["parts"].append({"dimension": 1, "clip_norm": 0.1}))
    refused(lambda _, m: m.update(noise_multiplier=m["noise_multiplier"] * 1.01), "not those of its privacy event")
    refused(lambda _, m: m.update(steps=m["steps"] * 100), "states less noise|draws of noise cost")
    refused(lambda _, m: m.update(name="Gaussian vector", steps=m["epochs"]), "lacks the field")
    refused(lambda c, m: c["mechanisms"].append(m), "not those of its privacy event")
    refused(lambda _, m: m.update(grid_step=m["grid_step"] * 4.0))
    refused(lambda c, _: c.update(delta_sampler=c["delta_sampler"] / 2.0), "draws of noise cost")
    other = next(words for words in RELATION_WORDS.values() if words != content["neighbouring_relation"])
    refused(lambda c, _: c.update(neighbouring_relation=other))
    refused(lambda c, _: c.update(neighbouring_relation="add or remove one"), "which users are neighbours")
    for field in ("parts", "steps", "epochs", "dimension", "batch", "sensitivity", "column_norm", "std", "noise"):
        for value in (None, -1, True, "x", math.pi, []):
            refused(
                lambda _, m, f=field, v=value: m.update({f: v}),
                "mechanism .*of |not those of its privacy event|must be|less than its draws",
            )
    for field in content["mechanisms"][0]:
        refused(lambda _, m, f=field: m.pop(f), "mechanism|less than its draws")
    if name == "epochs":
        refused(lambda _, m: m.update(epochs=1), "not those of its privacy event")
        refused(lambda _, m: m.update(epochs=2.0))
        refused(lambda _, m: m.update(noise="square-root", column_norm=9.0, std=m["std"] * 9.0))
    else:
        refused(lambda _, m: m.update(epochs=2), "not those of its privacy event")
    if name == "replaced":  # half of it is what zeroing out would ask for
        refused(lambda _, m: less(m, "sensitivity", 0.5), "states less noise")
        refused(lambda _, m: m.update(relation="zero-out"))


def test_a_row_may_state_more_noise_than_is_needed(tmp_path):
    content = certificate(user_sum())
    content["mechanisms"][0]["std"] *= 1.5
    content["mechanisms"][0]["column_norm"] *= 1.25
    verify(learned(tmp_path, content))
