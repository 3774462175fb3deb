"""The strongest attack known on GPOPE: worst-case pairs of logs, scores of what is released.

The algorithm's own code runs on both logs, trials in parallel: all records push one way and the canary's pushes the
other, at full clip norm whatever the iterates are. The score is the summed log-likelihood ratio of what is seen.
``programs.py`` attacks every plan in the same way, without knowing it.
Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import Simulation
from dprl.engine.layouts import SharedTransitions
from dprl.engine.plan import Plan
from dprl.engine.program import run_steps
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds

FAR = 1e6  # times the clip norm: a reward so large that the gradient is clipped whatever the iterates are
_OTHERS = 3


@dataclass(frozen=True, kw_only=True)
class EvaluationCanary(Simulation):
    """Values and updates of GPOPE, in which every unit's vector is clipped to a known one.

    Attributes:
        others: number of records beside the canary.
        released: ``all``, or the ``last`` iterate alone.
    """

    others: int
    released: str = "all"

    def _data(self, present: bool) -> tuple[Any, Any]:
        """Return the units' pushes, as the vectors of the value release and the transitions of GPOPE."""
        # adding and removing are the same thing as a record that is worth nothing: its coins are drawn alike
        signs = np.append(np.full(self.others, -1.0), 1.0 if present else 0.0)
        (stage,) = self.plan.stages
        return value_vectors(self.plan.value_mechanism, signs), pushes(
            signs, stage.mechanism, self.plan.config.discount
        )

    def _score(self, key: Any, data: tuple[Any, Any]) -> Any:
        plan, noise = self.plan, SeededNoise(key)
        vectors, transitions = data
        score = jnp.zeros((), dtype=jnp.float64)
        if self.released == "all":
            value = plan.value_mechanism
            seen = noisy_sum(value, noise.stream("value"), vectors)[0] + self.others * value.clip_norm
            score += log_ratio(seen, value.clip_norm, value.noise_std, 1.0)
        state, sums = self.updates(noise, transitions)
        mechanism = plan.stages[0].mechanism
        if self.released == "last":
            # w is minus the sum of the noisy dual gradients: its likelihood ratio grows with that sum
            return -state.w[0].astype(jnp.float64)
        seen = sums[:, mechanism.dimension // 2] + self.others * mechanism.clip_norm
        return score + jnp.sum(log_ratio(seen, mechanism.clip_norm, mechanism.noise_std, mechanism.sampling_rate))

    def updates(self, noise: Any, transitions: Any) -> tuple[Any, Any]:
        """Run all updates of GPOPE; return the state after the last, and every noisy sum."""
        program, (stage,) = self.plan.program, self.plan.stages
        assert program is not None
        mechanism, stream = stage.mechanism, noise.stream(stage.name)
        batch = min(8, self.others + 1)
        return run_steps(
            program, 0, mechanism, stream, transitions, program.init(), None, batch, lambda state, noisy: noisy
        )


def gpope_canary(kind: type[GPOPE], *, units: int, budget: Budget, released: str, **options: Any) -> EvaluationCanary:
    """Return the attack on GPOPE: a record at full clip norm is added."""
    plan = make_plan(kind.from_mapping(options, "options"), attack_bounds(units), budget, [always], "tabular")
    others, relation = addition(units, plan)
    what = "every noisy sum" if released == "all" else "the last iterate"
    return EvaluationCanary(plan=plan, others=others, description=f"{relation}; {what} is seen", released=released)


def value_vectors(mechanism: GaussianSum, signs: np.ndarray) -> Any:
    """Return vectors ``(U, dimension)`` for the values, at full clip norm in the first coordinate."""
    vectors = np.zeros((len(signs), mechanism.dimension))
    vectors[:, 0] = signs * mechanism.clip_norm
    return jnp.asarray(vectors)


def addition(units: int, plan: Plan) -> tuple[int, str]:
    """Return how many others the worst log has to which a record is added, and the pair of logs in words."""
    # in a random batch the others' number would only hide the canary: the worst log has nobody else in it
    full = all(stage.mechanism.sampling_rate == 1.0 for stage in plan.stages)
    others = min(_OTHERS, units - 1) if full else 0
    return others, f"one record at full clip norm is added to {f'a log of {others}' if others else 'an empty log'}"


def noisy_sum(mechanism: GaussianSum, noise: Any, vectors: Any) -> Any:
    """Return the noisy sum of ``vectors``, as :func:`~dprl.engine.value_query.release_vector`, for traced values."""
    total = mechanism.clipped_sum(vectors, jnp.ones(len(vectors), dtype=bool))
    return mechanism.release(total, mechanism.draw(noise, 0))


def pushes(signs: np.ndarray, mechanism: GaussianSum, discount: float) -> SharedTransitions:
    """Return units whose dual gradient is plus or minus the clip norm, or zero, whatever the iterates are.

    One state that leads to itself: the temporal difference is the reward, which is huge, and next to nothing else.
    """
    phi = jnp.eye(1, mechanism.dimension // 2, dtype=jnp.float32)
    weight = jnp.asarray(np.abs(signs)[:, None], dtype=jnp.float32)
    reward = jnp.asarray(-signs[:, None] * mechanism.clip_norm * FAR, dtype=jnp.float32)
    columns = {"phi": phi, "delta_phi": phi * jnp.float32(1.0 - discount), "weight_rho_reward": reward}
    return SharedTransitions({**columns, "weight": weight, "weight_rho": weight})


def log_ratio(z: Any, push: float, std: float, rate: float) -> Any:
    """Return the logarithm of (1 - rate) N(0, std^2) + rate N(push, std^2) over N(0, std^2), at ``z``."""
    return mixed(push * (z - push / 2.0) / std**2, rate)


def mixed(ratio: Any, rate: float) -> Any:
    """Return the log-likelihood ratio where what has ``ratio`` happens with probability ``rate``."""
    return ratio if rate == 1.0 else jnp.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


def attack_bounds(units: int) -> Bounds:
    """Return bounds of logs with one state, one action and one step."""
    return Bounds(units=units, horizon=1, reward=(-1.0, 1.0), observation=((0.0, 0.0),), actions=1)


def always(states: np.ndarray) -> np.ndarray:
    """Return probabilities ``(N, 1)`` of the policy with one action."""
    return np.ones((len(states), 1))
