"""Users who come one after the other, each with an answer to the current policy.

Every arrival takes a place, and places stand in public batches by their number alone. Who comes again leaves a place
empty, and so does who answers with anything but an interaction within the public bounds: no other place is moved, and
nobody is told. Places beyond the last arrival are empty too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dprl.data.memory import name_of
from dprl.environment_spec import EnvironmentSpec
from dprl.environments.people import Act, Answers, People
from dprl.errors import DprlError
from dprl.user_code import quietly

_NOBODY = object()


class Interaction(NamedTuple):
    """Answer of one user: ``(L, d)`` observations, ``(L,)`` or ``(L, k)`` actions as :class:`Acting` gave them,
    ``(L,)`` rewards, and whether it ended by itself.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: bool = True


class Acting:
    """The current policy, for the user in one place."""

    def __init__(self, act: Act, facts: EnvironmentSpec, place: int) -> None:
        self._act, self._facts = act, facts
        self._place, self._turn = np.array([place]), 0

    def __call__(self, observation: Any) -> Any:
        """Return an action for one observation ``(d,)``: an int, or ``(k,)`` scaled components
        (:meth:`to_environment`).
        """
        seen = np.asarray(observation, np.float32).reshape(1, -1)
        turn, self._turn = self._turn, self._turn + 1
        action = self._act(seen, self._place, np.array([turn]))[0]
        return action if self._facts.action is not None else int(action)

    def to_environment(self, action: Any) -> Any:
        """Return a continuous action within its bounds; what is to be answered is the scaled one."""
        return to_environment(action, self._facts)


def to_environment(actions: Any, facts: EnvironmentSpec) -> Any:
    """Scaled continuous actions ``(..., k)``, cut to [-1, 1], in their public bounds; discrete ones as they are."""
    if facts.action is None:
        return actions
    low, high = np.array(facts.action, np.float64).T
    return low + (high - low) * (np.clip(actions, -1.0, 1.0) + 1.0) / 2.0


def empty_answers(facts: EnvironmentSpec, count: int) -> Answers:
    """Return ``count`` empty places, to be filled."""
    size = (count, facts.horizon)
    actions = np.zeros(size, np.int32) if facts.action is None else np.zeros((*size, len(facts.action)), np.float32)
    observations = np.zeros((*size, facts.dimensions), np.float32)
    return Answers(observations, actions, np.zeros(size, np.float32), np.zeros(count, np.int32), np.zeros(count, bool))


def fill(answers: Answers, row: int, answer: Any, facts: EnvironmentSpec) -> None:
    """Put one user's :class:`Interaction` into its place; the place stays empty where anything about it is wrong."""
    cells = quietly(lambda: _cells(answer, facts), None)  # whatever is raised, it is this user's
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
    """Observations, actions, rewards and whether it terminated; None of what is no answer."""
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
    """Users from any iterable of ``(person, answer)``.

    ``person`` is the name that tells people apart: text, or a number, which is the same person as its text. Anything
    else is no name: what is missing in any spelling, what differs from itself, and any other type.
    ``answer(policy)`` is called once, with an :class:`Acting` policy, and gives an :class:`Interaction`; of a person
    who comes again, and of one without a name where people are named, it is not called.

    Attributes:
        facts: what is public.
        users: the iterable; it is asked for one batch at a time. What may fail for one person belongs in that person's
            ``answer``: a generator that raised has ended, and with it everybody who would follow.
        named: whether people are told apart. If so, who has no name answers nothing; if not, every arrival with None
            for a name counts as a person of its own, which the certificate says.
        units: places that are declared, if they are.
    """

    facts: EnvironmentSpec
    users: Iterable[tuple[Any, Callable[[Acting], Any]]] = field(repr=False)
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
        """Refuse, before anything is spent, a stream that was read already."""
        if self._next:
            raise DprlError("A stream of users is read once: make a new one for another run.")

    def batch(self, first: int, count: int, act: Act) -> Answers:
        """Return the answers of the next ``count`` arrivals, whose places begin at ``first``: in order, each once."""
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
            # an abort would tell everybody about this one user
            given = quietly(partial(self._answer, arrival, Acting(act, self.facts, first + row)), None)
            fill(answers, row, given, self.facts)
        return answers

    def _answer(self, arrival: Any, policy: Acting) -> Any:
        answer = self._first_visit(arrival)
        return None if answer is None else answer(policy)

    def _first_visit(self, arrival: Any) -> Callable[[Acting], Any] | None:
        """Return the answer of who comes for the first time; None of anybody else."""
        person, answer = arrival
        if person is None and not self.named:
            return answer
        name = name_of(person)
        if name is None or name in self._seen:
            return None
        self._seen.add(name)
        return answer
