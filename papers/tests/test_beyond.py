"""DP-APVI, DP-VAPVI and PriMORL: what they are without noise, and that their noise is the one that is paid for."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import chi2

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.engine.loop import run_steps
from dprl.evaluation.adassp import smat
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_beyond import primorl, value_iteration
from dprl_papers.paper_beyond.figures.privacy import share_of_regressions
from dprl_papers.paper_beyond.processes import learn_by_dprl, linear_process, random_process, river_swim
from dprl_papers.paper_beyond.value_iteration import (
    Counts,
    apvi,
    consistent,
    counts_mechanism,
    regression_mechanisms,
    upper_triangle,
    vapvi,
    with_noise,
)

BUDGET = Budget(1.0, 1e-5)
PROCESSES = [river_swim(), random_process(1), linear_process(1)]
FACTORS = pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (2 / 3, False), (1.5, False)])


def has_std(draws: np.ndarray, std: float) -> bool:
    low, high = chi2.ppf([5e-7, 1.0 - 5e-7], draws.size)
    return bool(low < np.sum((draws / std) ** 2) < high)


def expected_counts(process, people: float = 1e9) -> Counts:
    """Counts of a log in which everything happened as often as it is likely, from every state."""
    visits = people * np.broadcast_to(process.behavior, process.shape)
    return Counts(visits[..., None] * process.following, visits, visits * process.rewards)


def value_iteration_in_loops(counts: Counts) -> np.ndarray:
    steps, states, actions = counts.visits.shape
    ahead, found = np.zeros(states), np.zeros((steps, states), int)
    for h in reversed(range(steps)):
        q = np.zeros((states, actions))
        for s in range(states):
            for a in range(actions):
                n = counts.moves[h, s, a].sum()
                if n > 0:
                    q[s, a] = (counts.rewards[h, s, a] + counts.moves[h, s, a] @ ahead) / n
        found[h], ahead = q.argmax(axis=1), q.max(axis=1)
    return found


@pytest.mark.parametrize("process", PROCESSES[:2])
def test_without_noise_and_bonus_dp_apvi_is_value_iteration_on_counts(process):
    counts = Counts.from_log(process, process.draw(0, 500))
    np.testing.assert_array_equal(apvi(counts, 0.0, 0.0), value_iteration_in_loops(counts))
    assert counts.visits.sum() == 500 * process.shape[0]


@pytest.mark.parametrize("process", PROCESSES)
def test_without_noise_both_find_the_best_policy_of_what_they_know_well(process):
    counts = expected_counts(process)
    assert process.value_lost(apvi(counts, 0.0, 0.0)) == pytest.approx(0.0, abs=1e-9)
    assert process.value_lost(vapvi(process, counts, None, 0)) == pytest.approx(0.0, abs=1e-9)
    uniform = np.full(process.shape, 1.0 / process.shape[2])
    assert process.value() > process.value(uniform)


def test_pessimism_prefers_what_was_seen_often():
    counts = Counts(np.array([[[[1000.0], [10.0]]]]), np.array([[[1000.0, 10.0]]]), np.array([[[600.0, 7.0]]]))
    assert apvi(counts, 0.0, 0.0) == [[1]]
    assert apvi(counts, 20.0, 1e-4) == [[0]]


def test_counts_solve_the_papers_linear_program():
    rng = np.random.default_rng(0)
    for _ in range(20):
        moves, visits, slack = rng.uniform(0.0, 9.0, 4), rng.uniform(0.0, 40.0), rng.uniform(0.0, 4.0)
        found = consistent(moves, np.array(visits), slack)
        eye, ones = np.eye(4), np.ones((4, 1))
        sums = np.array([[1.0, 1.0, 1.0, 1.0, 0.0], [-1.0, -1.0, -1.0, -1.0, 0.0]])
        upper = np.concatenate([np.hstack([eye, -ones]), np.hstack([-eye, -ones]), sums])
        limits = np.concatenate([moves, -moves, [visits + slack, slack - visits]])
        best = linprog([0, 0, 0, 0, 1], A_ub=upper, b_ub=limits).fun
        assert np.abs(found - moves).max() == pytest.approx(best, abs=1e-9)
        assert abs(found.sum() - visits) <= slack + 1e-9
        assert found.min() >= 0.0


# --- what is paid for -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES)
def test_events_stay_within_the_budget_and_use_it(process):
    one, pair = counts_mechanism(process, BUDGET), regression_mechanisms(process, BUDGET)
    spent = [epsilon_of(one.event(), 1e-5), epsilon_of(events.compose([m.event() for m in pair]), 1e-5)]
    assert spent == pytest.approx([1.0, 1.0], rel=1e-3)
    assert pair[0].noise_std == pytest.approx(pair[1].noise_std)


@pytest.mark.parametrize("process", PROCESSES)
def test_a_trajectory_adds_no_more_than_is_paid_for(process, monkeypatch):
    """The largest it can: a log of one, and values as large as they may be."""
    told = []
    monkeypatch.setattr(
        value_iteration, "with_noise", lambda mechanism, total, *_: told.append((mechanism, total)) or total
    )
    for seed in range(5):
        s, a, _ = process.draw(seed, 1)
        counts = Counts.from_log(process, (s, a, np.ones_like(a)))
        mechanism = counts_mechanism(process, BUDGET)
        counts.noisy(mechanism, 0)
        assert np.linalg.norm(told.pop()[1]) == pytest.approx(mechanism.clip_norm)
        vapvi(process, counts, regression_mechanisms(process, BUDGET), 0, bonus=0.0, edge=0.0)
        assert len(told) == 2 * process.shape[0]
        for mechanism, total in told:
            parts = np.split(total, np.cumsum([size for size, _ in mechanism.parts])[:-1])
            assert all(np.linalg.norm(part) <= 1.0 + 1e-9 for part in parts)
        told.clear()


def test_a_packed_matrix_has_its_norm():
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix += matrix.T
    assert np.linalg.norm(upper_triangle(matrix)) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(smat(upper_triangle(matrix), 5), matrix)


@FACTORS
def test_counts_have_the_noise_that_is_stated(factor, holds):
    process = PROCESSES[1]
    counts, mechanism = expected_counts(process, 1e3), counts_mechanism(process, BUDGET)
    z = 3.7306  # of one release at (1, 1e-5), times the norm of 3 numbers in 5 steps
    assert mechanism.noise_std == pytest.approx(z * math.sqrt(15.0), rel=1e-3)
    noisy = counts.noisy(mechanism, 0)
    errors = np.concatenate([(x - y).ravel() for x, y in zip(vars(noisy).values(), vars(counts).values(), strict=True)])
    assert has_std(errors, factor * z * math.sqrt(15.0)) == holds


@FACTORS
def test_regressions_have_the_noise_that_is_stated(factor, holds):
    process = PROCESSES[1]
    std = factor * 3.7306 * math.sqrt(5 * 5)
    for which, mechanism in enumerate(regression_mechanisms(process, BUDGET)):
        zeros = np.zeros(mechanism.dimension)
        draws = [with_noise(mechanism, zeros, step, 0, f"regression {which}") for step in range(5)]
        assert has_std(np.concatenate(draws), std) == holds
        assert not np.array_equal(draws[0], draws[1])


def test_the_papers_gram_matrices_cost_twice_their_share_and_the_whole_does_not():
    """Two trajectories at random, and the two of the largest distance."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        one, two = (x / np.linalg.norm(x) for x in rng.normal(size=(2, 3)))
        c = one @ two
        distance = np.linalg.norm(np.outer(one, one) - np.outer(two, two)) ** 2
        assert distance == pytest.approx(2.0 - 2.0 * c**2)
    assert 0.8 < share_of_regressions(1) < 1.0
    assert share_of_regressions(2) < share_of_regressions(1)
    # of one step: two Gram matrices and the vector of rewards, at the product c = -1/16
    assert share_of_regressions(1, horizon=1) * 5 == pytest.approx(4.0 + 0.5 + 1.0 / 64.0, abs=1e-4)


