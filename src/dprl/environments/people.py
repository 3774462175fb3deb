"""People who answer a policy: the interface that learning uses, and the defaults of a source of people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dprl.protocols import EnvironmentSpec

Act = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""The current policy: ``(n, d)`` observations to actions ``(n,)``, or ``(n, k)`` scaled ones.

Its coins are those of the places ``(n,)`` where the observations' people stand, and of the turns ``(n,)``: how many
actions each of them took before. So nobody's coins depend on what somebody else does."""
Claim = Callable[[Any], object]
"""Told the raw rows of a log, as columns or as blocks of them: notes in a ledger whose budget they have."""
NOBODY = -1
"""The place of nobody: a block of places is filled up with it."""


class Answers(NamedTuple):
    """Answers of some people, one row per place, each cut or filled up to the horizon H.

    Attributes:
        observations: ``(m, H, d)`` float32, clamped to the bounds.
        actions: ``(m, H)`` int32, or ``(m, H, k)`` float32 scaled ones.
        rewards: ``(m, H)`` float32, clamped to the bounds.
        length: ``(m,)`` int32 numbers of steps; 0 for an empty place.
        terminated: ``(m,)`` whether the interaction ended by itself, so that nothing follows.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    length: np.ndarray
    terminated: np.ndarray


class People:
    """People who come one after the other, each into a place of a public batch.

    Attributes:
        facts: public facts about the people and their answers.
        units: declared number of places; None where it is not declared.
        people: ``named``, ``unnamed`` or ``episodes``: who counts as a person, for the certificate.
        stability: what one more person may be assumed to change, see :class:`~dprl.engine.unit_source.Source`.
        simulator: JAX environment behind the people, which compiled code can run; None for all other people.
        in_log: whether the people are in a log, whose rows are claimed and can be read again where a release is
            resumed.
        asked_once: whether nobody can be asked again, even in a simulation.
    """

    facts: EnvironmentSpec
    units: int | None = None
    people: str = "unnamed"
    stability: ClassVar[tuple[Any, ...]] = ("alters one place",)
    simulator: Any = None
    in_log: ClassVar[bool] = False
    asked_once: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse people who cannot be asked any more, before any budget is spent."""

    def load(self, claim: Claim | None = None) -> None:
        """Read the rows of a log; ``claim`` is called with the rows before anything is computed from them."""
        raise NotImplementedError

    def entering(self) -> tuple[Any, ...]:
        """Return everything that is ever computed from the rows of a log; private."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the number of people in a log, which is private and may differ from the declared number."""
        raise NotImplementedError

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return the answers of the people in ``count`` places from ``first``; batches are asked for in order."""
        raise NotImplementedError

    def met(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
        """Yield the answers of a batch block by block, of the people in the places ``blocks`` ``(B, size)``.

        The last block may be filled up with :data:`NOBODY`.
        """
        places = blocks[blocks != NOBODY]
        whole = self.batch(int(places[0]), len(places), act)
        for start in range(0, blocks.size, blocks.shape[1]):
            yield Answers(*(_filled(part[start : start + blocks.shape[1]], blocks.shape[1]) for part in whole))


def _filled(rows: Any, count: int) -> np.ndarray:
    rows = np.asarray(rows)
    return np.pad(rows, [(0, count - len(rows))] + [(0, 0)] * (rows.ndim - 1))


class Arriving(People):
    """People from a user's own source, which has ``facts`` and ``batch``; everything else has its default."""

    def __init__(self, source: Any) -> None:
        self.source, self.facts, self.batch = source, source.facts, source.batch
        self.units, self.people = getattr(source, "units", None), getattr(source, "people", "unnamed")


class LoggedPeople(People):
    """People in a log, who are asked by their places, in the order of first visits, or all with a coin for each."""

    stability: ClassVar[tuple[Any, ...]] = ("alters one place", "adds one unit")
    in_log: ClassVar[bool] = True

    def answers(self, places: np.ndarray, act: Act) -> Answers:
        """Return the answers of the people in ``places`` ``(n,)``; -1 is an empty place.

        The people may have answered before.
        """
        raise NotImplementedError

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return what the people in ``count`` places from ``first`` do."""
        return self.answers(np.arange(first, first + count), act)

    def met(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
        """Yield what the people in ``blocks`` do, block by block."""
        return (self.answers(places, act) for places in blocks)
