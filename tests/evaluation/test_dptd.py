"""DPTD: its direction and momentum against what they are made of, its limit, and the noise of both calibrations."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.engine.layouts import padded_units
from dprl.engine.loop import noiseless, run
from dprl.engine.rows import rows_of
from dprl.evaluation.dptd import DPTD, DPTDProgram
from dprl.evaluation.plan import program_for
from dprl.evaluation.primal_dual import PrimalDualConfig
from dprl.evaluation.td_gradients import COLUMNS, unit_gradients
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features
from dprl_papers.baselines.lstd import lstd

from . import helpers, one_shot

BUDGET = Budget(1.0, 1e-5)
BOUNDS = replace(helpers.stepped_bounds(40), max_importance_ratio=1.0, max_cumulative_ratio=1.0)


def program_of(features: str, bounds=BOUNDS, budget: Budget = BUDGET, kind=DPTD, **options) -> DPTDProgram:
    config = kind(discount=0.9, **options)
    return program_for(config, bounds, make_features(features, bounds.observation), budget)  # type: ignore[return-value]


def rows(features: str):
    log = one_shot.stepped(40, bounds=BOUNDS)
    made, value = make_features(features, BOUNDS.observation), BOUNDS.value_interval(0.9)
    return rows_of(log, np.ones(len(log.reward)), made, 0.9, value, columns=COLUMNS)


@pytest.mark.parametrize("direction", ["corrected", "gradient"])
def test_without_noise_it_meets_lstd_and_the_dual_variable_vanishes(direction):
    found = rows("tabular")
    program = program_of(
        "tabular", direction=direction, start="mid-range", average="last", sampling_rate=1.0, steps=4000, clip_norm=1.0,
        primal_step=0.5 if direction == "corrected" else 0.3, dual_step=0.5, parameter_bound=10.0, project=False,
    )  # fmt: skip
    both = jax.jit(lambda data: run(program, SeededNoise.from_seed(0), data, mechanisms=noiseless(program)))
    state, theta = both(padded_units(found))
    np.testing.assert_allclose(theta, lstd(found), atol=2e-6)
    assert np.abs(np.asarray(state.w)).max() < 2e-6


def test_corrected_is_tdc():
    """Maei et al. (2009): theta + k mean(delta Psi - gamma q Psi' - (delta - q) H w), with p and d of one gradient."""
    features, step = make_features("mlp:3", BOUNDS.observation), 0.37
    found = rows("mlp:3")
    theta, w = 0.3 * np.random.default_rng(2).normal(size=(2, features.size))
    program = program_of(
        "mlp:3", start="mid-range", steps=3, clip_norm=1.0, primal_step=step, dual_step=0.1, parameter_bound=9.0
    )
    block = padded_units(found).block(slice(None))
    of_units = jax.jit(lambda theta, w, block: unit_gradients(features, 0.9, theta, w, block))
    ghat = jnp.mean(of_units(jnp.asarray(theta), jnp.asarray(w), block), axis=0)
    state = program.init()._replace(theta=jnp.asarray(theta, jnp.float32), w=jnp.asarray(w, jnp.float32))
    moved = program.direction(state, ghat.astype(jnp.float32))

    value = lambda t, s: features.values(t, s[None], jnp)[0]  # noqa: E731
    every = lambda s: (value(theta, s), jax.grad(value)(theta, s), jax.hessian(value)(theta, s) @ w)  # noqa: E731
    n = len(found.reward) - 1
    (v, psi, curved), (next_v, next_psi, _) = (
        map(np.asarray, jax.jit(jax.vmap(every))(found.columns[name][:n].astype(float)))
        for name in ("states", "next_states")
    )
    alive = 0.9 * found.alive[:n]
    delta, q = found.reward[:n] + alive * next_v - v, psi @ w
    tdc = delta[:, None] * psi - (alive * q)[:, None] * next_psi - (delta - q)[:, None] * curved
    np.testing.assert_allclose(moved.theta, theta + step * found.weight[:n] @ tdc / 40, rtol=2e-4, atol=2e-6)
    semi = (delta - q)[:, None] * psi
    np.testing.assert_allclose(moved.w, w + 0.1 * found.weight[:n] @ semi / 40, rtol=2e-4, atol=2e-6)


def driven(program, gradients):
    """States after each of these mean gradients ``(T, 2d)``."""
    body = lambda state, g: (s := program.direction(state, g)._replace(step=state.step + 1), s)  # noqa: E731
    return jax.jit(lambda g: jax.lax.scan(body, program.init(), g)[1])(jnp.asarray(gradients, jnp.float32))


def test_momentum_is_a_weighted_sum_and_without_it_the_steps_are_plain():
    size, steps = 4, 9
    gradients = np.random.default_rng(0).normal(size=(steps, 2 * size))
    options = {"start": "mid-range", "steps": steps, "primal_step": 0.05, "dual_step": 0.02, "clip_norm": 1.0}
    for schedule, nu in (("constant", np.full(steps, 0.25)), ("diminishing", 0.25 / np.sqrt(np.arange(steps) + 3.0))):
        program = program_of("fourier:3", schedule=schedule, beta=2.0, direction="gradient", **options)
        states = driven(program, gradients)
        theta = np.asarray(program.init().theta, np.float64)
        for name, part, factor in (("p", slice(0, size), 3.0), ("d", slice(size, None), 2.0)):
            fresh = np.append(1.0, factor * nu[:-1])
            weights = np.array([fresh[s] * np.prod(1.0 - fresh[s + 1 :]) for s in range(steps)])
            assert weights.sum() == pytest.approx(1.0)
            np.testing.assert_allclose(getattr(states, name)[-1], weights @ gradients[:, part], rtol=1e-4, atol=1e-6)
        for t in range(steps):  # lines 2 and 3
            theta = theta + nu[t] * (np.clip(theta - 0.05 / 0.25 * np.asarray(states.p[t]), -1.0, 1.0) - theta)
            np.testing.assert_allclose(states.theta[t], theta, atol=2e-6)
    moving = program_of("fourier:3", alpha=1.0, beta=1.0, nu=1.0, direction="gradient", **options)
    plain = PrimalDualConfig(discount=0.9, **options)
    plain_program = plain.program(moving.facts, moving.stages)
    for name in ("theta", "w"):
        one, other = (np.asarray(getattr(driven(p, 9.0 * gradients), name)) for p in (moving, plain_program))
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)  # products and sums may be fused
        assert np.abs(one).max() == 1.0 or name == "w"
