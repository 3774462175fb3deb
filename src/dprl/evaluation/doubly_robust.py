"""Values of target policies by the doubly robust estimator, around a private value function.

Paper: Jiang and Li (2016), "Doubly robust off-policy value evaluation", Eq. (10), with state values in place of action
values. AdaSSP learns the value function on the same units; each unit's baseline is made without its own rows.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: what AdaSSP releases, then one noisy vector of all policies' estimates; see
:mod:`~dprl.evaluation.doubly_robust_query`.
Proof, unbiasedness and bias bound: docs/proofs/doubly-robust.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from dprl.bounds import Bounds
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import Program, PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.evaluation.adassp import AdaSSP
from dprl.evaluation.doubly_robust_estimates import AdaSSPWithSums, LeaveOneOutFunction
from dprl.evaluation.doubly_robust_query import DoublyRobustQuery
from dprl.value_functions.features import Features
from dprl.value_functions.value_function import ValueFunction


@dataclass(frozen=True, kw_only=True)
class DoublyRobust(ValueFunctionConfig):
    """Options of the doubly robust values; all of them are public facts.

    Attributes:
        value_budget_fraction: share of mu^2 that pays for values and intervals; the rest pays for the value function.
        modes: number of modes of the value function; see :class:`~dprl.evaluation.adassp.AdaSSP`.
        second_moment_weight: weight of a unit's squared estimate, from which the sampling error is estimated.
    """

    value_budget_fraction: float = 0.8
    modes: int | None = None
    second_moment_weight: float = 1.0

    algorithm: ClassVar[str] = "doubly-robust"
    around_function: ClassVar[bool] = True

    ranges: ClassVar[Mapping[str, str]] = {"modes": "[1, inf)", "second_moment_weight": "[0.05, 1]"}

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        return self._inner.queries(facts)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Program:
        """Return the program with everything public filled in."""
        return AdaSSPWithSums(self._inner.resolve(facts, stages), stages, facts)

    @override
    def function(
        self, theta: Float[np.ndarray, " n"], features: Features, bounds: Bounds, stages: tuple[Stage, ...]
    ) -> ValueFunction:
        """Return the value function of the released numbers, which leaves out each unit's own part.

        Where ``theta`` is only the weights, the function is the same for every unit.
        """
        n, value = features.size, bounds.value_interval(self.discount)
        if len(theta) == n:
            return ValueFunction(theta, features, value)
        modes = (math.isqrt(9 + 8 * stages[-1].mechanism.dimension) - 3) // 2
        facts = PublicFacts(bounds, features, self.discount, mu=0.0)  # mu only chooses modes, and these are given
        return LeaveOneOutFunction(
            theta[:n], features, value, AdaSSPWithSums(self._inner.replace(modes=modes), stages, facts), theta[n:]
        )

    @override
    def value_query(
        self, bounds: Bounds, features: Features, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> DoublyRobustQuery:
        """Return the query for values around the value function."""
        return DoublyRobustQuery(self, bounds, features, len(policies), contrasts=tuple(contrasts))

    @property
    def _inner(self) -> AdaSSP:
        """Algorithm that learns the value function."""
        return AdaSSP(discount=self.discount, modes=self.modes)


_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    DoublyRobust,
    settings={
        "off-policy": Setting(DoublyRobust(discount=0.9)),
        "one decision": Setting(DoublyRobust(discount=0.9), facts=_ONE_STEP),
        "differences": Setting(DoublyRobust(discount=0.9), facts=_ONE_STEP, compare=("all",)),
        "subgroups": Setting(DoublyRobust(discount=0.9), subgroups=("observation_0:1",)),
    },
)
