"""Private TD(0) and regression on returns: steps by hand, their noiseless limits, and what their defaults keep."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine import loop as engine
from dprl.errors import DprlError
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import NORM_MARGIN, TD, DescentConfig, DescentState, feature_scale, signal_to_noise
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import Features, make_features
from dprl_papers.baselines.lstd import lstd

from . import helpers, one_shot

GAMMA = 0.9
BOUNDS = helpers.stepped_bounds(40)
CONFIGS = [TD, ReturnRegression]
BOTH = pytest.mark.parametrize("config", CONFIGS)


def program_of(config: DescentConfig, features: str = "tabular", bounds: Bounds = BOUNDS) -> Any:
    return one_shot.make(config, bounds, features)


def vectors_by_hand(config: DescentConfig, log: Trajectories, features: Features, theta: np.ndarray) -> np.ndarray:
    """Each unit's vector, row by row, from values in the reward's unit."""
    ratios = np.where(log.action == 1, 1.2, 0.8)
    low, high = log.bounds.value_interval(config.discount)
    centre, half, gamma = (low + high) / 2, (high - low) / 2, config.discount
    limit = log.bounds.cumulative_ratio
    value = lambda s: centre + half * float(features(np.asarray(s)[None])[0] @ theta)  # noqa: E731
    scale = feature_scale(features, config.decay)
    out = np.zeros((log.units, features.size))
    for unit in range(log.units):
        rows = range(log.episode_offsets[unit], log.episode_offsets[unit + 1])
        beyond = 0.0
        for t in reversed(rows):
            phi = features(log.observation[t][None])[0]
            if isinstance(config, TD):
                onward = 0.0 if log.terminated[t] else value(log.next_observation[t])
                error = ratios[t] * (log.reward[t] + gamma * onward - value(log.observation[t])) / half
            else:
                # centred, so that what is cut is the distance from the middle
                bonus = (log.reward[t] - centre * (1 - gamma * (not log.terminated[t]))) / half
                beyond = np.clip(ratios[t] * (bonus + gamma * beyond), -limit, limit)
                error = beyond - ratios[t] * (value(log.observation[t]) - centre) / half
            out[unit] += error * phi * scale / len(rows)
    return out


@BOTH
@pytest.mark.parametrize("basis", ["tabular", "fourier:2"])
def test_one_step_is_the_one_computed_by_hand(config, basis):
    """theta + step_size a (sum of clipped vectors) / m, with some vectors above the clip and some below."""
    log = one_shot.stepped(40)
    options = config(
        discount=GAMMA, steps=1, step_size=0.7, clip_norm=0.5, cap_step_size=False, decay=0.5, project=False
    )
    program, _, data = one_shot.made(options, log, basis, helpers.stepped_policy)
    features = program.facts.features
    theta = np.random.default_rng(0).normal(size=features.size) * 0.3
    state = DescentState(jnp.asarray(theta), jnp.zeros(features.size))
    mechanism = program.stages[0].mechanism
    total = mechanism.clipped_sum(one_shot.vectors(program, 0, state, data), jnp.ones(log.units, bool))
    after = program.update(0, state, mechanism.scaled(total), 0)

    expected = vectors_by_hand(options, log, features, theta)
    norms = np.linalg.norm(expected, axis=1)
    assert 0 < np.sum(norms > 0.5) < log.units
    clipped = expected * np.minimum(1.0, 0.5 / norms)[:, None]
    step = 0.7 * feature_scale(features, 0.5) * clipped.sum(axis=0) / log.units
    np.testing.assert_allclose(after.theta, theta + step, atol=1e-6)


@BOTH
@pytest.mark.parametrize("off_policy", [False, True])
def test_noiseless_limit_is_the_least_squares_solution(config, off_policy):
    """TD meets LSTD with the same weights, regression on returns their weighted least squares."""
    bounds, policy = helpers.stepped_bounds(60), helpers.stepped_policy
    if not off_policy:
        bounds, policy = dataclasses.replace(bounds, max_importance_ratio=1.0, max_cumulative_ratio=None), None
    options = config(discount=GAMMA, steps=6000, step_size=0.4, cap_step_size=False, average="last", project=False)
    program, rows, data = one_shot.made(options, one_shot.stepped(60, 1, bounds), "tabular", policy)
    theta = one_shot.plain(program, data)[1]
    if config is TD:
        solution = lstd(rows)
    else:
        # per-decision returns over the ratio of their own step, weighted by it
        root, y = np.sqrt(rows.weight * rows.rho), bounds.cumulative_ratio * rows.returns
        target = np.divide(y, rows.rho, out=np.zeros_like(y), where=rows.rho > 0)
        solution = np.linalg.lstsq(root[:, None] * rows.phi, root * target, rcond=None)[0]
    np.testing.assert_allclose(theta, solution, atol=1e-9)


@BOTH
def test_a_sum_is_divided_by_the_public_size_of_a_batch(config):
    """By q m with the declared m, whoever took part; the answer is a mean over the last half of the iterates."""
    options = config(discount=GAMMA, steps=4, sampling_rate=0.25, step_size=0.5, cap_step_size=False, project=False)
    program = program_of(options)
    state, noisy = program.init(), np.array([1.0, -2.0, 3.0])
    for step in range(4):
        state = program.update(0, state, jnp.asarray(noisy), step)
    each = 0.5 * noisy / (0.25 * 40)
    np.testing.assert_allclose(state.theta, 4 * each, rtol=1e-12)
    np.testing.assert_allclose(program.answer(state), 3.5 * each, rtol=1e-12)


@pytest.mark.parametrize(("average", "expected"), [("tail", 4.0), ("all", 3.0), ("last", 5.0)])
def test_averages_of_five_iterates(average, expected):
    options = TD(discount=GAMMA, steps=5, step_size=1.0, cap_step_size=False, project=False, average=average)
    program = program_of(options)
    state = program.init()
    for step in range(5):
        state = program.update(0, state, jnp.full(3, 40.0), step)
    np.testing.assert_allclose(program.answer(state), expected)


@BOTH
def test_theta_stays_where_values_can_be(config):
    huge = jnp.asarray([1e9, -1e9, 1.0])
    for basis in ("tabular", "fourier:2"):
        program = program_of(config(discount=GAMMA), basis)
        theta = np.asarray(program.update(0, program.init(), huge, 0).theta)
        if basis == "tabular":
            values = program.facts.features(np.arange(3.0)[:, None]) @ theta
            np.testing.assert_allclose(values[:2], [1.0, -1.0])
        else:
            assert np.linalg.norm(theta) == pytest.approx(NORM_MARGIN)
        free = program_of(config(discount=GAMMA, project=False), basis)
        assert np.abs(free.update(0, free.init(), huge, 0).theta).max() > 100.0


@BOTH
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_unit_s_vector_is_its_own(config, seed):
    """Units in another order, or twice, keep their vectors; so do a unit's rows in another order, or one cut in two."""
    rng = np.random.default_rng(seed)
    program, _, data = one_shot.made(config(discount=GAMMA), one_shot.stepped(6), "tabular", helpers.stepped_policy)
    block = data.block(slice(None))
    state = DescentState(jnp.asarray(rng.normal(size=3)), jnp.zeros(3))
    vectors = partial(one_shot.of_block, program, 0, state)
    plain = vectors(block)
    assert np.abs(plain).max() > 0

    chosen = rng.integers(0, 6, 9)
    np.testing.assert_allclose(vectors(jax.tree.map(lambda x: x[chosen], block)), plain[chosen], atol=1e-12)
    order = rng.permutation(block.weight.shape[1])
    np.testing.assert_allclose(vectors(jax.tree.map(lambda x: x[:, order], block)), plain, atol=1e-12)
    part = rng.random()
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), block)
    weight = jnp.concatenate([part * block.weight, (1.0 - part) * block.weight], axis=1)
    np.testing.assert_allclose(
        vectors(dataclasses.replace(twice, columns={**twice.columns, "weight": weight})), plain, atol=1e-12
    )


