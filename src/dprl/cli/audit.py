"""``dprl audit`` and ``dprl check``: attack an algorithm's guarantee, and say what the attack proves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dprl.cli.command import Progress, conditions_of, configure, print_result
from dprl.cli.requests import BudgetOptions, PrintOptions, Settings, expert, optional
from dprl.errors import DprlError, require
from dprl.registry import attackable_entries, in_every_calibration

if TYPE_CHECKING:
    from dprl.audits.lower_bound import Audit


@dataclass(frozen=True, kw_only=True)
class AuditRequest(PrintOptions, Settings, BudgetOptions):
    """Attack an algorithm on a worst-case pair of logs, and bound its epsilon from below. Reads no data.

    A claim that is violated is a finding and no error: the exit code is 0 either way, and the verdict says which.

    Attributes:
        algorithm: name of the algorithm, or best or learn for a whole release of two parts of the people. Without a
            name, what can be audited is listed.
        calibration: verified or as-published; by default verified.
        epsilon: the claim; by default 1.
        delta: the claim; by default 1e-5.
        trials: runs on each of the two logs. By default as many as a standard attack on the algorithm has, at most
            400000. A quarter more runs choose the threshold. With --all, each attack has its own number.
        everything: run every standard attack, and print the page in Markdown.
        neighbours: release on pairs of neighbours, and compare. The output, in Markdown, says how far apart the inputs
            of every algorithm's mechanisms lie.
        out: file for the page of --all. With --neighbours, its section of that page.
        listing: say what can be audited.
        units: declared number of units; by default 200.
        unit: attack through the columns of a log: transition, trajectory or person, who has three trajectories.
        released: what the attack sees: all that is released, or last for the last iterate only; by default all.
        seed: seed of all noise; the same seed gives the same answer.
        confidence: probability with which each bound holds.
    """

    algorithm: str | None = optional(metavar="ALGORITHM", argument=True)
    calibration: str | None = optional(metavar="NAME")
    epsilon: float | None = optional(metavar="NUMBER")
    delta: float | None = optional(metavar="NUMBER")
    trials: int | None = optional(metavar="N")
    everything: bool = optional(default=False, flag="--all")
    neighbours: bool = optional(default=False, flag="--neighbours")
    out: Path | None = optional(metavar="FILE")
    listing: bool = optional(default=False, flag="--list")
    units: int | None = expert(metavar="N")
    unit: str | None = expert(metavar="UNIT")
    released: str | None = expert(metavar="WHAT")
    seed: int = expert(default=0, metavar="N")
    confidence: float = expert(default=0.95, metavar="NUMBER")

    algorithms = staticmethod(attackable_entries)


def audit(request: AuditRequest) -> None:
    """Run one attack, or all of them, or list what there is."""
    request.mistakes.check()
    _check(request)
    if request.neighbours:
        _run_neighbours(request.out)
    elif request.everything:
        _run_all(request)
    elif request.algorithm is None:
        _list(request.as_json)
    else:
        _run(request, request.algorithm)


_OF_ONE = ("calibration", "units", "unit", "epsilon", "delta", "released", "trials")
"""Options of an attack on one algorithm."""


def _check(request: AuditRequest) -> None:
    """Refuse options that do not go together."""
    pages = request.everything + request.neighbours
    require(pages + request.listing <= 1, "Give one of --all, --neighbours and --list.")
    if request.algorithm is not None and pages + request.listing:
        raise DprlError("Name one algorithm, or give --all, --neighbours or --list.")
    if request.neighbours and (request.trials is not None or request.as_json):
        raise DprlError("--neighbours leaves nothing to chance and prints a table: leave --trials and --json out.")
    require(request.out is None or pages, "--out is for the page of --all, or for its section of --neighbours.")
    if request.algorithm is None:
        given = [name for name in _OF_ONE if getattr(request, name) is not None and not (name == "trials" and pages)]
        for name in [*request.flags, *given, *(["set"] * bool(request.setting))]:
            raise DprlError(f"--{name.replace('_', '-')} needs the name of an algorithm: see dprl audit --list.")


def _run(request: AuditRequest, name: str) -> None:
    from dprl.audits.audit import audit as run
    from dprl.audits.audit import changed_options, runs_of_audit, usual_trials

    if any("calibration" in mapping for mapping, _ in request.options):
        raise DprlError("--set calibration: give --calibration instead.")
    config = request.mistakes.attempt(configure, request, name)
    budget = request.budget(1.0, 1e-5)
    request.mistakes.check()
    trials = usual_trials(name, request.calibration) if request.trials is None else request.trials
    units = 200 if request.units is None else request.units
    released = "all" if request.released is None else request.released
    chosen = {"units": units, "released": released, "unit": request.unit, "seed": request.seed}
    how = chosen | request.given("calibration", "confidence")
    with Progress(runs_of_audit(trials), quiet=request.as_json, doing="runs") as progress:
        result = run(config, budget, trials=trials, progress=progress, **how)
    about = chosen | {
        "algorithm": name,
        "calibration": request.calibration or "verified",
        "units": None if attackable_entries()[name].unit == "reward function" else units,
        "options": {option: value for option, value in changed_options(config).items() if option != "calibration"},
    }
    print_result(result.as_dict() | about, words(result, about), request.as_json)


def words(result: Audit, about: dict[str, Any]) -> Iterator[str]:
    """Yield the result of an audit, in sentences."""
    bound, gaussian = result.bound, result.gaussian
    percent = f"{100.0 * bound.confidence:g}%"
    yield (
        f"{about['algorithm']}, {about['calibration'].replace('-', ' ')}, claims epsilon {result.claimed_epsilon:g} "
        f"at delta {result.delta:g}"
    )
    yield f"attacked: {result.description}"
    yield (
        f"epsilon is at least {rounded_down(bound.epsilon_lower)} ({percent} confidence, by counting alone: "
        f"{bound.trials} runs on each of the two datasets, after {bound.selection_trials} others chose the threshold)"
    )
    if gaussian is not None:
        yield (
            f"epsilon is at least {rounded_down(gaussian.epsilon_lower)} ({percent} confidence, as what is seen is "
            f"Gaussian: mu is at least {rounded_down(gaussian.mu_lower)})"
        )
    yield from conditions_of(result.as_dict()["preconditions"])
    if result.violated:
        yield "verdict: violated. The release tells more than it claims"
    else:
        yield "verdict: not violated. This attack shows no more than the claim allows, which is no proof of it"
    yield f"{result.seconds:.1f} seconds"


def _list(as_json: bool) -> None:
    found: dict[str, dict[str, Any]] = {}
    for entry in in_every_calibration():
        about = found.setdefault(entry.name, {"summary": entry.summary, "calibrations": [], "standard_attacks": 0})
        about["calibrations"].append(entry.calibration)
        about["standard_attacks"] += len(entry.load().attacks)
    print_result(found, _listed(found), as_json)


def _listed(found: dict[str, Any]) -> Iterator[str]:
    for name, about in found.items():
        yield f"{name}: {about['summary']}"
        yield f"    calibrations: {', '.join(about['calibrations'])}; {about['standard_attacks']} standard attacks"
    yield "dprl audit ALGORITHM attacks one of them, dprl audit --all runs every standard attack."


def _run_all(request: AuditRequest) -> None:
    from dprl.audits.audit import page, run_standard_attacks, runs_of_standard_attacks

    out, trials = request.out, request.trials
    if out is not None and not out.absolute().parent.is_dir():
        raise DprlError(f"Cannot write {str(out)!r}: there is no such folder.")
    with Progress(runs_of_standard_attacks(trials), quiet=request.as_json, doing="runs") as progress:
        rows = run_standard_attacks(trials=trials, seed=request.seed, confidence=request.confidence, progress=progress)
    command = "dprl audit --all" + (f" --trials {trials}" if trials is not None else "")
    command += f" --seed {request.seed}" if request.seed else ""
    command += f" --confidence {request.confidence:g}" if request.confidence != 0.95 else ""
    if request.as_json:
        text = json.dumps({"audits": [row.as_dict() for row in rows]}, allow_nan=False)
    else:
        text = page(rows, command)
    _write(out, text)


def _run_neighbours(out: Path | None) -> None:
    from dprl.audits.conformance.suite import cases, section, with_progress, with_section

    if out is not None and not out.is_file():
        raise DprlError(f"There is no page {str(out)!r} for the section: write it with dprl audit --all --out.")
    chosen = list(cases())
    with Progress(len(chosen), quiet=False, doing="cases") as progress:
        text = section([case.run() for case in with_progress(chosen, progress)])
    _write(out, text if out is None else with_section(out.read_text(), text))


def _write(out: Path | None, text: str) -> None:
    if out is None:
        typer.echo(text.rstrip("\n"))
        return
    from dprl.files import write_atomically

    write_atomically(out, text.encode())
    typer.echo(str(out))


def check(
    file: Annotated[Path, typer.Argument(help="Python file that ends with ALGORITHM = Algorithm(...).")],
    trials: Annotated[int, typer.Option(help="Runs of an attack on each of its two logs.", min=100)] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the attacks.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look for faults in an algorithm of your own; reads no data, proves nothing.

    The algorithm is released on neighbouring logs, recorded and replayed, and is attacked. The exit code is 1 if its
    claim is broken.
    """
    from dprl.audits.check import check as run
    from dprl.audits.check import read_algorithm

    entry = read_algorithm(file)
    algorithm = entry.load()
    with Progress(len(algorithm.settings) + len(algorithm.attacks), quiet=as_json, doing="checks") as progress:
        found = run(entry, trials, seed, progress)
    made = {
        "algorithm": found.name,
        "neighbours": [{"variant": n.setting, "pairs": n.pairs, "largest_ratio": n.largest} for n in found.neighbours],
        "audits": [a.as_dict() for a in found.audits],
        "violations": found.violations,
    }
    print_result(made, _findings(made), as_json)
    if found.violations:
        raise typer.Exit(1)


def _findings(made: dict[str, Any]) -> Iterator[str]:
    for n in made["neighbours"]:
        of_declared = f"at most {n['largest_ratio']:.3f} of what is declared"
        yield f"{n['variant']}: {n['pairs']} pairs of neighbouring logs, {of_declared}"
    for a in made["audits"]:
        yield f"attack at epsilon {a['claimed_epsilon']:g}: at least {rounded_down(a['epsilon_lower'])} is shown"
    yield from (f"VIOLATED: {violation}." for violation in made["violations"])
    if not made["violations"]:
        yield "Nothing was found. That is no proof: releases of it write statements, and no certificate."


def rounded_down(number: float) -> str:
    """Return a number with three decimals, rounded down, so that a printed lower bound is still a lower bound.

    >>> rounded_down(0.9999)
    '0.999'
    """
    return f"{math.floor(number * 1000.0) / 1000.0:.3f}"
