"""The checks of what accidents could undo: interruptions, copies of a run folder, damaged files."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dprl
from dprl.accounting.ledger import Ledger
from dprl.mechanisms.gaussian_sum import RELATION

from .lab import FULL, Caught, Lab, check, refused, small_log, suite_of


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
