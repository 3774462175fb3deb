"""Estimators of the policy's value, which is one number: importance sampling and doubly robust, private or not.

A private estimator computes what its own release would compute, with the exact mechanism, and spends the whole budget.
Ratios multiplied along a trajectory are cut at the public ``max_cumulative_ratio``, which here is the largest ratio of
one step. Importance sampling without privacy cuts nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import jax
import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.engine.loop import noiseless, run
from dprl.engine.plan import Plan
from dprl.engine.ratios import step_ratios
from dprl.engine.value_query import release_vector, value_mechanism
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation.doubly_robust import DoublyRobust
from dprl.evaluation.importance_sampling import ImportanceQuery, ImportanceSampling
from dprl.evaluation.least_noise import public_patterns
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.harness.method import Method
from dprl_papers.harness.problem import Problem

Estimator = Literal["trajectory", "per-decision", "self-normalised"]
UNCUT = 1e9
"""A bound on products of ratios that cuts none that matters."""
AMPLE_BUDGET = Budget(50.0, 1e-5)
"""Sets the public choices of a program that runs without noise, such as how many modes it has."""


def importance_sampling(estimator: Estimator, problem: Problem, key: Any) -> float:
    """Return the estimate from one Gaussian release of the estimator's moments, which is the only release."""
    query = query_of(estimator, problem)
    name = f"importance sampling, {estimator}"
    vectors = problem.once(name, lambda: vectors_of(query, problem))  # the same for every budget
    mechanism = value_mechanism(query, _multiplier(problem.budget))
    noise: Any = SeededNoise(key).stream("value")
    return query.decode(mechanism, release_vector(mechanism, noise, vectors))[0].value


def importance_sampling_exact(estimator: Estimator, problem: Problem, key: Any) -> float:
    """Return the textbook estimate, without noise, clips and cuts."""
    del key
    query = query_of(estimator, problem, UNCUT)
    log = replace(problem.log, bounds=query.bounds)
    ratios = step_ratios(problem.domain.target_policy, log)
    above, below = (float(part.sum()) / query.bounds.units for part in importance.unit_pairs(query, log, ratios))
    low, high, largest = query.scale
    weight = largest * (above + below)
    weighted = query.scale.width * above + low * weight
    if estimator == "self-normalised":
        return weighted / weight
    centre = (low + high) / 2.0 if estimator == "trajectory" else 0.0
    return weighted + centre * (1.0 - weight)


@cache
def _multiplier(budget: Budget) -> float:
    return noise_multiplier_for(events.gaussian, budget)


def query_of(estimator: Estimator, problem: Problem, cut: float | None = None) -> ImportanceQuery:
    """Return the query on the trajectories; ``cut`` replaces the bound on products of ratios."""
    bounds, domain = problem.setting.bounds, problem.domain
    if cut is not None and not domain.on_policy:
        bounds = replace(bounds, max_cumulative_ratio=cut)
    config = ImportanceSampling(discount=domain.discount, estimator=estimator)
    return importance.make_query(config, bounds, public_patterns([domain.target_policy], bounds))


def vectors_of(query: ImportanceQuery, problem: Problem) -> np.ndarray:
    log = replace(problem.log, bounds=query.bounds)
    return query.unit_vectors(log, [problem.domain.target_policy])


def doubly_robust(problem: Problem, key: Any) -> float:
    """Return the doubly robust value of a release that spends the whole budget on the value and its value function."""
    plan = _plan(problem, problem.setting.bounds, problem.budget)
    noise: Any = SeededNoise(key)
    theta = _theta(plan.program, False, key, problem.layout)
    return _around(plan, theta, plan.value_mechanism, noise.stream("value"), problem)


def doubly_robust_exact(problem: Problem, key: Any) -> float:
    """Return the doubly robust value without noise, clips and cuts."""
    bounds = problem.setting.bounds
    if not problem.domain.on_policy:
        bounds = replace(bounds, max_cumulative_ratio=UNCUT)
    plan = _plan(problem, bounds, AMPLE_BUDGET)
    theta = _theta(plan.program, True, key, problem.layout)
    return _around(
        plan,
        theta,
        GaussianSum(parts=((plan.query.dimension, math.inf),), arithmetic="plain"),
        SeededNoise(key),
        problem,
    )


def _plan(problem: Problem, bounds: Any, budget: Budget) -> Plan:
    domain = problem.domain
    config = DoublyRobust(discount=domain.discount)
    return make_plan(config, bounds, budget, [domain.target_policy], problem.setting.features.name)


@partial(jax.jit, static_argnames=("program", "plain"))
def _theta(program: Any, plain: bool, key: Any, data: Any) -> Any:
    return run(program, SeededNoise(key), data, mechanisms=noiseless(program) if plain else None)[1]


def _around(plan: Plan, theta: Any, mechanism: Any, noise: Any, problem: Problem) -> float:
    """Return the doubly robust value around a given value function."""
    query = plan.query.around(plan.function_of(theta))
    log = replace(problem.log, bounds=plan.bounds)
    vectors = query.unit_vectors(log, [problem.domain.target_policy])
    noisy = release_vector(mechanism, noise, vectors)
    return query.decode(mechanism, noisy)[0].value


def truncated(problem: Problem, key: Any) -> float:
    """Return the limit of importance sampling for ever more trajectories of the log's length; it is not an estimate."""
    del key
    return problem.domain.truncated_value


def _private(name: str, label: str, value: Any) -> Method:
    return Method(name=name, label=label, guarantee="verified", value=value)


def _exact(name: str, label: str, value: Any) -> Method:
    return Method(name=name, label=label, guarantee="none", value=value)


METHODS = (
    _private("value-per-decision", "per-decision IS", partial(importance_sampling, "per-decision")),
    _private("value-trajectory", "trajectory-wise IS", partial(importance_sampling, "trajectory")),
    _private("value-self-normalised", "self-normalised IS", partial(importance_sampling, "self-normalised")),
    _private("value-doubly-robust", "doubly robust value", doubly_robust),
    _exact("value-per-decision-exact", "per-decision IS, no cuts", partial(importance_sampling_exact, "per-decision")),
    _exact("value-doubly-robust-exact", "doubly robust, no noise", doubly_robust_exact),
    _exact("value-truncated", "expected truncated return", truncated),
)
