"""Advantages over what was done: people's sums are those of NumPy, and public facts decide where they are asked."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import dprl
from dprl.engine.program import Stage
from dprl.engine.sample_split import SampleSplit
from dprl.errors import DprlError
from dprl.evaluation.advantage import ADVANTAGE, KAPPA, Advantage
from dprl.evaluation.fitted_q import FITTED_Q
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.learning_question import FITTED_Q_STRENGTH, recommended_question
from dprl.policies.greedy import Basis

from .helpers import bandit_bounds, columns_of
from .test_fitted_q import ACTIONS, BOUNDS, BUDGET, DISCOUNT, HORIZON, STATES, log_of, rows_for


def vectors(program, columns, person=None):
    """``(U, dim)`` of all people."""
    rows = rows_for(program, columns, program.ratio_policy, person, dtype=np.float64)
    with jax.enable_x64(True):
        units = len(rows.lengths)
        each = rows.padding // units
        shaped = {name: x[:-1].reshape(units, each, *x.shape[1:]) for name, x in rows.columns.items()}
        block = type("Block", (), {name: jax.numpy.asarray(x) for name, x in shaped.items()})
        return np.asarray(program.contribution(0, program.init(), block))


def by_numpy(basis, columns):
    """The same from the definition, with a loop over steps: ``(people, A, p)`` products and ``(people, p, p)``."""
    people = len(columns["t"]) // HORIZON
    phi = basis(columns["observation_0"][:, None].astype(float)).reshape(people, HORIZON, -1)
    shaped = {name: columns[name].reshape(people, HORIZON) for name in ("action", "reward", "behavior_prob")}
    lengths = np.cumsum(DISCOUNT ** np.arange(HORIZON))
    products, gram = 0.0, np.einsum("btn,btm->bnm", phi, phi)
    for t in range(HORIZON):
        after = shaped["reward"][:, t:] @ DISCOUNT ** np.arange(HORIZON - t)
        y = (after - lengths[HORIZON - t - 1]) / lengths[-1]  # the reward's range is 0 to 2, its middle 1
        taken = (shaped["action"][:, t, None] == np.arange(ACTIONS)) / shaped["behavior_prob"][:, t, None]
        products = products + (y[:, None] * (taken - 1.0))[..., None] * phi[:, None, t]
    return products, gram


@pytest.mark.parametrize("kind", ["table", "products:2"])
@pytest.mark.parametrize("trajectories", [1, 2])
def test_a_person_adds_what_they_earned_where_it_tells_actions_apart(kind, trajectories):
    program, columns = Advantage(BOUNDS, Basis(BOUNDS.state, kind), DISCOUNT), log_of(30, trajectories)
    found = vectors(program, columns, "person_id")
    # a person counts once however many trajectories
    products, gram = (x.reshape(30, trajectories, *x.shape[1:]).mean(axis=1) for x in by_numpy(program.basis, columns))
    size = ACTIONS * program.basis.size
    np.testing.assert_allclose(found[:, :size] / KAPPA, products.reshape(30, -1), atol=1e-9)
    if kind == "products:2":
        above, beside = np.triu_indices(program.basis.size)
        scales = np.where(above == beside, 1.0, np.sqrt(2.0)) / np.sqrt(program.basis.size)
        np.testing.assert_allclose(found[:, size:], gram[:, above, beside] * scales, atol=1e-9)


def of_the_log(program, columns):
    """The policy without noise."""
    program = program.calibrated(dprl.Budget(50.0, 1e-5))
    plain = replace(program, stages=(Stage(ADVANTAGE, program.stages[0].mechanism.plain()),))
    sums = vectors(program, columns)
    sums = sums * np.minimum(1.0, program.query.clip_norm / np.linalg.norm(sums, axis=1, keepdims=True))
    return plain.policy(np.asarray(plain.update(0, plain.init(), sums.sum(axis=0), 0)))


def test_without_noise_actions_stand_in_the_order_of_their_returns():
    """Of two actions that are as likely the better one is that of the larger mean return, in each state."""
    columns, bounds = log_of(20_000), replace(BOUNDS, units=20_000)
    columns["reward"] = np.maximum(columns["reward"] - 0.5 * columns["action"] * (columns["observation_0"] > 1), 0.0)
    returns = np.zeros(len(columns["t"]))
    for t in reversed(range(HORIZON)):
        own = columns["t"] == t
        returns[own] = columns["reward"][own] + (DISCOUNT * returns[np.flatnonzero(own) + 1] if t < HORIZON - 1 else 0)
    cell = columns["observation_0"] * ACTIONS + columns["action"]
    best = np.argmax((np.bincount(cell, returns) / np.bincount(cell)).reshape(STATES, ACTIONS), axis=1)
    states = np.arange(STATES)[:, None]
    assert set(best) == {0, 1}
    for kind in ("table", "products:2"):
        program = Advantage(bounds, Basis(BOUNDS.state, kind), DISCOUNT)
        assert of_the_log(program, columns).action(states).tolist() == best.tolist()


def test_what_all_actions_have_in_common_drops_out():
    """Values bend where what is better changes: a line through each action's own returns gets it wrong. Nobody is
    clipped here.
    """
    rng, n = np.random.default_rng(3), 40_000
    bounds = bandit_bounds(n, 5.0, reward=(-30.0, 30.0), observation=((-1.0, 1.0),))
    x = rng.uniform(-1.0, 1.0, n)
    chance = np.where(x > 0.0, 0.8, 0.2)
    action = (rng.random(n) < chance).astype(int)
    reward = -3.0 * np.abs(x) + 0.4 * (2 * action - 1) * x
    columns = columns_of(action, np.where(action == 1, chance, 1.0 - chance), observation_0=x, reward=reward)
    places = np.linspace(-1.0, 1.0, 20)[:, None]
    better = (places[:, 0] > 0.0).astype(int)
    basis = Basis(bounds.state, "products:1")
    found = of_the_log(Advantage(bounds, basis, 1.0), columns)
    assert (found.action(places) == better).mean() > 0.8
    fits = [np.linalg.lstsq(basis(x[action == a, None]), columns["reward"][action == a], rcond=None)[0] for a in (0, 1)]
    wrong = np.argmax(basis(places) @ np.stack(fits, axis=1), axis=1)
    assert (wrong == better).mean() < 0.5


def test_what_noise_hides_of_the_gram_matrix_is_taken_to_be_orthonormal():
    program = Advantage(replace(BOUNDS, units=2_000), Basis(BOUNDS.state, "products:1"), DISCOUNT)
    size, rows = program.basis.size, 2_000 * HORIZON
    above, beside = np.triu_indices(size)
    gram = rows * (0.3 * np.eye(size) + 0.1)
    scales = np.where(above == beside, 1.0, np.sqrt(2.0)) / np.sqrt(size)
    products = np.arange(float(ACTIONS * size)).reshape(ACTIONS, size)
    sums = np.concatenate([KAPPA * products.ravel(), gram[above, beside] * scales])
    found = {}
    for epsilon in (1e-3, 100.0):
        noisy = program.calibrated(dprl.Budget(epsilon, 1e-5))
        theta = np.asarray(noisy.update(0, noisy.init(), sums, 0)).reshape(ACTIONS, size)
        found[epsilon] = theta[1] / np.linalg.norm(theta[1])
    clear = np.linalg.solve(gram, products[1])
    np.testing.assert_allclose(found[1e-3], products[1] / np.linalg.norm(products[1]), atol=0.01)
    np.testing.assert_allclose(found[100.0], clear / np.linalg.norm(clear), atol=0.02)


def test_public_facts_decide_which_learner_is_asked():
    budgets = [dprl.Budget(epsilon, 1e-5) for epsilon in (0.005, 0.1, 3.0)]
    wide = replace(BOUNDS, units=5_000)
    split = SampleSplit(wide.units, 0.4)
    found = [recommended_question(wide, DISCOUNT, budget, split) for budget in budgets]
    assert found[0] is None
    assert [one.program.name for one in found[1:]] == [ADVANTAGE, FITTED_Q]
    assert found[1].program.basis.kind == "table"
    assert FITTED_Q_STRENGTH > 3.0
    plan = plan_of_learned(dprl.ImportanceSampling(discount=DISCOUNT), wide, budgets[1])
    assert plan.first.described()["learner"]["name"] == ADVANTAGE
    with pytest.raises(DprlError, match="advantage: cuts, policies of your own"):
        plan_of_learned(dprl.ImportanceSampling(), wide, BUDGET, learner=ADVANTAGE, cuts=["observation_0"])


def test_what_was_learned_is_released_read_back_and_verified(tmp_path):
    from dprl.accounting.verification import verify

    bounds = replace(BOUNDS, units=4_000)
    found = dprl.learn(log_of(4_000), dprl.Budget(4.0, 1e-5), bounds=bounds, learner=ADVANTAGE, person="person_id")
    found.save(tmp_path / "out")
    assert verify(tmp_path / "out").private
    again = dprl.load_policy(tmp_path / "out")
    states = np.arange(4.0)[:, None]
    assert (again(states) == found.policy(states)).all()
    assert "a noisy regression of advantages over what was done" in (tmp_path / "out" / "report.html").read_text()
    assert found.contrasts[0]["value"] > 0.0


def test_a_table_does_not_propose_what_the_behaviour_policy_never_does():
    sure = tuple((True, state > 1) for state in range(4))
    program = Advantage(BOUNDS, Basis(BOUNDS.state, "table"), DISCOUNT, allowed=sure)
    weights = np.concatenate([np.zeros(4), np.ones(4)])  # of the second action everywhere
    assert program.policy(weights).action(np.arange(4.0)[:, None]).tolist() == [0, 0, 1, 1]


def test_a_linear_basis_is_refused_where_the_behaviour_policy_never_does_something():
    """It could not leave that out; unasked, rules are learned, which can."""

    def never_two(states):
        return np.tile([1.0, 0.0], (len(states), 1))

    wide, options = replace(BOUNDS, units=20_000), dprl.ImportanceSampling(discount=DISCOUNT)
    for learner, basis in ((ADVANTAGE, "products:1"), (FITTED_Q, "products:2")):
        with pytest.raises(DprlError, match="never takes some action"):
            plan_of_learned(options, wide, BUDGET, learner=learner, basis=basis, behavior=never_two)
    faint = dprl.Budget(0.01, 1e-5)  # too little for a table
    found = plan_of_learned(options, wide, faint, behavior=never_two).first.described()
    assert "learner" not in found
    assert "rules" in found
