"""How private policy gradient is released on neighbouring sets of people, and attacked; nothing in here is private.

All people are made up; they stand in logs or arrive in streams. The attack itself is in
:mod:`dprl.audits.attacks.users`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary, check_all_seen
from dprl.audits.conformance.evaluation import written
from dprl.audits.conformance.suite import Group, Neighbour, Suite, handed_out
from dprl.audits.people import CELLS, PeopleWithVisits, missing_names, pairs_of, without
from dprl.audits.record_replay import Call
from dprl.bounds import Bounds
from dprl.environments.bandit import Bandit
from dprl.environments.people import CurrentPolicy, Interaction, UserStream
from dprl.errors import require
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.pg_plan import PGPlan, make_pg_plan
from dprl.protocols import EnvironmentSpec
from dprl.release.train import train

_HORIZON = 3
_BUDGET = Budget(1.0, 1e-6)
UNITS = 12
"""Declared number of people."""
_ONCE, _SAMPLED = {"batch": 4}, {"batch": 6, "steps": 8}
Cells = tuple[float, float]
NOBODY: Cells = (float("nan"), float("nan"))
"""Observation and reward in an empty place; they make no answer."""


@dataclass(frozen=True)
class PolicyGradientConformance(Suite):
    """The audits of a learner from people: how it is run with a set of people and its neighbours, and attacked."""

    budget = _BUDGET

    def facts(self, setting: str) -> EnvironmentSpec:
        """Return the public facts: episodes of several steps or of one, and observations of two components."""
        horizon = 1 if "one step" in setting else _HORIZON
        return _facts(self.config(setting).policy, "crowd", components=2, actions=3, horizon=horizon, discount=0.9)

    def plan(self, setting: str) -> PGPlan:
        """Return the plan of a release."""
        return _plan(self.config(setting), self.facts(setting), _BUDGET)

    def relation(self, setting: str) -> str:
        """Return the neighbouring relation of the setting: zero out, replace one, or add or remove one."""
        return self.config(setting).relation_words

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return the kinds of input: logs of visits in several forms, streams, and both again with missing names."""
        facts = self.facts(setting)
        logs = () if facts.action is not None else ("file", "parts", "arrays")
        stream = () if self.config(setting).poisson else ("stream",)
        return (*logs, *stream, *(f"{source} without names" for source in (*logs[-1:], *stream)))

    def neighbours(self, setting: str, source: str, folder: Path, turn: int) -> Iterator[Group]:
        """Yield inputs with neighbours in which a place is emptied, an answer is replaced, or a person is added.

        For a source without names, the neighbours have another number of people without names.
        """
        source, _, nameless = source.partition(" without ")
        users = Users(self, setting, source, folder)
        if nameless:
            yield from users.without_names()
            return
        config = users.config
        for count, place, position, kinds in pairs_of(list(CELLS), UNITS, turn):
            people = range(count)
            base = users.trained_on(people, place, NOBODY if config.relation == "zero-out" else CELLS["paid the most"])
            yield Group(
                users.trained_on(without(people, place)) if config.poisson else base,
                [
                    Neighbour(f"{count} people, {position}, {kind}", users.trained_on(people, place, CELLS[kind]))
                    for kind in kinds
                ],
                missing=place if config.poisson else None,
            )
        if source == "file":
            words, call = "people who come one after the other", users.of_arrivals(iter(()))
            if not config.poisson:
                words = "the first person removed, and all others a place earlier"
                call = users.trained_on(range(1, UNITS))
            yield Group(users.trained_on(range(UNITS)), [Neighbour(words, call, covered=False)])

    def attack(self, asked: dict[str, Any]) -> PlanCanary:
        """Return the attack that the entry names; ``units`` is the number of places for users."""
        units, unit, released, budget = (asked.pop(name) for name in ("units", "unit", "released", "budget"))
        require(unit is None, f"{self.algorithm.name} protects a user and knows no other unit: leave unit out.")
        check_all_seen(self.algorithm.name, released)
        config = self.algorithm.config.from_mapping(asked, "options")
        free = config.users is None
        require(free, f"{self.algorithm.name} is audited with so many users as there are units: leave out users.")
        # under these facts the score of a policy, linear or a network, is longer than the default clip norm, also where
        # returns are single rewards
        horizon = 2 if config.scale_weight else 1
        facts = _facts(config.policy, "small bandit", components=3, actions=8, horizon=horizon, discount=1.0)
        return resolve_name(self.algorithm.canary)(_plan(config, facts, budget, units))


def _facts(
    policy: str | None, name: str, *, components: int, actions: int, horizon: int, discount: float
) -> EnvironmentSpec:
    """Return an environment that fits a policy: with one continuous action if Gaussian, else with ``actions`` ones."""
    continuous = policy is not None and "gaussian" in policy
    return EnvironmentSpec(
        name=name,
        observation=((-1.0, 1.0),) * components,
        actions=0 if continuous else actions,
        action=((-1.0, 1.0),) if continuous else None,
        horizon=horizon,
        discount=discount,
        reward_bounds=(-1.0, 1.0),
    )


