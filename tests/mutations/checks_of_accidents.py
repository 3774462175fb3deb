"""The checks of what accidents could undo: interruptions, copies of a run folder, damaged files."""

from __future__ import annotations

import gc
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dprl
from dprl.accounting.ledger import Ledger
from dprl.accounting.renyi_filter import WHOLE
from dprl.audits.record_replay import RecordingNoise
from dprl.engine import program as engine
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT, RELATION
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.run_key import RunKey
from dprl.release.journal import FolderJournal

from .lab import FULL, Caught, Lab, check, refused, require, small_log, suite_of


def _interrupted(lab: Lab) -> tuple[Path, Callable[..., dprl.Release], Ledger]:
    """A run that is charged and bound, and ended before it was saved; and the call that goes on with a run."""
    folder = lab.folder()
    ledger = Ledger.create(folder / "ledger.db", "trial", dprl.Budget(2.0, 2e-4), "trajectory", RELATION)

    def release(run: Path, columns: Any = None, resume: bool = True) -> dprl.Release:
        columns = small_log() if columns is None else columns
        return dprl.evaluate(
            columns, "uniform", dprl.Budget(1.0, 1e-4), bounds=suite_of(FULL).bounds,
            algorithm=dprl.ImportanceSampling(), ledger=ledger, dataset="trial", run=run, resume=resume,
        )  # fmt: skip

    release(folder / "run", resume=False)
    gc.collect()  # a process that has ended holds no lock
    return folder / "run", release, ledger


@check
def one_charge_has_one_answer(lab: Lab) -> None:
    """Not even in memory is there a second one, of other rows, by a copy of the run folder that forgot its data."""
    run, release, _ = _interrupted(lab)
    copy = Path(shutil.copytree(run, run.with_name("copy")))
    for name in ("data", "journal"):
        (copy / name).unlink()
    columns = small_log()
    columns["reward"] = columns["reward"] / 2.0
    with refused("a copied run gives a second answer for the charge of the first"):
        release(copy, columns)


@check
def a_run_goes_on_with_its_own_settings(lab: Lab) -> None:
    run, release, _ = _interrupted(lab)
    with refused("a run is resumed with settings by which digits may come out otherwise"), jax.disable_jit():
        release(run)


@dataclass(frozen=True)
class _Stage:
    mechanism: FilteredGaussianSum


_FILTERED = FilteredGaussianSum(
    parts=((2, 1.0),), noise_multiplier=3.0, sampling_rate=0.5, steps=12, levels=(4.0, 10.0),
    norm_multiplier=20.0, order=12, budget=0.4,
)  # fmt: skip


class _Greedy:
    """A program of one filtered stage, which proposes ``level_now``; the rows are zeros."""

    stages = (_Stage(_FILTERED),)
    units, level_now, stability = 5, 0, ADDS_ONE_UNIT

    def level(self, *_: Any) -> Any:
        return self.level_now

    def update(self, stage: int, state: Any, noisy: Any, step: Any) -> Any:
        return state

    def total(self, *_: Any) -> np.ndarray:
        return np.zeros(2, dtype=np.int64)


@check
def a_filtered_budget_is_kept_when_digits_change(lab: Lab) -> None:
    """A stage that is interrupted and goes on while other levels are proposed than before."""
    path, calls = lab.folder() / "journal", list[Any]()

    def run(level: int, stop_at: int) -> None:
        def stop(done: int) -> None:
            if done == stop_at:
                raise KeyboardInterrupt

        program: Any = _Greedy()
        program.level_now = level
        journal = FolderJournal(path, RunKey(bytes(range(32))), bytes(32))
        noise = RecordingNoise(SeededNoise.from_seed(1), calls)
        with suppress(KeyboardInterrupt):
            engine.run_steps_on_host(program, 0, _FILTERED, noise, program, 0.0, stop, journal.stream("stage"))
        journal.close()

    run(0, 3)
    run(1, 99)
    run(0, 99)
    levels = [_FILTERED.on_grid(level) for level in _FILTERED.levels]
    found = Counter(levels.index(call[-1]) for call in calls if call[:2] == ("", "gaussian"))  # not the norm's
    require(found[0] >= 3, "nothing was drawn")
    require(sum(_FILTERED.costs[level] * count for level, count in found.items()) <= WHOLE, "a filter is overspent")


@check
def a_damaged_ledger_shows_no_amount(lab: Lab) -> None:
    """One byte of one amount, in the page of the database where it stands."""
    path = lab.folder() / "ledger.db"
    ledger = Ledger.create(path, "trial", dprl.Budget(2.5, 2e-4), "trajectory", RELATION)
    ledger.charge("trial", dprl.Budget(1.9001, 1e-4), "trajectory", RELATION, "release")
    path.write_bytes(path.read_bytes().replace(b"1.9001", b"0.9001"))
    with refused("a damaged database shows that less was spent"):
        Ledger.open(path).spent("trial")


@check
def what_user_code_raises_is_not_heard(lab: Lab) -> None:
    """A policy that panics at a row, as a library of Rust's does: no Exception, and the row in its text."""

    class PanicException(BaseException):
        pass

    def policy(states: Any) -> Any:
        if len(states) not in (1, 64):  # not the public ones
            raise PanicException(states[0])
        return np.full((len(states), 2), 0.5)

    try:
        dprl.evaluate(
            small_log(), policy, dprl.Budget(1.0, 1e-4), bounds=suite_of(FULL).bounds,
            algorithm=dprl.ImportanceSampling(), seed=0,
        )  # fmt: skip
    except PanicException as error:
        raise Caught("a policy's panic is heard, after the charge and with a row in it") from error
