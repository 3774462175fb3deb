"""Subgroups where propensities are estimated within strata: each subgroup is made of whole strata.

Privacy unit, relation and event are those of :mod:`~dprl.evaluation.stratified`. Released: the counts of that module,
and in place of its vector of residuals that vector for everybody and a block like it for each group. The counts tell of
a group's strata what they tell of all strata: how many people there are, with which propensities and outcomes.
Proof and intervals: docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.evaluation.propensities import COUNT_WEIGHT, FEWEST
from dprl.evaluation.residual_design import Design
from dprl.evaluation.residuals import ResidualQuery
from dprl.evaluation.strata import Axis, Strata
from dprl.evaluation.subgroups import GroupedAroundQuery, asked_axes, least_noise_weights
from dprl.mechanisms.gaussian_sum import GaussianSum


@dataclass(frozen=True)
class GroupDesign(Design):
    """Design for one group, with the released counts of its strata; its vectors are those of everybody's design.

    Attributes:
        whole: design for everybody.
        within: ``(S,)`` whether each stratum belongs to the group.
    """

    whole: Design
    within: Bool[np.ndarray, " strata"]

    @cached_property
    def lost(self) -> Bool[np.ndarray, "strata actions"]:
        """Where in the group a target policy may take an action that is not supported."""
        return self.whole.lost & self.within[:, None]

    @cached_property
    def kept(self) -> Bool[np.ndarray, " strata"]:
        """Whether the group's values are about the people of each stratum."""
        return self.whole.kept & self.within

    @cached_property
    def weights(self) -> Float[np.ndarray, "strata actions"]:
        """One over the released propensities, as in everybody's design."""
        return self.whole.weights

    @cached_property
    def reaches(self) -> Float[np.ndarray, "policies cells"]:
        """Largest residuals, as in everybody's design."""
        return self.whole.reaches

    @cached_property
    def mixing(self) -> Float[np.ndarray, "policies policies"]:
        """Mixing of the policies, as in everybody's design."""
        return self.whole.mixing

    def farthest(self, weights: Float[np.ndarray, " policies"]) -> float:
        """Return the largest absolute sum of residuals that a unit of the group can have."""
        inside = np.repeat(self.within, self.table.shape[2])
        return float(np.abs(self.patterns[inside] @ (weights * self.scale)).max())

    @property
    def counted(self) -> tuple[float, float]:
        """Noisy number of people whom the values are about, and the standard deviation of its noise."""
        return float(self.known.people[self.kept].sum()), self.known.people_noise * math.sqrt(self.kept.sum())

    def at_least(self, t: float) -> float:
        """Return a lower bound of the number of people: ``t`` standard deviations of noise below the noisy count."""
        people, noise = self.counted
        return max(people - t * noise, 1.0)

    def told(self, t: float) -> bool:
        """Return whether enough people are left for values; if not, every value is possible."""
        return self.at_least(t) >= FEWEST


@dataclass(frozen=True)
class GroupResidualQuery(ResidualQuery):
    """Query of residuals whose noisy sum is decoded as that of one group.

    Attributes:
        within: ``(S,)`` whether each stratum belongs to the group.
        whole: design for everybody.
    """

    within: Bool[np.ndarray, " strata"]
    whole: Design

    @cached_property
    def design(self) -> GroupDesign:
        """Design for the group."""
        whole = self.whole
        return GroupDesign(whole.known, whole.table, whole.contrasts, whole.trims, whole.least, whole, self.within)

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return the noisy number of people in the group, from the released counts."""
        del noisy
        return self.design.counted[0]

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        del mechanism
        return self.design.counted[1]


@dataclass(frozen=True)
class StrataGroupedQuery(GroupedAroundQuery):
    """Query to the units for the residuals of everybody and of each subgroup, made from public facts only.

    A trajectory contributes to the blocks of the groups that contain its stratum. A unit's vector is the mean over its
    trajectories, and each trajectory's vector is no longer than a vector of residuals without groups.
    """

    inner: Any

    def of_group(self, place: int, group: int, total: Float[np.ndarray, " inner"]) -> GroupResidualQuery:
        """Return the query that decodes one group's noisy sum; ``total`` is not needed, for counts tell its size."""
        del total
        within = _members(self.axes[place], Strata(self.bounds))[group]
        own = {name: getattr(self.inner, name) for name in ("config", "bounds", "policies", "contrasts", "table")}
        return GroupResidualQuery(**own, within=within, whole=self.inner.design, known=self.inner.known)

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        strata = Strata(self.bounds)
        cells = strata.cells(log.observation)
        blocks = [math.sqrt(self.weights[0]) * self.inner.unit_vectors(log, policies, behavior)]
        for axis, weight in zip(self.axes, self.weights[1:], strict=True):
            for within in _members(axis, strata):
                of_group = replace(log, action=np.where(within[cells], log.action, -1))
                blocks.append(math.sqrt(weight) * self.inner.unit_vectors(of_group, policies, behavior))
        return np.concatenate(blocks, axis=1)

    def expect_of_equal(self, mechanism: GaussianSum) -> list[list[tuple[float, float, float]]]:
        """Return the errors to expect in a group of each axis if all groups of the axis have the same size."""
        found = [self.inner.expect(self.louder(mechanism, loud)) for loud in self.shares.groups]
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
        return [noise * math.sqrt(_members(axis, strata).sum(axis=1).max()) for axis in self.axes]


def grouped_in_strata(query: ResidualQuery, subgroups: Sequence[str], unit: str) -> Any:
    """Return the query for the residuals of everybody and of ``subgroups``; without subgroups, return ``query``.

    Raises:
        DprlError: :func:`~dprl.evaluation.subgroups.asked_axes` refuses the subgroups, or one is not made of strata.
    """
    axes = asked_axes(subgroups, query.bounds, unit)
    if not axes:
        return query
    for asked, axis in zip(subgroups, axes, strict=True):
        if _members(axis, Strata(query.bounds)) is None:
            raise DprlError(
                f"subgroups: {asked} is not made of strata: declare {axis.name} with these cut points in the bounds' "
                "strata."
            )
    weights = least_noise_weights([axis.size for axis in axes])
    return StrataGroupedQuery(query, tuple(subgroups), axes, weights)


def _members(axis: Axis, strata: Strata) -> Any:
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
