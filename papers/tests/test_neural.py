"""Errors of value functions that need not be linear, against their definitions; states along a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.engine import loop as engine
from dprl.engine.layouts import padded_units
from dprl.engine.rows import rows_of
from dprl.evaluation.plan import program_for
from dprl.mechanisms.noise import SeededNoise
from dprl.policies import UniformPolicy
from dprl.value_functions.features import make_features
from dprl_papers.baselines.recursive_momentum import DPSRM
from dprl_papers.domains.chain import Chain, draw_log
from dprl_papers.harness.domain import Domain, Truth
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.neural import NeuralMetrics, _directions, _gradients, answers, run_curves

CHAIN, POLICY = Chain(length=6, horizon=60), UniformPolicy(1)
BOUNDS = Bounds(units=1, horizon=60, reward=(0.0, 1.0), observation=((0.0, 4.0),), actions=1, return_range=(-0.5, 1.0))
DOMAIN = Domain(
    name="small",
    label="Small chain",
    discount=CHAIN.discount,
    features="tabular",
    public=BOUNDS,
    target_policy=POLICY,
    behavior=POLICY,
    simulate=lambda bounds, seed: draw_log(CHAIN, bounds, seed % 1000),
    true_values=lambda: Truth(np.arange(5.0)[:, None], CHAIN.values(), np.full(5, 0.2), np.zeros(5)),
    start_values=lambda: Truth(np.arange(5.0)[:, None], CHAIN.values(), np.full(5, 0.2), np.zeros(5)),
    mean_reward=0.2,
    moment_units=250,
)


def test_linear_value_functions_have_the_errors_of_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # all of one log, which is that behind the moments
    monkeypatch.setattr("dprl_papers.harness.neural._SPREAD", 1e-4)
    features = make_features("tabular", BOUNDS.observation)
    metrics, theta = NeuralMetrics(DOMAIN, features), np.random.default_rng(0).normal(size=(3, 5))
    reward_units = metrics.centre * features.constant() + metrics.half * theta
    reference = replace(DOMAIN, public=replace(BOUNDS, return_range=(-100.0, 100.0)))
    for clamp in (False, True):
        found = metrics.errors(theta, clamp=clamp)
        assert set(found) == {"rmse", "msbe", "mspbe", "value"}
        expected = Metrics(reference if not clamp else DOMAIN).errors(reward_units, False, clamp)
        for name in ("rmse", "value") if clamp else ("rmse", "mspbe", "value"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    assert np.isnan(metrics.errors(np.full((1, 5), np.nan))["mspbe"])


def test_the_mspbe_is_twice_the_largest_objective() -> None:
    """Of a network: Eq. (1) is the largest value of Eq. (2) over w, with Jacobians of single states as the oracle."""
    features = make_features("mlp:2", BOUNDS.observation)
    metrics = NeuralMetrics(DOMAIN, features, transitions=300)
    rng = np.random.default_rng(1)
    theta, rows = rng.normal(size=features.size), {k: np.asarray(v) for k, v in metrics.rows.items()}
    assert rows["weight"].sum() == pytest.approx(1.0, abs=0.1)
    psi = np.asarray(jax.jit(jax.jacobian(lambda x: features.values(x, np.arange(5.0)[:, None], jnp)))(theta))
    psi = psi[rows["states"][:, 0].astype(int)]
    values = lambda states: features.values(theta, states)  # noqa: E731
    delta = rows["reward"] + CHAIN.discount * rows["alive"] * values(rows["next_states"]) - values(rows["states"])
    G, b = psi.T @ (rows["weight"][:, None] * psi), psi.T @ (rows["weight_rho"] * delta)
    best = np.linalg.lstsq(G, b, rcond=1e-7)[0]
    w = np.stack([best, *(best + 0.1 * rng.normal(size=(20, features.size))), np.zeros(features.size)])
    found = metrics.errors(np.tile(theta, (len(w), 1)), w)
    np.testing.assert_allclose(found["mspbe"], 2.0 * found["objective"][0], rtol=1e-6)
    assert np.all(found["objective"][1:] < found["objective"][0])
    assert found["objective"][-1] == 0.0
    np.testing.assert_allclose(found["msbe"], metrics.half**2 * np.sum(rows["weight_rho"] * delta**2), rtol=1e-6)


def test_with_fewer_states_than_weights_the_projection_is_no_projection() -> None:
    """Were every transition of another state, the MSPBE would be the mean squared TD error."""
    features = make_features("mlp:20", BOUNDS.observation)
    metrics = NeuralMetrics(DOMAIN, features, transitions=300)
    first = np.unique(np.asarray(metrics.rows["states"])[:, 0], return_index=True)[1]
    metrics.rows = {name: x[first] for name, x in metrics.rows.items()}
    found = metrics.errors(np.random.default_rng(0).normal(size=(2, features.size)))
    np.testing.assert_allclose(found["mspbe"], found["msbe"], rtol=1e-4)


@pytest.mark.slow
def test_components_that_never_change_leave_a_network_fewer_directions() -> None:
    """Products of gradients are those of whole ones, Jacobians of single states being the oracle."""
    features = make_features("mlp:3", ((0.0, 4.0), (0.0, 255.0), (-1.0, 1.0), (0.0, 9.0)))
    rng = np.random.default_rng(0)
    x = rng.uniform(size=40)
    states = jnp.asarray(np.stack([4.0 * x, np.full(40, 87.0), 1.0 - x, 9.0 * rng.uniform(size=40)], axis=1))
    theta = jnp.asarray(rng.normal(size=features.size))
    inputs = _directions(features, states)
    found = _gradients(features, theta, inputs, states)
    assert found.shape == (40, 3 * (3 + 1) + 1)
    psi = jax.jacobian(lambda weights: features.values(weights, states, jnp))(theta)
    np.testing.assert_allclose(found @ found.T, psi @ psi.T, rtol=1e-9)


@pytest.mark.slow
def test_most_eigenvalues_of_a_network_on_cart_pole_are_nothing() -> None:
    """Paper 000, E20: of E[Psi Psi'] at a random start, of which strong concavity asks for the smallest."""
    from dprl_papers.domains.cart_pole import PUBLIC, SIMULATOR, _domain

    features = make_features("mlp:50", PUBLIC.observation)
    states = jnp.asarray(SIMULATOR.log(_domain().behavior, replace(PUBLIC, units=30), 0).observation)
    theta = jnp.asarray(features.random_start(0), jnp.float64)
    psi = jax.vmap(lambda s: jax.grad(lambda x: features.values(x, s[None], jnp)[0])(theta))(states)
    values = np.linalg.eigvalsh(np.asarray(psi.T @ psi, np.float64))
    assert len(values) == 301 < len(states)
    assert np.sum(values > 1e-7 * values[-1]) < 100


@pytest.mark.slow
def test_states_along_a_run_are_those_of_the_run() -> None:
    """Any intervals, several trials at once, stages before the last: the same run as the engine's."""
    features, discount = make_features("columns", BOUNDS.observation), CHAIN.discount
    bounds = replace(BOUNDS, units=20)
    config = DPSRM(discount=discount, steps=7, sampling_rate=0.5)
    program: Any = program_for(config, bounds, features, Budget(1.0, 1e-5))
    logs = []
    for seed in (1, 2):
        log = draw_log(CHAIN, bounds, seed)
        rows = rows_of(log, np.ones(len(log.reward)), features, discount, bounds.value_interval(discount),
                       columns=program.columns)  # fmt: skip
        index = np.minimum(rows.offsets[:-1, None] + np.arange(16), len(rows.reward) - 1)
        index = np.where(np.arange(16) < np.diff(rows.offsets)[:, None], index, len(rows.reward) - 1)
        part = padded_units(rows)
        logs.append(type(part)(rows.mapped(lambda x, index=index: x[index])))
    keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in (3, 4)])
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *logs)
    states = run_curves(program, None, keys, together, (0, 2, 3, 6))
    assert [int(state.step[0]) for state in states] == [1, 3, 4, 7]
    mechanisms: Any = [stage.mechanism.in_float() for stage in program.stages]
    for i, (key, log) in enumerate(zip(keys, logs, strict=True)):
        state, theta = jax.jit(lambda key, log: engine.run(program, SeededNoise(key), log, mechanisms=mechanisms))(
            key, log
        )
        np.testing.assert_allclose(states[-1].theta[i], state.theta, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(answers(program, states[-1])[i], theta, rtol=1e-5, atol=1e-7)
    assert not np.allclose(states[1].theta, states[2].theta)
