"""What the checks share: the algorithms' own conformance suites, a small log, and recorders that compile once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from dp_accounting import dp_event as dpe

import dprl
from dprl.audits.conformance import evaluation as conformance
from dprl.audits.conformance import reward_functions as learning
from dprl.audits.record_replay import Recorder
from dprl.engine import program as engine
from dprl.registry import evaluating

FULL = ("gpope", "full batches")
POISSON = ("gpope", "Poisson batches")
SAMPLING = ("importance-sampling", "trajectory")
STAGES = ("adassp", "around a constant")


class Caught(AssertionError):  # noqa: N818
    """A check found a fault; the message says which."""


def require(holds: Any, sentence: str) -> None:
    if not holds:
        raise Caught(sentence)


class Lab:
    """What checks share: a folder for ledgers and releases, and recorders.

    A recorder's mechanisms are static arguments, compared by identity: code that is compiled for one lab is never used
    in another.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._recorders: dict[tuple[str, str], Recorder] = {}

    def folder(self) -> Path:
        self._made += 1
        made = self._folder / str(self._made)
        made.mkdir()
        return made

    def tape(self, case: tuple[str, str], columns: Mapping[str, Any], noise: Any, person: str | None = None) -> Any:
        """A recorded run; it sees the released outputs of the first run since :meth:`fresh_outputs`."""
        suite = evaluating()[case[0]].load_conformance()
        log = dprl.read_log(columns, bounds=suite.bounds, person=person).load()
        recorder = self._recorders.setdefault(case, Recorder())
        return recorder.record(lambda source, wrap: suite.run(case[1], log, source, wrap), noise)

    def fresh_outputs(self, case: tuple[str, str]) -> None:
        self._recorders.setdefault(case, Recorder()).forget()


def forget_plans() -> None:
    conformance._plan.cache_clear()
    learning._plan.cache_clear()


def forget_post_processing() -> None:
    """What is compiled without a mechanism is not a lab's own."""
    for compiled in (engine._init, engine._finish, engine._answer):
        cast(Any, compiled).clear_cache()


def suite_of(case: tuple[str, str]) -> Any:
    return evaluating()[case[0]].load_conformance()


def small_log(units: int = 6) -> dict[str, np.ndarray]:
    """Walks of three or four steps: one shape of compiled code. The last unit's rewards are as large as may be."""
    columns = suite_of(FULL).columns(40, 4)
    lengths = np.bincount(columns["episode_id"])
    kept = np.flatnonzero(lengths >= 3)[:units]
    columns = {name: values[np.isin(columns["episode_id"], kept)] for name, values in columns.items()}
    columns["reward"] = np.where(columns["episode_id"] == kept[-1], 1.0, columns["reward"])
    return columns


def last_unit(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    return columns["episode_id"] == columns["episode_id"].max()


def rows_where(columns: Mapping[str, np.ndarray], kept: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[kept] for name, values in columns.items()}


def flat(event: Any, steps: int = 1) -> Iterator[tuple[float, float, int]]:
    """An event as (rate, noise multiplier, steps) of each mechanism, in order."""
    match event:
        case dpe.ComposedDpEvent():
            for inner in event.events:
                yield from flat(inner)
        case dpe.SelfComposedDpEvent():
            yield from flat(event.event, int(event.count))
        case dpe.PoissonSampledDpEvent():
            (inner,) = flat(event.event)
            yield float(event.sampling_probability), inner[1], steps
        case dpe.GaussianDpEvent():
            yield 1.0, float(event.noise_multiplier), steps
