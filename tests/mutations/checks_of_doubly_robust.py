"""The checks of doubly robust values, by enumeration of all trajectories of a small process."""

from __future__ import annotations

import numpy as np

from ..evaluation import one_shot
from ..evaluation.test_doubly_robust import baselines, expected, plan_of, small_process, vectors_of
from .lab import check, require


@check
def values_are_enclosed() -> None:
    """Without a bias where nothing is cut, and between two ends where something is, for every baseline."""
    process = small_process(0)
    for cumulative in (None, 1.2):
        for fractions in baselines(0):
            ends = expected(process, fractions, cumulative)[1][:-1]
            holds = ends[0] - 1e-7 <= process.value <= ends[-1] + 1e-7
            require(holds, "doubly robust estimates do not hold the value in the mean")


@check
def no_estimate_is_clipped() -> None:
    """A clip would be a bias that nobody counts."""
    log = one_shot.extreme(60, 1)
    plan = plan_of(log.bounds)
    for theta in (np.full(5, -0.4), np.full(5, 0.4), np.array([-0.4, 0.4, -0.4, 0.4, -0.4])):
        longest = float(np.linalg.norm(vectors_of(plan, log, theta), axis=1).max())
        require(longest <= plan.value_mechanism.clip_norm * (1 + 1e-9), "an estimate is larger than public facts allow")
