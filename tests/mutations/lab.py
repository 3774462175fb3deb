"""What the checks share: the algorithms' own conformance suites, a small log, and recorders that compile once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event as dpe

import dprl
from dprl.audits.conformance import evaluation as conformance
from dprl.audits.conformance import reward_functions as learning
from dprl.audits.record_replay import Recorder
from dprl.engine import loop as engine
from dprl.errors import DprlError
from dprl.registry import evaluation_entries
from tests.conformance.walks import walks

FULL = ("gpope", "full batches")
POISSON = ("gpope", "Poisson batches")
SAMPLING = ("importance-sampling", "trajectory")
STAGES = ("adassp", "around a constant")


class Caught(AssertionError):  # noqa: N818
    """A check found a fault; the message says which."""


def require(holds: Any, sentence: str) -> None:
    if not holds:
        raise Caught(sentence)


@contextmanager
def refused(sentence: str) -> Iterator[None]:
    """Find a fault where what is done here is not refused."""
    with suppress(DprlError):
        yield
        raise Caught(sentence)


CHECKS: dict[str, Callable[[Lab], None]] = {}
"""All checks by name: functions of a :class:`Lab`, or of nothing, that raise :class:`Caught` where a fault is."""

SLOW: set[str] = set()
"""Names of the checks that run with the slow tests, and their faults with them."""
# networks and many releases take long, but for the quickest
_LONG = (
    "checks_of_primal_dual", "checks_of_learning", "checks_of_neighbours", "checks_of_learners", "test_private_rewards",
    "test_doubly_robust",
)  # fmt: skip
_QUICK = ("neighbours in logs", "neighbours in places of a log", "neighbours of a choice", "costs of a learner")


def check(function: Callable[..., None], name: str | None = None, *, slow: bool = False) -> Callable[..., None]:
    """Register a check under its name in words."""
    alone = not inspect.signature(function).parameters
    name = name or function.__name__.replace("_", " ")
    CHECKS[name] = (lambda lab: function()) if alone else function
    if (slow or getattr(function, "func", function).__module__.endswith(_LONG)) and name not in _QUICK:
        SLOW.add(name)
    return function


def by_test(test: Callable[..., None], **given: Any) -> None:
    """Register a test of the suite, with these arguments, as a check: it fails where the fault is."""

    def run(lab: Lab) -> None:
        with pytest.MonkeyPatch.context() as patch:
            fixtures = {"tmp_path": lab.folder, "monkeypatch": lambda: patch}
            wanted = inspect.signature(test).parameters
            try:
                test(**{name: make() for name, make in fixtures.items() if name in wanted}, **given)
            except (AssertionError, pytest.fail.Exception) as error:
                raise Caught(str(error)) from error

    run.__module__ = test.__module__
    check(run, test.__name__.removeprefix("test_").replace("_", " "))


class Lab:
    """What checks share: a folder for ledgers and releases, and recorders."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._recorders: dict[tuple[str, str], Recorder] = {}

    def folder(self) -> Path:
        self._made += 1
        made = self._folder / str(self._made)
        made.mkdir()
        return made

    def tape(self, case: tuple[str, str], columns: Mapping[str, Any], noise: Any, unit: str = "trajectory") -> Any:
        """A recorded release; it sees the released outputs of the first one since :meth:`fresh_outputs`."""
        suite = suite_of(case)
        log = dprl.read_log(columns, bounds=suite.plan(case[1]).bounds, unit=unit)
        return self._recorders.setdefault(case, Recorder()).record(suite.releasing(case[1], log), noise=noise)

    def fresh_outputs(self, case: tuple[str, str]) -> None:
        self._recorders[case] = Recorder()


def forget_plans() -> None:
    conformance._plan.cache_clear()
    learning._plan.cache_clear()


def forget_compiled(*modules: Any) -> None:
    """Forget what the loop of releases, and these modules, have compiled, in which a fault may be."""
    for module in (engine, *modules):
        for made in vars(module).values():
            getattr(made, "clear_cache", lambda: None)()


def suite_of(case: tuple[str, str]) -> Any:
    return evaluation_entries()[case[0]].load_conformance()


def small_log(units: int = 6) -> dict[str, np.ndarray]:
    """Walks of three or four steps: one shape of compiled code. The last unit's rewards are as large as may be."""
    columns = walks(suite_of(FULL), 40, 4)
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
