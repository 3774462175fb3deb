"""What goes to the workers arrives as it was sent: the plans of all algorithms, and their states."""

from __future__ import annotations

import pickle
from dataclasses import replace

import jax
import numpy as np
import pytest

from dprl.data.readers import read_log
from dprl.engine.loop import _init
from dprl.engine.shards import Task
from dprl.evaluation.plan import make_plan
from dprl.policies.loading import load_policy
from dprl.registry import evaluation_entries

from ..release.in_parts import BUDGET
from ..release.test_every_algorithm import request
from ..sample_log import BOUNDS


@pytest.mark.parametrize("name", list(evaluation_entries()))
def test_plans_and_states(logs, name):
    asked = request(name)
    policies = [load_policy("uniform", BOUNDS.actions)]
    bounds = asked.get("bounds", BOUNDS)
    plan = make_plan(asked["algorithm"], bounds, BUDGET, policies, asked["features"], unit="person")
    task = Task(plan, read_log(logs[1], bounds=bounds), tuple(policies))
    arrived = pickle.loads(pickle.dumps(task))
    # the strategy is an array, whose comparison is one too
    np.testing.assert_array_equal(arrived.plan.query.strategy, plan.query.strategy)
    assert replace(arrived.plan, query=plan.query) == plan
    assert (arrived.log.schema, arrived.parts.digest) == (task.log.schema, task.parts.digest)
    if plan.program is None:
        return
    assert hash(arrived.plan.program) == hash(plan.program)
    state = _init(plan.program)
    again = pickle.loads(pickle.dumps(state))
    assert jax.tree.structure(again) == jax.tree.structure(state)
    for sent, found in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        # what kind of number it is decides in which precision it is computed with
        assert jax.typeof(found) == jax.typeof(sent)
        np.testing.assert_array_equal(found, sent)
