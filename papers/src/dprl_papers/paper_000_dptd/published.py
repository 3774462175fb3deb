"""DPTD as published: one unit a step, noise behind the momentum, with the formula of Theorem 5.1.

Paper 000, Algorithm 1, Theorems 5.1 and A.1, appendix G. The theorem does not hold as printed: docs/papers/000.md.
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: replace one.
Released: every noisy sum of clipped joint gradients, hence every iterate. It certifies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dprl.accounting.budget import Budget
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block
from dprl.engine.program import Claimed, PublicFacts, Query, Stage
from dprl.evaluation.dptd import DPTD, DPTDProgram
from dprl.protocols import Attack, Precondition
from dprl_papers.one_unit import claimed, with_single_unit_rate

STEP = 2.0  # kappa = eta, appendix G


@dataclass(frozen=True, kw_only=True)
class PublishedDPTD(DPTD):
    """Options of DPTD; direction, schedule, steps, start and answer are the paper's.

    The noise is added behind the weight a_t, and a batch is one unit. ``kappa`` and ``eta`` are 2 by default, and
    ``clip_norm`` is the Lipschitz constant G, which is 1 unless it is given.
    """

    calibration: Literal["verified", "as-published"] = "as-published"

    def __post_init__(self) -> None:
        super().__post_init__()
        theirs = {"direction": "gradient", "schedule": "diminishing", "average": "random"}
        for name, value in theirs.items():
            self._check(
                f"{name} is {value!r} with calibration = 'as-published': leave it out",
                getattr(self, name) in (None, value),
            )
        self._check(
            "start = 'constant' is a release that calibration = 'as-published' does not have: choose another",
            self.start != "constant",
        )
        self._check("an optimizer has no calibration = 'as-published': leave one of them out", self.optimizer is None)
        self._check(
            "noise_multiplier contradicts calibration = 'as-published', whose noise is the paper's formula: leave one "
            "of them out",
            self.noise_multiplier is None,
        )

    @property
    def follows(self) -> Literal["corrected", "gradient"]:
        return "gradient"

    def rate(self, facts: PublicFacts) -> float:
        rate = 1.0 / facts.units
        self._check(
            "sampling_rate is one over the number of units with calibration = 'as-published': leave it out",
            self.sampling_rate in (None, rate),
        )
        return rate

    def clip(self, facts: PublicFacts) -> float:
        return 1.0 if self.clip_norm is None else self.clip_norm

    def starts_at(self, facts: PublicFacts) -> Literal["constant", "mid-range", "zero", "random"]:
        if self.start is None:
            return "mid-range" if facts.features.linear else "random"
        return self.start

    def step_sizes(self, facts: PublicFacts, stage: Stage) -> tuple[float, float]:
        del facts, stage
        return STEP * self.nu, STEP * self.nu

    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        return super().defaults(facts, stages) | {"schedule": "diminishing", "average": "random"}

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> PublishedDPTDProgram:
        return PublishedDPTDProgram(with_single_unit_rate(self, facts).resolve(facts, stages), stages, facts)

    def claimed(self, facts: PublicFacts, queries: Sequence[Query], budget: Budget) -> Claimed:
        """Return Theorem 5.1's noise, of one unit a step."""
        asked = (max(self.step_count(facts) - 1, 1), facts.units, budget.epsilon, budget.delta)
        return claimed(queries, facts.units, noise_multiplier(*asked), theorem_conditions(*asked))

    def noise_in_words(self, budget: Budget, **public: Any) -> tuple[dict[str, Any], str]:
        """Return what ``dprl calibrate`` says of it."""
        from dprl_papers.first_sum import noise_in_words

        return noise_in_words(self, budget, **public)


@dataclass(frozen=True)
class PublishedDPTDProgram(DPTDProgram):
    """Algorithm 1 with everything that is public filled in, and the noise behind the momentum."""

    def vectors(self, state: Any, block: Block) -> jax.Array:
        """Return with the weight a_t in front of the clip: what one unit can move p and d by is what counts."""
        primal, dual = self.momentum(state.step)
        size = state.theta.shape[0]
        return super().vectors(state, block) * jnp.where(jnp.arange(2 * size) < size, primal, dual)

    def weights(self, step: jax.Array) -> tuple[Any, Any]:
        del step
        return 1.0, 1.0

    def keep(self, stage: int, state: Any, theta: jax.Array, noisy: jax.Array) -> jax.Array:
        """Return one iterate of theta_0 to theta_{T-1}, as line 7 draws it: the one that a step begins at."""
        del theta
        return super().keep(stage, state, state.theta, noisy)


# --- Theorem 5.1 ------------------------------------------------------------------------------------------------------


def noise_multiplier(steps: int, units: int, epsilon: float, delta: float) -> float:
    """Return Theorem 5.1's sigma over G with the beta' for which it is smallest. It does not give (epsilon, delta).

    ``sigma^2 = 14 G^2 T / (n^2 rho)`` with ``rho = (sqrt(epsilon + L) - sqrt(L))^2`` and ``L = log(1 / delta)``:
    docs/papers/000.md.

    Args:
        steps: T, the number of updates. T + 1 noisy gradients are released, the initial one first.
        units: n, transitions; or trajectories, of Theorem A.1 with whole trajectories as the records.

    >>> round(noise_multiplier(1000, 1000, 1.0, 1e-5), 3)
    0.82
    """
    log = math.log(1.0 / delta)
    return math.sqrt(14.0 * steps) / units / (math.sqrt(epsilon + log) - math.sqrt(log))


def theorem_conditions(steps: int, units: int, epsilon: float, delta: float) -> tuple[Precondition, ...]:
    """Return what Theorem 5.1 assumes of T, n and epsilon, at the same beta' as :func:`noise_multiplier`.

    Condition (ii) has sigma where only ``sigma' = sigma / (2 G)`` does not depend on the unit of the reward: both
    readings are given, the printed one with G = 1.
    """
    sigma = noise_multiplier(steps, units, epsilon, delta)
    square, ratio = (sigma / 2.0) ** 2, math.log(1.0 / delta) / epsilon
    order = ratio + 1.0 + math.sqrt(ratio * (ratio + 1.0))
    logarithm = math.log(units / (order * (1.0 + square)))
    found = [Precondition(f"Theorem 5.1 (i) needs sigma'^2 >= 0.7, and it is {square:.3g}", square >= 0.7)]
    for name, scale in (("as printed, with sigma", sigma**2), ("with sigma' for sigma", square)):
        most = 2.0 / 3.0 * scale * logarithm
        found.append(
            Precondition(
                f"Theorem 5.1 (ii), {name}, needs alpha' - 1 <= {most:.3g}, and it is {order - 1.0:.3g}",
                order - 1.0 <= most,
            )
        )
    return tuple(found)


ALGORITHM = Algorithm(
    PublishedDPTD,
    settings={"as published": Setting(PublishedDPTD(steps=6, discount=0.9), features="mlp:2")},
    attacks=(Attack(units=10_000, options={"steps": 1001}, trials=400_000),),
    canary="dprl_papers.paper_000_dptd.attack:published_canary",
)
