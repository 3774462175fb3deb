"""Values of policies for declared subgroups of people, from the same noisy sum as the values of everybody.

Privacy unit, relation and event are those of the values. Released: the vector of the values for everybody, and a block
of the same length for each group. Subgroups are cells of a unit's first state; their declarations are public. Subgroups
of one axis exclude one another. So a unit contributes to one block of each axis, and its vector is no longer than the
vector of the values without subgroups. Proof, allocation and intervals: docs/proofs/subgroups.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dprl.bounds import Bounds, Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.ratios import usable
from dprl.engine.value_query import CountingQuery, ExtendedQuery, ValueQuery
from dprl.errors import DprlError
from dprl.evaluation.contrasts import Contrast, contrasts_of
from dprl.evaluation.intervals import SAYS_NOTHING, Difference, ValueEstimate
from dprl.evaluation.strata import Axis, read_axes
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.value_function import ValueFunction

MOST_GROUPS = 50
"""Most groups of all axes together."""
_ITERATIONS = 500


@dataclass(frozen=True)
class Subgroup:
    """Results of a release for one subgroup.

    Attributes:
        axis: the declaration whose cell the subgroup is, as it was asked for.
        name: name of the cell, in words.
        people: released noisy number of units in the subgroup.
        people_standard_error: standard deviation of the noise in ``people``.
        values: value of each target policy, with an interval at the nominal confidence for this value only.
        simultaneous_intervals: interval of each target policy, at the nominal confidence for the values of all
            subgroups together (Bonferroni).
        contrasts: the differences that were asked for; their simultaneous intervals hold for all subgroups together.
    """

    axis: str
    name: str
    people: float
    people_standard_error: float
    values: tuple[ValueEstimate, ...]
    simultaneous_intervals: tuple[Interval, ...]
    contrasts: tuple[Contrast, ...]

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return plain data, with the names of the policies."""
        return {
            "axis": self.axis,
            "name": self.name,
            "people": self.people,
            "people_standard_error": self.people_standard_error,
            "targets": [
                {"name": name, **value.as_dict(), "simultaneous_interval": list(interval)}
                for name, value, interval in zip(names, self.values, self.simultaneous_intervals, strict=True)
            ],
            "contrasts": [contrast.as_dict(names) for contrast in self.contrasts],
        }


class RelativeNoise(NamedTuple):
    """Noise in parts of the release, relative to the noise in a vector of values that is released without subgroups.

    Attributes:
        whole: relative noise in everybody's vector.
        groups: relative noise in the vector of one group, for each axis.
    """

    whole: float
    groups: tuple[float, ...]


def subgroup_axes(subgroups: Sequence[str], bounds: Bounds, unit: str) -> tuple[Axis, ...]:
    """Return the axes that were asked for.

    Args:
        subgroups: ``NAME`` for whole numbers with a group for each value, ``NAME:30,50`` for cut points; see
            :func:`~dprl.evaluation.strata.read_axis`.
        bounds: public bounds, whose observation components the subgroups name.
        unit: the privacy unit.

    Raises:
        DprlError: a subgroup names no component, or no cut points within its bounds; there are too many groups; or the
            unit is a transition.
    """
    if subgroups and unit == "transition":
        raise DprlError("subgroups are made by the first state of a person or a trajectory: a transition has none.")
    axes = read_axes(subgroups, bounds, "subgroups")
    groups = sum(axis.size for axis in axes)
    if groups > MOST_GROUPS:
        raise DprlError(f"subgroups: at most {MOST_GROUPS} fit in one release; these are {groups}.")
    return axes


def least_noise_weights(sizes: Sequence[int]) -> Float[np.ndarray, " axes"]:
    """Return ``(1 + J,)`` the shares of the squared norm for everybody's vector and for J axes with ``sizes`` groups.

    The shares minimise the variance of the noise in everybody's sum plus, for each axis, that in a group's sum.
    """
    count = np.array(sizes, dtype=np.float64)
    weights = np.full(len(count) + 1, 1.0 / (len(count) + 1))
    for _ in range(_ITERATIONS):
        known = weights[0] + np.sum(weights[1:] / count)
        slopes = (1.0 + np.sum(1.0 / count**2)) / known**2 * np.concatenate([[1.0], 1.0 / count])
        slopes[1:] += (1.0 - 1.0 / count) / weights[1:] ** 2
        weights = weights * np.sqrt(slopes)
        weights = weights / weights.sum()
    return weights


