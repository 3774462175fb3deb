"""Write the training record and the unsealed certificate of learning from rewards or people, as plain data.

Both are made from public facts and from what was learned from noisy sums or noisy answers. They contain no reward, no
state, no answer, no count of those who came and no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl.accounting.accountant import accountant_name
from dprl.accounting.certificate import NOT_THE_TRANSITIONS
from dprl.accounting.reward_relation import REWARD_FUNCTION
from dprl.accounting.rows import OF_SAMPLED_USERS
from dprl.accounting.user_relation import USER_SUMS
from dprl.learning.learning_plan import LearningPlan
from dprl.learning.planned_q import transition_rate
from dprl.learning.policy_gradient.dp_pg import UNIT
from dprl.learning.policy_gradient.pg_plan import PGPlan
from dprl.policies.parametric import FILE as POLICY_FILE
from dprl.policies.parametric import ReleasedPolicy
from dprl.protocols import EnvironmentSpec
from dprl.release.pipeline import certificate_from, gaussian_accountant
from dprl.value_functions.q_function import FILE as Q_FILE
from dprl.value_functions.q_function import QFunction

TRAINING = "training.json"


def _environment(facts: EnvironmentSpec, doing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about an environment that were taken as public; ``doing`` describes its actions."""
    names = {} if facts.names is None else {"observation_names": list(facts.names)}
    return {
        **names,
        **doing,
        "name": facts.name,
        "horizon": facts.horizon,
        "reward": list(facts.reward_bounds),
        "observation": [list(ends) for ends in facts.observation],
    }