@lru_cache(maxsize=64)
def _plan(config: DPPG, facts: EnvironmentSpec, budget: Budget, units: int | None = None) -> PGPlan:
    return make_pg_plan(config, facts, budget, units)


@dataclass(frozen=True)
class Users:
    """A setting of a learner, and the people from whom it learns.

    Attributes:
        suite: suite of the learner.
        setting: variant of the learner.
        source: ``file``, ``arrays``, ``parts``, ``ray`` (parts that workers of ray read), or ``stream``.
        folder: folder for files.
    """

    suite: PolicyGradientConformance
    setting: str
    source: str
    folder: Path

    @property
    def facts(self) -> EnvironmentSpec:
        """The public facts of the setting."""
        return self.suite.facts(self.setting)

    @cached_property
    def config(self) -> DPPG:
        """The options of the setting, made to fit a small number of people."""
        config = self.suite.config(self.setting)
        users = UNITS if self.source == "stream" else None
        return replace(config, users=users, **(_SAMPLED if config.poisson else _ONCE))

    @cached_property
    def visits(self) -> PeopleWithVisits:
        """The people; each of them visits as often as an episode has steps."""
        facts = self.facts
        shared = {"units": UNITS, "horizon": facts.horizon, "reward": facts.reward_bounds}
        return PeopleWithVisits(
            Bounds(**shared, observation=facts.observation, actions=facts.actions or 1), visits=facts.horizon
        )

    def trained_on(self, people: Sequence[int], different: int | None = None, cells: Cells | None = None) -> Call:
        """Return the call that learns from people in this order; ``different`` sees and is paid ``cells``."""
        return lambda seed: self._train(self._opened(people, different, cells), seed)

    def of_arrivals(self, arrivals: Iterator[Any]) -> Call:
        """Return the call that learns from a stream; the stream can be used once."""
        return lambda seed: self._train(UserStream(self.facts, arrivals, named=True, units=UNITS), seed)

    def without_names(self) -> Iterator[Group]:
        """Yield people of whom some come without a name, beside the same people without those nameless answers.

        All who have no name count as nobody, or as one person who comes again and again.
        """
        paid = CELLS["paid the most"]
        for kind, name in missing_names().items():
            if self.source == "stream":
                one, two = (self.of_arrivals(self._arrivals(name, cells)) for cells in (NOBODY, paid))
            else:
                one, two = (self._of_names([*names, "p1", "p2"]) for names in ([], [name() for _ in range(UNITS)]))
            yield Group(one, [Neighbour(f"a name that is {kind}", two)])

    def _arrivals(self, name: Any, cells: Cells) -> Iterator[Any]:
        for place in range(UNITS):
            named = place % 3 == 2
            yield f"p{place}" if named else name(), self._answering(place if named else 0, None if named else cells)

    def _of_names(self, names: Sequence[Any]) -> Call:
        """Return the call that learns from visits of people with these names; only p1 and p2 are not paid the most."""
        cells = [(-0.5, -1.0) if name in ("p1", "p2") else CELLS["paid the most"] for name in map(str, names)]
        seen, paid = (np.repeat([[cell[i]] for cell in cells], n, axis=1) for i, n in ((0, 2), (1, 3)))
        return lambda seed: self._train(Bandit.of_arrays(seen, paid, self.visits.bounds, people=names), seed)

    def _train(self, users: Any, seed: int) -> Mapping[str, np.ndarray]:
        bounds = self.visits.bounds if isinstance(users, str) else None
        ray: dict[str, Any] = {"engine": "ray", "shards": 2} if self.source == "ray" else {}
        release = train(users, self.suite.budget, algorithm=self.config, bounds=bounds, seed=seed, **ray)
        policy = np.frombuffer(release.policy.to_bytes(), np.uint8)
        return handed_out(release, policy=policy)

    def _opened(self, people: Sequence[int], different: int | None, cells: Cells | None) -> Any:
        """Return the people in the form in which a public call takes them."""
        if self.source == "stream":
            arrivals = ((f"p{p}", self._answering(p, cells if p == different else None)) for p in people)
            return UserStream(self.facts, arrivals, named=True, units=UNITS)
        seen, paid, names = self.visits.rows(people, different, cells)
        if self.source == "arrays":
            return Bandit.of_arrays(seen, paid, self.visits.bounds, people=names)
        columns = {"person_id": names} | {f"observation_{i}": column for i, column in enumerate(seen.T)}
        columns |= {f"reward_{i}": column for i, column in enumerate(paid.T)}
        return f"bandit:{written(columns, self.folder, None if self.source == 'file' else 'person_id')}"

    def _answering(self, person: int, cells: Cells | None) -> Any:
        """Return how a person of a stream answers: take an action at every visit's observation and be paid for it."""
        seen, paid, _ = self.visits.rows([person], person, cells)

        def answer(policy: CurrentPolicy) -> Interaction | None:
            if cells == NOBODY:
                return None
            actions = [policy(observation) for observation in seen]
            rewards = [row[0 if self.facts.action else a] for row, a in zip(paid, actions, strict=True)]
            return Interaction(seen, actions, rewards)

        return answer
