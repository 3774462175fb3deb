"""A network through the front door: released, certified, stored, reported; resumed in test_every_algorithm."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.engine.program import ValuesConfig
from dprl.evaluation.dptd import DPTD
from dprl.registry import evaluation_entries

from ..evaluation import helpers

UNITS = 60
BOUNDS = helpers.bandit_bounds(UNITS)


class Told:
    """What a progress bar is told."""

    def __init__(self) -> None:
        self.expected, self.done = [], []

    def expect(self, steps: int) -> None:
        self.expected.append(steps)

    def __call__(self, done: int) -> None:
        self.done.append(done)


def test_a_network_is_released_like_any_value_function(tmp_path):
    config, told = DPTD(steps=2, sampling_rate=1.0), Told()
    log, policy = helpers.bandit_log(UNITS, 0), helpers.bandit_policy
    release = dprl.evaluate(
        log, policy, dprl.Budget(1.0, 1e-5), algorithm=config, bounds=BOUNDS, features="mlp:2", progress=told
    )
    release.save(tmp_path / "out")
    # the start and both steps: all that public facts say there will be
    assert (told.expected, told.done) == ([3], [1, 2, 3])
    found = verification.verify(tmp_path / "out")
    assert found.private
    assert [m["dimension"] for m in found.content["mechanisms"]][1:] == [1, 2 * 7]
    assert found.content["assumed_public"]["hyper_parameters"]["features"]["value"] == "mlp:2"
    estimate = json.loads((tmp_path / "out" / "estimate.json").read_text())
    assert estimate["value_function"]["features"] == {"name": "mlp:2", "size": 7}
    assert estimate["quantity"] == "discounted return of a trajectory"
    assert "A neural network with one layer of 2 hidden units (7 weights)." in (
        tmp_path / "out" / "report.html"
    ).read_text().replace("\n", " ")
    function = dprl.load_value_function(tmp_path / "out")
    assert function.theta.shape == (7,)
    states = np.linspace(0.0, 1.0, 5)
    low, high = BOUNDS.value_interval(0.99)
    assert ((low <= function(states)) & (function(states) <= high)).all()
    (piece,) = estimate["value_function"]["slices"]
    assert function(np.array(piece["grid"])).tolist() == piece["values"]


NO_NETWORK = [
    name
    for name, entry in evaluation_entries().items()
    if not issubclass(entry.load_config(), ValuesConfig | dprl.Stratified)
    and not getattr(entry.load_config(), "neural", False)
]


@pytest.mark.parametrize("name", NO_NETWORK)
def test_what_is_linear_in_features_refuses_a_network(name, tmp_path):
    """Before anything is charged."""
    config = evaluation_entries()[name].load_config()()
    ledger = dprl.Ledger.create(tmp_path / "l.db", "data", dprl.Budget(2.0, 1e-4), "trajectory", "add or remove one")
    with pytest.raises(
        dprl.DprlError, match=rf"^{name} learns a linear value function: .* dptd or neural-td for mlp:2"
    ):
        dprl.evaluate(
            helpers.bandit_log(UNITS, 0), helpers.bandit_policy, dprl.Budget(1.0, 1e-5), algorithm=config,
            bounds=BOUNDS, features="mlp:2", ledger=ledger, dataset="data",
        )  # fmt: skip
    assert ledger.history() == []
