"""Values of target policies where propensities were not recorded: estimated within strata, or by a regression.

Within a stratum everybody is assumed to have had the same chances of each action, or chances that have nothing to do
with the outcome. Values of one decision are doubly robust: a noisy outcome model, and the weighted residuals around it
(Robins, Rotnitzky and Zhao 1994), with weights that are one over noisy propensities. Values of several steps are those
of importance sampling with estimated propensities. Where the bounds declare a component as ``NAME:linear``, the
propensities of one decision are estimated by a multinomial regression in place of cells.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: counts by stratum and action, and for one decision sums of outcomes; then one noisy vector of all policies'
residuals or weights; see :mod:`~dprl.evaluation.residuals` and :mod:`~dprl.evaluation.stratified_steps`. For a
regression: products of terms and outcomes, Newton steps, and scores; see :mod:`~dprl.evaluation.regression_values`.
Subgroups are made of whole strata. In place of the vector of residuals they have that vector for everybody and a block
like it for each group. The counts tell of a group's strata what they tell of all strata: how many people there are,
with which propensities and outcomes.
Proof, assumptions, errors and intervals: docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, project
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError
from dprl.evaluation.importance_sampling import ImportanceSampling, make_query
from dprl.evaluation.least_noise import public_patterns
from dprl.evaluation.propensities import COUNT_WEIGHT, Propensities, PropensityModel, released_size
from dprl.evaluation.propensity_regression import RegressionProgram, RegressionTerms, declares_regression
from dprl.evaluation.regression_values import RegressionQuery
from dprl.evaluation.residual_design import GroupDesign, ResidualDesign
from dprl.evaluation.residuals import ResidualQuery
from dprl.evaluation.strata import Axis, Strata
from dprl.evaluation.stratified_steps import StratifiedStepsQuery
from dprl.evaluation.subgroups import GroupedFollowUpQuery, least_noise_weights, subgroup_axes
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.policies.loading import LOG_ONLY_POLICIES
from dprl.value_functions.features import Features


@dataclass(frozen=True, kw_only=True)
class Stratified(ValueFunctionConfig):
    """Options of values with estimated propensities; all are public facts. The bounds declare the strata.

    Attributes:
        value_budget_fraction: share of mu^2 that pays for the residuals or scores; the rest pays for propensities and
            outcomes.
        overlap: what to do about a stratum in which a target policy may take an action that is not supported.
            ``bound``: every outcome in the declared range counts as possible there, which widens the interval.
            ``trim``: all values are about the people of the other strata, whose share is released.
        min_propensity: an action that was taken by a smaller share of a stratum is not supported there. With a
            regression, no weight is larger than one over this number.
    """

    value_budget_fraction: float = 0.5
    overlap: Literal["bound", "trim"] = "bound"
    min_propensity: float = 0.02

    algorithm: ClassVar[str] = "stratified"
    around_function: ClassVar[bool] = True
    learns: ClassVar[str] = "table of propensities"
    estimates_propensities: ClassVar[bool] = True

    ranges: ClassVar[Mapping[str, str]] = {"min_propensity": "[0, 0.5]"}

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the queries of the first stages, from public facts."""
        if declares_regression(facts.bounds):
            return RegressionTerms(facts.bounds).queries()
        outcome = 1.0 if facts.bounds.horizon == 1 else 0.0
        return (Query("propensities", released_size(facts.bounds), math.hypot(outcome, COUNT_WEIGHT) * (1.0 + 1e-6)),)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> StratifiedProgram | RegressionProgram:
        if declares_regression(facts.bounds):
            return RegressionProgram(self, stages, facts)
        return StratifiedProgram(self, stages, facts)

    @override
    def function(
        self, theta: Float[np.ndarray, " n"], features: Features, bounds: Bounds, stages: tuple[Stage, ...]
    ) -> Propensities | PropensityModel:
        """Return released counts and outcomes, or the released regression."""
        del features
        if declares_regression(bounds):
            products, steps = (stage.mechanism.noise_std for stage in stages)
            return PropensityModel(theta, RegressionTerms(bounds), (products, steps))
        return Propensities(theta, Strata(bounds), stages[0].mechanism.noise_std)

    @override
    def value_query(
        self, bounds: Bounds, features: Features, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> ResidualQuery | StratifiedStepsQuery | RegressionQuery:
        """Return the query for values; refuse bounds without strata, and policies that differ within a stratum."""
        del features
        if bounds.strata is None:
            raise DprlError("stratified: declare strata in the bounds; strata = [] if nothing decided what was done.")
        if declares_regression(bounds):
            return self._around_regression(bounds, policies, contrasts)
        table = Strata(bounds).table(policies)
        if bounds.horizon > 1:
            return self._sequential(bounds, table, contrasts)
        if bounds.return_range is not None:
            raise DprlError("stratified: of one decision the return is the reward: leave return_range out.")
        return ResidualQuery(self, bounds, len(policies), tuple(contrasts), table)

    def _around_regression(
        self, bounds: Bounds, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> RegressionQuery:
        """Return the query for values around a propensity regression; refuse what a regression does not support."""
        for refused, instead in (
            (bounds.horizon > 1, "is for one decision: declare strata without :linear"),
            (bounds.actions is None or bounds.actions < 2, "is of discrete actions, two at least"),
            (bounds.kinds != bounds.actions, "knows nothing of people who are lost: declare strata without :linear"),
            (bounds.return_range is not None, "has the reward for its return: leave return_range out"),
            (bounds.max_importance_ratio == 1.0, "cuts weights: declare max_importance_ratio, such as 10"),
            (self.overlap == "trim", "trims nobody, and counts what it cuts: leave overlap out"),
            (
                any(isinstance(policy, LOG_ONLY_POLICIES) for policy in policies),
                "needs policies that are functions of states",
            ),
        ):
            if refused:
                raise DprlError(f"stratified: a regression (:linear) {instead}.")
        return RegressionQuery(self, bounds, len(policies), tuple(contrasts), public_patterns(policies, bounds))

    def _sequential(
        self, bounds: Bounds, table: Float[np.ndarray, "policies strata actions"], contrasts: Sequence[tuple[int, int]]
    ) -> StratifiedStepsQuery:
        """Return the query for values of several steps."""
        if bounds.max_importance_ratio == 1.0:
            raise DprlError(
                "bounds: ratios of several steps are multiplied: declare max_importance_ratio, the largest probability "
                "of a target policy over that of the behaviour."
            )
        if self.overlap == "trim":
            raise DprlError("stratified: of several steps nothing can be trimmed: leave overlap out.")
        options = ImportanceSampling(discount=self.discount, confidence=self.confidence)
        # a weight may vanish where an action is not supported: what is lost is bounded in the same way as what is cut
        most = min(bounds.cumulative_ratio, bounds.largest_product * (1.0 - 1e-6))
        asked = replace(bounds, max_cumulative_ratio=max(most, 1.0))
        query = make_query(options, asked, np.ones((1, len(table))), contrasts)
        return StratifiedStepsQuery(query, table, bounds, self.min_propensity)


@dataclass(frozen=True)
class StratifiedProgram(PublicProgram):
    """Program with one release of weighted counts and sums of outcomes by stratum and action."""

    columns = ("step", "raw_reward", "states", "actions")

    def init(self) -> Float[Array, " n"]:
        """Return the state before the first step."""
        return jnp.zeros(self.stages[0].mechanism.dimension, jnp.float64)

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each stratum's and action's share of a unit's decisions and, for one decision, sums of outcomes."""
        del stage, state
        bounds, strata = self.facts.bounds, Strata(self.facts.bounds)
        place = strata.cells(block.states, jnp) * bounds.kinds + block.actions.astype(np.int32)
        seen = np.arange(strata.count * bounds.kinds)
        taken = (place[..., None] == jnp.asarray(seen)) & (block.actions >= 0.0)[..., None]
        indicators = taken.astype(block.step.dtype)
        counts = COUNT_WEIGHT * project(block.step, indicators)
        if bounds.horizon > 1:
            return counts
        with_outcome = seen[seen % bounds.kinds < (bounds.actions or 1)]  # outcomes of people who were lost are unknown
        return jnp.concatenate([counts, project(block.step_raw_reward, indicators[..., with_outcome])], axis=-1)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Float[Array, " dim"]:
        """Return the noisy sum."""
        del stage, state, step
        return noisy

    def answer(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return what was released."""
        return state


# --- subgroups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupResidualQuery(ResidualQuery):
    """Query of residuals whose noisy sum is decoded as that of one group.

    Attributes:
        within: ``(S,)`` whether each stratum belongs to the group.
        whole: design for everybody.
    """

    within: Bool[np.ndarray, " strata"]
    whole: ResidualDesign

    @cached_property
    def design(self) -> GroupDesign:
        """Design for the group."""
        whole = self.whole
        return GroupDesign(
            whole.released, whole.table, whole.contrasts, whole.trims, whole.min_propensity, whole, self.within
        )

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return the noisy number of people in the group, from the released counts."""
        del noisy
        return self.design.counted[0]

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        del mechanism
        return self.design.counted[1]


@dataclass(frozen=True)
class StrataGroupedQuery(GroupedFollowUpQuery):
    """Query to the units for the residuals of everybody and of each subgroup, made from public facts only.

    A trajectory contributes to the blocks of the groups that contain its stratum. A unit's vector is the mean over its
    trajectories, and each trajectory's vector is no longer than a vector of residuals without groups.
    """

    inner: Any

    def query_of_group(self, place: int, group: int, total: Float[np.ndarray, " inner"]) -> GroupResidualQuery:
        """Return the query that decodes one group's noisy sum; ``total`` is not needed, for counts tell its size."""
        del total
        within = _strata_of_groups(self.axes[place], Strata(self.bounds))[group]
        own = {name: getattr(self.inner, name) for name in ("config", "bounds", "policies", "contrasts", "table")}
        return GroupResidualQuery(
            **own, within=within, whole=self.inner.design, released_or_none=self.inner.released_or_none
        )

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        strata = Strata(self.bounds)
        cells = strata.cells(log.observation)
        blocks = [math.sqrt(self.weights[0]) * self.inner.unit_vectors(log, policies, behavior)]
        for axis, weight in zip(self.axes, self.weights[1:], strict=True):
            for within in _strata_of_groups(axis, strata):
                of_group = replace(log, action=np.where(within[cells], log.action, -1))
                blocks.append(math.sqrt(weight) * self.inner.unit_vectors(of_group, policies, behavior))
        return np.concatenate(blocks, axis=1)

    def expect_in_groups(self, mechanism: GaussianSum) -> list[list[tuple[float, float, float]]]:
        """Return the errors to expect in a group of each axis if all groups of the axis have the same size."""
        found = [self.inner.expect(self.inner_mechanism(mechanism, factor)) for factor in self.relative_noise.groups]
        return [
            [(noise * size, sampling * math.sqrt(size), most) for noise, sampling, most in of_axis]
            for size, of_axis in zip(self.sizes, found, strict=True)
        ]

    def count_noise(self, mechanism: GaussianSum) -> list[float]:
        """Return the largest standard deviation of the noise in the number of people of a group, for each axis."""
        # the counts get the share of mu^2 that the residuals leave; longest: norm of a unit's counts and outcomes
        share, longest = self.config.value_budget_fraction, math.hypot(1.0, COUNT_WEIGHT) / COUNT_WEIGHT
        noise = mechanism.noise_std * math.sqrt(share / (1.0 - share)) * longest * math.sqrt(self.bounds.kinds)
        strata = Strata(self.bounds)
        return [noise * math.sqrt(_strata_of_groups(axis, strata).sum(axis=1).max()) for axis in self.axes]


def with_subgroups_of_strata(query: ResidualQuery, subgroups: Sequence[str], unit: str) -> Any:
    """Return the query for the residuals of everybody and of ``subgroups``; without subgroups, return ``query``.

    Raises:
        DprlError: :func:`~dprl.evaluation.subgroups.subgroup_axes` refuses the subgroups, or one is not made of strata.
    """
    axes = subgroup_axes(subgroups, query.bounds, unit)
    if not axes:
        return query
    for asked, axis in zip(subgroups, axes, strict=True):
        if _strata_of_groups(axis, Strata(query.bounds)) is None:
            raise DprlError(
                f"subgroups: {asked} is not made of strata: declare {axis.name} with these cut points in the bounds' "
                "strata."
            )
    weights = least_noise_weights([axis.size for axis in axes])
    return StrataGroupedQuery(query, tuple(subgroups), axes, weights)


def _strata_of_groups(axis: Axis, strata: Strata) -> Any:
    """Return ``(groups, S)`` which strata each cell of ``axis`` is made of; None where the axis divides a stratum."""
    for own, cells in zip(strata.axes, np.unravel_index(np.arange(strata.count), strata.shape or (1,)), strict=False):
        if own.values or axis.values:
            if own.values == axis.values:
                return cells == np.arange(axis.size)[:, None]
        elif own.component == axis.component and (own.codes or set(axis.edges) <= set(own.edges)):
            lowest = np.array([-np.inf, *own.edges])
            if own.codes:  # cells of whole numbers, which lie half way between two edges
                lowest = np.array([*own.edges, own.edges[-1] + 1.0]) - 0.5
            group = np.searchsorted(axis.edges, lowest, side="right")
            return group[cells] == np.arange(axis.size)[:, None]
    return None


_FACTS = {"horizon": 1, "max_cumulative_ratio": 1.6, "strata": ("observation_0",)}
_LINEAR = {"horizon": 1, "max_importance_ratio": 1.6, "strata": ("observation_0:linear",)}
_STEPS = {"max_importance_ratio": 1.6, "max_cumulative_ratio": 2.0, "strata": ("observation_0",)}
ALGORITHM = Algorithm(
    Stratified,
    settings={
        "bounded": Setting(Stratified(discount=0.9), facts=_FACTS),
        "trimmed, with a difference": Setting(Stratified(discount=0.9, overlap="trim"), facts=_FACTS, compare=("all",)),
        "subgroups": Setting(Stratified(discount=0.9), facts=_FACTS, compare=("all",), subgroups=("observation_0",)),
        "people are lost": Setting(
            Stratified(discount=0.9), facts={**_FACTS, "censoring_hazard": "estimate"}, compare=("all",)
        ),
        "several steps, people are lost": Setting(
            Stratified(discount=0.9), facts={**_STEPS, "censoring_hazard": "estimate"}
        ),
        "regression": Setting(Stratified(discount=0.9), facts=_LINEAR, compare=("all",)),
        "several steps": Setting(Stratified(discount=0.9), facts=_STEPS),
    },
    canary="dprl.audits.attacks.programs:stratified_canary",
)
