"""Values of policies from one noisy sum: what the engine requires of an estimator, and how the sum is released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from jaxtyping import Float, Num

from dprl.arrays import AnyArray
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import NO_JOURNAL, Journal, NoiseSource

_EXACT = 44  # bits after the binary point in the exact sums of simulations
_MOST_UNITS = 1 << 16  # most units whose vectors are summed at a time


class ValueQuery(Protocol):
    """Estimator of the values of all target policies, made from public facts only.

    A query says what a unit's vector is, and turns the noisy sum of the vectors back into values.
    """

    around_function: ClassVar[bool]
    """Whether values are taken around the released value function, and therefore after it."""

    @property
    def words(self) -> str:
        """Name of the estimator in a report."""
        ...

    @property
    def config(self) -> Any:
        """Options of the estimator."""
        ...

    @property
    def bounds(self) -> Bounds:
        """Public bounds of the log."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a unit's vector."""
        ...

    @property
    def clip_norm(self) -> float:
        """L2 norm to which a unit's vector is clipped."""
        ...

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Matrix over the target policies with which estimates are mixed before they are released."""
        ...

    def around(self, function: Any) -> ValueQuery:
        """Return the query around what was released before, such as a value function; unchanged if it needs none."""
        ...

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return the units' vectors, before they are clipped. Private."""
        ...

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[Any]:
        """Turn the noisy sum into values and intervals of all target policies: post-processing."""
        ...

    def with_confidence(self, confidence: float) -> ValueQuery:
        """Return the same query with intervals of another nominal confidence."""
        ...

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Any:
        """Return what the released vector says about the value of the policy at ``a`` less that at ``b``."""
        ...

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return three numbers for each target policy, from public facts only.

        They are the privacy standard error, the largest sampling standard error, and the half-width of an interval with
        this sampling error.
        """
        ...


@dataclass(frozen=True)
class BaseValueQuery:
    """Base of most estimators, which need no value function and have the confidence among their options."""

    config: Any

    around_function: ClassVar[bool] = False

    def around(self, function: Any) -> Self:
        """Return the query unchanged: it needs nothing that was released before."""
        del function
        return self

    def with_confidence(self, confidence: float) -> Self:
        """Return the same query with intervals of another nominal confidence."""
        return replace(self, config=self.config.replace(confidence=confidence))


@dataclass(frozen=True, kw_only=True)
class FollowUpQuery:
    """Base of queries whose values are taken around something that was released before them.

    Attributes:
        released_or_none: the released value function or propensities; None until :meth:`around` gives them.
    """

    released_or_none: Any = None

    around_function: ClassVar[bool] = True

    def around(self, function: Any) -> Self:
        """Return the query around what was released, which is post-processing."""
        return replace(self, released_or_none=function)

    @property
    def released(self) -> Any:
        """Value function or propensities that were released before. It is an error in the program to ask earlier."""
        if self.released_or_none is None:
            raise RuntimeError("Values around what a release makes first are made after it.")
        return self.released_or_none


@dataclass(frozen=True)
class ExtendedQuery:
    """Base of queries that ask for more than an inner query, and take options, bounds and errors from it.

    Attributes:
        inner: inner query, which gives values and intervals.
    """

    inner: Any

    @property
    def config(self) -> Any:
        """Options of the estimator."""
        return self.inner.config

    @property
    def bounds(self) -> Bounds:
        """Public bounds of the log."""
        return self.inner.bounds

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Matrix over the target policies."""
        return self.inner.strategy

    def with_confidence(self, confidence: float) -> Self:
        """Return the same query with intervals of another nominal confidence."""
        return replace(self, inner=self.inner.with_confidence(confidence))

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors to expect, from public facts only: those of the inner query."""
        return self.inner.expect(mechanism)


@runtime_checkable
class CountingQuery(ValueQuery, Protocol):
    """An estimator that can count the units, and give values with this count in place of a declared number."""

    def counting(self) -> Self:
        """Return the same query with a vector that also tells the number of units."""
        ...

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return the number of units, from the released vector of a :meth:`counting` query."""
        ...

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        ...

    def for_counted_people(self, people: float) -> Self:
        """Return the same query for units whose number was counted, with noise, instead of declared.

        Its intervals account for the noise in the count. No unit is taken to be missing from the count.
        """
        ...


@runtime_checkable
class LatePolicyQuery(ValueQuery, Protocol):
    """An estimator that uses its policies before the release, and allows for a policy that is not known yet."""

    def with_policies(self, policies: Sequence[Any]) -> Self:
        """Return the same query about policies that are all known by now; its length and clip norm do not change."""
        ...


@runtime_checkable
class LearningQuery(ValueQuery, Protocol):
    """An estimator whose noisy sum tells more than values."""

    def learned(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> Any:
        """Return what the release gives besides values, as a :class:`~dprl.engine.program.Learned`."""
        ...

    def cautions(self, mechanism: GaussianSum) -> list[str]:
        """Return cautions about what will be learned, from public facts only."""
        ...


def value_mechanism(query: ValueQuery, noise_multiplier: float) -> GaussianSum:
    """Return the only mechanism through which values depend on the trajectories."""
    return GaussianSum(parts=((query.dimension, query.clip_norm),), noise_multiplier=noise_multiplier)


def clipped_total(mechanism: GaussianSum, vectors: Float[np.ndarray, "units dim"]) -> Num[np.ndarray, " dim"]:
    """Return the sum of the clipped ``vectors``, which is exact and the same in any order.

    Nothing is compiled. NumPy adds up the squares of each row separately, in an order that follows from the row's
    length.
    """
    total = np.zeros(mechanism.dimension, dtype=mechanism.dtype)
    for start in range(0, len(vectors), _MOST_UNITS):
        part = np.ascontiguousarray(vectors[start : start + _MOST_UNITS])
        total = total + np.asarray(mechanism.clipped_sum(part, np.ones(len(part), dtype=bool)))
    return total


def release_total(
    mechanism: GaussianSum,
    noise: NoiseSource,
    total: Callable[[], Num[AnyArray, " dim"]],
    journal: Journal = NO_JOURNAL,
) -> Float[np.ndarray, " dim"]:
    """Return ``total()`` with noise. A step that ``journal`` holds is not computed again."""

    def noisy() -> Any:
        return mechanism.add_noise(total(), mechanism.draw(noise, 0))

    return np.asarray(mechanism.scaled(journal.step(0, mechanism.dimension, noisy)))


def release_vector(
    mechanism: GaussianSum, noise: NoiseSource, vectors: Float[np.ndarray, "units dim"]
) -> Float[np.ndarray, " dim"]:
    """Return the noisy sum of the units' vectors; see :func:`release_total`."""
    return release_total(mechanism, noise, lambda: clipped_total(mechanism, vectors))


def exact_sum(vectors: Float[np.ndarray, "units dim"]) -> tuple[int, ...]:
    """Add up unclipped vectors in units of 2^-44; the sum is the same however the vectors are cut into blocks."""
    total = [0] * vectors.shape[1]
    for start in range(0, len(vectors), 1 << 12):
        points = np.rint(np.ldexp(vectors[start : start + (1 << 12)], _EXACT)).astype(np.int64)
        total = [a + int(b) for a, b in zip(total, points.sum(axis=0), strict=True)]
    return tuple(total)


def as_numbers(exact: Sequence[int]) -> Float[np.ndarray, " dim"]:
    """Return an :func:`exact_sum` as floating-point numbers."""
    return np.array([float(x) for x in exact]) * 2.0**-_EXACT
