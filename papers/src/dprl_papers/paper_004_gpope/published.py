"""GPOPE as published: one uniformly chosen trajectory a step, with the noise of Theorem 1.

Paper: Xie, Thomas, Miklau, "Privacy Preserving Off-Policy Evaluation" (2019), Algorithm 1, and
Theorem 1, which does not hold as printed.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: replace one.
Released: every noisy sum of clipped gradients, hence every iterate. It certifies nothing: docs/papers/004.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dprl.accounting.budget import Budget
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import Claimed, PublicFacts, Query, Stage
from dprl.evaluation.gpope import GPOPE, GPOPEProgram
from dprl.evaluation.protected import Protected
from dprl.protocols import Attack, Precondition
from dprl_papers.one_unit import claimed, with_single_unit_rate

LEAST_SIGMA = math.sqrt(1.0 / math.log(2.0))
"""Least sigma that Theorem 1's proof assumes."""


@dataclass(frozen=True, kw_only=True)
class PublishedGPOPE(GPOPE):
    """Options of GPOPE; rate and noise are the paper's, and a protector has no place in it."""

    calibration: Literal["verified", "as-published"] = "as-published"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("an optimizer has no calibration = 'as-published': leave one of them out", self.optimizer is None)
        self._check(
            "noise_multiplier contradicts calibration = 'as-published', whose noise is the paper's formula: leave one "
            "of them out",
            self.noise_multiplier is None,
        )

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        return tuple(replace(query, sampling_rate=1.0 / facts.units) for query in super().queries(facts))

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> GPOPEProgram | Protected:
        """Return with the rate that the paper has, for the statement."""
        return super(PublishedGPOPE, with_single_unit_rate(self, facts)).program(facts, stages)

    def claimed(self, facts: PublicFacts, queries: Sequence[Query], budget: Budget) -> Claimed:
        """Return Theorem 1's noise, of one trajectory a step."""
        sigma = noise_multiplier(self.steps, facts.units, budget.epsilon, budget.delta)
        conditions = theorem_1_conditions(sigma, self.steps, facts.units, budget.epsilon)
        return claimed(queries, facts.units, sigma, conditions)

    def noise_in_words(self, budget: Budget, **public: Any) -> tuple[dict[str, Any], str]:
        """Return what ``dprl calibrate`` says of it."""
        from dprl_papers.first_sum import noise_in_words

        return noise_in_words(self, budget, **public)


def noise_multiplier(steps: int, trajectories: int, epsilon: float, delta: float, c2: float = 2.0) -> float:
    """Return Theorem 1's sigma with the constant of its proof (c2 = 2). It does not give (epsilon, delta).

    >>> round(noise_multiplier(200, 200, 1.0, 1e-5), 3)
    0.48
    """
    return c2 * math.sqrt(steps * math.log(1.0 / delta)) / (trajectories * epsilon)


def precondition_holds(sigma: float) -> bool:
    """Return whether sigma >= sqrt(1 / ln 2) = 1.201, which Theorem 1's proof assumes.

    Elsewhere nothing is left of the formula. Where it holds, the theorem is wrong all the same: docs/papers/004.md, E5
    and E6.
    """
    return sigma >= LEAST_SIGMA


def theorem_1_conditions(sigma: float, steps: int, units: int, epsilon: float) -> tuple[Precondition, ...]:
    """Return what the proof of Theorem 1 assumes of sigma, N = steps, m = units and epsilon (docs/papers/004.md, E5).

    >>> [condition.holds for condition in theorem_1_conditions(4.799, 200, 200, 0.01)]
    [True, True]
    """
    most = 2.0 * steps * math.log(units / sigma) / units**2
    sentence = f"Theorem 1's proof needs sigma >= {LEAST_SIGMA:.4g}, and sigma is {sigma:.4g}"
    return (
        Precondition(sentence, precondition_holds(sigma)),
        Precondition(f"Theorem 1 needs epsilon <= 2 N ln(m/sigma)/m^2, which is {most:.3g}", epsilon <= most),
    )


ALGORITHM = Algorithm(
    PublishedGPOPE,
    settings={"as published": Setting(PublishedGPOPE(steps=6, discount=0.9))},
    attacks=(
        Attack(options={"steps": 200}, trials=400_000),
        Attack(released="last", options={"steps": 200}, trials=400_000),
    ),
    canary="dprl_papers.paper_004_gpope.attack:published_canary",
)
