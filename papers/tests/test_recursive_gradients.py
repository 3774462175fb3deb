"""DP-SRGD against its algorithm written out, and the noise that it says it has."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from papers.tests.test_primal_dual_methods import trials_of
from scipy import stats

from dprl.accounting.budget import Budget
from dprl.engine.program import PublicFacts
from dprl.evaluation.td_gradients import unit_gradients
from dprl_papers.baselines.primal_dual_sgd import DPSGDA
from dprl_papers.methods import recursive_gradients
from dprl_papers.methods.primal_dual import function_of, logs_of, single_stage
from dprl_papers.methods.recursive_gradients import (
    ACCURACY,
    SMOOTHNESS,
    RecursiveGradientRun,
    iterates,
    noise_of,
    steps_of,
)


@pytest.fixture(scope="module")
def problem() -> tuple[Any, Any, Any]:
    """The log of one trial, a program that says where it starts, and its facts."""
    trials, _ = trials_of()
    features = function_of(trials.setting)
    logs, bounds = logs_of(trials, features, "transition", None)
    facts = PublicFacts(bounds, features, 0.9, 1.0, "transition")
    config = DPSGDA(discount=0.9, start="random", primal_step=1.0, dual_step=1.0, average="last", steps=1)
    return jax.tree.map(lambda x: x[0], logs), config.program(facts, single_stage(facts, 1, Budget(1.0, 1e-3))), facts


@partial(jax.jit, static_argnums=2)
def clipped_mean(x: Any, log: Any, facts: Any, units: Any) -> jax.Array:
    theta, w = jnp.split(jnp.asarray(x), 2)
    gradients = unit_gradients(facts.features, facts.discount, theta, w, log.block(units))
    return (gradients / jnp.maximum(jnp.linalg.norm(gradients, axis=1, keepdims=True), 1.0)).mean(axis=0)


def drawn_units(key: Any, number: int, units: int, count: int) -> np.ndarray:
    chosen, _ = jax.random.split(jax.random.fold_in(key, number))
    return np.asarray(jax.random.choice(chosen, units, (count,), replace=False))


@pytest.mark.slow
def test_without_noise_all_records_come_first_and_differences_of_drawn_ones_follow(problem: Any) -> None:
    log, program, facts = problem
    run = RecursiveGradientRun(program, 2 * recursive_gradients.period_of(facts.units), 0.0, 0.0)
    key, start = jax.random.key(3), program.parameters_of(program.init())
    visited, directions = (np.asarray(x) for x in iterates(run, log, start, key))
    assert visited.shape == (run.steps + 1, len(start))
    v: Any = None
    for number in range(run.steps):
        if number % run.period == 0:
            v = clipped_mean(visited[number], log, facts, np.arange(facts.units))
        else:
            units = drawn_units(key, number, facts.units, run.period)
            assert len(set(units.tolist())) == run.period
            v = (
                v
                + clipped_mean(visited[number], log, facts, units)
                - clipped_mean(visited[number - 1], log, facts, units)
            )
        np.testing.assert_allclose(directions[number], v, atol=2e-6)
        size = min(ACCURACY / (SMOOTHNESS * np.linalg.norm(v)), 0.5 / SMOOTHNESS)
        np.testing.assert_allclose(visited[number + 1], program.project(visited[number] - size * v), atol=2e-6)


def test_every_step_has_the_noise_of_its_kind(problem: Any) -> None:
    log, program, facts = problem
    start = program.parameters_of(program.init())
    run = RecursiveGradientRun(program, recursive_gradients.period_of(facts.units), 0.3, 0.2)
    of_all, of_some = [], []
    for key in jax.random.split(jax.random.key(0), 60):
        visited, v = (np.asarray(x) for x in iterates(run, log, start, key))
        assert np.linalg.norm(visited[1] - visited[0]) <= ACCURACY / SMOOTHNESS * (1.0 + 1e-5)
        units = drawn_units(key, 1, facts.units, run.period)
        here, before = (clipped_mean(visited[number], log, facts, units) for number in (1, 0))
        of_all.append(v[0] - clipped_mean(visited[0], log, facts, np.arange(facts.units)))
        of_some.append(v[1] - v[0] - here + before)
    for noise, sigma in ((of_all, 0.3), (of_some, 0.2)):
        fits = [stats.kstest(np.ravel(noise) / (sigma * wrong), "norm").pvalue for wrong in (1.0, 2.0 / 3.0, 1.5)]
        assert fits[0] > 1e-3
        assert max(fits[1:]) < 1e-6


def test_the_noise_is_the_papers_with_the_best_beta() -> None:
    steps, units, epsilon, delta = 300, 400, 1.0, 1e-5
    beta = np.linspace(0.01, 0.99, 9_999)
    alpha = math.log(1.0 / delta) / ((1.0 - beta) * epsilon) + 1.0
    least = (steps * alpha / (beta * units**2 * epsilon)).min()
    assert noise_of(steps, units, epsilon, delta) == pytest.approx(
        (math.sqrt(2.0 * least), math.sqrt(20.0 * ACCURACY**2 * least)), rel=1e-6
    )


def test_a_run_looks_at_the_log_as_often_as_it_is_asked_to() -> None:
    length = recursive_gradients.period_of(400)
    periods = steps_of(400, 100) / length
    assert periods == 34
    assert periods * (400 + 2 * length * (length - 1)) / 400 == pytest.approx(100.0, rel=0.02)
    assert steps_of(400, 0) == length


@pytest.mark.slow
def test_it_measures_itself_along_a_run_and_at_one_of_its_iterates() -> None:
    trials, keys = trials_of()
    (method,) = recursive_gradients.METHODS
    found = method.curves(trials, keys, (0, 3))
    assert {name: x.shape for name, x in found.items()} == dict.fromkeys(
        ("rmse", "msbe", "mspbe", "objective", "value"), (2, 2)
    )
    assert np.all(found["rmse"][:, 0] != found["rmse"][:, 1])
    longer = dataclasses.replace(trials.setting, epochs=100)
    assert 0.0 < method.guarantees(longer).true < longer.budget.epsilon
