"""Trivial methods for every table: values that are known without a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl_papers.harness.method import Method
from dprl_papers.harness.problem import Problem


def zero(problem: Problem, key: Any) -> np.ndarray:
    """Return the weights of V = 0."""
    del key
    return np.zeros(problem.features.size)


def public_constant(problem: Problem, key: Any) -> np.ndarray:
    """Return the weights of the constant V in the middle of the public value range."""
    del key
    return sum(problem.setting.value) / 2.0 * problem.features.constant()


METHODS = (
    Method(name="zero", label="zero", guarantee="none", weights=zero, clamp=False, trivial=True),
    Method(name="public-constant", label="public constant", guarantee="none", weights=public_constant, trivial=True),
)
