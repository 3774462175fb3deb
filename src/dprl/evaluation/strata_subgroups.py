"""Subgroups where propensities are estimated within strata: each is made of strata, and so are its values.

Privacy unit, relation and event are those of :mod:`~dprl.evaluation.stratified`. Released: its counts, and in place of
the vector of residuals that vector for everybody and a block of it for each group. What the counts say of a group's
strata is what they say of everybody's: how many people there are, with which propensities and outcomes.
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
    """What the released counts say of one group, whose people were asked what everybody was.

    Attributes:
        whole: of everybody.
        within: ``(S,)`` which strata the group is made of.
    """

    whole: Design
    within: Bool[np.ndarray, " strata"]

    @cached_property
    def lost(self) -> Bool[np.ndarray, "strata actions"]:
        """Where in the group an action that a target policy may take is not supported."""
        return self.whole.lost & self.within[:, None]

    @cached_property
    def kept(self) -> Bool[np.ndarray, " strata"]:
        """Strata of the group of whose people values are."""
        return self.whole.kept & self.within

    @cached_property
    def weights(self) -> Float[np.ndarray, "strata actions"]:
        """One over released propensities, as everybody was asked with."""
        return self.whole.weights

    @cached_property
    def reaches(self) -> Float[np.ndarray, "policies cells"]:
        """Largest residuals, as everybody was asked with."""
        return self.whole.reaches

    @cached_property
    def mixing(self) -> Float[np.ndarray, "policies policies"]:
        """Mixing of the policies, as everybody was asked with."""
        return self.whole.mixing

    def farthest(self, weights: Float[np.ndarray, " policies"]) -> float:
        """Return the largest sum of residuals of a unit of the group."""
        inside = np.repeat(self.within, self.table.shape[2])
        return float(np.abs(self.patterns[inside] @ (weights * self.scale)).max())

    @property
    def counted(self) -> tuple[float, float]:
        """Noisy number of people of whom values are, and the standard deviation of its noise."""
        return float(self.known.people[self.kept].sum()), self.known.people_noise * math.sqrt(self.kept.sum())

    def at_least(self, t: float) -> float:
        """Return how many people there are at least, ``t`` standard deviations of its noise below what was counted."""
        people, noise = self.counted
        return max(people - t * noise, 1.0)

    def told(self, t: float) -> bool:
        """Return whether enough people are left for values; without them every value is possible."""
        return self.at_least(t) >= FEWEST


@dataclass(frozen=True)
class GroupResidualQuery(ResidualQuery):
    """The question of residuals, whose answer is read as one group's.

    Attributes:
        within: ``(S,)`` which strata the group is made of.
        whole: what everybody was asked.
    """

    within: Bool[np.ndarray, " strata"]
    whole: Design

    @cached_property
    def design(self) -> GroupDesign:
        """What the released counts say of the group."""
        whole = self.whole
        return GroupDesign(whole.known, whole.table, whole.contrasts, whole.trims, whole.least, whole, self.within)

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return how many people there are, by the released counts."""
        del noisy
        return self.design.counted[0]

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        del mechanism
        return self.design.counted[1]


@dataclass(frozen=True)
class StrataGroupedQuery(GroupedAroundQuery):
    """Question to the units for the residuals of everybody and of each subgroup, made from public facts only.

    A trajectory stands in the blocks of the groups that its own stratum is part of. A unit's vector is the mean over
    its trajectories, each no longer than that of the residuals alone.
    """

    inner: Any

    def of_group(self, place: int, group: int, total: Float[np.ndarray, " inner"]) -> GroupResidualQuery:
        """Return the question whose answer is read as one group's; ``total`` tells nothing of who is in it."""
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
        """Return what the errors will be in a group of each axis if all its groups are of one size."""
        found = [self.inner.expect(self.louder(mechanism, loud)) for loud in self.shares.groups]
        return [
            [(noise * size, sampling * math.sqrt(size), most) for noise, sampling, most in of_axis]
            for size, of_axis in zip(self.sizes, found, strict=True)
        ]

    def count_noise(self, mechanism: GaussianSum) -> list[float]:
        """Return the largest standard deviation of the noise in the number of people of a group, for each axis."""
        # counts have what the residuals leave of mu^2, and a unit's counts and outcomes are so long
        share, longest = self.config.value_budget_fraction, math.hypot(1.0, COUNT_WEIGHT) / COUNT_WEIGHT
        noise = mechanism.noise_std * math.sqrt(share / (1.0 - share)) * longest * math.sqrt(self.bounds.kinds)
        strata = Strata(self.bounds)
        return [noise * math.sqrt(_members(axis, strata).sum(axis=1).max()) for axis in self.axes]


def grouped_in_strata(query: ResidualQuery, subgroups: Sequence[str], unit: str) -> Any:
    """Return the question for the residuals of everybody and of ``subgroups``; without any, ``query``.

    Raises:
        DprlError: as :func:`~dprl.evaluation.subgroups.asked_axes` does, or a subgroup is not made of strata.
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
    """Return ``(groups, S)`` which strata each cell of ``axis`` is made of; None where it divides one of them."""
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
