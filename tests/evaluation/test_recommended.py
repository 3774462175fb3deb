"""The recommended default: what it chooses, what it releases of a unit, and how near the truth it comes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.engine.layouts import padded_units
from dprl.engine.loop import run
from dprl.engine.program import PublicFacts, Stage
from dprl.engine.rows import rows_of
from dprl.evaluation import adassp
from dprl.evaluation.adassp import AdaSSPProgram, modes_of
from dprl.evaluation.checked_descent import TABLE_SHARES, CheckedReturns, CheckedTD, statistics_options
from dprl.evaluation.plan import program_for
from dprl.evaluation.private_constant import PrivateConstant, PrivateConstantProgram
from dprl.evaluation.recommended import Recommended, choose_method
from dprl.evaluation.return_regression import ReturnRegression
from dprl.evaluation.td import TD, TDProgram
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features
from dprl.value_functions.value_function import ValueFunction
from dprl_papers.domains.chain import Chain, draw_log

from . import helpers, one_shot

CHAIN = helpers.chain_bounds(1000, 1000)
WEAK, STRONG, PLENTY = Budget(0.1, 1e-5), Budget(1.0, 1e-5), Budget(60.0, 1e-5)


def facts(bounds: Bounds, mu: float, features: str = "columns") -> PublicFacts:
    return PublicFacts(bounds, make_features(features, bounds.observation), 0.99, mu)


@pytest.mark.parametrize(
    ("changes", "features", "mu", "expected"),
    [
        ({}, "columns", 0.03, "returns, checked"),
        ({"reward": (-1.0, -1.0), "return_range": (-100.0, 0.0)}, "columns", 0.3, "returns"),
        ({"reward": (-1.0, -1.0), "return_range": (-100.0, 0.0)}, "tabular", 0.2, "returns, checked"),
        ({"reward": (-1.0, -1.0), "return_range": (-100.0, 0.0)}, "tabular", 0.3, "statistics"),
        ({}, "tabular", 0.03, "returns, checked"),
        ({}, "columns", 0.3, "returns, checked"),
        ({}, "rbf:5", 0.3, "returns"),
        ({"max_importance_ratio": 2.0}, "columns", 0.03, "td"),
        ({"max_importance_ratio": 2.0}, "columns", 30.0, "td"),
        ({"max_importance_ratio": 2.0}, "tabular", 0.3, "td"),
        ({"max_importance_ratio": 2.0}, "tabular", 3.0, "td, checked"),
        ({"horizon": 1, "max_importance_ratio": 4.0}, "columns", 0.3, "constant"),
        ({"horizon": 1, "max_importance_ratio": 4.0}, "columns", 3.0, "statistics"),
        ({"horizon": 1, "max_importance_ratio": 4.0}, "rbf:5", 3.0, "constant"),
    ],
)
def test_it_chooses_by_public_facts(changes: dict[str, Any], features: str, mu: float, expected: str) -> None:
    assert choose_method(facts(replace(CHAIN, **changes), mu, features)) == expected


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
    program, _, data = one_shot.made(config, log, features, bounds=known.bounds)
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


# --- what is released of a unit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [WEAK, STRONG])
@pytest.mark.parametrize("agrees", [0.0, 1.0])
def test_what_is_released_beside_the_descents_is_within_its_clip_norm(budget: Budget, agrees: float) -> None:
    bounds = replace(one_shot.extreme_bounds(40), max_importance_ratio=1.0, max_cumulative_ratio=1.0, units=1_500)
    log = one_shot.load(one_shot.extreme_log(40, 3), bounds, "person_id")
    program, _, data = one_shot.made(Recommended(discount=0.9), log, "tabular", budget=budget)
    assert isinstance(program, CheckedReturns)
    state = program.init()
    unclipped = {0, 2} | ({3} if len(program.stages) == 4 and not agrees else set())  # statistics, where it fails
    for theta in np.random.default_rng(0).normal(size=(5, len(state.theta))) * 0.7:
        here = state._replace(level=jnp.float64(theta[0]), theta=jnp.asarray(theta), agrees=jnp.float64(agrees))
        for stage in unclipped:
            made = np.linalg.norm(one_shot.vectors(program, stage, here, data), axis=1)
            assert made.max() <= program.stages[stage].mechanism.clip_norm * (1 + 1e-6)


@pytest.mark.parametrize("features", ["tabular", "columns", "fourier:3"])
def test_what_is_left_goes_to_td_of_a_table_where_the_check_agrees_and_else_to_statistics(features: str) -> None:
    log = draw_log(Chain(), replace(CHAIN, units=40), 1)
    program, _, data = one_shot.made(Recommended(), log, features, bounds=CHAIN, budget=STRONG)
    assert isinstance(program, CheckedReturns)
    clip, size = program.stages[3].mechanism.clip_norm, program.facts.features.size
    theta = 0.1 * np.random.default_rng(0).normal(size=size)
    state = program.init()._replace(level=jnp.float64(0.3))
    state = state._replace(td=state.td._replace(theta=jnp.asarray(theta)))
    if features == "tabular":
        made = one_shot.vectors(program, 3, state._replace(agrees=jnp.float64(1.0)), data)
        error = data.reward - data.delta_phi @ theta
        np.testing.assert_allclose(made[:, :size], np.einsum("bl,bln->bn", data.weight * error, data.phi), atol=1e-5)
        assert not made[:, size:].any()
    asked = statistics_options(program.facts, 0.99, 0.0)
    length, norm = asked.statistics(program.facts)
    alone = asked.program(program.facts, (program.stages[0], program.stages[3]))
    expected = alone.vectors(adassp.State(jnp.float64(0.3), jnp.zeros(size)), data.block(slice(None)))
    made = one_shot.vectors(program, 3, state, data)
    np.testing.assert_allclose(made[:, :length], clip / norm * np.asarray(expected), rtol=1e-5, atol=1e-9)
    assert not made[:, length:].any()


def test_statistics_asked_for_in_every_step_are_those_asked_for_once() -> None:
    program, _, data = one_shot.made(Recommended(), draw_log(Chain(), CHAIN, 1), "tabular", budget=STRONG)
    assert isinstance(program, CheckedReturns)
    state = program.init()._replace(level=jnp.float64(0.3))
    total = one_shot.vectors(program, 3, state, data).sum(axis=0)
    steps = program.stages[3].mechanism.steps
    for step in range(steps):
        state = program.update(3, state, jnp.asarray(total), step)
    # of shrunken products, as many and as noisy as here; no noise was drawn, so that they are shrunk a little
    asked = statistics_options(program.facts, 0.99, 0.0)
    length, norm = asked.statistics(program.facts)
    std = norm / program.facts.mu / np.sqrt(TABLE_SHARES[3])
    sums = total[:length] * norm / program.stages[3].mechanism.clip_norm
    modes = modes_of("adassp", asked.modes, program.facts)
    products = sums[-modes:] * max(0.0, 1.0 - modes * std**2 / np.sum(sums[-modes:] ** 2))
    once = GaussianSum(parts=((length, norm),), noise_multiplier=std / norm)
    solver = asked.program(program.facts, (program.stages[0], Stage("statistics", once)))
    around = solver.solution(jnp.float64(0.3), jnp.asarray(np.concatenate([sums[:-modes], products])))
    flat = np.asarray(program.facts.features.constant())
    expected = np.clip(0.3 * flat + around, -program.facts.box, program.facts.box)
    assert float(np.abs(expected - 0.3 * flat).max()) > 0.01  # they say something
    np.testing.assert_allclose(program.answer(state), expected, atol=1e-5)


def test_stages_are_means_of_returns_of_values_and_of_errors_times_modes() -> None:
    log = draw_log(Chain(), replace(CHAIN, units=6), 1)
    program, _, data = one_shot.made(Recommended(), log, "tabular", bounds=CHAIN, budget=WEAK)
    theta = np.array([0.2, -0.5, 0.1, 0.05, 0.3])[: len(program.init().theta)]
    state = program.init()._replace(theta=jnp.asarray(theta))
    cells = np.arange(39)
    modes = (
        np.cos(np.pi * (cells[:, None] + 0.5) / 39 * np.arange(len(theta))) * np.sqrt([1.0] + [2.0] * 8)[: len(theta)]
    )
    values = modes @ theta
    low, high = np.clip([values.min(), values.max()], -1.0, 1.0)
    mean_return, gradient, mean_value = (one_shot.vectors(program, stage, state, data) for stage in range(3))
    for unit in range(6):
        at = log.observation[log.episode_offsets[unit] : log.episode_offsets[unit + 1], 0].astype(int)
        y = 2.0 * 0.99 ** np.arange(len(at) - 1, -1, -1.0) - 1.0
        np.testing.assert_allclose(mean_return[unit, 0], y.mean(), atol=1e-9)
        np.testing.assert_allclose(gradient[unit], ((y - values[at])[:, None] * modes[at]).mean(axis=0), atol=1e-9)
        found = (np.clip(values[at], low, high).mean() - (low + high) / 2.0) / ((high - low) / 2.0)
        np.testing.assert_allclose(mean_value[unit, 0], found, atol=1e-9)


def test_off_policy_the_check_of_td_is_the_mean_of_errors_weighted_by_their_own_ratios() -> None:
    bounds = replace(one_shot.extreme_bounds(40), units=20_000)
    log = one_shot.load(one_shot.extreme_log(40, 3), bounds, "person_id")
    config = Recommended(discount=0.9)
    program, _, data = one_shot.made(config, log, "tabular", one_shot.extreme_policy, budget=STRONG)
    assert isinstance(program, CheckedTD)
    state = program.init()
    theta = np.random.default_rng(2).normal(size=len(state.td.theta)) * 0.3
    state = state._replace(td=state.td._replace(theta=jnp.asarray(theta)))
    made = one_shot.vectors(program, 2, state, data)[:, 0]
    error = data.reward - data.delta_phi @ theta
    assert float(jnp.max(data.rho)) > 1.0
    np.testing.assert_allclose(made, np.sum(data.weight * data.rho * error, axis=1) / 2.0, atol=1e-5)


def test_off_policy_where_the_check_of_td_fails_the_answer_is_the_mean_return() -> None:
    bounds = replace(one_shot.extreme_bounds(40), units=20_000)
    program = one_shot.make(Recommended(discount=0.9), bounds, "tabular", STRONG)
    assert len(program.stages) == 3
    flat = np.asarray(program.facts.features.constant())
    found = 0.01 * np.random.default_rng(0).normal(size=len(flat))
    state = program.init()._replace(level=jnp.float64(-0.6))
    state = state._replace(td=state.td._replace(theta=jnp.asarray(found)))
    most = max(3.0 * program.stages[2].mechanism.noise_std, 0.01 * 20_000)
    for noisy, agrees in ((0.99, 1.0), (-0.99, 1.0), (1.01, 0.0), (-1.01, 0.0)):
        after = program.update(2, state, jnp.asarray([noisy * most]), 0)
        assert float(after.agrees) == agrees
        np.testing.assert_allclose(program.answer(after), found if agrees else -0.6 * flat, atol=1e-9)


@pytest.mark.parametrize(
    ("budget", "features", "slack"), [(WEAK, "tabular", 0.02), (STRONG, "tabular", 0.1), (STRONG, "columns", 0.02)]
)
def test_where_the_means_differ_the_answer_is_the_mean_return_and_what_statistics_add(
    budget: Budget, features: str, slack: float
) -> None:
    program = one_shot.make(Recommended(), CHAIN, features, budget)
    state = program.finish(0, program.init()._replace(level=jnp.float64(-0.6)))
    constant = np.asarray(program.facts.features.constant())
    noise = program.stages[0].mechanism.noise_std / 1000
    most = max(3.0 * noise, slack) if (budget, features) == (STRONG, "tabular") else 2.0 * noise + slack
    found = 0.01 * np.random.default_rng(0).normal(size=len(constant))
    for apart, agrees in ((0.99 * most, 1.0), (-0.99 * most, 1.0), (1.01 * most, 0.0), (-1.01 * most, 0.0)):
        # theta is the level itself: constant, so that the range of its values has the least width
        after = program.update(2, state, jnp.asarray([apart / 1e-3 * 1000]), 0)
        assert float(after.agrees) == agrees
        total = program.stages[-1].mechanism.steps // 2 * jnp.asarray(found)  # of the iterates of the last half
        after = after._replace(td=after.td._replace(theta=jnp.asarray(found), total=total))
        expected = found if agrees else -0.6 * constant  # nothing was asked, so that statistics add nothing
        if agrees and (budget, features) == (STRONG, "tabular"):  # TD began at the level
            expected = -0.6 * constant + _kept(program, found + 0.6 * constant) * (found + 0.6 * constant)
        np.testing.assert_allclose(program.answer(after), expected, atol=1e-9)


def _kept(program: Any, move: np.ndarray) -> float:
    """Return how much of TD's way is kept, beside a tenth of the noise of as many means with its stage's budget."""
    mechanism = program.stages[3].mechanism
    step = program._td.config.step_size * mechanism.noise_std / program.facts.units  # of a free walk
    travel = program._td.config.step_size * mechanism.clip_norm * mechanism.steps
    noise = len(move) * step**2 * mechanism.steps / travel**2
    return float(move @ move / (move @ move + 0.1 * noise))


def test_of_what_td_moves_that_is_kept_which_its_noise_does_not_explain() -> None:
    program = one_shot.make(Recommended(), CHAIN, "tabular", STRONG)
    state = program.finish(0, program.init()._replace(level=jnp.float64(0.0), agrees=jnp.float64(1.0)))
    way = np.random.default_rng(1).normal(size=program.facts.features.size)
    steps, kept = program.stages[3].mechanism.steps // 2, []
    for length in (1e-4, 1e-3, 1e-2, 0.1):
        found = length * way / np.linalg.norm(way)
        after = state._replace(td=state.td._replace(total=steps * jnp.asarray(found)))
        answer = np.asarray(program.answer(after))
        np.testing.assert_allclose(answer, _kept(program, found) * found, rtol=1e-9)
        kept.append(np.linalg.norm(answer) / length)
    assert kept[0] < 0.01
    assert kept[-1] > 0.5
    assert sorted(kept) == kept


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
    assert _errors(PLENTY, 400, 1.0, range(2), Recommended()).max() < 0.012
    # the returns of 400 trajectories leave 0.02 whoever looks at them; the best constant has 0.031
    assert _errors(PLENTY, 400, 0.2, range(4), Recommended()).mean() < 0.029


@pytest.mark.slow
@pytest.mark.parametrize(("success", "factor"), [(1.0, 0.5), (0.2, 1.05)])
@pytest.mark.parametrize(("units", "epsilon", "logs"), [(1000, 1.0, 8), (5000, 0.1, 8), (1000, 0.1, 60)])
def test_it_beats_the_private_constant_or_is_as_good(
    units: int, epsilon: float, logs: int, success: float, factor: float
) -> None:
    budget, trials = Budget(epsilon, 1e-5), range(3000, 3000 + logs)
    ours, constant = (_errors(budget, units, success, trials, c) for c in (Recommended(), PrivateConstant()))
    slack = 0.0 if success == 1.0 else 0.01
    assert ours.mean() < factor * constant.mean() + slack


def test_a_weak_one_step_log_gets_exactly_the_private_constant() -> None:
    bounds = helpers.bandit_bounds(100)
    program = one_shot.make(Recommended(), bounds, "columns", WEAK)
    assert isinstance(program, PrivateConstantProgram)
    assert program == one_shot.make(PrivateConstant(), bounds, "columns", WEAK)


def test_a_strong_one_step_log_gets_statistics_of_all_columns() -> None:
    bounds = helpers.bandit_bounds(5000)
    program = one_shot.make(Recommended(), bounds, "columns", PLENTY)
    assert isinstance(program, AdaSSPProgram)
    assert program.config.modes == program.facts.features.size


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


def test_features_of_which_no_modes_are_known_get_regression_on_returns() -> None:
    program = one_shot.make(Recommended(), CHAIN, "rbf:5", WEAK)
    assert program == one_shot.make(ReturnRegression(), CHAIN, "rbf:5", WEAK)
