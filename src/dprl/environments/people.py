"""People who answer a policy: of a source, a simulator or a log, or who come one after the other.

In a stream every arrival takes a place, and the number of a place decides its public batch. The place stays empty where
a person comes again, or answers with anything but an interaction in the form that the public facts give. No other place
is moved, and there is no message. Places after the last arrival are empty, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dprl.data.memory import name_of
from dprl.environments.simulators import facts_of
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec
from dprl.user_code import quietly

Act = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""The current policy: ``(n, d)`` observations to actions ``(n,)``, or ``(n, k)`` scaled ones.

Its coins are those of the places ``(n,)`` where the observations' people stand, and of the turns ``(n,)``: how many
actions each of them took before. So nobody's coins depend on what somebody else does."""
ClaimRows = Callable[[Any], object]
"""Function that takes the raw rows of a log, as columns or as blocks of them, and claims them in a ledger."""
NOBODY = -1
"""The place of nobody: a block of places is filled up with it."""
_NOBODY = object()


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
    """People who answer, each in a place of a public batch. Base of all kinds of people.

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

    def load(self, claim: ClaimRows | None = None) -> None:
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

    def answers_in_blocks(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
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


class PeopleOfSource(People):
    """People from a user's own source, which has ``facts`` and ``batch``; everything else has its default."""

    def __init__(self, source: Any) -> None:
        self.source, self.facts, self.batch = source, source.facts, source.batch
        self.units, self.people = getattr(source, "units", None), getattr(source, "people", "unnamed")


class SimulatedPeople(People):
    """Simulated people, none of whom is real: each has an episode, in a place of a batch."""

    def __init__(self, simulator: Any) -> None:
        self.simulator, self.facts, self.people = simulator, facts_of(simulator), "episodes"


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

    def answers_in_blocks(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
        """Yield what the people in ``blocks`` do, block by block."""
        return (self.answers(places, act) for places in blocks)


# --- people who come one after the other ----------------------------------------------------------------------------


class Interaction(NamedTuple):
    """Answer of one person: an interaction of L steps with the current policy.

    The observations are ``(L, d)``, the actions ``(L,)`` or ``(L, k)`` as the :class:`CurrentPolicy` gave them, and the
    rewards ``(L,)``; ``terminated`` says whether the interaction ended by itself.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: bool = True


class CurrentPolicy:
    """Current policy, for the person in one place."""

    def __init__(self, act: Act, facts: EnvironmentSpec, place: int) -> None:
        self._act, self._facts = act, facts
        self._place, self._turn = np.array([place]), 0

    def __call__(self, observation: Any) -> Any:
        """Return an action for one observation ``(d,)``: an int, or scaled components ``(k,)``.

        :meth:`to_environment` maps scaled components to the bounds of the action.
        """
        seen = np.asarray(observation, np.float32).reshape(1, -1)
        turn, self._turn = self._turn, self._turn + 1
        action = self._act(seen, self._place, np.array([turn]))[0]
        return action if self._facts.action is not None else int(action)

    def to_environment(self, action: Any) -> Any:
        """Return a continuous action within its bounds; an :class:`Interaction` must report the scaled action."""
        return to_environment(action, self._facts)


def to_environment(actions: Any, facts: EnvironmentSpec) -> Any:
    """Return scaled continuous actions ``(..., k)``, cut to [-1, 1], in their public bounds; others unchanged."""
    if facts.action is None:
        return actions
    low, high = np.array(facts.action, np.float64).T
    return low + (high - low) * (np.clip(actions, -1.0, 1.0) + 1.0) / 2.0


def empty_answers(facts: EnvironmentSpec, count: int) -> Answers:
    """Return the answers of ``count`` empty places, to be filled."""
    size = (count, facts.horizon)
    actions = np.zeros(size, np.int32) if facts.action is None else np.zeros((*size, len(facts.action)), np.float32)
    observations = np.zeros((*size, facts.dimensions), np.float32)
    return Answers(observations, actions, np.zeros(size, np.float32), np.zeros(count, np.int32), np.zeros(count, bool))


def put_answer(answers: Answers, row: int, answer: Any, facts: EnvironmentSpec) -> None:
    """Put a person's :class:`Interaction` into its place; the place stays empty if anything in the answer is wrong."""
    cells = quietly(lambda: _cells(answer, facts), None)  # an error would tell about this person
    if cells is None:
        return
    observations, actions, rewards, ended = cells
    length = len(observations)
    low, high = np.array(facts.observation, np.float64).T
    answers.observations[row, :length] = np.clip(observations, low, high)
    answers.actions[row, :length] = actions
    answers.rewards[row, :length] = np.clip(rewards, *facts.reward_bounds)
    answers.length[row] = length
    answers.terminated[row] = ended


def _cells(answer: Any, facts: EnvironmentSpec) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool] | None:
    """Return observations, actions, rewards and whether the interaction terminated; None for what is no answer."""
    observations, actions, rewards, terminated = answer
    observations = np.asarray(observations, np.float64).reshape(-1, facts.dimensions)[: facts.horizon]
    rewards, actions = (np.asarray(cells, np.float64)[: facts.horizon] for cells in (rewards, actions))
    length = len(observations)
    shape = (length,) if facts.action is None else (length, len(facts.action))
    if rewards.shape != (length,) or actions.shape != shape or not length:
        return None
    cells = (observations, rewards, actions)
    if not all(np.isfinite(values).all() and (np.abs(values) < 1e30).all() for values in cells):
        return None
    if facts.action is None and not np.isin(actions, np.arange(facts.actions)).all():
        return None
    return observations, actions, rewards, bool(terminated)


