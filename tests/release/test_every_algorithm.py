"""Every registered algorithm through the front door: released, certified if dprl's own, resumed, read again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.registry import ALGORITHMS, evaluation_entries

from ..sample_log import BOUNDS
from .resumable import Trial, fix_key

TABULAR = ("noisy-counts", "first-visit")
# as few steps as show something
OPTIONS = {
    "gpope": {"steps": 3, "sampling_rate": 0.7},
    "td": {"steps": 3},
    "return-regression": {"steps": 3, "sampling_rate": 0.7},
}
# no product of ratios of some may be cut, and so few people tell nothing of large ones
FACTS: dict[str, dict[str, Any]] = {
    "stratified": {"strata": ()},
    "survival": {"max_importance_ratio": 1.0},
    "best-linear-projection": {"max_importance_ratio": 1.0},
}

# the others go the same ways
FAST = ("gpope", "importance-sampling", "recommended", "td", "doubly-robust", "constant")
NAMES = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in evaluation_entries()]


def request(name):
    kind = evaluation_entries()[name].load_config()
    network = getattr(kind, "neural", False)
    options = OPTIONS.get(name, {"steps": 3} if network else {})
    features = "mlp:3" if network else "tabular" if name in TABULAR else "columns"
    asked = {"algorithm": kind.from_mapping(options, "test"), "features": features}
    return asked | ({"bounds": replace(BOUNDS, **FACTS[name])} if name in FACTS else {})


@pytest.mark.parametrize("name", NAMES)
def test_released_certified_and_resumed(name, tmp_path, monkeypatch):
    fix_key(monkeypatch)
    (tmp_path / "whole").mkdir()
    whole = Trial(tmp_path / "whole" / "trial")
    told: list[int] = []
    release = whole.evaluate(progress=told.append, **request(name))
    steps = sum(m["steps"] for m in release.certificate["mechanisms"]) - 1
    assert told == list(range(1, steps + 1))
    release.save(whole.out)
    found = verification.verify(whole.out)
    assert found.private == (name in ALGORITHMS)
    assert found.content["status"] == ("verified" if found.private else "unreviewed")
    assert found.content["epsilon_of_event"] <= found.content["epsilon"] == 1.0
    assert sum(m["share"] for m in found.content["mechanisms"]) == pytest.approx(1.0)
    assert len({m["purpose"] for m in found.content["mechanisms"]}) == len(found.content["mechanisms"])
    estimate = json.loads((whole.out / "estimate.json").read_text())
    assert estimate["algorithm"] == name
    assert np.isfinite([estimate["value"], *estimate["interval"]]).all()
    assert estimate["interval"][0] < estimate["interval"][1]
    if release.value_function is None:
        assert name in ("importance-sampling", *FACTS)
        return
    function = dprl.load_value_function(whole.out)
    assert function.theta.shape == (function.features.size,)
    low, high = BOUNDS.value_interval(0.99)
    values = function(np.array([[0.0, -5.0], [4.0, 1.0], [10.0, 5.0]]))
    assert values.shape == (3,)
    assert np.isfinite(values).all()
    assert ((low <= values) & (values <= high)).all()
    # the same again, stopped after its first step and after half of them
    (tmp_path / "stopped").mkdir()
    stopped = Trial(tmp_path / "stopped" / "trial")
    for done in sorted({1, (steps + 1) // 2}):
        stopped.stop_after(done, **request(name))
    stopped.finish(**request(name))
    one, other = whole.contents(), stopped.contents()
    assert one.keys() == other.keys()
    for artifact in one.keys() - {"report.html", "ledger", "artifacts"}:
        assert one[artifact] == other[artifact], artifact
