"""Vectors of units are the same over rows and over counts of a finite set of transitions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from dprl.engine.layouts import UnitRows, unit_rows
from dprl.engine.program import ValuesConfig
from dprl.evaluation.stratified import Stratified
from dprl.registry import evaluation_entries
from dprl.value_functions.features import make_features
from dprl_papers.harness.transitions import shared_transitions

from . import helpers, one_shot

KINDS = {name: entry.load_config() for name, entry in evaluation_entries().items()}
# these take their gradients from the same function as dptd
ALIKE = ("neural-td", "dp-sgda", "dp-gld", "dp-srm")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] if name in ALIKE else [], id=name)
        for name, kind in KINDS.items()
        if not issubclass(kind, ValuesConfig | Stratified)  # which counts actions: no transition says what was taken
    ],
)
def test_layouts_agree(kind):
    """In every stage, at the start and after an update."""
    log = one_shot.stepped(20)
    program, flat, padded = one_shot.made(kind(discount=0.9), log, "tabular", helpers.stepped_policy)
    source = log.observation[:, 0].astype(int)
    target = np.where(log.terminated, -1, log.next_observation[:, 0].astype(int))
    units = np.repeat(np.arange(20), np.diff(flat.offsets))
    pairs = np.array([(s, t) for s in range(3) for t in range(-1, 3)])
    states = np.arange(3.0)[:, None]
    table = make_features("tabular", log.bounds.observation)(states)
    shared = shared_transitions(units, source, target, flat, pairs, table, 0.9, states)
    state, rng = program.init(), np.random.default_rng(0)
    update = jax.jit(program.update, static_argnums=0)
    for number, stage in enumerate(program.stages):
        for step in range(min(2, stage.mechanism.steps)):
            expected: Any = one_shot.vectors(program, number, state, padded)
            assert expected.any()
            np.testing.assert_allclose(one_shot.vectors(program, number, state, shared), expected, atol=1e-6)
            state = update(number, state, rng.normal(size=stage.mechanism.dimension), step)
        state = program.finish(number, state)


def test_logs_of_many_sizes_are_compiled_for_once(monkeypatch: pytest.MonkeyPatch):
    """Their rows are filled up with zeros to one length; of very many rows there is no copy."""

    def of_people(count: int) -> UnitRows:
        log = one_shot.stepped(count, bounds=helpers.stepped_bounds(20))
        return unit_rows(one_shot.made(KINDS["td"](discount=0.9), log, "tabular", helpers.stepped_policy)[1], 20)

    fewer, more = of_people(19), of_people(20)
    assert fewer.padding < more.padding
    assert [x.shape for x in fewer.columns.values()] == [x.shape for x in more.columns.values()]
    for units in (fewer, more):
        assert not any(np.asarray(x[units.padding :]).any() for x in units.columns.values())
        assert np.asarray(units.columns["weight"][: units.padding]).all()
    monkeypatch.setattr("dprl.engine.rows._MOST_ROWS", 16)
    assert len(of_people(20).columns["weight"]) == more.padding + 1
