"""What a run folder is bound to where values are taken around something released: all that the vectors are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

import dprl
from dprl.evaluation.plan import make_plan
from dprl.evaluation.stratified import Stratified
from dprl.release.private_rows import RowsInMemory
from dprl.release.run_folder import digest_of

from ..evaluation import one_shot
from ..evaluation.test_propensity_regression import facts, people

LOG = people(200, 1)
TAKEN = {tuple(state): a for *state, a in zip(*(LOG[f"observation_{i}"] for i in range(3)), LOG["action"], strict=True)}


def even(states: np.ndarray) -> np.ndarray:
    return np.full((len(states), 3), 1.0 / 3.0)


def even_where_it_was_taken(states: np.ndarray) -> np.ndarray:
    """Differ from ``even`` in the two actions alone that a person did not take."""
    taken = np.array([TAKEN.get(tuple(state), 0) for state in states])
    found = np.zeros((len(states), 3))
    found[np.arange(len(states)), taken], found[np.arange(len(states)), (taken + 1) % 3] = 1.0 / 3.0, 2.0 / 3.0
    return found


def rows(policies: list[Any], **changed: Any) -> RowsInMemory:
    plan = make_plan(Stratified(discount=1.0), facts(units=200), dprl.Budget(1.0, 1e-5), policies)
    return RowsInMemory(plan, one_shot.load({**LOG, **changed}, facts(units=200)), policies)


def total(of: RowsInMemory) -> np.ndarray:
    size = of.plan.program.answer(of.plan.program.init()).size
    return np.asarray(of.total(of.plan.function_of(np.linspace(-0.2, 0.3, size))))


def test_policies_that_differ_only_in_actions_that_were_not_taken_are_others():
    one, other = rows([even]), rows([even_where_it_was_taken])
    assert not np.array_equal(total(one), total(other))
    assert digest_of(one.entering()) != digest_of(other.entering())
    assert digest_of(one.entering()) == digest_of(rows([even]).entering())


def test_other_actions_are_other_rows_also_where_their_ratios_are_the_same():
    one, other = rows([even]), rows([even], action=(LOG["action"] + 1) % 3)
    assert not np.array_equal(total(one), total(other))
    assert digest_of(one.entering()) != digest_of(other.entering())
