"""What learning from users hands out, as plain data: the training record and the certificate.

Both are made of public facts and of what was learned from noised sums; no answer of a person, no count of those who
came and no key is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl.accounting.accountant import accountant_name
from dprl.accounting.user_relation import MECHANISM
from dprl.learning.policy_gradient.dp_pg import UNIT
from dprl.learning.policy_gradient.pg_plan import PGPlan
from dprl.policies.released import FILE, ReleasedPolicy
from dprl.release.certificate import Statement, certificate_from, gaussian_accountant

TRAINING = "training.json"
PLACES = (
    "That somebody stands in a place, in which place a person stands, and so in which batch; and how many places there "
    "are. Who is taken out of a list lets all that follow move up: that is no neighbour here.",
)
"""What is not protected where each person takes part in one batch."""
NOT_PROTECTED = (
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


def policy_training_of(
    plan: PGPlan, policy: ReleasedPolicy, status: str, measured: Mapping[str, Any] | None
) -> dict[str, Any]:
    """``training.json``: what was learned, and public facts.

    Args:
        measured: returns of policies by name and the curve of the iterates, of simulations alone.
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
            "file": FILE,
            "kind": parametric.kind,
            "size": parametric.size,
            "continuous": parametric.gaussian,
            "iterate": config.release,
            "slices": [piece | {"name": plan.facts.name_of(piece["component"])} for piece in policy.slices()],
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
        "environment": _environment(plan),
    }


def policy_certificate_of(plan: PGPlan, noise: Any, status: str, people: str) -> dict[str, Any]:
    """The certificate before it is sealed: public facts alone, known before the first person is asked.

    Args:
        people: ``episodes`` of an environment, or those of a source: ``named`` or ``unnamed``.
    """
    mechanism = plan.mechanism
    rows = [] if mechanism is None else [_row(plan)]
    assumed: dict[str, Any] = {
        "environment": _environment(plan),
        "units": plan.config.users,
        "hyper_parameters": plan.config.hyper_parameters(),
        "policies": [],
        "reading": _SAMPLED_AGAIN if plan.config.poisson else _READINGS[people],
    }
    if plan.claim is not None:
        assumed["preconditions"] = plan.claim.preconditions
    said = Statement(
        unit=UNIT,
        relation=plan.relation,
        released=(
            "Every iterate of the policy, and the noised sums over batches of people from which they are computed; the "
            f"file holds {_ITERATES[plan.config.release]}. {_JOINT}"
        ),
        not_protected=[
            *(() if plan.config.poisson else PLACES),
            *NOT_PROTECTED,
            *([NOBODY_IS_NAMED] if people == "unnamed" else []),
        ],
        mechanisms=rows,
        accountant=accountant_name() if plan.config.poisson else gaussian_accountant(),
        assumed_public=assumed,
    )
    return certificate_from(plan, noise, status, said)


_ITERATES = {
    "last": "the last of them",
    "average": "the average of those by which a batch was met",
    "uniform": "one of those by which a batch was met, drawn uniformly",
}


def _row(plan: PGPlan) -> dict[str, Any]:
    assert plan.mechanism is not None
    name = "Gaussian noise on sums over sampled users" if plan.config.poisson else MECHANISM
    return plan.mechanism.describe(name, "gradients")


def _environment(plan: PGPlan) -> dict[str, Any]:
    """What was taken as public about the environment."""
    facts = plan.facts
    doing = {"actions": facts.actions} if facts.action is None else {"action": [list(ends) for ends in facts.action]}
    named = {} if facts.names is None else {"observation_names": list(facts.names)}
    return (
        named
        | doing
        | {
            "name": facts.name,
            "horizon": facts.horizon,
            "reward": list(facts.reward_bounds),
            "observation": [list(ends) for ends in facts.observation],
        }
    )
