"""How the evaluation algorithms are released and attacked on small simulated logs; nothing in here is private.

One person is added to a log or removed from it: in the first, middle or last place, in logs of about the declared
number of people, with rows of every kind. People who are in both logs keep the same coins, which is the coupling of
docs/proofs/clipped-gaussian-sum.md. The attacks are in :mod:`dprl.audits.attacks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.accounting.budget import Budget
from dprl.audits.attacks.programs import unit_canary
from dprl.audits.conformance.suite import Group, Neighbour, Suite, handed_out
from dprl.audits.people import MANY, ROWS, UNNAMED, PeopleWithTrajectories, pairs_of, without
from dprl.audits.record_replay import Call
from dprl.bounds import Bounds
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.engine.algorithm import Algorithm
from dprl.engine.plan import Plan
from dprl.engine.program import ValuesConfig
from dprl.errors import require
from dprl.evaluation.contrasts import asked_pairs
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.protocols import Canary
from dprl.release.evaluate import evaluate


def _policy(states: np.ndarray) -> np.ndarray:
    second = 0.2 + 0.3 * states[:, 0]
    return np.column_stack([1.0 - second, second])


def _other_policy(states: np.ndarray) -> np.ndarray:
    return np.tile([0.3, 0.7], (len(states), 1))


# a policy that looks at the state, and a policy that does not
_POLICIES = (_policy, _other_policy)
_BOUNDS = Bounds(
    units=60,
    horizon=4,
    reward=(0.0, 1.0),
    observation=((0.0, 2.0),),
    actions=2,
    max_importance_ratio=1.6,
    max_cumulative_ratio=4.0,
)
_BUDGET = Budget(2.0, 1e-4)
_AMPLE = 16.0  # epsilon at which values of so few people are not refused for their noise
_PEOPLE = 8  # declared number, where a setting does not need more


@dataclass(frozen=True)
class EvaluationConformance(Suite):
    """The audits of an evaluation algorithm: all of them share the plan, the log, the value vector and program loop."""

    bounds: Bounds = _BOUNDS

    policies = _POLICIES
    budget = _BUDGET

    def plan(self, setting: str) -> Plan:
        """Return the plan of a release under the suite's bounds."""
        chosen = self.algorithm.settings[setting]
        bounds = replace(self.bounds, **chosen.facts)
        return _plan(chosen.config, bounds, chosen.features, chosen.compare, chosen.subgroups)

    # --- releases ---------------------------------------------------------------------------------------------------

    def releasing(self, setting: str, log: Any, budget: Budget | None = None, **engine: Any) -> Call:
        """Return the public call that releases ``log`` in this setting."""

        def call(seed: int) -> Mapping[str, np.ndarray]:
            release = self._released(setting, log, budget or self.budget, seed=seed, **engine)
            learned = release.value_function or release.propensities
            return handed_out(release, **({} if learned is None else {"theta": learned.theta}))

        return call

    def _released(self, setting: str, log: Any, budget: Budget, **options: Any) -> Any:
        chosen = self.algorithm.settings[setting]
        options |= {"algorithm": chosen.config, "features": chosen.features}
        options |= {"compare": chosen.compare, "subgroups": chosen.subgroups}
        return evaluate(log, list(self.policies), budget, **options)

    def relation(self, setting: str) -> str:
        """Return the relation of all noisy sums over a log."""
        return RELATION

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return the form and the privacy unit in which a log is read. A person has two trajectories."""
        return ("arrays by person", "file by trajectory", "parts by person")

    def neighbours(self, setting: str, source: str, folder: Path, turn: int) -> Iterator[Group]:
        """Yield logs without a person, each with neighbours that have this person, with rows of several kinds."""
        form, unit = source.split(" by ")
        chosen, person = self.algorithm.settings[setting], unit == "person"
        bounds = replace(self.bounds, **{"units": _PEOPLE, **chosen.facts})
        people = PeopleWithTrajectories(bounds, trajectories=2 if person else 1, persons=person)
        by = None if form == "file" else "person_id" if person else "episode_id"
        few = isinstance(chosen.config, ValuesConfig) or chosen.config.around_function
        budget = replace(self.budget, epsilon=_AMPLE) if few else self.budget
        workers = {"engine": "ray", "shards": 2} if form == "ray" else {}

        def released(present: Sequence[int], different: int | None = None, kind: str | None = None) -> Call:
            rows: Any = people.columns(present, different, None if kind is None else {**ROWS, **UNNAMED}[kind])
            rows = rows if form == "arrays" else written(rows, folder, by)
            return self.releasing(setting, read_log(rows, bounds=bounds, unit=unit), budget, **workers)

        # in a file all names have one type, so only one kind of missing name fits
        kinds = [*ROWS, *(UNNAMED if form == "arrays" else [next(iter(UNNAMED))])]
        for count, place, position, some in pairs_of(kinds, bounds.units, turn):
            everybody = range(count)
            yield Group(
                released(without(everybody, place)),
                (
                    Neighbour(
                        f"{count} people, {position}, {kind}",
                        released(everybody, place, kind),
                        # where rows name nobody, their person counts as missing, and the others keep their coins
                        missing=place if kind in UNNAMED else None,
                        covered=person or kind != MANY,
                    )
                    for kind in some
                ),
                missing=place,
            )

    def attack(self, asked: dict[str, Any]) -> Canary:
        """Return the attack that the entry names, or the attack through columns where a privacy unit is asked for."""
        unit, algorithm = asked.pop("unit"), self.algorithm
        if unit is None:
            # an optimizer decides noise and steps itself, so the generic attack on a program is used
            target = Algorithm.canary if asked.get("optimizer") is not None else algorithm.canary
            return resolve_name(target)(algorithm.config, **asked)
        strata = all("strata" in chosen.facts for chosen in algorithm.settings.values())
        without = f"{algorithm.name} is not attacked through columns, whose log has no strata: leave out unit."
        require(not strata, without)
        through = f"Through columns {algorithm.name} is attacked in its verified calibration, on all that it releases"
        require(algorithm.verified and asked.pop("released") == "all", f"{through}: leave out unit, or the others.")
        return unit_canary(algorithm.config, unit, **asked)


@lru_cache(maxsize=64)
def _plan(config: Any, bounds: Bounds, features: str, compare: tuple[str, ...], subgroups: tuple[str, ...]) -> Plan:
    pairs, policies = asked_pairs(compare, [policy.__name__ for policy in _POLICIES]), list(_POLICIES)
    exact = {"total_variation": 2.0**-49, "contrasts": pairs, "subgroups": subgroups}
    return make_plan(config, bounds, _BUDGET, policies, features, **exact)


def written(columns: Mapping[str, Any], folder: Path, by: str | None) -> Path:
    """Write a new Parquet file in ``folder``, or a log in parts where ``by`` names a column; return its path."""
    here = folder / str(len(list(folder.iterdir())))
    here.mkdir()
    pq.write_table(pa.table(dict(columns)), here / "log.parquet")
    if by is not None:
        partition(here / "log.parquet", by, 3, here / "parts")
    return here / ("log.parquet" if by is None else "parts")
