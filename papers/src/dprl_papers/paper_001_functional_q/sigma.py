"""The noise of paper 001 as printed: three formulas for one sigma, and the assumptions of Theorem 5.

docs/papers/001.md says what is wrong with them. There are T samples in rounds of B, a learning rate alpha, a tail
parameter k, and a Lipschitz constant L of the value function.
"""

from __future__ import annotations

import math

from dprl.accounting.budget import Budget

STEP_SIZE, TAIL, LIPSCHITZ_SQUARED = 3e-4, 23, 16.0
"""alpha, k and L^2 of appendix E.3."""
LEMMA_8 = 8.68


def variation(batch: int, step_size: float = STEP_SIZE, tail: float = TAIL) -> float:
    """Return v = 4 alpha (k + 1) / B, the claimed change of Q in a round; the kernel's decay is 1/v."""
    return 4.0 * step_size * (tail + 1.0) / batch


def constant(
    batch: int, step_size: float = STEP_SIZE, tail: float = TAIL, lipschitz2: float = LIPSCHITZ_SQUARED
) -> float:
    """Return the constant C(alpha, k, L, B) = (v^2 + v) L^2 of Theorem 5."""
    v = variation(batch, step_size, tail)
    return (v * v + v) * lipschitz2


def sigma_line_5(budget: Budget, samples: int, batch: int, **options: float) -> float:
    """Return sigma by line 5 of Algorithm 1, and by appendix E.3: sqrt(2 (T/B) ln(e + eps/delta) C / eps)."""
    return math.sqrt(_rounds_and_log(budget, samples, batch) * constant(batch, **options) / budget.epsilon)


def sigma_theorem_5(budget: Budget, samples: int, batch: int, **options: float) -> float:
    """Return sigma by Theorem 5: sqrt(2 (T/B) ln(e + eps/delta)) C / eps, which alone is near the paper's 0.32."""
    return math.sqrt(_rounds_and_log(budget, samples, batch)) * constant(batch, **options) / budget.epsilon


def sigma_proof(budget: Budget, samples: int, batch: int, **options: float) -> float:
    """Return sigma by the proof of Theorem 5: sqrt(2 (T/B) ln(e + eps/delta) C) / eps."""
    return math.sqrt(_rounds_and_log(budget, samples, batch) * constant(batch, **options)) / budget.epsilon


def budget_of_noise(budget: Budget) -> Budget:
    """Return the budget of the Gaussian process, which has half of delta; the other half is for the tail of Lemma 8."""
    return Budget(budget.epsilon, budget.delta / 2.0)


def _rounds_and_log(budget: Budget, samples: int, batch: int) -> float:
    return 2.0 * (samples / batch) * math.log(math.e + budget.epsilon / budget.delta)