@dataclass(frozen=True)
class GroupedQuery(ExtendedQuery):
    """Query to the units for the values of everybody and of each subgroup, made from public facts only.

    Attributes:
        inner: query for values, whose vector also tells the number of units.
        declared: declarations of the axes, as they were asked for.
        axes: the J axes, whose cells are the subgroups.
        weights: ``(1 + J,)`` shares of the squared norm: first everybody's vector, then each axis.
    """

    inner: CountingQuery
    declared: tuple[str, ...]
    axes: tuple[Axis, ...]
    weights: Float[np.ndarray, " axes"]

    around_function: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """The estimator's name as a report says it."""
        return self.inner.words

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.inner.dimension * (1 + sum(self.sizes))

    @property
    def clip_norm(self) -> float:
        """L2 norm that no vector exceeds: that without subgroups, since a unit is in one block of each axis."""
        return self.inner.clip_norm

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of groups of each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def relative_noise(self) -> RelativeNoise:
        """Relative noise, if everybody's sum is estimated from its own block and the sum of each axis's blocks."""
        counts = np.array(self.sizes, dtype=np.float64)
        known = float(np.sum(self.weights / np.array([1.0, *counts])))
        groups = np.sqrt((1.0 - 1.0 / counts) / self.weights[1:] + 1.0 / counts**2 / known)
        return RelativeNoise(known**-0.5, tuple(map(float, groups)))

    def around(self, function: ValueFunction | None) -> GroupedQuery:
        """Return the query around a released value function."""
        return replace(self, inner=self.inner.around(function))

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        vectors, states = self.inner.unit_vectors(log, policies, behavior), first_states(log)
        blocks = [math.sqrt(self.weights[0]) * vectors]
        for axis, weight, size in zip(self.axes, self.weights[1:], self.sizes, strict=True):
            cells = axis.cells(states)
            blocks += [np.where(cells[:, None] == g, math.sqrt(weight) * vectors, 0.0) for g in range(size)]
        return np.concatenate(blocks, axis=1)

    # --- from the noisy sum to sums of everybody and of each group ----------------------------------------------------

    def sums(
        self, noisy: Float[np.ndarray, " dim"]
    ) -> tuple[Float[np.ndarray, " inner"], list[Float[np.ndarray, "groups inner"]]]:
        """Return the least-squares sums of everybody and of the groups of each axis, which add up to everybody's."""
        blocks = noisy.reshape(-1, self.inner.dimension)
        starts = np.cumsum([1, *self.sizes])
        parts = [
            blocks[start : start + size] / math.sqrt(weight)
            for start, size, weight in zip(starts, self.sizes, self.weights[1:], strict=False)
        ]
        precise = self.weights / np.array([1.0, *self.sizes])
        estimates = np.stack([blocks[0] / math.sqrt(self.weights[0]), *(part.sum(axis=0) for part in parts)])
        whole = (precise[:, None] * estimates).sum(axis=0) / precise.sum()
        return whole, [part + (whole - part.sum(axis=0)) / len(part) for part in parts]

    def inner_mechanism(self, mechanism: GaussianSum, factor: float) -> GaussianSum:
        """Return the mechanism of one vector of ``inner``, with ``factor`` times the noise."""
        return replace(
            mechanism,
            parts=((self.inner.dimension, mechanism.clip_norm),),
            noise_multiplier=mechanism.noise_multiplier * factor,
        )

    def query_of_group(self, place: int, group: int, total: Float[np.ndarray, " inner"]) -> Any:
        """Return the query for the values of one group of the axis at ``place``, whose noisy sum is ``total``."""
        del place, group
        # for less than one person the values say nothing, whatever they are: the noise in the number is far larger
        return self.inner.for_counted_people(max(self.inner.count(total), 1.0))

    # --- the values of everybody --------------------------------------------------------------------------------------

    def _whole(
        self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]
    ) -> tuple[GaussianSum, Float[np.ndarray, " inner"]]:
        return self.inner_mechanism(mechanism, self.relative_noise.whole), self.sums(noisy)[0]

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies for everybody: post-processing."""
        return self.inner.decode(*self._whole(mechanism, noisy))

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return one policy's value less another's, for everybody."""
        return self.inner.difference(*self._whole(mechanism, noisy), a, b)

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors to expect in the values of everybody, from public facts only."""
        # the groups' mechanisms as well: noise that cannot be drawn is refused here, before any budget is charged
        whole, *_ = [
            self.inner_mechanism(mechanism, factor)
            for factor in (self.relative_noise.whole, *self.relative_noise.groups)
        ]
        return self.inner.expect(whole)

    def expect_in_groups(self, mechanism: GaussianSum) -> list[list[tuple[float, float, float]]]:
        """Return the errors to expect in a group of each axis if all groups of the axis have the same size."""
        units = self.bounds.units
        return [
            self.inner.for_counted_people(units / size).expect(self.inner_mechanism(mechanism, factor))
            for size, factor in zip(self.sizes, self.relative_noise.groups, strict=True)
        ]

    def count_noise(self, mechanism: GaussianSum) -> list[float]:
        """Return the standard deviation of the noise in the number of people of a group, for each axis."""
        return [
            self.inner.count_noise(self.inner_mechanism(mechanism, factor)) for factor in self.relative_noise.groups
        ]


@dataclass(frozen=True)
class GroupedFollowUpQuery(GroupedQuery):
    """Query for the values of everybody and of each subgroup around a released value function."""

    around_function: ClassVar[bool] = True


def with_subgroups(query: ValueQuery, subgroups: Sequence[str], unit: str, algorithm: str) -> ValueQuery:
    """Return the query for the values of everybody and of ``subgroups``; without subgroups, return ``query``.

    Raises:
        DprlError: :func:`subgroup_axes` refuses the subgroups, or the algorithm's estimator cannot tell the number of
            units.
    """
    axes = subgroup_axes(subgroups, query.bounds, unit)
    if not axes:
        return query
    if not isinstance(query, CountingQuery):
        instead = "" if query.bounds.strata is not None else ", or use recommended or importance-sampling"
        raise DprlError(f"{algorithm} gives no values of subgroups: leave them out{instead}.")
    kind = GroupedFollowUpQuery if query.around_function else GroupedQuery
    weights = least_noise_weights([axis.size for axis in axes])
    return kind(query.counting(), tuple(subgroups), axes, weights)


def first_states(log: Trajectories) -> Float[np.ndarray, "units d"]:
    """Return ``(U, d)`` the first state of each unit, from the first of its usable trajectories. Private.

    A unit without a usable trajectory has zeros, and contributes nothing.
    """
    states = np.zeros((log.units, log.observation.shape[1]))
    episodes: Int[np.ndarray, " some"] = np.flatnonzero(usable(log))[::-1]  # a unit's first trajectory is written last
    states[log.unit_of_episode()[episodes]] = log.observation[log.episode_offsets[:-1][episodes]]
    return states


def subgroups_of(
    query: ValueQuery,
    mechanism: GaussianSum,
    noisy: Float[np.ndarray, " dim"],
    pairs: Sequence[tuple[int, int]],
) -> list[Subgroup]:
    """Return the results for each subgroup from the released vector: post-processing. Without subgroups, none.

    Args:
        query: query of the release; around the released value function, if values are taken around one.
        mechanism: mechanism that released the vector.
        noisy: released vector.
        pairs: places of the target policies whose differences are asked for.
    """
    if not isinstance(query, GroupedQuery):
        return []
    groups, policies, confidence = sum(query.sizes), len(query.strategy), query.config.confidence
    together = 1.0 - (1.0 - confidence) / (groups * policies)
    out = []
    _, parts = query.sums(noisy)
    asked = zip(query.declared, query.axes, query.relative_noise.groups, parts, strict=True)
    for place, (declared, axis, factor, sums) in enumerate(asked):
        of_group = query.inner_mechanism(mechanism, factor)
        for group, (name, total) in enumerate(zip(axis.labels(), sums, strict=True)):
            own = query.query_of_group(place, group, total)
            alone, wide = (own.with_confidence(level).decode(of_group, total) for level in (confidence, together))
            contrasts = contrasts_of(own, of_group, total, pairs, groups) if pairs else []
            out.append(
                Subgroup(
                    axis=declared,
                    name=name,
                    people=own.count(total),
                    people_standard_error=own.count_noise(of_group),
                    values=tuple(map(_moved_inside, alone)),
                    simultaneous_intervals=tuple(estimate.interval for estimate in wide),
                    contrasts=tuple(replace(c, value=_inside(c.value, c.interval)) for c in contrasts),
                )
            )
    return out


def _moved_inside(estimate: ValueEstimate) -> ValueEstimate:
    """Return the estimate, with its value moved into the interval where noise hides the group."""
    if SAYS_NOTHING not in estimate.notes:
        return estimate
    return replace(estimate, value=_inside(estimate.value, estimate.interval), notes=(SAYS_NOTHING,))


def _inside(value: float, interval: Interval) -> float:
    return min(max(value, interval[0]), interval[1])
