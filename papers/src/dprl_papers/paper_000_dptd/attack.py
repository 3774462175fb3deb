"""The strongest attack known on DPTD as published.

The pair of logs keeps to what Theorem 5.1 assumes: every gradient has norm G, whatever theta and w are,
so nothing is ever clipped. One record of n is replaced by its opposite. It is in the first release, which has weight 1
and no more noise than the others, with probability 1/n; that alone is most of what is seen (docs/papers/000.md, E1).
Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.programs import ONE_STEP, always, mixed
from dprl.audits.attacks.trials import PlanCanary, check_all_seen
from dprl.engine.layouts import SharedTransitions
from dprl.engine.loop import run_steps
from dprl.engine.plan import Plan
from dprl.evaluation.dptd import DPTDProgram
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_000_dptd.published import PublishedDPTD

_MOST = 100  # noisy sums that are looked at where none of them tells much
_SMALL = 1e-7  # weight of a transition, against which its reward is so large that the gradient is the reward's


def published_canary(
    kind: type[PublishedDPTD], *, units: int, budget: Budget, released: str = "all", **options: Any
) -> PlanCanary:
    """Return the noise of Theorem 5.1 on ``units`` records of gradient norm G, one of which becomes its opposite.

    The attack sees the first noisy gradients.
    """
    check_all_seen("dptd", released)
    config = kind.from_mapping(options, "options")
    plan = make_plan(config, replace(ONE_STEP, units=units), budget, [always], "tabular")
    program, (stage,) = plan.program, plan.stages
    assert isinstance(program, DPTDProgram)
    mechanism = stage.mechanism
    # those that find the record where it was drawn; the others are not looked at unless there is nothing else
    telling = _telling(program, units)
    seen = min(telling or plan.steps, _MOST)

    def score(key: Any, data: Any) -> Any:
        """Return summed over the first releases: ``log(1 - 1/n + exp(ratio) / n)``, of shifts ``2 a_t G``."""
        _, (sums, weights) = run_steps(
            program,
            0,
            mechanism,
            SeededNoise(key).stream(stage.name),
            data,
            program.init(),
            (0, seen),
            trace=lambda state, noisy: (noisy[mechanism.dimension // 2], program.momentum(state.step)[1]),
        )
        # the dual half is descended: a reward of +G/phi pushes to -G
        push = 2.0 * weights.astype(jnp.float64) * mechanism.clip_norm
        ratio = (push * (sums + push / 2.0) - push * push / 2.0) / mechanism.noise_std**2
        found = jnp.sum(mixed(ratio, 1.0 / units))
        # less is no sign: so the threshold lies where no false alarm is, however few runs it was chosen on
        return jnp.where(found > math.log(units), found, 0.0) if telling else found

    relation = f"all of {units} records have the same gradient of norm G, and one is replaced by one with the opposite"
    return PlanCanary(
        plan=plan,
        description=f"{relation}; the first {seen} noisy gradients are seen",
        score=score,
        pair=(_alike(plan, 1.0), _alike(plan, -1.0)),
        draws=plan.steps,
        gaussian=False,
    )


def _alike(plan: Plan, last: float) -> SharedTransitions:
    """Return units of one transition that leads to itself: gradients of norm G along the first dual coordinate.

    That of the ``last`` unit has its sign.
    """
    assert plan.features is not None
    sign = jnp.ones(plan.bounds.units, dtype=jnp.float32).at[-1].set(last)
    state = jnp.asarray([[low for low, _ in plan.bounds.observation]], dtype=jnp.float32)
    phi = jnp.asarray(plan.features(state), dtype=jnp.float32)
    weight = jnp.full((len(sign), 1), _SMALL, dtype=jnp.float32)
    clip = plan.stages[0].mechanism.clip_norm
    reward = jnp.asarray(clip / jnp.linalg.norm(phi) * sign[:, None], dtype=jnp.float32)
    columns = {"phi": phi, "delta_phi": phi * (1.0 - plan.config.discount), "weight_rho_reward": reward}
    columns |= dict.fromkeys(("weight", "weight_rho"), weight) | dict.fromkeys(("states", "next_states"), state)
    return SharedTransitions({**columns, "alive": jnp.ones(1, dtype=jnp.float32)})


def _telling(program: DPTDProgram, units: int) -> int:
    """Return how many releases find the record where it was drawn.

    Replacing it moves a sum by s standard deviations of the noise. ``s^2 / 2``, the mean log-likelihood ratio, must be
    above ``log n``, which is what drawing one of n costs.
    """
    mechanism = program.stages[0].mechanism
    weights = np.asarray(program.momentum(jnp.arange(mechanism.steps))[1], dtype=np.float64)
    return int(np.sum((weights / mechanism.noise_multiplier) ** 2 / 2.0 > np.log(units)))
