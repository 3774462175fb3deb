"""What any release may be called, and its certificate before it is sealed: what all have in common, written once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dprl.accounting import events
from dprl.accounting.accountant import RELATION, accountant_name
from dprl.accounting.certificate import versions
from dprl.registry import is_own

if TYPE_CHECKING:
    from dprl.engine.plan import Plan
    from dprl.learning.learning_plan import LearningPlan
    from dprl.learning.policy_gradient.pg_plan import PGPlan


def status_of(plan: Plan | LearningPlan | PGPlan, secure: bool, simulated: bool) -> str:
    """Return the status of a release: only ``verified`` writes a certificate.

    ``not private`` is what has reproducible noise or shows its data; ``as published`` has a paper's own mechanisms;
    ``unreviewed`` is an algorithm that is none of dprl's, whatever its noise: nobody here has proved what it protects.

    Args:
        plan: of the release; its options, its program and its claim are looked at.
        secure: whether the noise is secure.
        simulated: whether the data are simulated.
    """
    if not secure or simulated:
        return "not private"
    if plan.claim is not None:
        return "as published"
    return "verified" if is_own(plan.config, getattr(plan, "program", None)) else "unreviewed"


def gaussian_accountant() -> str:
    """Return the name of the accountant of Gaussians alone, for any two data sets one sensitivity apart."""
    return accountant_name().replace(RELATION, "neighbours one sensitivity apart")


def certificate_from(
    plan: Plan | LearningPlan | PGPlan,
    noise: Any,
    status: str,
    *,
    unit: str,
    relation: str,
    released: str,
    not_protected: Sequence[str],
    mechanisms: Sequence[Mapping[str, Any]],
    accountant: str,
    assumed_public: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the certificate before it is sealed, from public facts known before anything private is read.

    Only what is verified is called a certificate; anything else is a statement.

    Args:
        noise: source of the release's noise.
        status: see :func:`status_of`.
        unit: what is protected.
        relation: between which neighbours.
        released: what is handed out, in words.
        not_protected: what is not protected, in sentences.
        mechanisms: one row for each mechanism.
        accountant: name of the accountant that computed epsilon.
        assumed_public: everything that was taken as public.
    """
    certified = plan.event is not None
    return {
        "schema": "dprl.certificate/1" if status == "verified" else "dprl.statement/1",
        "status": status,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "privacy_unit": unit,
        "neighbouring_relation": relation,
        "released": released,
        "not_protected": list(not_protected),
        "mechanisms": list(mechanisms),
        "event": events.to_json(plan.event) if plan.event is not None else None,
        "accountant": accountant if certified else None,
        "epsilon_of_event": plan.epsilon_of_event if certified and math.isfinite(plan.epsilon_of_event) else None,
        "delta_of_event": plan.delta_of_event if certified else None,
        "delta_sampler": plan.delta_sampler if certified else None,
        "noise": {"secure": noise.secure, "source": noise.describe()},
        "assumed_public": dict(assumed_public),
        "ledger": None,
        "versions": versions(),
    }
