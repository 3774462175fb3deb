"""What learning in an environment hands out, as plain data: the training record and the certificate.

Both are made of public facts and of what was learned from noised answers; no reward, state, answer or key is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl.accounting.certificate import NOT_THE_TRANSITIONS
from dprl.accounting.reward_relation import UNIT
from dprl.learning.learning_plan import LearningPlan
from dprl.learning.planner import transition_rate
from dprl.release.certificate import Statement, certificate_from, gaussian_accountant
from dprl.value_functions.q_function import FILE, QFunction

TRAINING = "training.json"
NOT_PROTECTED = (
    NOT_THE_TRANSITIONS,
    "Two reward functions that are further apart than the relation says; they are protected by as many times epsilon "
    "as there are such steps between them.",
    "The environment, its public bounds and every hyper-parameter: they must not have been fitted on these rewards.",
    "What follows about a person from facts that do not depend on that person's own share in the rewards.",
)
_RELEASED = {
    "functional": "The sum of the reward function and one path of a Gaussian process, at every point that was visited",
    "observed-reward": "Every reward that was observed, with Gaussian noise",
    "gradient": "The noised part of every update that has rewards in it",
    "output": "The sum of the optimal Q-function of the public model and one path of a Gaussian process an action",
}
_PURPOSE = {"functional": "rewards", "observed-reward": "rewards", "gradient": "updates", "output": "Q-function"}


def training_of(
    plan: LearningPlan, function: QFunction, status: str, returns: Mapping[str, float] | None
) -> dict[str, Any]:
    """``training.json``: what was learned, and public facts.

    Args:
        returns: mean undiscounted return of policies by name, measured with the true rewards: of simulations alone.
    """
    config = plan.config
    request = {"environment": plan.facts.name, "variant": config.variant, "samples": config.samples}
    request |= {name: getattr(config, name) for name in ("reward_radius", "people") if getattr(config, name)}
    return {
        "schema": "dprl.training/1",
        "status": status,
        "algorithm": plan.name,
        "variant": _variant(plan),
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "samples": config.samples,
        "discount": config.discount,
        "q_function": {
            "file": FILE,
            "network": function.network,
            "size": sum(w.size for w in function.weights.values()),
            "actor": function.actor is not None,
            "value": list(function.value),
            "slices": [piece | {"name": plan.facts.name_of(piece["component"])} for piece in function.slices()],
        },
        "returns": None if returns is None else dict(returns),
        "request": request,
        "environment": _environment(plan),
    }


def certificate_of(plan: LearningPlan, noise: Any, status: str) -> dict[str, Any]:
    """The certificate before it is sealed: public facts alone, known before the first reward is asked for."""
    config, variant = plan.config, _variant(plan)
    mechanisms = [] if plan.mechanism is None else [plan.mechanism.describe(_PURPOSE[config.variant])]
    released = plan.claim.released if plan.claim else f"{_RELEASED[variant]}, from which the Q-function is computed."
    assumed: dict[str, Any] = {
        "environment": _environment(plan),
        "hyper_parameters": config.hyper_parameters(),
        "policies": [],
    }
    if config.people is not None:
        assumed["reading"] = (
            f"The reward function is the mean of those of {config.people} people: replacing one of them moves it by at "
            "most the radius."
        )
    if plan.claim is not None:
        assumed["preconditions"] = plan.claim.preconditions
    said = Statement(
        unit=UNIT,
        relation=plan.relation.words(),
        released=released,
        not_protected=NOT_PROTECTED,
        mechanisms=mechanisms,
        accountant=gaussian_accountant(),
        assumed_public=assumed,
    )
    return certificate_from(plan, noise, status, said)


def _variant(plan: LearningPlan) -> str:
    return plan.config.variant if plan.claim is None else plan.config.calibration


def _environment(plan: LearningPlan) -> dict[str, Any]:
    """What was taken as public about the environment."""
    facts = plan.facts
    known: dict[str, Any] = {} if plan.model is None else {"transition_rate": transition_rate(plan.model)}
    if facts.names is not None:
        known["observation_names"] = list(facts.names)
    return known | {
        "name": facts.name,
        "horizon": facts.horizon,
        "reward": list(facts.reward_bounds),
        "observation": [list(ends) for ends in facts.observation],
        "actions": facts.actions,
        "on_grid": facts.on_grid,
        "reward_ignores_action": facts.reward_ignores_action,
        "reward_lipschitz": facts.reward_lipschitz,
        "finite": None if facts.finite is None else list(facts.finite),
    }