# --- PriMORL ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log():
    return primorl.padded(primorl.logged(20, 0), 20)


@pytest.mark.slow
def test_a_logged_step_is_one_of_the_world(log):
    columns = primorl.logged(20, 0)
    after = (
        columns["observation"] + primorl.CHANGE * np.asarray(log.columns["y"])[np.asarray(log.columns["weight"]) > 0]
    )
    np.testing.assert_allclose(after, columns["next_observation"], atol=1e-6)
    assert set(np.round(columns["behavior_prob"], 3)) == {0.25, 0.75}


@pytest.mark.slow
def test_gradients_are_of_the_steps_that_happened(log):
    program = primorl.Models(primorl.training(20, None), 20.0)
    state = program.init(0)
    garbage = {
        name: jnp.where(log.columns["weight"][..., None] > 0, x, 7.0)
        for name, x in log.columns.items()
        if name != "weight"
    }
    block = log.block(jnp.arange(4))
    other = type(log)(log.columns | garbage).block(jnp.arange(4))
    found = program.contribution(0, state, block)
    np.testing.assert_allclose(found, program.contribution(0, state, other), rtol=1e-5)
    real = np.asarray(block.columns["weight"][0]) > 0
    x, y = (jnp.asarray(np.asarray(block.columns[name][0])[real]) for name in ("x", "y"))
    mean = lambda theta: jnp.mean(jnp.sum((primorl._NETWORK.preferences(theta, x) - y) ** 2, axis=1))  # noqa: E731
    np.testing.assert_allclose(found[0], np.concatenate([jax.grad(mean)(theta) for theta in state.theta]), rtol=1e-4)


