"""The attack on GPOPE: a record is added that pushes in one known direction at full clip norm, whatever the iterates.

This is the attack of ``programs.py`` on any plan, with records that are made for GPOPE. It may also look at the last
iterate only. Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.programs import FAR, ONE_STEP, always, canary_of_plan
from dprl.audits.attacks.trials import PlanCanary
from dprl.engine.layouts import SharedTransitions
from dprl.engine.loop import run
from dprl.engine.plan import Plan
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SeededNoise


def gpope_canary(kind: type[GPOPE], *, units: int, budget: Budget, released: str, **options: Any) -> PlanCanary:
    """Return the attack on GPOPE: a record at full clip norm is added."""
    bounds = replace(ONE_STEP, units=units)
    plan = make_plan(kind.from_mapping(options, "options"), bounds, budget, [always], "tabular")
    found = canary_of_plan(plan, rows_at_full_clip)
    if released == "all":
        return found

    def score(key: Any, data: tuple[Any, Any]) -> Any:
        # w is minus the sum of the noisy dual gradients, and the likelihood ratio grows with that sum
        return -run(found.plan.program, SeededNoise(key), data[1], batch=len(data[0]))[0].w[0].astype(jnp.float64)

    return replace(found, score=score, description=found.description.replace("every noisy sum", "the last iterate"))


def rows_at_full_clip(plan: Plan, signs: np.ndarray) -> SharedTransitions:
    """Return units whose dual gradient is plus or minus the clip norm, or zero, whatever the iterates are.

    There is one state, which leads to itself. The reward is huge, so that the temporal difference is almost exactly the
    reward.
    """
    mechanism = plan.stages[0].mechanism
    phi = jnp.eye(1, mechanism.dimension // 2, dtype=jnp.float32)
    weight = jnp.asarray(np.abs(signs)[:, None], dtype=jnp.float32)
    reward = jnp.asarray(-signs[:, None] * mechanism.clip_norm * FAR, dtype=jnp.float32)
    columns = {"phi": phi, "delta_phi": phi * jnp.float32(1.0 - plan.config.discount), "weight_rho_reward": reward}
    return SharedTransitions({**columns, "weight": weight, "weight_rho": weight})
