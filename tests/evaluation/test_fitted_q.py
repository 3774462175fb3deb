"""Fitted Q iteration: without noise and pessimism that of NumPy; and what public facts decide before a row is read."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import dprl
from dprl.accounting import events
from dprl.bounds import Bounds
from dprl.engine.layouts import gather, unit_rows
from dprl.engine.loop import run_on_host
from dprl.engine.program import Stage
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.engine.sample_split import SampleSplit
from dprl.errors import DprlError
from dprl.evaluation.fitted_q import FITTED_Q, LinearQ, NoFeatures, TableQ
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.learning_question import make_question
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.greedy import Basis
from dprl.policies.loading import LoggedPolicy

from .helpers import columns_of

BUDGET = dprl.Budget(1.0, 1e-5)
STATES, ACTIONS, HORIZON, DISCOUNT = 4, 2, 3, 0.9
BOUNDS = Bounds(
    units=400, horizon=HORIZON, reward=(0.0, 2.0), observation=((0.0, 3.0),), actions=ACTIONS, max_importance_ratio=2.0
)


def log_of(people: int = 400, trajectories: int = 1, bounds: Bounds = BOUNDS) -> dict[str, np.ndarray]:
    """Walks on four states; the reward is the larger the further to the right, and the second action costs."""
    rng, n = np.random.default_rng(0), people * trajectories
    states = np.zeros((n, HORIZON + 1), int)
    states[:, 0] = rng.integers(0, STATES, n)
    action = rng.integers(0, ACTIONS, (n, HORIZON))
    for t in range(HORIZON):
        move = np.where(rng.random(n) < 0.8, 2 * action[:, t] - 1, 0)
        states[:, t + 1] = np.clip(states[:, t] + move, 0, STATES - 1)
    reward = np.clip(0.4 * states[:, 1:] - 0.3 * action + 0.3 + 0.1 * rng.random((n, HORIZON)), 0.0, 2.0)
    person = np.repeat(np.arange(n) // trajectories, HORIZON)
    return columns_of(action, person_id=person, observation_0=states[:, :-1], reward=reward)


def rows_for(program, columns, policy, person=None, **options):
    """The rows of a log of all people, as the program sees them."""
    log = dprl.read_log(columns, bounds=program.bounds, person=person).load(None)
    value, unused = program.bounds.value_interval(program.discount), NoFeatures(program.bounds.state)
    return rows_of(log, step_ratios(policy, log), unused, program.discount, value, columns=program.columns, **options)


def learned(program, columns):
    """The weights without noise, of a log of all people."""
    rows = rows_for(program, columns, LoggedPolicy())
    plain = replace(
        program, stages=(Stage(FITTED_Q, program.calibrated(BUDGET).stages[0].mechanism.plain()),), caution=0.0
    )
    weights = run_on_host(plain, SeededNoise.from_seed(0), unit_rows(rows, program.bounds.units))[1]
    return plain.policy(np.asarray(weights))


def by_numpy(columns, regress) -> np.ndarray:
    """Q of fitted Q iteration in the reward's unit, ``(S, A)``, as many rounds as there are steps.

    ``regress(states, actions, targets)`` gives Q at each state.
    """
    s, a, r = columns["observation_0"], columns["action"], columns["reward"]
    end, following = columns["terminated"], np.append(s[1:], 0)
    q = np.zeros((STATES, ACTIONS))
    for _ in range(HORIZON):
        q = regress(s, a, r + DISCOUNT * np.where(end, 0.0, q[following].max(axis=1)))
    return q


def test_a_table_without_noise_is_fitted_q_iteration():
    columns = log_of()

    def means(s, a, y):
        cell = s * ACTIONS + a
        return (np.bincount(cell, y) / np.bincount(cell)).reshape(STATES, ACTIONS)

    found = learned(TableQ(BOUNDS, Basis(BOUNDS.state, "table"), DISCOUNT), columns)
    half = 1.0  # of the reward range
    np.testing.assert_allclose(found.theta.T * half, by_numpy(columns, means), atol=1e-6)


def test_a_linear_basis_without_noise_is_fitted_q_iteration():
    columns, every = log_of(), np.arange(STATES)[:, None].astype(float)
    basis = Basis(BOUNDS.state, "products:1")

    def least_squares(s, a, y):
        fits = [np.linalg.lstsq(basis(s[a == k][:, None].astype(float)), y[a == k], rcond=None)[0] for k in range(2)]
        return basis(every) @ np.stack(fits, axis=1)

    found = learned(LinearQ(BOUNDS, basis, DISCOUNT), columns)
    low, high = BOUNDS.value_interval(DISCOUNT)
    expected = by_numpy(columns, least_squares)
    np.testing.assert_allclose((low + high) / 2.0 + (high - low) / 2.0 * found.scores(every), expected, atol=2e-4)


def test_one_decision_is_the_mean_reward_of_each_action():
    """Also where the log does not say that a trajectory of one step has ended."""
    columns = {name: values[::HORIZON] for name, values in log_of().items() if name not in ("terminated", "person_id")}
    program = TableQ(replace(BOUNDS, horizon=1), Basis(BOUNDS.state, "table"), DISCOUNT)
    assert program.destinations == 1
    cell = columns["observation_0"] * ACTIONS + columns["action"]
    expected = np.bincount(cell, columns["reward"]) / np.bincount(cell)
    found = learned(program, columns)
    np.testing.assert_allclose(found.theta.T.ravel(), expected, atol=1e-6)
    linear = learned(LinearQ(program.bounds, Basis(BOUNDS.state, "products:1"), DISCOUNT), columns)
    np.testing.assert_array_equal(linear.action(np.arange(4.0)), found.action(np.arange(4.0)))


def test_a_person_counts_once_however_many_trajectories():
    """Two trajectories of one person weigh half each: doubled people weigh as much as single ones."""
    single, double = log_of(200), log_of(200, trajectories=2)
    program = TableQ(BOUNDS, Basis(BOUNDS.state, "table"), DISCOUNT)
    for columns, each in ((single, 1.0), (double, 0.5)):
        rows = unit_rows(rows_for(program, columns, LoggedPolicy(), "person_id"), BOUNDS.units)
        index, live = next(rows.chunks(np.ones(200, bool)))
        vectors = np.asarray(jax.jit(program.contribution, static_argnums=0)(0, None, gather(rows.columns, index)))[
            live
        ]
        counts = vectors[:, : program.basis.size * ACTIONS * program.destinations]
        np.testing.assert_allclose(counts.sum(axis=1), HORIZON, rtol=1e-6)
        np.testing.assert_allclose(counts[counts > 0.0].min(), each, rtol=1e-6)


def test_a_transition_counts_as_a_whole_one():
    """However many steps a trajectory could have: the counts are nearly those of the people who teach."""
    columns = {name: values for name, values in log_of(4_000).items() if name not in ("person_id", "episode_id", "t")}
    columns["next_observation_0"] = columns["observation_0"]
    log = dprl.read_log(columns, bounds=replace(BOUNDS, units=12_000), unit="transition").load(None)
    first = plan(dprl.Budget(4.0, 1e-5), log.bounds, unit="transition", learner="fitted-q", basis="table").first
    assert first.program.bounds.horizon == 1
    seen = []

    class Kept:
        def stream(self, name):
            return self

        def step(self, step, dimension, compute):
            seen.append(np.asarray(compute()))
            return seen[-1]

    first.released(log, None, SeededNoise.from_seed(0), Kept())
    counts = seen[0][: STATES * ACTIONS] * first.program.stages[0].mechanism.grid_step
    assert 0.99 * log.units < counts.sum() < 1.01 * log.units


def test_the_bound_is_the_further_below_the_louder_the_noise():
    """By the released noise alone: theta is what it is for any noise, and the bound goes down with it."""
    program = LinearQ(BOUNDS, Basis(BOUNDS.state, "products:1"), DISCOUNT)
    sums = np.linspace(0.5, 1.0, program.query.dimension) * 300.0
    found = []
    for epsilon in (4.0, 1.0, 0.25):
        loud = program.calibrated(dprl.Budget(epsilon, 1e-5))
        made = jax.jit(lambda loud=loud: loud.answer(loud.update(0, loud.init(), sums, 0)))()
        found.append(loud.policy(np.asarray(made)))
    at = np.array([[1.0]])
    below = [np.asarray(p.basis(at) @ p.theta.T - p.scores(at)) for p in found]
    assert np.all(below[0] < below[1])
    assert np.all(below[1] < below[2])


# --- the plan ---------------------------------------------------------------------------------------------------------

MANY = replace(BOUNDS, units=20_000, horizon=10, observation=((0.0, 19.0),), actions=3, max_importance_ratio=10.0)


def plan(budget=BUDGET, bounds=MANY, **options):
    return plan_of_learned(dprl.ImportanceSampling(discount=1.0), bounds, budget, 2.0**-49, **options)


def test_each_part_may_spend_the_whole_budget_and_pays_for_the_draws_of_both():
    found = plan(learner="fitted-q")
    of_first = found.event.events[0]
    assert of_first == events.gaussian(found.first.program.stages[0].mechanism.noise_multiplier)
    assert found.first.names == ("the learned policy", "logged")
    assert found.epsilon_of_event <= 1.0
    draws = found.first.draws + found.query.dimension
    assert found.delta_sampler == pytest.approx(events.sampler_delta(1.0, draws, 2.0**-49), rel=1e-12)
    assert found.delta_of_event + found.delta_sampler == pytest.approx(BUDGET.delta, rel=1e-12)


def test_the_basis_is_the_largest_that_the_budget_serves():
    def kind(epsilon, bounds=MANY):
        question = plan(dprl.Budget(epsilon, 1e-5), bounds, learner="fitted-q").first
        return question.program.basis.kind, question.refused_basis

    assert kind(1.0) == ("table", None)
    smaller, why = kind(0.05)
    assert smaller.startswith("products")
    assert why["basis"] == "table"
    assert why["strength"] < why["least"]
    real = replace(MANY, observation=((0.0, 1.0), (-1.0, 1.0)))
    assert kind(4.0, real)[0] == "products:2"
    assert kind(0.01, real)[0] == "products:0"


def test_recommended_is_by_public_facts_and_names_given():
    assert plan().first.described()["learner"]["basis"] == "table"
    assert "rules" in plan(bounds=replace(MANY, horizon=1)).first.described()
    assert "rules" in plan(dprl.Budget(0.001, 1e-5)).first.described()
    assert "rules" in plan(cuts=["observation_0:3"]).first.described()
    assert plan(learner="fitted-q", basis="products:1").first.program.basis.size == 2
    assert plan(learner="fitted-q", share=0.5).first.options()["choosing_share"]["provenance"] == "stated public"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learner": "magic"}, "learner must be one of recommended, rules, fitted-q"),
        ({"learner": "fitted-q", "cuts": ["observation_0:3"]}, "are for rules"),
        ({"basis": "table"}, "a basis is for fitted-q"),
        ({"learner": "fitted-q", "basis": "magic"}, "no basis called 'magic'"),
        ({"learner": "fitted-q", "basis": "table", "bounds": replace(MANY, observation=((0.5, 3.0),))}, "whole numb"),
        ({"learner": "fitted-q", "basis": "table", "bounds": replace(MANY, observation=((0.0, 999.0),))}, "sums here"),
    ],
)
def test_what_cannot_be_learned_is_refused(options, words):
    with pytest.raises(DprlError, match=words):
        plan(**options)


def test_a_table_does_not_propose_what_the_behaviour_policy_never_does():
    def behavior(states):
        return np.where(states[:, :1] < 2.0, [[1.0, 0.0]], [[0.5, 0.5]])

    split = SampleSplit(BOUNDS.units, 0.4)
    question = make_question(BOUNDS, DISCOUNT, BUDGET, split, behavior, "table")
    assert question.program.allowed == ((True, False),) * 2 + ((True, True),) * 2
    program = question.program.calibrated(BUDGET)
    sums = np.zeros(program.query.dimension)
    sums[: 8 * program.destinations] = 1000.0
    sums[8 * program.destinations + 1 :: 2] = 4000.0  # the second action pays everywhere
    policy = program.policy(np.asarray(jax.jit(program.update, static_argnums=0)(0, None, sums, 0)))
    assert policy.action(np.arange(4.0)).tolist() == [0, 0, 1, 1]
