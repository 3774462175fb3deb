"""What any release may be called, and its certificate before it is sealed: what all have in common, written once."""

from __future__ import annotations

import math
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


def certificate_from(plan: Plan | LearningPlan | PGPlan, noise: Any, status: str, **stated: Any) -> dict[str, Any]:
    """Return the certificate before it is sealed, from public facts known before anything private is read.

    Only what is verified is called a certificate; anything else is a statement. Of a plan without an event no cost is
    stated.

    Args:
        noise: source of the release's noise.
        status: see :func:`status_of`.
        stated: what a front door says of its kind of release, under the certificate's own names: ``privacy_unit``,
            ``neighbouring_relation``, ``released`` (what is handed out, in words), ``not_protected`` (in sentences),
            ``mechanisms`` (one row for each), ``accountant`` (the name of the one that computed epsilon) and
            ``assumed_public`` (everything that was taken as public).
    """
    costs = {
        "event": events.to_json(plan.event) if plan.event is not None else None,
        "accountant": stated.pop("accountant"),
        "epsilon_of_event": plan.epsilon_of_event if math.isfinite(plan.epsilon_of_event) else None,
        "delta_of_event": plan.delta_of_event,
        "delta_sampler": plan.delta_sampler,
    }
    return {
        "schema": "dprl.certificate/1" if status == "verified" else "dprl.statement/1",
        "status": status,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "noise": {"secure": noise.secure, "source": noise.describe()},
        "ledger": None,
        "versions": versions(),
        **stated,
        **(dict.fromkeys(costs) if plan.event is None else costs),
    }
