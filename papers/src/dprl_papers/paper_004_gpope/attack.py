"""The strongest attacks known on GPOPE as published: one of many records is replaced by its opposite.

All records push one way at full clip norm, and the replaced one pushes the other way. Everything in here is simulated;
nothing is private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.evaluation import FAR, EvaluationCanary, always, attack_bounds, log_ratio, pushes
from dprl.config import Provenance
from dprl.engine.layouts import SharedTransitions
from dprl.errors import DprlError
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_004_gpope.published import PublishedGPOPE


@dataclass(frozen=True, kw_only=True)
class PublishedCanary(EvaluationCanary):
    """The updates alone, of one record a step."""

    @property
    def gaussian(self) -> bool:
        return False

    def _data(self, present: bool) -> tuple[Any, Any]:
        signs = np.append(np.full(self.others, -1.0), 1.0 if present else -1.0)
        (stage,) = self.plan.stages
        at_the_wall = self.released == "last"
        return None, _wall(signs) if at_the_wall else pushes(signs, stage.mechanism, self.plan.config.discount)

    def _score(self, key: Any, data: tuple[Any, Any]) -> Any:
        state, sums = self.updates(SeededNoise(key), data[1])
        if self.released == "last":
            return state.theta[0].astype(jnp.float64)
        mechanism = self.plan.stages[0].mechanism
        clip, rate = mechanism.clip_norm, 1.0 / (self.others + 1)
        return jnp.sum(log_ratio(sums[:, mechanism.dimension // 2] + clip, 2.0 * clip, mechanism.noise_std, rate))


def published_canary(
    kind: type[PublishedGPOPE], *, units: int, budget: Budget, released: str, **options: Any
) -> PublishedCanary:
    """Return a record among ``units`` is replaced."""
    config = kind.from_mapping(options, "options")
    if config.sampling_rate != GPOPE().sampling_rate:
        raise DprlError("As published, gpope takes one trajectory a step: sampling_rate means nothing there.")
    if released == "last" and config.step_size is None:
        # three updates at full clip norm are half of theta's range: it comes to lie at the wall, and can leave it
        config = config.replace(Provenance("chosen by the attack"), step_size=1.0 / (3.0 * (config.clip_norm or 0.25)))
    plan = make_plan(config, attack_bounds(units), budget, [always], "tabular")
    relation = f"all of {units} records push one way, and one of them is replaced by one that pushes the other way"
    what = "every noisy sum" if released == "all" else "the last iterate"
    return PublishedCanary(plan=plan, others=units - 1, description=f"{relation}; {what} is seen", released=released)


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
