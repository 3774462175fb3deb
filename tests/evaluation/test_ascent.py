"""Off-policy policy gradient: people's gradients are those of NumPy, and public facts decide where it is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import dprl
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.engine.two_parts import TwoParts
from dprl.errors import DprlError
from dprl.evaluation.ascent import ASCENT, LENGTH, MOMENTUM, MOST_WEIGHT, Ascent
from dprl.evaluation.fitted_q import NAME, Unused
from dprl.evaluation.learned import plan_of_learned
from dprl.evaluation.teaching import LOUD_TABLE, recommended_teaching
from dprl.policies.greedy import Basis

from .test_fitted_q import ACTIONS, BOUNDS, BUDGET, DISCOUNT, HORIZON, log_of


def vectors(program, columns, theta, person=None):
    """``(U, dim)`` of all people."""
    log = dprl.read_log(columns, bounds=program.bounds, person=person).load(None)
    ratios = step_ratios(program.weighted, log)
    value = program.bounds.value_interval(program.discount)
    rows = rows_of(
        log, ratios, Unused(program.bounds.state), program.discount, value, dtype=np.float64, columns=program.columns
    )
    with jax.enable_x64(True):
        each = rows.padding // log.units
        shaped = {name: x[:-1].reshape(log.units, each, *x.shape[1:]) for name, x in rows.columns.items()}
        return np.asarray(_vectors(program, theta, shaped))


# compiled whole: one operation after the other takes several times as long
@partial(jax.jit, static_argnums=0)
def _vectors(program, theta, columns):
    return program.contribution(0, (theta, None), SimpleNamespace(**columns))


def by_differences(program, columns, theta, step=1e-6):
    """The same by differences of the importance-weighted values of trajectories, in NumPy."""
    basis, people = program.basis, len(columns["t"]) // HORIZON
    phi = basis(columns["observation_0"][:, None])
    own = columns["action"]
    gain = (columns["reward"] - 1.0).reshape(people, HORIZON)  # the reward's range is 0 to 2
    factors = DISCOUNT ** np.arange(HORIZON)

    def values(weights):
        scores = phi @ weights.reshape(ACTIONS, basis.size).T
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        ratio = chances[np.arange(len(own)), own] / columns["behavior_prob"]
        product = np.cumprod(ratio.reshape(people, HORIZON), axis=1)
        most = min(program.bounds.cumulative_ratio, MOST_WEIGHT)
        return (factors * np.minimum(product, most) * gain).sum(axis=1)

    out = [(values(theta + step * e) - values(theta - step * e)) / (2.0 * step) for e in np.eye(len(theta))]
    return np.stack(out, axis=1)


@pytest.mark.parametrize("kind", ["table", "products:2"])
def test_a_person_adds_the_gradient_of_their_weighted_return(kind):
    program = Ascent(BOUNDS, Basis(BOUNDS.state, kind), DISCOUNT)
    theta = np.random.default_rng(1).normal(size=program.query.dimension) * 0.3
    columns = log_of(60)
    found, expected = vectors(program, columns, theta), by_differences(program, columns, theta)
    assert found == pytest.approx(expected, abs=1e-6)
    assert np.abs(expected).max() > 0.1


def test_products_of_many_large_ratios_leave_a_finite_gradient():
    bounds = replace(BOUNDS, horizon=400, max_importance_ratio=8.0, max_cumulative_ratio=50.0)
    program = Ascent(bounds, Basis(BOUNDS.state, "table"), DISCOUNT)
    rows = {"episode_id": np.zeros(400, int), "t": np.arange(400), "observation_0": np.zeros(400)}
    rows |= {"action": np.ones(400, int), "reward": np.full(400, 2.0), "behavior_prob": np.full(400, 0.1)}
    rows["terminated"] = np.arange(400) == 399
    found = vectors(program, rows, np.repeat([-1.0, 1.0], 4))
    assert np.isfinite(found).all()
    assert np.abs(found).max() > 0.0


def test_a_person_counts_once_however_many_trajectories():
    program = Ascent(BOUNDS, Basis(BOUNDS.state, "table"), DISCOUNT)
    theta, columns = np.zeros(program.query.dimension), log_of(30, trajectories=2)
    found = vectors(program, columns, theta, "person_id")
    alone = by_differences(program, columns, theta).reshape(30, 2, -1).mean(axis=1)
    assert found == pytest.approx(alone, abs=1e-6)


def test_steps_are_as_long_as_each_other_and_keep_a_share_of_the_direction():
    program = Ascent(BOUNDS, Basis(BOUNDS.state, "table"), DISCOUNT)
    noisy = np.arange(program.query.dimension, dtype=float) - 2.0
    theta, along = program.update(0, program.init(), noisy, 0)
    assert np.linalg.norm(theta) == pytest.approx(LENGTH)
    again, after = program.update(0, (theta, along), -noisy, 1)
    assert np.asarray(after) == pytest.approx(MOMENTUM * np.asarray(along) - (1.0 - MOMENTUM) * noisy)
    assert np.linalg.norm(np.asarray(again) - np.asarray(theta)) == pytest.approx(LENGTH)


def test_public_facts_decide_which_learner_is_asked():
    budgets = [dprl.Budget(epsilon, 1e-5) for epsilon in (0.005, 0.1, 3.0)]
    wide = replace(BOUNDS, units=5_000)
    parts = TwoParts(wide.units, 0.4)
    found = [recommended_teaching(wide, DISCOUNT, budget, parts, {}, "it") for budget in budgets]
    assert found[0] is None
    assert [one.program.name for one in found[1:]] == [ASCENT, NAME]
    assert found[1].program.basis.kind == "table"
    assert LOUD_TABLE > 3.0
    plan = plan_of_learned(dprl.ImportanceSampling(discount=DISCOUNT), wide, budgets[1])
    assert plan.first.described()["learner"]["name"] == ASCENT
    assert (
        plan.first.event()
        != plan_of_learned(dprl.ImportanceSampling(discount=DISCOUNT), wide, budgets[1], learner=NAME).first.event()
    )
    with pytest.raises(DprlError, match="policy-gradient: cuts, policies of your own"):
        plan_of_learned(dprl.ImportanceSampling(), wide, BUDGET, learner=ASCENT, cuts=["observation_0"])


def test_what_was_learned_is_released_read_back_and_verified(tmp_path):
    from dprl.accounting.verification import verify

    bounds = replace(BOUNDS, units=4_000)
    found = dprl.learn(log_of(4_000), dprl.Budget(4.0, 1e-5), bounds=bounds, learner=ASCENT, person="person_id")
    found.save(tmp_path / "out")
    assert verify(tmp_path / "out").private
    again = dprl.load_policy(tmp_path / "out")
    states = np.arange(4.0)[:, None]
    assert (again(states) == found.policy(states)).all()
    assert "noisy steps along the policy gradient" in (tmp_path / "out" / "report.html").read_text()
    assert found.contrasts[0]["value"] > 0.0


def test_a_table_does_not_propose_what_the_behaviour_policy_never_does():
    sure = tuple((True, state > 1) for state in range(4))
    program = Ascent(BOUNDS, Basis(BOUNDS.state, "table"), DISCOUNT, allowed=sure)
    weights = np.concatenate([np.zeros(4), np.ones(4)])  # of the second action everywhere
    assert program.policy(weights).action(np.arange(4.0)[:, None]).tolist() == [0, 0, 1, 1]


def test_a_linear_basis_is_refused_where_the_behaviour_policy_never_does_something():
    """It could not leave that out; unasked, rules are learned, which can."""

    def never_two(states):
        return np.tile([1.0, 0.0], (len(states), 1))

    wide, options = replace(BOUNDS, units=20_000), dprl.ImportanceSampling(discount=DISCOUNT)
    for learner, basis in ((ASCENT, "products:1"), (NAME, "products:2")):
        with pytest.raises(DprlError, match="never takes some action"):
            plan_of_learned(options, wide, BUDGET, learner=learner, basis=basis, behavior=never_two)
    faint = dprl.Budget(0.01, 1e-5)  # too little for a table
    found = plan_of_learned(options, wide, faint, behavior=never_two).first.described()
    assert "learner" not in found
    assert "rules" in found
