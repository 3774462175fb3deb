"""DP-LSW and DP-LSL (Balle, Gomrokchi and Precup 2016): output perturbation V1 and V2 of paper 004.

Where the states are not finite, the state space is cut into a public grid of cells. The methods are on-policy only. The
tuned number of DP-LSL is its ridge.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import Tabular
from dprl_papers.baselines.smooth_gaussian import SmoothGaussian
from dprl_papers.baselines.smooth_sensitivity import (
    FirstVisits,
    cell_centres,
    first_visits,
    noisy_lsl,
    noisy_lsw,
    noisy_tabular_lsl,
)
from dprl_papers.harness.method import Guarantee, Method
from dprl_papers.harness.problem import Problem, Setting

CELLS = 12
"""Cells of each component of a state that is not a whole number."""
Calibration = Literal["published", "exact"]


def cells_of(problem: Problem) -> tuple[int, ...] | None:
    return None if isinstance(problem.features, Tabular) else (CELLS,) * len(problem.features.bounds)


def table_of(problem: Problem) -> np.ndarray:
    """Return the ``(S, n)`` features of each state or cell; whole-number states have plain indicators."""
    features, cells = problem.features, cells_of(problem)
    return np.eye(features.size) if cells is None else features(cell_centres(features.bounds, cells))


def visits_of(problem: Problem) -> FirstVisits:
    log, discount, value = problem.log, problem.domain.discount, problem.setting.value
    return problem.once("first visits", lambda: first_visits(log, discount, value, cells_of(problem)))


def lsw(calibration: Calibration, problem: Problem, key: Any) -> np.ndarray:
    """Return the weights of DP-LSW with equal state weights, for returns in the public value range."""
    setting, table = problem.setting, table_of(problem)
    weights = np.full(len(table), 1.0 / len(table))
    visits = visits_of(problem)
    mechanism = _mechanism(setting.budget.epsilon, setting.budget.delta, table.shape[1], calibration)
    return _weights(problem, table, noisy_lsw(mechanism, table, weights, visits, setting.value, SeededNoise(key)))


def lsl(calibration: Calibration, problem: Problem, key: Any) -> np.ndarray:
    """Return the weights of DP-LSL with equal state weights and its ridge, tabular."""
    setting, table = problem.setting, table_of(problem)
    weights = np.full(len(table), 1.0 / len(table))
    visits = visits_of(problem)
    mechanism = _mechanism(setting.budget.epsilon, setting.budget.delta, table.shape[1], calibration)
    noise = SeededNoise(key)
    values = noisy_lsl(mechanism, table, weights, ridge(setting), visits, setting.units, setting.value, noise)
    return _weights(problem, table, values)


def lsl_exact(centred: bool, problem: Problem, key: Any) -> np.ndarray:
    """Return the weights of DP-LSL's estimator with one Gaussian release on its exact tabular sensitivity."""
    setting, table = problem.setting, table_of(problem)
    weights = np.full(len(table), 1.0 / len(table))
    visits = visits_of(problem)
    multiplier = _multiplier(setting.budget)
    noise = SeededNoise(key)
    values = noisy_tabular_lsl(multiplier, weights, ridge(setting), visits, setting.value, noise, centred=centred)
    return _weights(problem, table, values)


def ridge(setting: Setting) -> float:
    """Return the tuned ridge, or the root of the number of trajectories, plus what the published noise needs."""
    largest = 1.0 / setting.features.size
    return largest + setting.units**0.5 if setting.tuned is None else largest + setting.tuned * setting.factor


def promise(calibration: Calibration, setting: Setting) -> Guarantee:
    budget = setting.budget
    mechanism = _mechanism(budget.epsilon, budget.delta, setting.features.size, calibration)
    return Guarantee(
        status="as published",
        claimed=budget.epsilon,
        true=_true_epsilon(mechanism),
        delta=budget.delta,
        words="replace one, by a search",
    )


def exact_promise(setting: Setting) -> Guarantee:
    budget = setting.budget
    words = "in exact arithmetic"
    return Guarantee(
        status="as published", claimed=budget.epsilon, true=budget.epsilon, delta=budget.delta, words=words
    )


@cache
def _mechanism(epsilon: float, delta: float, dimension: int, calibration: Calibration) -> SmoothGaussian:
    return SmoothGaussian(epsilon=epsilon, delta=delta, dimension=dimension, calibration=calibration)


@cache
def _true_epsilon(mechanism: SmoothGaussian) -> float:
    return mechanism.true_epsilon


@cache
def _multiplier(budget: Budget) -> float:
    return gaussian_noise_multiplier(budget)


def _weights(problem: Problem, table: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return weights over the domain's features of a function that is given by its values at the states or cells."""
    scale = np.sqrt(len(table)) if cells_of(problem) is None else 1.0  # tabular features are scaled indicators
    return np.linalg.lstsq(scale * table, values, rcond=None)[0]


def _method(name: str, label: str, solve: Any, calibration: Calibration) -> Method:
    return Method(
        name=name,
        label=label,
        guarantee="as published",
        weights=partial(solve, calibration),
        promise=partial(promise, calibration),
        clamp=calibration == "exact",
        options={"calibration": calibration},
        scalable=solve is lsl,
    )


def _exact(name: str, label: str, centred: bool) -> Method:
    return Method(
        name=name,
        label=label,
        guarantee="as published",
        weights=partial(lsl_exact, centred),
        promise=exact_promise,
        options={"centred": centred},
        scalable=True,
    )


METHODS = (
    _method("dp-lsw", "DP-LSW (V1) as published", lsw, "published"),
    _method("dp-lsl", "DP-LSL (V2) as published", lsl, "published"),
    _method("dp-lsw-equal", "DP-LSW, exact noise", lsw, "exact"),
    _exact("dp-lsl-equal", "DP-LSL, exact noise, ridge best in MSPBE", False),
    _exact("dp-lsl-equal-rmse", "DP-LSL, exact noise, ridge best in RMSE", False),
    _exact("dp-lsl-centred", "DP-LSL, exact noise, centred", True),
)
