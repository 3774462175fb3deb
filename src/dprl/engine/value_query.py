"""Values of policies from one noisy sum: what the engine asks of an estimator, and how the sum is released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from jaxtyping import Float, Num

from dprl.arrays import AnyArray
from dprl.data.trajectories import Trajectories
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import NO_JOURNAL, Bounds, Journal, NoiseSource

_EXACT = 44  # bits after the point in the sums of simulations
_MOST_UNITS = 1 << 16  # whose vectors are summed at a time


class ValueQuery(Protocol):
    """Estimator of the values of all target policies, made from public facts only.

    It says what a unit's vector is, and turns the noisy sum of the vectors back into values.
    """

    around_function: ClassVar[bool]
    """Whether values are taken around the released value function, and therefore after it."""

    @property
    def words(self) -> str:
        """The estimator's name as a report says it."""
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
        """L2 norm that a unit's vector is clipped to."""
        ...

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Matrix over the target policies by which estimates are mixed before they are released."""
        ...

    def around(self, function: Any) -> ValueQuery:
        """Return the query around what was released before it, such as a value function; itself where it needs none."""
        ...

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return the units' vectors, before they are clipped. Private."""
        ...

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[Any]:
        """Turn the noisy sum into values and intervals of all target policies: post-processing."""
        ...

    def at(self, confidence: float) -> ValueQuery:
        """Return the same query with intervals of another nominal confidence."""
        ...

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Any:
        """Return what is known of the value of the policy at ``a`` less that at ``b``, from the released vector."""
        ...

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return three numbers for each target policy, from public facts only.

        They are the privacy standard error, the largest sampling standard error, and the half-width of an interval
        then.
        """
        ...


@dataclass(frozen=True)
class Question:
    """What most estimators do alike: they need no value function, and their options say how confident they are."""

    config: Any

    around_function: ClassVar[bool] = False

    def around(self, function: Any) -> Self:
        """Return itself: nothing that is released before it is needed."""
        del function
        return self

    def at(self, confidence: float) -> Self:
        """Return the same query with intervals of another nominal confidence."""
        return replace(self, config=self.config.replace(confidence=confidence))


@dataclass(frozen=True, kw_only=True)
class AroundReleased:
    """What queries do alike whose values are taken around something that is released before them.

    Attributes:
        known: the released value function or propensities, once they are known; see :meth:`around`.
    """

    known: Any = None

    around_function: ClassVar[bool] = True

    def around(self, function: Any) -> Self:
        """Return the query around what was released: post-processing."""
        return replace(self, known=function)

    @property
    def released(self) -> Any:
        """What was released. Asking for it earlier is a mistake of the program's."""
        if self.known is None:
            raise RuntimeError("Values around what a release makes first are made after it.")
        return self.known


@dataclass(frozen=True)
class BesideQuery:
    """What queries do alike that ask for more than another one does: options, bounds and errors are that one's.

    Attributes:
        inner: the other question, which gives values and intervals.
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

    def at(self, confidence: float) -> Self:
        """Return the same query with intervals of another nominal confidence."""
        return replace(self, inner=self.inner.at(confidence))

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return what the errors will be, from public facts alone: those of the other question."""
        return self.inner.expect(mechanism)


@runtime_checkable
class CountingQuery(ValueQuery, Protocol):
    """An estimator that can tell how many units there are, and give their values by that number."""

    def counting(self) -> Self:
        """Return the same question, whose vector tells the number of units besides."""
        ...

    def count(self, noisy: Float[np.ndarray, " dim"]) -> float:
        """Return how many units there are, from the released vector of a question that tells it."""
        ...

    def count_noise(self, mechanism: GaussianSum) -> float:
        """Return the standard deviation of the noise in :meth:`count`."""
        ...

    def of(self, people: float) -> Self:
        """Return the same question to units whose number is not declared but was counted, with noise.

        Its intervals count the noise in the number, and nobody is missing from it.
        """
        ...


@runtime_checkable
class TabledQuery(ValueQuery, Protocol):
    """An estimator that looks at its policies before it is asked, and takes one that is not known yet."""

    def of_policies(self, policies: Sequence[Any]) -> Self:
        """Return the same question about policies that are known by now; its length and clip norm stay."""
        ...


@runtime_checkable
class LearningQuery(ValueQuery, Protocol):
    """An estimator whose noisy sum tells more than values."""

    def learned(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> Any:
        """Return what the release hands out besides values, as :class:`~dprl.engine.options.Learned` has it."""
        ...

    def cautions(self, mechanism: GaussianSum) -> list[str]:
        """Return what public facts alone say against what will be learned."""
        ...


def value_mechanism(query: ValueQuery, noise_multiplier: float) -> GaussianSum:
    """Return the one mechanism through which values touch the trajectories."""
    return GaussianSum(parts=((query.dimension, query.clip_norm),), noise_multiplier=noise_multiplier)


def clipped_total(mechanism: GaussianSum, vectors: Float[np.ndarray, "units dim"]) -> Num[np.ndarray, " dim"]:
    """Return the sum of the clipped ``vectors``, exact and the same in any order.

    Nothing is compiled, and NumPy adds up the squares of each row by itself, in an order that follows from its length.
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
    """Add up unclipped vectors in units of 2^-44: the same however the units are cut into blocks."""
    total = [0] * vectors.shape[1]
    for start in range(0, len(vectors), 1 << 12):
        points = np.rint(np.ldexp(vectors[start : start + (1 << 12)], _EXACT)).astype(np.int64)
        total = [a + int(b) for a, b in zip(total, points.sum(axis=0), strict=True)]
    return tuple(total)


def as_numbers(exact: Sequence[int]) -> Float[np.ndarray, " dim"]:
    """Return an :func:`exact_sum` as floating-point numbers."""
    return np.array([float(x) for x in exact]) * 2.0**-_EXACT