@FACTORS
def test_models_have_the_noise_that_is_stated(log, factor, holds):
    """Of nobody all that is summed is noise."""
    mechanism = primorl.training(20, BUDGET)
    assert mechanism.clip_norm == pytest.approx(primorl.CLIP)
    assert epsilon_of(mechanism.event(), 1e-5) <= 1.0
    program = primorl.Models(mechanism.in_float(), 20.0)
    empty = type(log)({name: jnp.zeros_like(x) for name, x in log.columns.items()})
    noise, state = SeededNoise.from_seed(1), program.init(0)
    noisy = run_steps(program, 0, program.mechanism, noise, empty, state, (0, 8), trace=lambda _, noisy: noisy)[1]
    assert has_std(np.asarray(noisy), factor * mechanism.noise_multiplier * primorl.CLIP) == holds


@pytest.mark.slow
def test_models_that_agree_are_not_punished():
    same = jnp.tile(jnp.linspace(-1.0, 1.0, primorl._NETWORK.size, dtype=jnp.float32), (primorl.MODELS, 1))
    world = primorl.ModelledCartPole(horizon=200, discount=0.99)
    state, key = jnp.array([0.1, -0.2, 0.05, 0.3]), jax.random.key(0)
    moved, reward, over = world.following(same).step(key, state, 1)
    x = jnp.append(state, 1.0)[None]
    np.testing.assert_allclose(moved, state + primorl.CHANGE * primorl._NETWORK.preferences(same[0], x)[0], rtol=1e-5)
    assert (float(reward), bool(over)) == (1.0, False)
    assert float(world.following(same.at[0].add(0.2)).step(key, state, 1)[1]) < 1.0


@pytest.mark.slow
def test_without_privacy_the_pole_is_balanced_from_a_log():
    assert primorl.learn_by_primorl(500, None, 1000) > 475.0


@pytest.mark.slow
def test_dprls_learners_take_logs_of_both_kinds():
    for process in PROCESSES:
        assert learn_by_dprl(process, process.draw(0, 200), "advantage", BUDGET, 0).shape == process.shape[:2]
