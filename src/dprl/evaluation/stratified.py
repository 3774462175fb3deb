"""Values of target policies where nobody wrote propensities down: they are estimated within declared strata.

One decision; within a stratum everybody is assumed to have had the same chances of each action, or chances that have
nothing to do with the outcome. Values are doubly robust: a noisy outcome model, and the weighted residuals around it
(Robins, Rotnitzky and Zhao 1994), with weights that are one over noisy propensities.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: counts and sums of outcomes by stratum and action, then one noisy vector of all policies' residuals; see
:mod:`~dprl.evaluation.residuals`.
Proof, assumptions, errors and intervals: docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, project
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError
from dprl.evaluation.propensities import COUNT_WEIGHT, Propensities
from dprl.evaluation.residuals import ResidualQuery
from dprl.evaluation.strata import Strata
from dprl.protocols import Bounds
from dprl.value_functions.features import Features


@dataclass(frozen=True, kw_only=True)
class Stratified(ValueFunctionConfig):
    """Options of values with estimated propensities; public facts, all of them. The bounds declare the strata.

    Attributes:
        value_budget_fraction: share of mu^2 that pays for the residuals; the rest pays for counts and outcomes.
        overlap: what is done about a stratum in which an action that a target policy may take is not supported:
            ``bound``, everything between the ends of the declared range counts as possible there, and widens the
            interval; or ``trim``, all values are of the people of the other strata, and their share is released.
        min_propensity: an action that was taken by a smaller share of a stratum is not supported there.
    """

    value_budget_fraction: float = 0.7
    overlap: Literal["bound", "trim"] = "bound"
    min_propensity: float = 0.02

    algorithm: ClassVar[str] = "stratified"
    around_function: ClassVar[bool] = True

    ranges: ClassVar[Mapping[str, str]] = {"min_propensity": "[0, 0.5]"}

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        numbers = 2 * Strata(facts.bounds).count * (facts.bounds.actions or 1)
        return (Query("propensities", numbers, math.hypot(1.0, COUNT_WEIGHT) * (1.0 + 1e-6)),)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> StratifiedProgram:
        return StratifiedProgram(self, stages, facts)

    @override
    def function(
        self, theta: Float[np.ndarray, " n"], features: Features, bounds: Bounds, stages: tuple[Stage, ...]
    ) -> Propensities:
        """Return released counts and outcomes."""
        del features
        return Propensities(theta, Strata(bounds), stages[0].mechanism.noise_std)

    @override
    def value_query(
        self, bounds: Bounds, features: Features, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> ResidualQuery:
        """Return what asks for values; refuse what is not one decision with discrete actions within declared strata."""
        del features
        if bounds.strata is None:
            raise DprlError("stratified: declare strata in the bounds; strata = [] if nothing decided what was done.")
        if bounds.horizon > 1:
            raise DprlError("stratified: propensities are estimated for one decision; horizon must be 1.")
        if bounds.return_range is not None:
            raise DprlError("stratified: of one decision the return is the reward: leave return_range out.")
        return ResidualQuery(self, bounds, Strata(bounds).table(policies), tuple(contrasts))


@dataclass(frozen=True)
class StratifiedProgram(PublicProgram):
    """One release of weighted counts and sums of outcomes by stratum and action."""

    columns = ("start", "raw_reward", "states", "actions")

    def init(self) -> Float[Array, " n"]:
        """Return the state before the first step."""
        return jnp.zeros(self.stages[0].mechanism.dimension, jnp.float64)

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return shares of each stratum and action in a unit's decisions, and sums of outcomes."""
        del stage, state
        strata, actions = Strata(self.facts.bounds), self.facts.bounds.actions or 1
        place = strata.cells(block.states, jnp) * actions + block.actions.astype(np.int32)
        taken = (place[..., None] == jnp.arange(strata.count * actions)) & (block.actions >= 0.0)[..., None]
        indicators = taken.astype(block.start.dtype)
        counts, sums = (project(rows, indicators) for rows in (block.start, block.start_raw_reward))
        return jnp.concatenate([COUNT_WEIGHT * counts, sums], axis=-1)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Float[Array, " dim"]:
        """Return the noisy sum."""
        del stage, state, step
        return noisy

    def answer(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return what was released."""
        return state


_FACTS = {"horizon": 1, "max_cumulative_ratio": 1.6, "strata": ("observation_0",)}
ALGORITHM = Algorithm(
    Stratified,
    settings={
        "bounded": Setting(Stratified(discount=0.9), facts=_FACTS),
        "trimmed, with a difference": Setting(Stratified(discount=0.9, overlap="trim"), facts=_FACTS, compare=("all",)),
    },
    canary="dprl.audits.attacks.programs:stratified_canary",
)