@dataclass
class UserStream(People):
    """People from any iterable of ``(person, answer)``.

    ``person`` is the name that tells people apart: text, or a number, which is the same person as its text. Anything
    else is no name: a missing value in any spelling, a value that differs from itself, and any other type.
    ``answer(policy)`` is called once, with the :class:`CurrentPolicy`, and gives an :class:`Interaction`. It is not
    called for a person who comes again, nor for a person without a name where people are named.

    Attributes:
        facts: public facts about the people.
        users: the iterable, from which one batch at a time is taken. Code that may fail for one person belongs in that
            person's ``answer``: a generator that raises has ended, and nobody can follow.
        named: whether people are told apart. If so, a person without a name answers nothing; if not, every arrival with
            None as name counts as a separate person, which the certificate says.
        units: declared number of places; None where it is not declared.
    """

    facts: EnvironmentSpec
    users: Iterable[tuple[Any, Callable[[CurrentPolicy], Any]]] = field(repr=False)
    _: KW_ONLY
    named: bool
    units: int | None = None
    asked_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.facts, EnvironmentSpec):
            raise DprlError("A stream of users needs the public facts: dprl.EnvironmentSpec(...).")
        self.people = "named" if self.named else "unnamed"
        self._arriving: Iterator[Any] | None = None
        self._seen: set[str] = set()
        self._next = 0

    def check(self) -> None:
        """Refuse a stream that was read already, before any budget is spent."""
        if self._next:
            raise DprlError("A stream of users is read once: make a new one for another run.")

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return the answers of the next ``count`` arrivals, in places from ``first``; each is asked once, in order."""
        if first != self._next:
            raise DprlError("The batches of a stream are asked for in order, each of them once.")
        self._next += count
        if self._arriving is None:
            self._arriving = quietly(lambda: iter(self.users), iter(()))
        answers = empty_answers(self.facts, count)
        for row in range(count):
            arrival = quietly(lambda: next(self._arriving, _NOBODY), None)  # type: ignore[arg-type]
            if arrival is _NOBODY:
                break
            # an abort would tell everybody about this person
            given = quietly(partial(self._answer, arrival, CurrentPolicy(act, self.facts, first + row)), None)
            put_answer(answers, row, given, self.facts)
        return answers

    def _answer(self, arrival: Any, policy: CurrentPolicy) -> Any:
        answer = self._first_visit(arrival)
        return None if answer is None else answer(policy)

    def _first_visit(self, arrival: Any) -> Callable[[CurrentPolicy], Any] | None:
        """Return the ``answer`` of a person who comes for the first time; None for anybody else."""
        person, answer = arrival
        if person is None and not self.named:
            return answer
        name = name_of(person)
        if name is None or name in self._seen:
            return None
        self._seen.add(name)
        return answer
