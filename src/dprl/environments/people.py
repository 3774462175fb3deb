"""People who answer a policy: what learning asks of them, and what they are unless they say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dprl.environment_spec import EnvironmentSpec

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
        length: ``(m,)`` int32 steps; 0 of a place that is empty.
        terminated: ``(m,)`` whether the interaction ended by itself, and nothing follows.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    length: np.ndarray
    terminated: np.ndarray


class People:
    """People who come one after the other, each into a place of a public batch.

    Attributes:
        facts: what is public.
        units: places that are declared, if they are.
        people: ``named``, ``unnamed`` or ``episodes``: who counts as a person, for the certificate.
        stability: what one more person may be taken to do, see :class:`~dprl.engine.unit_source.Source`.
        simulator: the JAX environment behind them, which compiled code can run; None of all others.
        in_log: whether they stand in a log, whose rows are claimed, and can be read again where a release is resumed.
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
        """Refuse, before anything is spent, people who cannot be asked any more."""

    def load(self, claim: Claim | None = None) -> None:
        """Read the rows of a log; ``claim`` is called with them before anything is made of them."""
        raise NotImplementedError

    def entering(self) -> tuple[Any, ...]:
        """Return all that is ever made of the rows of a log; private."""
        raise NotImplementedError

    def count(self) -> int:
        """Return how many people stand in a log, however many are declared; private."""
        raise NotImplementedError

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return the answers of the people in ``count`` places from ``first``; batches are asked for in order."""
        raise NotImplementedError

    def met(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
        """Yield the answers of a batch block by block, of people in places ``blocks`` ``(B, size)``, at the end of
        nobody.
        """
        places = blocks[blocks != NOBODY]
        whole = self.batch(int(places[0]), len(places), act)
        for start in range(0, blocks.size, blocks.shape[1]):
            yield Answers(*(_filled(part[start : start + blocks.shape[1]], blocks.shape[1]) for part in whole))


def _filled(rows: Any, count: int) -> np.ndarray:
    rows = np.asarray(rows)
    return np.pad(rows, [(0, count - len(rows))] + [(0, 0)] * (rows.ndim - 1))


class Arriving(People):
    """Somebody's own source of people, which has ``facts`` and ``batch``, and the defaults of everything else."""

    def __init__(self, source: Any) -> None:
        self.source, self.facts, self.batch = source, source.facts, source.batch
        self.units, self.people = getattr(source, "units", None), getattr(source, "people", "unnamed")


class LoggedPeople(People):
    """People in a log: in the places of their first visits, or everybody who is there, with a coin each."""

    stability: ClassVar[tuple[Any, ...]] = ("alters one place", "adds one unit")
    in_log: ClassVar[bool] = True

    def answers(self, places: np.ndarray, act: Act) -> Answers:
        """Return the answers of those in ``places`` ``(n,)``, who may have answered before; -1 is the place of
        nobody.
        """
        raise NotImplementedError

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return what the people in ``count`` places from ``first`` do."""
        return self.answers(np.arange(first, first + count), act)

    def met(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
        """Return what the people in ``blocks`` do, block by block."""
        return (self.answers(places, act) for places in blocks)
