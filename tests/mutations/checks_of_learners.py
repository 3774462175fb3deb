"""The checks of a policy learned on noisy sums: what its draws cost, and what a verifier believes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import dprl
from dprl.accounting import events, verification
from dprl.accounting.budget import Budget
from dprl.evaluation.learned import plan_of_learned
from dprl.protocols import Bounds
from tests.resealed import reseal

from .lab import Lab, check, refused, require

_BOUNDS = Bounds(
    units=400, horizon=2, reward=(0.0, 1.0), observation=((0.0, 2.0),), actions=2, max_importance_ratio=2.0
)
_BUDGET, _LEARNER = Budget(4.0, 1e-5), {"learner": "fitted-q", "basis": "products:1"}


@check
def costs_of_a_learner() -> None:
    """The sampler's precision is paid for every draw of both parts, and each part's event keeps to the budget."""
    plan = plan_of_learned(dprl.ImportanceSampling(), _BOUNDS, _BUDGET, 2.0**-49, **_LEARNER)
    stage = plan.first.program.stages[0]
    dimension, steps = stage.mechanism.dimension, stage.mechanism.steps
    least = events.sampler_delta(_BUDGET.epsilon, dimension * steps + plan.query.dimension, 2.0**-49)
    require(plan.delta_sampler >= 0.999 * least, "draws of the learner are not paid for")
    require(plan.epsilon_of_event <= _BUDGET.epsilon, "a part of the people costs more than the budget")


@check
def verifier_of_a_learner(lab: Lab) -> None:
    """A certificate in whose first part fewer rounds are stated than were released."""
    rng, rows = np.random.default_rng(0), 800
    columns = {
        "episode_id": np.repeat(np.arange(400), 2), "t": np.tile([0, 1], 400), "observation": rng.integers(0, 3, rows),
        "action": rng.integers(0, 2, rows), "reward": rng.random(rows), "behavior_prob": np.full(rows, 0.5),
        "terminated": np.tile([False, True], 400),
    }  # fmt: skip
    out = lab.folder() / "out"
    dprl.learn(columns, _BUDGET, bounds=replace(_BOUNDS, units=400), **_LEARNER).save(out)

    def fewer(content: Any) -> None:
        content["assumed_public"]["learner"]["rounds"] -= 1

    reseal(out, fewer)
    with refused("the verifier believes a learner of fewer rounds than its event has"):
        verification.verify(out)
