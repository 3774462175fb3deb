"""The strongest attacks known on GPOPE as published: one of many records is replaced by its opposite.

All records push one way at full clip norm, and the replaced one pushes the other way. Everything in here is simulated;
nothing is private.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.evaluation import rows_at_full_clip
from dprl.audits.attacks.programs import FAR, ONE_STEP, always, mixed
from dprl.audits.attacks.trials import PlanCanary
from dprl.config import Provenance
from dprl.engine.layouts import SharedTransitions
from dprl.engine.loop import run_steps
from dprl.errors import DprlError
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_004_gpope.published import PublishedGPOPE


def published_canary(
    kind: type[PublishedGPOPE], *, units: int, budget: Budget, released: str, **options: Any
) -> PlanCanary:
    """Return a record among ``units`` is replaced."""
    config = kind.from_mapping(options, "options")
    if config.sampling_rate != GPOPE().sampling_rate:
        raise DprlError("As published, gpope takes one trajectory a step: sampling_rate means nothing there.")
    if released == "last" and config.step_size is None:
        # three updates at full clip norm are half of theta's range: it comes to lie at the wall, and can leave it
        config = config.replace(Provenance("chosen by the attack"), step_size=1.0 / (3.0 * (config.clip_norm or 0.25)))
    plan = make_plan(config, replace(ONE_STEP, units=units), budget, [always], "tabular")
    relation = f"all of {units} records push one way, and one of them is replaced by one that pushes the other way"
    what = "every noisy sum" if released == "all" else "the last iterate"
    program, (stage,) = plan.program, plan.stages
    assert program is not None
    mechanism = stage.mechanism

    def score(key: Any, data: SharedTransitions) -> Any:
        noise = SeededNoise(key).stream(stage.name)
        state, sums = run_steps(
            program, 0, mechanism, noise, data, program.init(), None, min(8, units), lambda state, noisy: noisy
        )
        if released == "last":
            return state.theta[0].astype(jnp.float64)
        push, std = 2.0 * mechanism.clip_norm, mechanism.noise_std
        ratio = push * (sums[:, mechanism.dimension // 2] + mechanism.clip_norm - push / 2.0) / std**2
        return jnp.sum(mixed(ratio, 1.0 / units))

    def log(last: float) -> SharedTransitions:
        signs = np.append(np.full(units - 1, -1.0), last)
        return _wall(signs) if released == "last" else rows_at_full_clip(plan, signs)

    return PlanCanary(
        plan=plan,
        description=f"{relation}; {what} is seen",
        score=score,
        pair=(log(-1.0), log(1.0)),
        draws=plan.steps,
        gaussian=False,
    )


def _wall(signs: np.ndarray) -> SharedTransitions:
    """Return units that press theta against the lower end of its range, and those of positive sign that pull it away.

    There theta forgets: what it is after the last update is that update alone. Two transitions of opposite temporal
    difference; the reward makes w grow, until the primal gradients are nearly all of the clipped ones.
    """
    phi = jnp.ones((2, 1), dtype=jnp.float32)
    delta = jnp.array([[-1.0], [1.0]], dtype=jnp.float32)
    weight = jnp.asarray(np.stack([signs < 0, signs > 0], axis=1) * FAR, dtype=jnp.float32)
    sums = {"weight": jnp.zeros_like(weight), "weight_rho": weight, "weight_rho_reward": 2.0 * weight}
    return SharedTransitions({"phi": phi, "delta_phi": delta, **sums})
