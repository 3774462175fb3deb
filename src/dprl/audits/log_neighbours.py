"""Evaluation on neighbouring logs, through the front door: what enters each mechanism, exactly.

One person is added to a log or removed from it, first, in the middle or last, in logs of sizes around the declared
number, whatever that person's rows hold. Both logs are released with the same key, and people in common keep the same
coins: the coupling of docs/proofs/clipped-gaussian-sum.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.audits.entering import Call, Door, differ
from dprl.audits.neighbours import MANY, ROWS, UNNAMED, LogOf, pairs_of, place_of, without
from dprl.audits.record_replay import Comparison
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.engine.layouts import UnitRows
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.registry import Entry
from dprl.release.evaluate import evaluate

UNITS = 8
"""Declared number of people, where a setting does not need more."""
_FILLED = 512
_AMPLE = 16.0  # epsilon at which values of so few people are not refused for their noise


@dataclass(frozen=True)
class Found:
    """What pairs of neighbours of one case came to.

    Attributes:
        algorithm, setting, relation: what ran, and what its neighbours are.
        source: what was read.
        pairs: how many were compared.
        largest: largest distance of what entered a mechanism, over the declared sensitivity; at most 1.
        outside: pairs that are no neighbours by the relation: what happened to them.
        problems: sentences, each with the pair that it is about; empty where nothing differs that must not.
    """

    algorithm: str
    setting: str
    relation: str
    source: str
    pairs: int
    largest: float
    outside: tuple[str, ...]
    problems: tuple[str, ...]


class Tally:
    """Adds up what pairs of neighbours came to."""

    def __init__(self) -> None:
        self._pairs, self._largest, self._outside, self._problems = 0, 0.0, list[str](), list[str]()

    def add(self, found: Comparison, pair: str) -> None:
        self._pairs, self._largest = self._pairs + 1, max(self._largest, found.largest)
        self._problems += [f"{pair}: {problem}" for problem in found.problems]

    def refuse(self, pair: str) -> None:
        """A pair outside of the relation that was refused, as it should be."""
        self._outside.append(f"{pair}: refused")

    def leave_out(self, found: Comparison, pair: str) -> None:
        """A pair outside of the relation that nothing can refuse: it is shown that no promise is made about it."""
        self._outside.append(f"{pair}: not covered ({found.largest:.1f})")

    def found(self, algorithm: str, setting: str, relation: str, source: str) -> Found:
        what = algorithm, setting, relation, source
        return Found(*what, self._pairs, self._largest, tuple(self._outside), tuple(self._problems))


def handed_out(artifacts: Mapping[str, Any], **arrays: Any) -> dict[str, np.ndarray]:
    """All that a release hands out: its records as text, without the day and what was read, and arrays."""
    texts = {name: np.frombuffer(_text(record).encode(), np.uint8) for name, record in artifacts.items()}
    return texts | {name: np.asarray(value) for name, value in arrays.items()}


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps({n: v for n, v in record.items() if n not in ("created", "log")}, sort_keys=True, default=str)


def log_neighbours(
    entry: Entry, setting: str, folder: Path, *, unit: str = "person", source: str = "arrays", turn: int = 0
) -> Found:
    """Compare what is released of a log with what is released of it without one person.

    Args:
        folder: empty, for files.
        unit: ``person``, of whom each has two trajectories, or ``trajectory``.
        source: ``arrays`` or a ``file``; ``parts``, which are read out of core, or read so by workers of ``ray``.
        turn: another one makes other pairs, see :func:`~dprl.audits.neighbours.pairs_of`.
    """
    suite, chosen = entry.load_conformance(), entry.load().settings[setting]
    bounds = replace(suite.bounds, **{"units": UNITS, **chosen.facts})
    person, by = unit == "person", "person_id" if unit == "person" else "episode_id"
    logs = LogOf(bounds, trajectories=2 if person else 1, persons=person)
    features, config, budget = chosen.features, chosen.config, suite.budget
    if isinstance(config, ImportanceSampling) or config.around_function:
        budget = replace(budget, epsilon=_AMPLE)
    others = [(UnitRows, "arrays", _filled)] if source in ("arrays", "file") else []

    def released_of(people: Sequence[int], different: int | None = None, kind: str | None = None) -> Call:
        log: Any = logs.columns(people, different, None if kind is None else {**ROWS, **UNNAMED}[kind])
        if source != "arrays":
            log = written(log, folder, None if source == "file" else by)

        def call(seed: int) -> Mapping[str, np.ndarray]:
            release = evaluate(
                read_log(log, bounds=bounds, unit=unit),
                list(suite.policies),
                budget,
                algorithm=config,
                features=features,
                seed=seed,
                engine="ray" if source == "ray" else None,
                shards=2 if source == "ray" else None,
            )
            function = {} if release.value_function is None else {"theta": release.value_function.theta}
            return handed_out({"estimate": release.estimate, "certificate": release.certificate}, **function)

        return call

    # a file's column of names has one type
    tally, rows = Tally(), [*ROWS, *(UNNAMED if source == "arrays" else [next(iter(UNNAMED))])]
    for count, position, kinds in pairs_of(rows, bounds.units, turn):
        place, people, door = place_of(position, count), list(range(count)), Door()
        first = door.record(released_of(without(people, place)), place, others)
        for kind in kinds:
            # whose rows name nobody is not there: the others keep their coins
            lacking = place if kind in UNNAMED else None
            found = differ(first, door.record(released_of(people, place, kind), lacking, others))
            tell = tally.leave_out if kind == MANY and not person else tally.add
            tell(found, f"{count} people, {position}, {kind}")
    return tally.found(entry.name, setting, RELATION, f"{source} by {unit}")


def written(columns: Mapping[str, Any], folder: Path, by: str | None) -> Path:
    """A new Parquet file in ``folder``; or a log in parts, by a column of the file."""
    here = folder / str(len(list(folder.iterdir())))
    here.mkdir()
    pq.write_table(pa.table(dict(columns)), here / "log.parquet")
    if by is not None:
        partition(here / "log.parquet", by, 3, here / "parts")
    return here / ("log.parquet" if by is None else "parts")


def _filled(original: Any) -> Any:
    """Rows of nobody at the end, so that logs of any size have one shape and are compiled once."""

    def arrays(units: UnitRows) -> dict[str, Any]:
        def fill(x: Any) -> Any:
            return np.concatenate([x, np.zeros((_FILLED - len(x), *x.shape[1:]), x.dtype)]) if len(x) < _FILLED else x

        return {name: fill(x) for name, x in original.fget(units).items()}

    return property(arrays)
