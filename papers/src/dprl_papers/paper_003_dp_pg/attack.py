"""The strongest known attack on Algorithm 1 of paper 003 as published; everything here is simulated."""

from __future__ import annotations

import numpy as np

from dprl.audits.attacks.trials import PlanCanary
from dprl.audits.attacks.users import UsersAgainstCanary, canary_of_sums, exact_sums
from dprl.learning.policy_gradient.pg_plan import PGPlan
from dprl_papers.paper_003_dp_pg.published import PublishedPG


def canary_of_plan(plan: PGPlan) -> PlanCanary:
    """Return the attack on a plan: one user is paid the most or the least, and all others are paid against this user.

    The attack is weaker than Theorem 1 allows: where all actions are alike, no score reaches the theorem's bound.
    """
    config = plan.config
    assert isinstance(config, PublishedPG)
    settings = config.settings(plan.policy, plan.facts, plan.budget)
    absent, present = (exact_sums(plan, UsersAgainstCanary(plan, there)) for there in (False, True))
    length = float(np.linalg.norm(present - absent)) / 2.0
    return canary_of_sums(
        plan,
        absent,
        present,
        f"one of {settings.batch} users in the first of {settings.steps} batches is paid the most or the "
        f"least, and all others against it: a vector of {length:.3g} where Theorem 1 allows "
        f"{settings.largest_return * settings.score_bound:.3g}; all noisy means are seen",
    )
