"""The checks of a policy learned on noisy sums: what its draws cost, and what a verifier believes."""

from __future__ import annotations

from typing import Any

import numpy as np

import dprl
from dprl.accounting import events, verification
from dprl.accounting.budget import Budget
from dprl.evaluation.learned_policy import plan_of_learned
from tests.resealed import reseal

from ..evaluation.helpers import bandit_bounds, columns_of
from .lab import Lab, check, refused, require

_BOUNDS = bandit_bounds(400, horizon=2, observation=((0.0, 2.0),))
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
    rng, people = np.random.default_rng(0), (400, 2)
    observation, action = rng.integers(0, 3, people), rng.integers(0, 2, people)
    columns = columns_of(action, observation=observation, reward=rng.random(people))
    out = lab.folder() / "out"
    dprl.learn(columns, _BUDGET, bounds=_BOUNDS, **_LEARNER).save(out)

    def fewer(content: Any) -> None:
        content["assumed_public"]["learner"]["rounds"] -= 1

    reseal(out, fewer)
    with refused("the verifier believes a learner of fewer rounds than its event has"):
        verification.verify(out)
