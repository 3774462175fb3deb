"""The recommended default: what it chooses, the bound of its vectors, and how near the truth it comes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.budget import Budget
from dprl.engine.layouts import Block, padded_units
from dprl.engine.program import PublicFacts, run
from dprl.engine.rows import COEFFICIENTS, rows_of
from dprl.evaluation.plan import program_for
from dprl.evaluation.private_constant import PrivateConstant, PrivateConstantProgram
from dprl.evaluation.recommended import Recommended, choose
from dprl.evaluation.recommended_statistics import Statistics
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import TD, TDProgram
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds
from dprl.value_functions.features import make_features
from dprl.value_functions.linear import ValueFunction
from dprl_papers.domains.chain import draw_log
from dprl_papers.harness.exact_chain import Chain

from . import helpers, one_shot

CHAIN = Bounds(
    units=1000, horizon=1000, reward=(0.0, 1.0), observation=((0.0, 38.0),), actions=1, return_range=(0.0, 1.0)
)
WEAK, STRONG, PLENTY = Budget(0.1, 1e-5), Budget(1.0, 1e-5), Budget(60.0, 1e-5)


def facts(bounds: Bounds, mu: float, features: str = "columns") -> PublicFacts:
    return PublicFacts(bounds, make_features(features, bounds.observation), 0.99, mu)


@pytest.mark.parametrize(
    ("changes", "mu", "expected"),
    [
        ({}, 0.03, "statistics"),
        ({}, 0.3, "statistics and descent"),
        ({"max_importance_ratio": 2.0}, 0.03, "td"),
        ({"max_importance_ratio": 2.0}, 30.0, "td"),
        ({"horizon": 1, "max_importance_ratio": 4.0}, 0.3, "constant"),
        ({"horizon": 1, "max_importance_ratio": 4.0}, 3.0, "statistics"),
        ({"units": 3000}, 0.03, "statistics and descent"),
        ({"reward": (-1.0, -1.0), "return_range": (-100.0, 0.0)}, 0.03, "returns"),
    ],
)
def test_it_chooses_by_public_facts(changes: dict[str, Any], mu: float, expected: str) -> None:
    assert choose(facts(replace(CHAIN, **changes), mu)) == expected


@pytest.mark.parametrize("features", ["tabular", "columns", "fourier:3", "fourier-coupled:3"])
@pytest.mark.parametrize("mu", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("changes", [{}, {"max_importance_ratio": 2.0}, {"horizon": 1, "max_importance_ratio": 4.0}])
def test_shares_sum_to_one_and_vectors_have_the_stated_length(
    features: str, mu: float, changes: dict[str, Any]
) -> None:
    known = facts(replace(CHAIN, **changes), mu, features)
    config = Recommended()
    shapes = config.queries(known)
    assert sum(shape.share for shape in shapes) == pytest.approx(1.0, abs=1e-12)
    log = draw_log(Chain(), replace(CHAIN, units=5), 0)
    program = one_shot.make(config, known.bounds, features)
    data = padded_units(one_shot.rows(log, program, config, features))
    state: Any = jax.eval_shape(program.init)
    for number, stage in enumerate(program.stages):
        size = stage.mechanism.dimension
        vectors = jax.eval_shape(partial(program.contribution, number), state, data.block(slice(None)))
        assert vectors.shape == (5, size)
        noisy = jax.ShapeDtypeStruct((size,), jnp.float64)
        updated = jax.eval_shape(partial(program.update, number, step=0), state, noisy)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), updated) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
        state = jax.eval_shape(partial(program.finish, number), updated)
    assert jax.eval_shape(program.answer, state).shape == (known.features.size,)
    assert hash(program) == hash(one_shot.make(config, known.bounds, features))


# --- the norm of a unit's vector --------------------------------------------------------------------------------------


def _block(rng: np.random.Generator, phi: np.ndarray, units: int, extreme: bool) -> Block:
    """Random units: any weights that sum to at most one, any returns in [-1, 1]."""
    L = len(phi)

    def weights() -> np.ndarray:
        some = rng.dirichlet(np.full(L, 0.05), units)
        some[rng.random(units) < 0.3] = np.eye(L)[rng.integers(L)]
        return some * rng.choice([1.0, 1.0, 0.3], (units, 1))

    y = rng.choice([-1.0, 1.0], (units, L)) if extreme else rng.uniform(-1.0, 1.0, (units, L))
    if extreme and rng.random() < 0.5:
        y = np.broadcast_to(y[:, :1], y.shape)
    weight, start = weights(), weights()
    ends = rng.choice([-1.0, 1.0]) if extreme else rng.uniform(-1.0, 1.0, (units, L))
    early = rng.choice([0.0, 1.0], (units, L))
    columns = {"phi": phi, "weight": weight, "start": start, "weight_return": weight * y, "start_return": start * y}
    return Block({**columns, "weight_end": weight * ends, "start_end": start * ends, "start_early": start * early})


@pytest.mark.parametrize(
    ("features", "observation", "budget"),
    [
        ("tabular", ((0.0, 38.0),), STRONG),
        ("fourier:3", ((0.0, 1.0), (0.0, 1.0)), WEAK),
        ("fourier-coupled:2", ((0.0, 1.0), (0.0, 1.0)), STRONG),
        ("columns", ((0.0, 1.0),) * 4, WEAK),
        # each kind under the other budget
        pytest.param("tabular", ((0.0, 38.0),), WEAK, marks=pytest.mark.slow),
        pytest.param("fourier:3", ((0.0, 1.0), (0.0, 1.0)), STRONG, marks=pytest.mark.slow),
        pytest.param("fourier-coupled:2", ((0.0, 1.0), (0.0, 1.0)), WEAK, marks=pytest.mark.slow),
        pytest.param("columns", ((0.0, 1.0),) * 4, STRONG, marks=pytest.mark.slow),
    ],
)
def test_no_unit_is_longer_than_the_declared_norm(features: str, observation: Any, budget: Budget) -> None:
    bounds = replace(CHAIN, observation=observation)
    program = one_shot.make(Recommended(), bounds, features, budget)
    assert isinstance(program, Statistics)
    known = make_features(features, observation)
    low, high = np.array(observation).T
    rng = np.random.default_rng(3)
    states = np.concatenate([rng.uniform(low, high, (30, len(low))), [low, high]])
    phi = known(np.round(states) if features == "tabular" else states)
    state = program.init()

    @partial(jax.jit, static_argnums=0)
    def norms(stage: int, covariance: jax.Array, start: jax.Array, block: Block) -> jax.Array:
        designed = program._design(stage, state._replace(covariance=covariance), start)
        return jnp.linalg.norm(program.contribution(stage, designed, block), axis=1)

    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), stage=st.integers(0, 1), extreme=st.booleans(), spread=st.floats(1e-4, 2.0))
    def check(seed: int, stage: int, extreme: bool, spread: float) -> None:
        rng = np.random.default_rng(seed)
        K = program.settings.modes.size
        root = rng.normal(size=(K, K)) * spread
        start = jnp.asarray(float(rng.random() < 0.5))
        found = norms(stage, jnp.asarray(root @ root.T + 1e-9 * np.eye(K)), start, _block(rng, phi, 8, extreme))
        assert float(found.max()) <= 1.0 + 1e-9

    check()


def test_the_norm_is_reached() -> None:
    program = one_shot.make(Recommended(), CHAIN, "tabular", WEAK)
    known = make_features("tabular", CHAIN.observation)
    phi = known(np.arange(39.0)[:, None])
    one = np.eye(39)
    block = Block({"phi": phi, **dict.fromkeys(COEFFICIENTS, one)})
    vectors = np.asarray(program.contribution(0, program.init(), block))
    assert np.linalg.norm(vectors, axis=1).max() > 0.98


@pytest.mark.parametrize("budget", [WEAK, STRONG])
def test_statistics_are_weighted_means_of_returns_occupancies_and_ends(budget: Budget) -> None:
    log = draw_log(Chain(), replace(CHAIN, units=6), 1)
    config = Recommended()
    program = one_shot.make(config, CHAIN, "tabular", budget)
    data = padded_units(one_shot.rows(log, program, config, "tabular"))
    state = program.init()
    modes, s = program.settings.modes, program.settings
    got = one_shot.vectors(program, 0, state, data)
    a, beta = np.asarray(state.strategy), float(state.occupancy)
    a2 = program._occupancy_strategy()
    for unit in range(6):
        rows = slice(log.episode_offsets[unit], log.episode_offsets[unit + 1])
        cells = log.observation[rows, 0].astype(int)
        G = np.array([0.99 ** (len(cells) - 1 - t) for t in range(len(cells))])
        y = 2.0 * G - 1.0
        weights = [np.eye(len(cells))[0], np.full(len(cells), 1.0 / len(cells))][0 if s.start else 1]
        parts = [a * ((weights * y) @ modes.grid[cells])]
        parts += [beta * a2 * modes.second_grid[x].mean(axis=0) for x in (cells[:1], cells)[: s.occupancies]]
        # every trajectory of the chain ends, and is paid at its end alone
        parts += [s.ends * np.asarray(program._ends_strategy(0)) * ((weights * y) @ modes.grid[cells]), np.zeros(1)]
        square = 1.0 + s.occupancies * beta**2 + s.ends**2 + s.early**2
        expected = np.concatenate(parts) / np.sqrt(square)
        np.testing.assert_allclose(got[unit], expected, atol=1e-9)
    assert s.choose == (budget is STRONG)


# --- answers ----------------------------------------------------------------------------------------------------------


@cache
def _fit(config: Any, budget: Budget, units: int) -> tuple[Any, Any]:
    bounds = replace(CHAIN, units=units)
    program = program_for(config, bounds, make_features("tabular", bounds.observation), budget)
    return program, jax.jit(lambda key, data: run(program, SeededNoise(key), data)[1])


def _errors(budget: Budget, units: int, success: float, seeds: range, config: Any) -> np.ndarray:
    """RMSE of each trial, on the chain whose terminal reward is paid with probability ``success``."""
    program, fit = _fit(config, budget, units)
    bounds = replace(CHAIN, units=units)
    features = make_features("tabular", bounds.observation)
    out = []
    for seed in seeds:
        log = draw_log(Chain(), bounds, seed, success)
        rows = rows_of(log, np.ones(len(log.reward)), features, 0.99, (0.0, 1.0), columns=program.columns)
        data = padded_units(rows)
        pad = 256 - data.reward.shape[1]
        data = jax.tree.map(lambda x, pad=pad: jnp.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2)), data)
        theta = np.asarray(fit(jnp.asarray([7, seed], jnp.uint32), data))
        value = ValueFunction(theta, features, (0.0, 1.0))(np.arange(39.0))
        out.append(np.sqrt(np.mean((value - success * Chain().values()) ** 2)))
    return np.array(out)


def test_it_is_near_the_truth_where_there_is_no_noise_to_speak_of() -> None:
    assert _errors(PLENTY, 400, 1.0, range(2), Recommended()).max() < 0.01
    # the returns of 400 trajectories leave 0.02 whoever looks at them; the best constant has 0.031
    assert _errors(PLENTY, 400, 0.2, range(4), Recommended()).mean() < 0.029


@pytest.mark.slow
@pytest.mark.parametrize("success", [1.0, 0.2])
@pytest.mark.parametrize(
    ("units", "epsilon", "logs"), [(1000, 1.0, 8), (5000, 0.1, 8), (1000, 0.3, 120), (1000, 0.1, 200)]
)
def test_it_beats_the_private_constant_and_zero(units: int, epsilon: float, logs: int, success: float) -> None:
    budget = Budget(epsilon, 1e-5)
    trials = range(3000, 3000 + logs)
    ours = _errors(budget, units, success, trials, Recommended())
    constant = _errors(budget, units, success, trials, PrivateConstant())
    zero = np.sqrt(np.mean((success * Chain().values()) ** 2))
    standard_error = np.std(ours - constant, ddof=1) / np.sqrt(len(ours))
    assert ours.mean() < constant.mean() - 2.0 * standard_error
    assert ours.mean() < zero


@pytest.mark.slow
def test_a_step_ten_times_off_costs_at_most_twice_the_error() -> None:
    trials = range(3000, 3008)
    base, short, long = (
        _errors(STRONG, 1000, 1.0, trials, Recommended(step_scale=scale)).mean() for scale in (1.0, 0.1, 10.0)
    )
    assert max(short, long) < 2.0 * base


@pytest.mark.slow
def test_with_a_tiny_budget_it_is_the_constant() -> None:
    bounds = replace(CHAIN, units=60)
    config = Recommended()
    log = draw_log(Chain(), bounds, 0)
    program = one_shot.make(config, bounds, "tabular", WEAK)
    data = padded_units(one_shot.rows(log, program, config, "tabular"))
    strategy = np.asarray(program.init().strategy)
    assert strategy[0] > 0.995
    assert np.abs(strategy[1:]).max() < 0.05
    fit = jax.jit(lambda key: run(program, SeededNoise(key), data)[1])
    # one over n0 is 0.5: what is not constant stays well below the noise of the constant
    values = np.sqrt(39) * np.array([fit(jnp.asarray([1, seed], jnp.uint32)) for seed in range(10)])
    assert np.ptp(values, axis=1).mean() < 0.5 * values.mean(axis=1).std()


def test_a_weak_one_step_log_gets_exactly_the_private_constant() -> None:
    bounds = helpers.bandit_bounds(100)
    program = one_shot.make(Recommended(), bounds, "columns", WEAK)
    assert isinstance(program, PrivateConstantProgram)
    assert program == one_shot.make(PrivateConstant(), bounds, "columns", WEAK)


# --- off-policy, and rewards that are a single number -------------------------------------------------------------


def test_off_policy_it_is_td_with_a_larger_clip_where_rewards_vary() -> None:
    bounds = helpers.stepped_bounds(1000)
    same = replace(bounds, reward=(-1.0, -1.0), return_range=(-10.0, 0.0))
    for known, factor in ((bounds, 3.0), (same, 1.0)):
        program = one_shot.make(Recommended(discount=0.9), known, "fourier:2", PLENTY)
        plain = one_shot.make(TD(discount=0.9, steps=50), known, "fourier:2", PLENTY)
        assert isinstance(program, TDProgram)
        assert isinstance(plain, TDProgram)
        (ours,), (theirs,) = program.stages, plain.stages
        assert ours.mechanism.clip_norm == pytest.approx(factor * theirs.mechanism.clip_norm)
        if factor == 1.0:
            assert program.config == plain.config
        else:
            assert program.config.step_size is not None
            travel = program.config.step_size * ours.mechanism.clip_norm * ours.mechanism.steps
            assert travel == pytest.approx(1.2)


def test_a_reward_that_is_always_the_same_asks_for_regression_on_returns() -> None:
    bounds = replace(CHAIN, units=1000, reward=(-1.0, -1.0), return_range=(-100.0, 0.0))
    for budget in (WEAK, PLENTY):
        program = one_shot.make(Recommended(), bounds, "columns", budget)
        assert program == one_shot.make(ReturnRegression(step_size=program.config.step_size), bounds, "columns", budget)


@pytest.mark.parametrize("reward", [(0.0, 1.0), (-1.0, -1.0)])
def test_a_step_scale_is_cut_at_two_and_at_what_the_noise_allows(reward: tuple[float, float]) -> None:
    bounds = replace(helpers.stepped_bounds(1000), reward=reward, return_range=(-10.0, 10.0))
    steps = [
        one_shot.make(Recommended(step_scale=scale), bounds, "columns", WEAK).config.step_size
        for scale in (1e-6, 0.5, 1.0, 2.0, 1e6)
    ]
    np.testing.assert_allclose(np.array(steps) / steps[2], [0.5, 0.5, 1.0, 2.0, 2.0])
