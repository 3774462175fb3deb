"""Faults in a policy learned on noisy sums."""

from __future__ import annotations

from typing import Any

from dprl.accounting import verification
from dprl.evaluation.fitted_q import FittedQ, LinearQ
from dprl.evaluation.teaching import Teaching

from .planting import fault


@fault("regressions on features that are centred by those of a block of people", "neighbours of a learner")
def _(planting: Any) -> None:
    def centred(original: Any) -> Any:
        return lambda self, states: original(self, states) - original(self, states).mean(axis=0)

    planting.replace(LinearQ, "_phi", centred)


@fault("draws of a learner that nobody pays for", "costs of a learner", (Teaching, "draws"))
def _(original: Any, self: Any) -> int:
    return 0


@fault("a learner with noise for twice the epsilon", "costs of a learner", (FittedQ, "calibrated"))
def _(original: Any, self: Any, budget: Any) -> Any:
    return original(self, type(budget)(2.0 * budget.epsilon, budget.delta))


@fault("a learner's statement that nobody reads", "verifier of a learner", (verification, "_check_choice"))
def _(original: Any, *found: Any) -> None:
    return None