def test_start_at_the_mean_reward():
    """A stage with its share of mu^2: a ratio of two noisy sums, and the constant value that it stands for."""
    log, config = one_shot.stepped(40), TD(discount=GAMMA, start="mean-reward", start_budget_fraction=0.2)
    program, _, data = one_shot.made(config, log, "tabular", helpers.stepped_policy)
    first, updates = (stage.mechanism for stage in program.stages)
    mu = [np.sqrt(m.steps) / m.noise_multiplier for m in (first, updates)]
    assert mu[0] ** 2 / (mu[0] ** 2 + mu[1] ** 2) == pytest.approx(0.2, rel=0.02)
    vectors = program.contribution(0, None, data.block(slice(None)))
    state = program.finish(0, program.update(0, program.init(), vectors.sum(axis=0), 0))
    ratios = np.where(log.action == 1, 1.2, 0.8)
    length = np.repeat(log.lengths(), log.lengths())
    mean = np.sum(ratios * log.reward / length) / np.sum(ratios / length)
    low, high = log.bounds.value_interval(GAMMA)
    level = np.clip((mean / (1 - GAMMA) - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
    np.testing.assert_allclose(program.facts.features(np.arange(3.0)[:, None]) @ state.theta, level, atol=1e-9)
    # without much weight the ratio is that of noise: it is kept near the middle of the rewards
    assert np.all(np.isfinite(program.update(0, program.init(), jnp.asarray([3.0, -1.0]), 0)))


def test_a_mean_reward_that_is_public_costs_nothing():
    bounds = dataclasses.replace(BOUNDS, reward=(-1.0, -1.0), horizon=30)
    program = program_of(TD(discount=GAMMA, start="mean-reward"), bounds=bounds)
    assert len(program.stages) == 1
    low, high = bounds.value_interval(GAMMA)
    expected = max((-10.0 - (low + high) / 2) / ((high - low) / 2), -1.0)
    theta = np.asarray(jax.jit(program.init)().theta)  # as the engine does
    values = program.facts.features(np.arange(3.0)[:, None]) @ theta
    np.testing.assert_allclose(values, expected)
    on_policy = dataclasses.replace(bounds, max_importance_ratio=1.0, max_cumulative_ratio=None)
    assert not np.any(program_of(TD(discount=GAMMA), bounds=on_policy).init().theta)


@BOTH
def test_a_step_size_that_is_off_is_kept_within_a_factor_of_two(config):
    own = program_of(config(discount=GAMMA)).config.step_size
    assert own is not None
    for factor, kept in ((0.1, 0.5), (0.8, 0.8), (10.0, 2.0)):
        given_size = config(discount=GAMMA, step_size=factor * own)
        assert program_of(given_size).config.step_size == pytest.approx(kept * own)
        free = dataclasses.replace(given_size, cap_step_size=False)
        assert program_of(free).config.step_size == pytest.approx(factor * own)


@BOTH
def test_noise_bounds_the_default_step(config):
    """What the noise of all steps adds up to, in L2 and without any pull of the data, stays below 0.4."""
    few = helpers.stepped_bounds(20)  # so few that the noise decides
    for rate in (1.0, 0.3):
        program = program_of(config(discount=GAMMA, sampling_rate=rate), bounds=few)
        mechanism = program.stages[0].mechanism
        walk = program.config.step_size * mechanism.noise_std / (rate * 20) * np.sqrt(3 * mechanism.steps)
        assert walk == pytest.approx(0.4, rel=1e-6)
    full = program_of(config(discount=GAMMA), bounds=few)
    assert signal_to_noise(full.stages[0], 20) == pytest.approx(20 * full.facts.mu, rel=1e-3)


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(DprlError, match=r"^td: [^.]*\.$"):
        TD(start="mean-reward", discount=1.0)
    with pytest.raises(DprlError, match="td: updates with step_size"):
        program_of(TD(step_size=1e30, cap_step_size=False))


def test_fourier_features_are_scaled_by_their_order():
    features = make_features("fourier:2", ((0.0, 1.0), (0.0, 1.0)))
    orders = np.array([i + j for i in range(3) for j in range(3)])
    np.testing.assert_allclose(feature_scale(features, 0.5), (1.0 + orders) ** -0.5)
    np.testing.assert_array_equal(feature_scale(make_features("tabular", ((0.0, 3.0),)), 0.5), np.ones(4))


def chain_errors(options: DescentConfig, units: int, epsilon: float, seeds: int, success: float = 1.0) -> np.ndarray:
    """RMSE of the value function on simulated chains, whole budget."""
    from dprl_papers.domains.chain import chain_domain
    from dprl_papers.harness.problem import Logs

    domain = chain_domain("chain", "chain", success)
    program = one_shot.make(options, domain.bounds(units), "tabular", Budget(epsilon, 1e-5))
    run = jax.jit(lambda noise, data: engine.run(program, noise, data)[1])
    out = []
    for seed in range(seeds):
        layout = Logs(domain, units, (seed,)).shared_layout(units)
        data = layout.of_units(lambda x: x[0])
        theta = np.asarray(run(SeededNoise.from_seed(seed), data))
        values = 0.5 + 0.5 * program.facts.features(domain.truth.states) @ theta
        out.append(domain.truth.rmse(np.clip(values, 0, 1)))
    return np.array(out)


@pytest.mark.parametrize(("config", "bound"), [(TD(), 0.02), (ReturnRegression(), 0.015)])
def test_defaults_on_the_chain(config, bound):
    """1,000 trajectories at epsilon 1: two orders of magnitude better than a value of zero (0.71)."""
    assert chain_errors(config, 1000, 1.0, 1)[0] < bound


@pytest.mark.slow
@pytest.mark.parametrize(("config", "bound"), [(TD(), 0.16), (ReturnRegression(), 0.06)])
def test_defaults_on_the_chain_with_a_small_budget(config, bound):
    """1,000 trajectories at epsilon 0.1; a step size ten times off costs at most a factor of two."""
    error = chain_errors(config, 1000, 0.1, 6).mean()
    assert error < bound
    own = one_shot.make(config, helpers.chain_bounds(1000, 1000), "tabular", Budget(0.1, 1e-5)).config.step_size
    for factor in (0.1, 10.0):
        off = dataclasses.replace(config, step_size=factor * own)
        assert chain_errors(off, 1000, 0.1, 6).mean() < 2.0 * error
