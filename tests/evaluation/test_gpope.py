"""GPOPE against dense linear algebra: Eq. (4.1) as printed, the two data layouts, and the noiseless limit."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.engine import loop
from dprl.engine.columns import scale_of
from dprl.engine.layouts import padded_units
from dprl.engine.plan import program_at
from dprl.engine.program import PublicFacts
from dprl.engine.rows import rows_of
from dprl.evaluation import gpope
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.loading import UniformPolicy
from dprl.value_functions.features import make_features
from dprl_papers.baselines.lstd import lstd, moments
from dprl_papers.harness.transitions import shared_transitions

from . import helpers, one_shot

unit_gradients = jax.jit(gpope.unit_gradients)
TABULAR = make_features("tabular", ((0.0, 38.0),))
PAIRS = np.array([(s, s) for s in range(39)] + [(s, s + 1) for s in range(38)] + [(38, -1)])


def program_of(config: GPOPE, units: int, features=TABULAR, noise_multiplier: float = 1.0) -> gpope.GPOPEProgram:
    return program_at(
        config, PublicFacts(helpers.chain_bounds(units), features, helpers.DISCOUNT, mu=1.0), noise_multiplier
    )


def chain(episodes: int, seed: int, dtype: type = np.float64):
    log = one_shot.chain(episodes, seed)
    rows = rows_of(log, np.ones(len(log.reward)), TABULAR, helpers.DISCOUNT, (0.0, 1.0), dtype=dtype)
    return log, rows


def shared(log, rows):
    source = log.observation[:, 0].astype(int)
    target = np.where(log.terminated, -1, log.next_observation[:, 0].astype(int))
    states = np.arange(39.0)[:, None]
    units = np.repeat(np.arange(log.units), np.diff(rows.offsets))
    return shared_transitions(units, source, target, rows, PAIRS, TABULAR(states), helpers.DISCOUNT)


def test_gradient_is_equation_4_1_with_dense_matrices():
    """[-A_i' w, A_i theta + C_i w - b_i], with A_i, b_i, C_i formed as Eq. (2.2) prints them, off-policy."""
    log = one_shot.stepped(30)
    features = make_features("fourier:3", ((0.0, 2.0),))
    rng = np.random.default_rng(1)
    rho = rng.random(len(log.reward)) * 2.0
    value = log.bounds.value_interval(0.9)
    rows = rows_of(log, rho, features, 0.9, value, dtype=np.float64)
    theta, w = rng.normal(size=(2, features.size))
    got = np.asarray(unit_gradients(jnp.asarray(theta), jnp.asarray(w), padded_units(rows).block(slice(None))))
    centre, half = scale_of(value)
    for unit in range(log.units):
        mine = slice(log.episode_offsets[unit], log.episode_offsets[unit + 1])
        phi = features(log.observation[mine])
        following = features(log.next_observation[mine]) * (1.0 - log.terminated[mine])[:, None]
        reward = (log.reward[mine] - centre * (1.0 - 0.9 * (1.0 - log.terminated[mine]))) / half
        length = len(reward)
        A = sum(rho[mine][t] * np.outer(phi[t], phi[t] - 0.9 * following[t]) for t in range(length)) / length
        b = sum(rho[mine][t] * phi[t] * reward[t] for t in range(length)) / length
        C = sum(np.outer(phi[t], phi[t]) for t in range(length)) / length
        expected = np.concatenate([-A.T @ w, A @ theta + C @ w - b])
        np.testing.assert_allclose(got[unit], expected, rtol=1e-10, atol=1e-12)


def test_noiseless_limit_meets_lstd():
    """Without noise, clip or projection, full batches lead to the trajectory-weighted LSTD solution."""
    log, rows = chain(60, 0)
    config = GPOPE(
        discount=helpers.DISCOUNT, steps=150_000, step_size=0.13, average="last", start="zero", project=False
    )
    mechanism = GaussianSum(parts=((78, math.inf),), steps=config.steps, arithmetic="plain")
    algorithm, noise = program_of(config, 60), SeededNoise.from_seed(0)
    run = jax.jit(
        lambda data: loop.run_steps(algorithm, 0, mechanism, noise, data, algorithm.start_at(jnp.zeros(39)))[0]
    )
    theta = np.asarray(algorithm.answer(run(shared(log, rows))))
    solution = lstd(rows)
    states = TABULAR(np.arange(39.0)[:, None])
    assert np.abs(states @ (theta - solution)).max() < 1e-5
    assert helpers.mspbe(solution, *moments(rows)) < 1e-20


@pytest.mark.parametrize(("average", "kept"), [("tail", slice(5, 10)), ("all", slice(0, 10)), ("last", slice(9, 10))])
def test_averages_are_what_they_say(average, kept):
    config = GPOPE(steps=10, step_size=0.1, average=average, project=False, schedule="diminishing", offset=3.0)
    algorithm = program_of(config, 1)
    state = algorithm.start_at(jnp.zeros(2))
    iterates = []
    for step in range(10):
        state = algorithm.update(0, state, jnp.array([1.0, -2.0, 0.0, 0.0]), step)
        iterates.append(np.asarray(state.theta))
    np.testing.assert_allclose(algorithm.answer(state), np.mean(iterates[kept], axis=0), rtol=1e-6)
    steps = np.diff(np.array([[0.0, 0.0], *iterates]), axis=0)[:, 0]
    np.testing.assert_allclose(steps, [-0.1 * 3.0 / (i + 3.0) for i in range(10)], rtol=1e-5)


def test_projection_holds():
    config = GPOPE(steps=1, step_size=1.0)
    in_box, in_ball = program_of(config, 1), program_of(config, 1, make_features("fourier:2", ((0.0, 1.0),)))
    pushed = jnp.array([-9.0, 4.0, 1.0, 0.0, 0.0, 0.0])
    box = in_box.update(0, in_box.start_at(jnp.zeros(3)), pushed, 0).theta
    np.testing.assert_allclose(box, np.array([1.0, -1.0, -1.0]) / np.sqrt(39.0), rtol=1e-6)
    ball = in_ball.update(0, in_ball.start_at(jnp.zeros(3)), pushed, 0).theta
    np.testing.assert_allclose(ball, np.array([9.0, -4.0, -1.0]) / np.sqrt(98.0), rtol=1e-6)


def test_private_run_learns_the_chain_at_epsilon_one():
    """At (1, 1e-5) and 1,000 trajectories the defaults beat both zero and the best constant in root mean square."""
    log, rows = chain(1000, 7, np.float32)
    config = GPOPE(discount=helpers.DISCOUNT, value_budget_fraction=0.05)
    plan = make_plan(config, log.bounds, Budget(1.0, 1e-5), [UniformPolicy(1)], "tabular")
    algorithm = plan.program
    assert algorithm is not None
    assert plan.epsilon_of_event <= 1.0
    data = shared(log, rows)
    keys = jnp.stack([SeededNoise.from_seed(i).key for i in range(4)])

    thetas = np.asarray(jax.jit(jax.vmap(lambda key: loop.run(algorithm, SeededNoise(key), data)[1]))(keys))
    values, truth = 0.5 + 0.5 * thetas @ TABULAR(np.arange(39.0)[:, None]).T, one_shot.chain_values()
    assert np.sqrt(np.mean((values - truth) ** 2)) < 0.9 * truth.std() < np.sqrt(np.mean(truth**2))