def _assumed(plan: LearningPlan | PGPlan, environment: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return everything that was taken as public: the environment, the options, and ``more`` by name."""
    conditions = {} if plan.claim is None else {"preconditions": plan.claim.preconditions}
    options = {"hyper_parameters": plan.config.hyper_parameters(), "policies": []}
    return {"environment": environment, **options, **more, **conditions}


def _slices(learned: QFunction | ReleasedPolicy, facts: EnvironmentSpec) -> list[dict[str, Any]]:
    """Return the slices of a learned function that the report draws, each with the name of its component."""
    return [piece | {"name": facts.name_of(piece["component"])} for piece in learned.slices()]


# --- a Q-function from private rewards ------------------------------------------------------------------------------

REWARDS_NOT_PROTECTED = (
    NOT_THE_TRANSITIONS,
    "Two reward functions that are further apart than the relation says; they are protected by as many times epsilon "
    "as there are such steps between them.",
    "The environment, its public bounds and every hyper-parameter: they must not have been fitted on these rewards.",
    "What follows about a person from facts that do not depend on that person's own share in the rewards.",
)
_RELEASED = {
    "functional": "The sum of the reward function and one path of a Gaussian process, at every point that was visited",
    "observed-reward": "Every reward that was observed, with Gaussian noise",
    "gradient": "The noisy part of every update that has rewards in it",
    "output": "The sum of the optimal Q-function of the public model and one path of a Gaussian process an action",
}
_MEAN_OF_PEOPLE = (
    "The reward function is the mean of those of {} people: replacing one of them moves it by at most the radius."
)
_PURPOSE = {"functional": "rewards", "observed-reward": "rewards", "gradient": "updates", "output": "Q-function"}


def q_training_of(
    plan: LearningPlan, function: QFunction, status: str, returns: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return the content of ``training.json`` for a Q-function: what was learned, and public facts.

    Args:
        returns: mean undiscounted return of some policies by name, with the true rewards; only for simulations.
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
            "file": Q_FILE,
            "network": function.network,
            "size": sum(w.size for w in function.weights.values()),
            "actor": function.actor is not None,
            "value": list(function.value),
            "slices": _slices(function, plan.facts),
        },
        "returns": None if returns is None else dict(returns),
        "request": request,
        "environment": _q_environment(plan),
    }


def q_certificate_of(plan: LearningPlan, noise: Any, status: str) -> dict[str, Any]:
    """Return the unsealed certificate, from public facts that are known before the first reward is asked for."""
    config, variant = plan.config, _variant(plan)
    reading = {} if config.people is None else {"reading": _MEAN_OF_PEOPLE.format(config.people)}
    return certificate_from(
        plan,
        noise,
        status,
        privacy_unit=REWARD_FUNCTION,
        neighbouring_relation=plan.relation.words(),
        released=plan.claim.released if plan.claim else f"{_RELEASED[variant]}, from which the Q-function is computed.",
        not_protected=list(REWARDS_NOT_PROTECTED),
        mechanisms=[] if plan.mechanism is None else [plan.mechanism.describe(_PURPOSE[variant])],
        accountant=gaussian_accountant(),
        assumed_public=_assumed(plan, _q_environment(plan), **reading),
    )


def _variant(plan: LearningPlan) -> str:
    return str(plan.config.variant) if plan.claim is None else plan.config.calibration


def _q_environment(plan: LearningPlan) -> dict[str, Any]:
    facts = plan.facts
    rate = {} if plan.model is None else {"transition_rate": transition_rate(plan.model)}
    return {
        **rate,
        **_environment(facts, {}),
        "actions": facts.actions,
        "on_grid": facts.on_grid,
        "reward_ignores_action": facts.reward_ignores_action,
        "reward_lipschitz": facts.reward_lipschitz,
        "finite": None if facts.finite is None else list(facts.finite),
    }


# --- a policy from people -------------------------------------------------------------------------------------------

PLACES = (
    "That somebody stands in a place, in which place a person stands, and so in which batch; and how many places there "
    "are. Who is taken out of a list lets all that follow move up: that is no neighbour here.",
)
"""Statements of what is not protected if each person takes part in one batch."""
PEOPLE_NOT_PROTECTED = (
    "What an answer tells whoever sees it: each person is met by the policy of that moment, and what a person saw and "
    "did is known to that person and to whoever collected it.",
    "The environment, its public bounds and every hyper-parameter: they must not have been fitted on these people.",
    "What follows about a person from facts that do not depend on that person's own answers.",
)
NOBODY_IS_NAMED = (
    "Who comes more than once: nobody is named here, so every visit counts as a person of its own, and whoever comes k "
    "times is protected by k times epsilon."
)
_JOINT = (
    "What all the others were shown is computed from these policies and from their own answers, so it tells nobody "
    "more about one person than epsilon and delta allow (joint differential privacy, by the billboard lemma)."
)
_READINGS = {
    "episodes": "Every episode of the environment stands for a person.",
    "named": "People are told apart by name: each has one place, at the first visit, and answers there alone.",
    "unnamed": "Nobody is named: every visit is taken to be that of another person.",
}
_SAMPLED_AGAIN = (
    "A person may be asked in every batch: secret coins say who is in which, and every batch is paid for by everybody."
)
_ITERATES = {
    "last": "the last of them",
    "average": "the average of those by which a batch was met",
    "uniform": "one of those by which a batch was met, drawn uniformly",
}


def policy_training_of(
    plan: PGPlan, policy: ReleasedPolicy, status: str, measured: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the content of ``training.json`` for a policy: what was learned, and public facts.

    Args:
        measured: returns of some policies by name, and the learning curve of the iterates; only for simulations.
    """
    config, parametric = plan.config, policy.parametric
    return {
        "schema": "dprl.training/1",
        "status": status,
        "algorithm": plan.name,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "users": config.users,
        "batch": config.batch,
        "steps": config.steps,
        "discount": config.discount,
        "policy": {
            "file": POLICY_FILE,
            "kind": parametric.kind,
            "size": parametric.size,
            "continuous": parametric.gaussian,
            "iterate": config.release,
            "sharpness": config.sharpness,
            "slices": _slices(policy, plan.facts),
        },
        "returns": None if measured is None else dict(measured["returns"]),
        "curve": None if measured is None or measured["curve"] is None else dict(measured["curve"]),
        "request": {
            "environment": plan.facts.name,
            "policy": parametric.kind,
            "users": config.users,
            "relation": plan.relation,
            "noise": config.noise,
            "sampling": config.sampling,
        },
        "environment": _policy_environment(plan.facts),
    }


def policy_certificate_of(plan: PGPlan, noise: Any, status: str, people: str) -> dict[str, Any]:
    """Return the unsealed certificate, from public facts that are known before the first person is asked.

    Args:
        people: who counts as a person: ``episodes`` of an environment, or ``named`` or ``unnamed`` people of a source.
    """
    sampled, sharpness = plan.config.poisson, plan.config.sharpness
    sharpened = "" if sharpness in (None, 1.0) else f", its preferences multiplied by at most {sharpness:g}"
    name = OF_SAMPLED_USERS if sampled else USER_SUMS
    reading = _SAMPLED_AGAIN if sampled else _READINGS[people]
    return certificate_from(
        plan,
        noise,
        status,
        privacy_unit=UNIT,
        neighbouring_relation=plan.relation,
        released=(
            "Every iterate of the policy, and the noisy sums over batches of people from which they are computed; the "
            f"file holds {_ITERATES[plan.config.release]}{sharpened}. {_JOINT}"
        ),
        not_protected=[
            *(() if sampled else PLACES),
            *PEOPLE_NOT_PROTECTED,
            *([NOBODY_IS_NAMED] if people == "unnamed" else []),
        ],
        mechanisms=[] if plan.mechanism is None else [plan.mechanism.describe(name, "gradients")],
        accountant=accountant_name() if sampled else gaussian_accountant(),
        assumed_public=_assumed(plan, _policy_environment(plan.facts), units=plan.config.users, reading=reading),
    )


def _policy_environment(facts: EnvironmentSpec) -> dict[str, Any]:
    actions = {"actions": facts.actions} if facts.action is None else {"action": [list(ends) for ends in facts.action]}
    return _environment(facts, actions)
