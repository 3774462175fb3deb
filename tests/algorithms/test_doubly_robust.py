"""The doubly robust value: unbiased by enumeration, plain averages, and what it gains."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.algorithms.evaluation.doubly_robust import DoublyRobust
from dprl.algorithms.evaluation.program import run
from dprl.algorithms.evaluation.unit_data import padded_units
from dprl.errors import DprlError
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds

from . import helpers, one_shot

GAMMA = 0.9


def small_process(seed: int) -> SimpleNamespace:
    """Three steps over four states and two actions, that differ from step to step: all trajectories and the truth."""
    rng = np.random.default_rng(seed)
    reward, following = rng.random((3, 4, 2)), rng.dirichlet(np.ones(4), size=(3, 4, 2))
    behavior, target = rng.dirichlet([2.0, 2.0], size=4), rng.dirichlet([2.0, 2.0], size=4)
    value = np.zeros(4)
    for t in (2, 1, 0):
        value = np.sum(target * (reward[t] + GAMMA * following[t] @ value), axis=1)
    rows: dict[str, list[float]] = {
        k: [] for k in ("episode_id", "t", "observation", "action", "reward", "behavior_prob", "terminated")
    }
    chances = []
    for number, (start, *moves) in enumerate(itertools.product(range(4), *[range(2), range(4)] * 3)):
        state, chance = start, 0.25
        for t in range(3):
            action, after = moves[2 * t], moves[2 * t + 1]
            chance *= behavior[state, action] * following[t, state, action, after]
            row = (number, t, 4 * t + state, action, reward[t, state, action], behavior[state, action], t == 2)
            for name, x in zip(rows, row, strict=True):
                rows[name].append(float(x))
            state = after
        chances.append(chance)
    policy = lambda states: target[states[:, 0].astype(int) % 4]  # noqa: E731
    largest = float((target / behavior).max())
    return SimpleNamespace(
        columns={k: np.array(v) for k, v in rows.items()}, chances=np.array(chances), policy=policy,
        value=value.mean(), largest=largest,
    )  # fmt: skip


def process_bounds(units: int, largest: float, cumulative: float | None = None) -> Bounds:
    return Bounds(
        units=units, horizon=3, reward=(0.0, 1.0), observation=((0.0, 11.0),), actions=2,
        max_importance_ratio=largest * (1 + 1e-9),
        max_cumulative_ratio=(largest**3 if cumulative is None else cumulative) * (1 + 1e-9),
    )  # fmt: skip


def expected(process: SimpleNamespace, values: np.ndarray, cumulative: float | None = None) -> float:
    """E[f] under the behaviour policy, by enumeration, with these ``(12,)`` values as the value function."""
    config = DoublyRobust(discount=GAMMA, reach=1e6)
    bounds = process_bounds(len(process.chances), process.largest, cumulative)
    program = one_shot.make(config, bounds, "tabular")
    log = one_shot.load(process.columns, bounds)
    data = padded_units(one_shot.rows(log, program, config, "tabular", process.policy))
    theta = jnp.asarray((values - program.centre) / program.half / math.sqrt(12.0))
    state = program.init()
    state = state._replace(function=state.function._replace(theta=theta))
    f = one_shot.vectors(program, len(program.stages) - 1, state, data)[:, 0]
    return program.centre + program.half * program.reach * float(process.chances @ f)


@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_unbiased_for_every_value_function(seed):
    process = small_process(seed)
    assert process.chances.sum() == pytest.approx(1.0)
    low, high = process_bounds(9, process.largest).value_interval(GAMMA)
    rng = np.random.default_rng(seed + 10)
    for values in (np.full(12, low), np.full(12, high), rng.uniform(low, high, 12), rng.uniform(low, high, 12)):
        assert expected(process, values) == pytest.approx(process.value, rel=1e-9)


def test_cut_ratios_cost_less_where_the_value_function_is_good():
    """With products cut at 1.2 there is a bias: the mean of temporal differences, and not of rewards."""
    process = small_process(0)
    assert process.largest > 1.5
    values = np.zeros(12)
    bad = expected(process, np.zeros(12), 1.2)
    # the true values of each step, from the trajectories themselves
    log = one_shot.load(process.columns, process_bounds(9, process.largest))
    target = process.policy(log.observation)[np.arange(len(log.action)), log.action]
    ratio = (target / log.behavior_prob).reshape(-1, 3)
    reward = log.reward.reshape(-1, 3)
    states = log.observation[:, 0].astype(int).reshape(-1, 3)
    for t in (2, 1, 0):
        weight = process.chances * np.prod(ratio[:, t:], axis=1)
        returns = reward[:, t:] @ GAMMA ** np.arange(3 - t)
        for s in range(4 * t, 4 * t + 4):
            here = states[:, t] == s
            values[s] = weight[here] @ returns[here] / weight[here].sum()
    good = expected(process, values, 1.2)
    assert abs(good - process.value) < abs(bad - process.value) / 5.0
    assert abs(bad - process.value) > 0.02


def released(config: DoublyRobust, log, policy, features: str = "tabular"):
    """Program, state and padded data, in the noiseless limit."""
    program = one_shot.make(config, log.bounds, features)
    data = padded_units(one_shot.rows(log, program, config, features, policy))
    state, _ = one_shot.plain(program, data)
    return program, state, data


def test_noiseless_limit_is_a_plain_average():
    """Of ``V(s_0) + sum gamma^t rho_{0:t} (r + gamma V' - V)`` with the released value function, by loops."""
    log = one_shot.extreme(50, 3)
    program, state, _ = released(DoublyRobust(discount=GAMMA, reach=100.0), log, one_shot.extreme_policy)
    theta = np.asarray(program.answer(state))
    value = lambda s: 0.5 + 2.5 * np.clip(math.sqrt(5.0) * theta[int(s)], -1.0, 1.0)  # noqa: E731
    total = []
    for person in range(log.units):
        episodes = range(log.unit_offsets[person], log.unit_offsets[person + 1])
        found = 0.0
        for e in episodes:
            first, last = log.episode_offsets[e], log.episode_offsets[e + 1]
            f, product = value(log.observation[first, 0]), 1.0
            for t, i in enumerate(range(first, last)):
                product *= 1.6 if log.action[i] == 1 else 0.4
                if log.terminated[i] or log.has_next[i]:
                    after = 0.0 if log.terminated[i] else value(log.next_observation[i, 0])
                    error = log.reward[i] + GAMMA * after - value(log.observation[i, 0])
                    f += GAMMA**t * min(product, 2.5) * error
            found += f / len(episodes)
        total.append(found)
    got = program.estimate(state)
    assert float(program.value(state)) == got.value == pytest.approx(np.mean(total), rel=1e-9)
    # the variance of the noise in the mean is added back, though here there was none
    noise = got.privacy_standard_error
    spread = math.sqrt((np.var(total) + noise**2) / 50)
    assert got.sampling_standard_error == pytest.approx(spread, rel=1e-9)
    low, high = got.interval
    assert (low + high) / 2 == pytest.approx(got.value)
    assert high - got.value > 1.9 * math.hypot(got.sampling_standard_error, got.privacy_standard_error)


def test_on_policy_it_is_the_mean_return():
    """Without ratios the differences telescope: whatever the value function, f is the return."""
    log, bounds = one_shot.chain(60, 4)
    config = DoublyRobust()
    program, state, _ = released(config, log, None)
    returns = [0.99 ** (n - 1) for n in log.lengths()]
    assert bounds.cumulative_ratio == 1.0
    assert program.reach == 1.0
    assert program.estimate(state).value == pytest.approx(np.mean(returns), rel=1e-9)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.floats(0.01, 3.0))
