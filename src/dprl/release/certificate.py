"""Decide the status of a release and write its unsealed certificate: the parts that all kinds of release share."""

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
    """Return the status of a release. Only a ``verified`` release gets a certificate.

    A release is ``not private`` if its noise is reproducible, or if its data are simulated and so may be shown. It is
    ``as published`` if it uses a paper's own mechanisms, and ``unreviewed`` if the algorithm is not one of dprl's,
    whatever its noise: nobody here has proved what such an algorithm protects.

    Args:
        plan: plan of the release; only its options, its program and its claim are read.
        secure: whether the noise is secure.
        simulated: whether the data are simulated.
    """
    if not secure or simulated:
        return "not private"
    if plan.claim is not None:
        return "as published"
    return "verified" if is_own(plan.config, getattr(plan, "program", None)) else "unreviewed"


def gaussian_accountant() -> str:
    """Return the accountant's name for releases of Gaussian noise only, whose neighbours are one sensitivity apart."""
    return accountant_name().replace(RELATION, "neighbours one sensitivity apart")


def certificate_from(plan: Plan | LearningPlan | PGPlan, noise: Any, status: str, **stated: Any) -> dict[str, Any]:
    """Return the unsealed certificate, from public facts that are known before anything private is read.

    Only a verified release gets a certificate; any other gets a statement, with a schema of its own. If the plan has no
    accounting event, the fields that state its cost are null.

    Args:
        noise: noise source of the release.
        status: see :func:`status_of`.
        stated: what the calling front door states about its kind of release, under the certificate's field names:
            ``privacy_unit``, ``neighbouring_relation``, ``released`` (what is handed out, in words), ``not_protected``
            (in sentences), ``mechanisms`` (one row for each), ``accountant`` (name of the accountant that computed
            epsilon) and ``assumed_public`` (everything that was taken as public).
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
