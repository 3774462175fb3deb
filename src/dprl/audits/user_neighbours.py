"""Learning from people on neighbouring logs and streams of them, through the front door: see :mod:`.neighbours`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from dprl.audits.entering import Call, Door, differ
from dprl.audits.log_neighbours import Found, Tally, handed_out, written
from dprl.audits.neighbours import CELLS, VisitsOf, missing_names, pairs_of, place_of, without
from dprl.environments.bandit import Bandit
from dprl.environments.user_stream import Acting, Answer, UserStream
from dprl.errors import DprlError
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning_facts import LearningFacts
from dprl.protocols import Bounds
from dprl.registry import Entry
from dprl.release.train import train

UNITS = 12
_ONCE, _SAMPLED = {"batch": 4}, {"batch": 6, "steps": 8}
Cells = tuple[float, float]
NOBODY: Cells = (float("nan"), float("nan"))
"""What is seen and paid in a place that is empty: no answer comes of it."""


@dataclass(frozen=True)
class Crowd:
    """People in the order in which they come, of whom one may see and be paid other ``cells``."""

    people: Sequence[int]
    different: int | None = None
    cells: Cells | None = None


@dataclass(frozen=True)
class Users:
    """A setting of dp-pg, and who it learns from.

    Attributes:
        source: ``file``, ``arrays``, ``parts``, those with workers of ``ray``, or ``stream``.
        folder: for files.
    """

    entry: Entry
    setting: str
    source: str
    folder: Path

    @property
    def facts(self) -> LearningFacts:
        return self.entry.load_conformance().facts(self.setting)

    @cached_property
    def config(self) -> DPPG:
        config = self.entry.load_conformance().config(self.setting)
        users = UNITS if self.source == "stream" else None
        return replace(config, users=users, **(_SAMPLED if config.poisson else _ONCE))

    @cached_property
    def visits(self) -> VisitsOf:
        facts = self.facts
        shared = {"units": UNITS, "horizon": facts.horizon, "reward": facts.reward_bounds}
        return VisitsOf(
            Bounds(**shared, observation=facts.observation, actions=facts.actions or 1), visits=facts.horizon
        )

    def trained_on(self, crowd: Crowd) -> Call:
        """Learn from these people."""
        return lambda seed: self._train(self._opened(crowd), seed)

    def trained_on_names(self, names: Sequence[Any]) -> Call:
        """Learn from visits of people called so, of whom nobody is paid for anything else than the last."""
        cells = [(-0.5, -1.0) if name in ("p1", "p2") else CELLS["paid the most"] for name in map(str, names)]
        seen, paid = (np.repeat([[cell[i]] for cell in cells], n, axis=1) for i, n in ((0, 2), (1, 3)))
        return lambda seed: self._train(Bandit.of_arrays(seen, paid, self.visits.bounds, people=names), seed)

    def trained_on_arrivals(self, arrivals: Any) -> Call:
        """Learn from a stream; ``arrivals()`` gives it anew."""
        return lambda seed: self._train(UserStream(self.facts, arrivals(), named=True, units=UNITS), seed)

    def _train(self, users: Any, seed: int) -> Mapping[str, np.ndarray]:
        bounds = self.visits.bounds if isinstance(users, str) else None
        ray: dict[str, Any] = {"engine": "ray", "shards": 2} if self.source == "ray" else {}
        budget = self.entry.load_conformance().budget
        release = train(users, budget, algorithm=self.config, bounds=bounds, seed=seed, **ray)
        policy = np.frombuffer(release.policy.to_bytes(), np.uint8)
        return handed_out({"training": release.training, "certificate": release.certificate}, policy=policy)

    def _opened(self, crowd: Crowd) -> Any:
        """The crowd as a public call takes it."""
        if self.source == "stream":
            arrivals = (
                (f"p{p}", self.answering(p, crowd.cells if p == crowd.different else None)) for p in crowd.people
            )
            return UserStream(self.facts, arrivals, named=True, units=UNITS)
        seen, paid, names = self.visits.rows(crowd.people, crowd.different, crowd.cells)
        if self.source == "arrays":
            return Bandit.of_arrays(seen, paid, self.visits.bounds, people=names)
        columns = {"person_id": names} | {f"observation_{i}": column for i, column in enumerate(seen.T)}
        columns |= {f"reward_{i}": column for i, column in enumerate(paid.T)}
        return f"bandit:{written(columns, self.folder, None if self.source == 'file' else 'person_id')}"

    def answering(self, person: int, cells: Cells | None) -> Any:
        """What a person of a stream does: acts on every visit's observation, and is paid by action."""
        seen, paid, _ = self.visits.rows([person], None if cells is None else person, cells)

        def answer(policy: Acting) -> Answer | None:
            if cells == NOBODY:
                return None
            actions = [policy(observation) for observation in seen]
            return Answer(
                seen, actions, [row[0 if self.facts.action else a] for row, a in zip(paid, actions, strict=True)]
            )

        return answer


def user_neighbours(entry: Entry, setting: str, folder: Path, *, source: str = "file", turn: int = 0) -> Found:
    """By the setting's own relation: a place emptied, an answer replaced in its place, or a person added or removed."""
    users, tally = Users(entry, setting, source, folder), Tally()
    poisson, zero_out = users.config.poisson, users.config.relation == "zero-out"
    for count, position, kinds in pairs_of(list(CELLS), UNITS, turn):
        place, people, door = place_of(position, count), list(range(count)), Door()
        base = Crowd(people, place, NOBODY if zero_out else CELLS["paid the most"])
        if poisson:
            base = Crowd(without(people, place))
        first = door.record(users.trained_on(base), missing=place if poisson else None)
        for kind in kinds:
            found = differ(first, door.record(users.trained_on(Crowd(people, place, CELLS[kind]))))
            tally.add(found, f"{count} people, {position}, {kind}")
    if source == "file":
        _outside(users, tally)
    return tally.found(entry.name, setting, users.config.relation_words, source)


def _outside(users: Users, tally: Tally) -> None:
    """What is no neighbour by the relation, and what cannot be sampled at all."""
    if not users.config.poisson:
        door = Door()
        one, two = (door.record(users.trained_on(Crowd(people))) for people in (range(UNITS), range(1, UNITS)))
        tally.leave_out(differ(one, two), "the first person removed, and all others a place earlier")
        return
    try:
        users.trained_on_arrivals(lambda: iter(()))(0)
    except DprlError:
        tally.refuse("people who come one after the other")


def name_neighbours(entry: Entry, setting: str, folder: Path, *, source: str = "stream") -> Found:
    """Somebody whose name is missing comes again and again: nobody answers, or, in a log, there are no such rows."""
    users, tally = Users(entry, setting, source, folder), Tally()
    for kind, name in missing_names().items():
        if source == "stream":
            arrivals = [partial(_arrivals, users, name, cells) for cells in (NOBODY, CELLS["paid the most"])]
            calls = [users.trained_on_arrivals(each) for each in arrivals]
        else:
            calls = [users.trained_on_names([*names, "p1", "p2"]) for names in ([], [name() for _ in range(UNITS)])]
        one, two = map(Door().record, calls)
        tally.add(differ(one, two), f"a name that is {kind}")
    return tally.found(entry.name, setting, users.config.relation_words, f"{source} without names")


def _arrivals(users: Users, name: Any, cells: Cells) -> Iterator[Any]:
    for place in range(UNITS):
        named = place % 3 == 2
        yield f"p{place}" if named else name(), users.answering(place if named else 0, None if named else cells)
