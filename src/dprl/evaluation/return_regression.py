"""Private regression on returns: full or Poisson batches of clipped least-squares vectors, on and off policy.

Method: least squares of (importance-weighted) returns to go on features, by noisy gradient steps (Bassily, Smith and
Thakurta 2014; Abadi et al. 2016, with a trajectory in the place of an example).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: every noisy sum of clipped vectors, hence every iterate. Proof: docs/proofs/return-regression.md.
Symbols: docs/symbols.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import PublicFacts, Stage
from dprl.evaluation.td import REFERENCE_STRENGTH, STANDARD_ATTACKS, Descent, DescentConfig


@dataclass(frozen=True, kw_only=True)
class ReturnRegression(DescentConfig):
    """Options of private regression on returns, which are the options of :class:`DescentConfig`.

    A unit's vector is ``a * sum_t weight_t phi_t (y_t - rho_t theta'phi_t)``, with y_t the return from t on in public
    units. Off policy y_t is weighted decision by decision, including the ratio rho_t of its own step. The mean of y_t
    is the value, the mean of rho_t is one, and a step with a ratio of zero contributes nothing. Products of ratios are
    cut at the public bound. Over long horizons that pulls values towards the middle of the range, and TD is the better
    choice.
    """

    algorithm: ClassVar[str] = "return-regression"

    @override
    def travel(self, facts: PublicFacts, strength: float) -> float:
        """Return 1.4, which grows slowly with n0: more than half the range of values."""
        del facts
        return 1.4 * max(strength / REFERENCE_STRENGTH, 1.0) ** 0.15

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> ReturnRegressionProgram:
        return ReturnRegressionProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class ReturnRegressionProgram(Descent):
    """Program of private regression on returns, with all public numbers filled in."""

    own_columns = ("returns",)

    @override
    def vectors(self, state: Any, block: Block) -> Float[Array, "units n"]:
        theta = state.theta.astype(block.phi.dtype)
        # returns are divided by the largest cumulative ratio, and include the ratio of their own step
        error = self.facts.ratio * block.weight_return - block.weight_rho * apply(block.phi, theta)
        return project_phi(error, block) * jnp.asarray(self.scale, dtype=block.phi.dtype)


ALGORITHM = Algorithm(
    ReturnRegression,
    settings={
        "full batches": Setting(ReturnRegression(steps=3, discount=0.9)),
        "Poisson batches": Setting(ReturnRegression(steps=4, discount=0.9, sampling_rate=0.5)),
    },
    attacks=STANDARD_ATTACKS,
)
