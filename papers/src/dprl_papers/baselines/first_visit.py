"""First-visit evaluation in a finite set of states, from noisy visit counts and sums of returns.

Paper: Balle, Gomrokchi and Precup (2016), "Differentially private policy evaluation", for the estimators LSL and LSW.
The privacy mechanism is not theirs: they add noise to the answer (smooth_sensitivity.py, docs/papers/balle-2016.md).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: one noisy vector with the counts of visits and the sums of first-visit returns. The rest is post-processing. A
release of it writes a statement. Proof: docs/proofs/first-visit.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import project_phi
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError


@dataclass(frozen=True, kw_only=True)
class FirstVisit(ValueFunctionConfig):
    """Options of first-visit evaluation; all of them are public facts. The features must be tabular.

    Attributes:
        estimator: ``lsl`` divides sums of returns by counts plus a ridge, and shrinks values to a common value. ``lsw``
            averages returns, with counts that are taken to be at least the ridge.
        ridge: the ridge, in standard deviations of the noise in a sum of returns; a state with fewer visits than this
            cannot be told from noise.
        kappa: weight of a visit relative to a return of half the value range, within a unit's clip norm.
        intercept: whether the common value of ``lsl`` is fitted, without a ridge, to the same noisy sums; otherwise it
            is the middle of the public range.
    """

    estimator: Literal["lsl", "lsw"] = "lsl"
    ridge: float = 4.0
    kappa: float = 1.0
    intercept: bool = True

    algorithm: ClassVar[str] = "first-visit"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("ridge must be between 1e-6 and 1e6", 1e-6 <= self.ridge <= 1e6)
        self._check("kappa must be between 1e-3 and 1e3", 1e-3 <= self.kappa <= 1e3)

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        size = states_of(facts)
        return (Query("first-visits", 2 * size, unit_norm(self.kappa, size, facts.horizon)),)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> FirstVisitProgram:
        return FirstVisitProgram(config=self, size=states_of(facts), ratio=facts.ratio, stages=stages)


def states_of(facts: PublicFacts) -> int:
    """Return the number of public states; refuse features that are not one indicator per state."""
    if facts.features.name != "tabular":
        raise DprlError("first-visit: visits are counted in a finite set of states; use tabular features.")
    return facts.features.size


def unit_norm(kappa: float, states: int, horizon: int) -> float:
    """Return the largest norm of a unit's vector.

    A unit has at most ``min(states, horizon)`` first visits, each ``(kappa, y)`` with ``|y| <= 1``.
    """
    return math.sqrt(min(states, horizon) * (kappa**2 + 1.0))


@dataclass(frozen=True)
class FirstVisitProgram:
    """Program of one release; ``ratio`` is the scale of the returns in the rows (1 on-policy)."""

    config: FirstVisit
    size: int
    ratio: float
    stages: tuple[Stage, ...]

    columns = ("returns", "first")

    @property
    def penalty(self) -> float:
        """The ridge lambda' in visits: ``ridge`` standard deviations of the noise in a sum of returns."""
        return self.config.ridge * self.ratio * self.stages[0].mechanism.noise_std

    def init(self) -> jax.Array:
        return jnp.zeros(2 * self.size, dtype=jnp.float64)

    def contribution(self, stage: int, state: Any, block: Any) -> jax.Array:
        """Return ``(B, 2n)`` contributions: kappa for each visited state, then the return from its first visit on.

        Both are means over a unit's trajectories. A feature is an indicator times ``sqrt(n)``, so a projection on it
        adds up the numbers of one state.

        A feature is an indicator times ``sqrt(n)``: projecting on it adds up what belongs to a state.
        """
        del stage, state
        visits, returns = project_phi(block.first, block), project_phi(block.first_return, block)
        return jnp.concatenate([self.config.kappa * visits, returns], axis=-1) / math.sqrt(self.size)

    def update(self, stage: int, state: jax.Array, noisy: jax.Array, step: Any) -> jax.Array:
        del stage, state, step
        return noisy

    def finish(self, stage: int, state: jax.Array) -> jax.Array:
        del stage
        return state

    def answer(self, state: jax.Array) -> jax.Array:
        counts, returns = state[: self.size] / self.config.kappa, self.ratio * state[self.size :]
        values = jnp.clip(self._values(counts, returns), -1.0, 1.0)
        return values / math.sqrt(self.size)

    def _values(self, counts: jax.Array, returns: jax.Array) -> jax.Array:
        """Return values in [-1, 1] units; the normal equations of LSL are diagonal, as indicators do not overlap."""
        if self.config.estimator == "lsw":
            return returns / jnp.maximum(counts, self.penalty)
        counts = jnp.maximum(counts, 0.0)
        damped = counts + self.penalty
        if not self.config.intercept:
            return returns / damped
        # the minimum over (a, V) of sum_s n_s V_s^2 - 2 v_s V_s + lambda' (V_s - a)^2
        common = jnp.sum(returns / damped) / jnp.maximum(jnp.sum(counts / damped), 1e-12)
        common = jnp.clip(common, -1.0, 1.0)
        return common + (returns - counts * common) / damped


ALGORITHM = Algorithm(
    FirstVisit,
    settings={
        "LSL": Setting(FirstVisit(discount=0.9), features="tabular"),
        "LSW": Setting(FirstVisit(discount=0.9, estimator="lsw"), features="tabular"),
    },
)