def test_no_unit_exceeds_its_clip_norm(seed, reach):
    config = DoublyRobust(discount=GAMMA, reach=reach)
    log = one_shot.extreme(60, seed)
    program = one_shot.make(config, log.bounds, "tabular")
    data = padded_units(one_shot.rows(log, program, config, "tabular", one_shot.extreme_policy))
    state = program.init()
    theta = jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, 5))
    state = state._replace(function=state.function._replace(theta=theta))
    one_shot.check_no_clip_binds(program, state, data)
    last = one_shot.vectors(program, 2, state, data)
    np.testing.assert_allclose(last[:, 1], 0.6 * (last[:, 0] ** 2 - 0.5), atol=1e-12)


def test_a_unit_without_rows_adds_nothing():
    log = one_shot.extreme(12, 1)
    config = DoublyRobust(discount=GAMMA)
    program = one_shot.make(config, log.bounds, "tabular")
    data = padded_units(one_shot.rows(log, program, config, "tabular"))
    empty = type(data)(
        *(jnp.zeros_like(x) for x in (data.phi, data.delta_phi, data.reward, data.rho, data.weight)),
        extra={name: jnp.zeros_like(x) for name, x in data.extra.items()},
    )
    for stage in range(3):
        assert np.abs(one_shot.vectors(program, stage, program.init(), empty)).max() == 0.0
        assert np.abs(one_shot.vectors(program, stage, program.init(), data)).max() > 0.0


@pytest.mark.slow
def test_the_interval_covers_the_value_under_noise():
    log = one_shot.load(helpers.stepped_log(400, 0), helpers.stepped_bounds(400))
    config = DoublyRobust(discount=GAMMA)
    program, state, data = released(config, log, helpers.stepped_policy)
    centre = program.estimate(state).value
    keys = jnp.stack([SeededNoise.from_seed(s).key for s in range(12)])
    states = jax.jit(jax.vmap(lambda key: run(program, SeededNoise(key), data)[0]))(keys)
    found = [program.estimate(jax.tree.map(lambda x, s=s: x[s], states)) for s in range(12)]
    errors = np.array([e.value - centre for e in found])
    spread = found[0].privacy_standard_error
    assert 0.4 * spread < np.sqrt(np.mean(errors**2)) < 1.8 * spread
    assert sum(low < centre < high for low, high in (e.interval for e in found)) >= 10


def test_stages_share_the_budget():
    program = one_shot.make(DoublyRobust(function_share=0.4), one_shot.extreme_bounds(30), "tabular")
    mu = [1.0 / s.mechanism.noise_multiplier for s in program.stages]
    total = sum(x * x for x in mu)
    np.testing.assert_allclose(np.square(mu) / total, [0.08, 0.32, 0.6], rtol=1e-3)


@pytest.mark.slow
def test_both_forms_give_the_same_answer():
    one_shot.check_both_forms(DoublyRobust(discount=GAMMA))


def test_what_is_not_said():
    for options in (
        {"function_share": 1.0}, {"reach": 0.0}, {"modes": 0}, {"square_scale": 2.0}, {"caution": 9.0}
    ):  # fmt: skip
        with pytest.raises(DprlError, match=r"^doubly-robust: "):
            DoublyRobust.from_mapping(options, "flag")
