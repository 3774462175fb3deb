"""The checks of what is claimed: audit, accountant, certificate, ledger, and silence about the rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import dprl
from dprl.accounting import events, verification
from dprl.accounting.ledger import Ledger
from dprl.audits.lower_bound import run_attack
from dprl.data.readers import Log
from dprl.errors import DprlError, OverspendError
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION
from dprl.protocols import Attack
from dprl.registry import evaluation_entries

from .lab import FULL, Caught, Lab, check, flat, last_unit, refused, require, rows_where, small_log, suite_of

_BUDGET = dprl.Budget(1.0, 1e-4)


@check
def the_canary_stays_below_the_claim() -> None:
    """A quick audit: Gaussian scores bound epsilon from below, and must not exceed the claim."""
    options: dict[str, Any] = {"importance-sampling": {}, "gpope": {"steps": 4}}
    for name, chosen in options.items():
        attack = evaluation_entries()[name].load_canary(Attack(options=chosen))
        result = run_attack(attack, trials=8_000, seed=1, confidence=0.9999)
        require(not result.violated, f"{name}: the audit disproves the claim")


@check
def the_canary_of_a_program_stays_below_the_claim() -> None:
    """The attack that fits all programs, on one whose stage has most of the budget."""
    attack = evaluation_entries()["constant"].load_canary(Attack(options={"value_budget_fraction": 0.2}))
    require(attack.gaussian, "full batches are Gaussian")
    require(not run_attack(attack, trials=8_000, seed=1, confidence=0.9999).violated, "the audit disproves the claim")


def _watched(owner: Any, name: str, note: Callable[..., None]) -> Any:
    """Tell ``note`` of every call of a method, whatever it is at the moment, in a ``with`` block."""
    original = vars(owner)[name]

    def watched(*args: Any, **options: Any) -> Any:
        note(*args, **options)
        return original(*args, **options)

    return patch.object(owner, name, watched)


def _evaluate(columns: Any, **options: Any) -> dprl.Release:
    asked: dict[str, Any] = {"budget": _BUDGET, "bounds": suite_of(FULL).bounds, "algorithm": dprl.GPOPE(steps=3)}
    return dprl.evaluate(columns, "uniform", **{**asked, **options})


def _verified(release: dprl.Release, folder: Path) -> verification.VerifiedCertificate:
    release.save(folder / "results")
    try:
        return verification.verify(folder / "results")
    except DprlError as error:
        raise Caught(str(error)) from error


@check
def the_certificate_covers_what_was_drawn(lab: Lab) -> None:
    """A release from the front door: the noise it drew, against what its certificate states and costs."""
    drawn: list[tuple[int, float]] = []
    with _watched(SecureNoise, "gaussian", lambda source, step, size, std: drawn.append((size, std))):
        release = _evaluate(small_log())
    stated = release.certificate
    found = _verified(release, lab.folder())
    require(found.private and stated["status"] == "verified", "a release is not certified")
    accounted = [
        (m["dimension"], multiplier * m["clip_norm"] / m["grid_step"])
        for m, (_, multiplier, steps) in zip(stated["mechanisms"], flat(events.from_json(stated["event"])), strict=True)
        for _ in range(steps)
    ]
    same = len(drawn) == len(accounted) and all(
        a[0] == b[0] and abs(a[1] / b[1] - 1.0) < 1e-9 for a, b in zip(sorted(drawn), sorted(accounted), strict=True)
    )
    require(same, "the certificate's event is not what was drawn")
    require(
        (stated["epsilon"], stated["delta"]) == (_BUDGET.epsilon, _BUDGET.delta),
        "the certificate states another epsilon or delta than the budget",
    )
    whole = (1.0 + math.exp(stated["epsilon"])) * sum(size for size, _ in drawn) * TOTAL_VARIATION
    require(stated["delta_sampler"] >= whole * (1 - 1e-9), "the sampler's share of delta is not charged")
    require(stated["delta_of_event"] + stated["delta_sampler"] <= _BUDGET.delta * (1 + 1e-9), "delta is exceeded")
    require(stated["neighbouring_relation"] == RELATION, "the certificate states another relation")


@check
def two_releases_share_no_noise() -> None:
    values = [_evaluate(small_log(), algorithm=dprl.ImportanceSampling()).value for _ in range(2)]
    require(values[0] != values[1], "two releases of one log are the same: they share their noise")


@check
def a_seeded_release_is_not_certified(lab: Lab) -> None:
    release = _evaluate(small_log(), algorithm=dprl.ImportanceSampling(), seed=3)
    folder = lab.folder()
    require(not _verified(release, folder).private, "a release with seeded noise is certified")
    require(not (folder / "results" / "certificate.json").exists(), "a release with seeded noise has a certificate")


@check
def the_ledger_is_charged_first(lab: Lab) -> None:
    """Charged with the whole budget before the rows are read, once a release, and never beyond what there is."""
    ledger = Ledger.create(lab.folder() / "ledger.db", "trial", dprl.Budget(2.0, 2e-4), "trajectory", RELATION)
    charged: list[int] = []
    releases = 0
    with _watched(Log, "load", lambda *args, **options: charged.append(len(ledger.history()))):
        for _ in range(3):
            with suppress(OverspendError):
                _evaluate(small_log(), algorithm=dprl.ImportanceSampling(), ledger=ledger, dataset="trial")
                releases += 1
    require(len(charged) == releases, "rows were read without a release")
    require(charged == list(range(1, releases + 1)), "rows are read before the ledger is charged")
    amounts = [(float(c.amount.epsilon), float(c.amount.delta)) for c in ledger.history()]
    require(amounts == [(1.0, 1e-4)] * releases, "the ledger is charged another amount than was spent")
    require(releases == 2, "the ledger lets more be spent than there is")


@check
def the_same_rows_have_one_name(lab: Lab) -> None:
    """Rows that were charged under one name are not released again under another one."""
    path = lab.folder() / "ledger.db"
    for name in ("trial", "other"):
        Ledger.create(path, name, dprl.Budget(2.0, 2e-4), "trajectory", RELATION)
    _evaluate(small_log(), algorithm=dprl.ImportanceSampling(), ledger=path, dataset="trial")
    with refused("the same rows are released under two names"):
        _evaluate(small_log(), algorithm=dprl.ImportanceSampling(), ledger=path, dataset="other")


@check
def a_resumed_run_draws_each_step_once(lab: Lab) -> None:
    """After an interruption no step is noised again, and none is left out."""
    run, drawn = lab.folder() / "run", []

    def interrupt(done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with _watched(SecureNoise, "gaussian", lambda source, step, size, std: drawn.append((source._key, int(step)))):
        with suppress(KeyboardInterrupt):
            _evaluate(small_log(), run=run, progress=interrupt)
        require(len(drawn) == 3, "an interrupted run draws another number of times than it stepped")
        _evaluate(small_log(), run=run, resume=True)
    require(len(set(drawn)) == len(drawn), "a step is noised twice")
    require(len(drawn) == 4, "a resumed run leaves a step out")


@check
def rows_are_not_heard(lab: Lab) -> None:
    """Whatever is in the rows, the front door does the same things: no message, no refusal, as many draws and files."""
    columns = small_log()
    mine, floats = last_unit(columns), {name: values.astype(np.float64) for name, values in columns.items()}
    logs = [columns, rows_where(columns, ~mine), rows_where(columns, mine & ~mine)]
    logs += [
        {**columns, name: np.where(mine, cell, floats[name])}
        for name, cell in (("reward", np.nan), ("observation", 1e308), ("behavior_prob", -1.0), ("action", 17.0))
    ]
    heard = set()
    for log in logs:
        draws: list[tuple[Any, ...]] = []
        with (
            warnings.catch_warnings(record=True) as messages,
            _watched(SecureNoise, "gaussian", lambda source, *asked, draws=draws: draws.append(asked)),
        ):
            warnings.simplefilter("always")
            try:
                release = _evaluate(log)
            except Exception as error:
                raise Caught(f"rows decide whether there is a release: {type(error).__name__}") from error
            files = sorted(release.save(lab.folder() / "results"))
        function = release.value_function
        require(function is not None, "there is no value function")
        require(np.isfinite([*release.interval, *getattr(function, "theta", [])]).all(), "a value is not finite")
        heard.add((tuple(files), tuple(draws), tuple(str(m.message) for m in messages)))
    require(len(heard) == 1, "rows decide what is drawn, written or said")
