"""``dprl audit``: attack an algorithm's guarantee, and say what the attack proves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dprl.cli.evaluate import SET, Progress, merge_request
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.audits.lower_bound import Audit


def audit(
    algorithm: Annotated[
        str | None, typer.Argument(help="Its name; without one, what can be audited is listed.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="verified or as-published.  [default: verified]")] = None,
    units: Annotated[int | None, typer.Option(help="Declared number of units.  [default: 200]")] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Attack through the columns of a log: transition, trajectory or person (three trajectories)."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of updates.  [default: the algorithm's]")] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="Probability with which a unit takes part in an update.  [default: 1]")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The claim.  [default: 1]")] = None,
    delta: Annotated[float | None, typer.Option(help="The claim.  [default: 1e-5]")] = None,
    released: Annotated[
        str | None, typer.Option(help="What is seen: all that is released, or the last iterate.  [default: all]")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            help="Held-out runs on each of the two logs; a quarter more choose the threshold.  [default: 400000; "
            "with --all, each attack's own]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all noise; the same seed gives the same answer.")] = 0,
    confidence: Annotated[float, typer.Option(help="Probability with which each bound holds.")] = 0.95,
    option: SET = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run every algorithm's standard attacks and print the page as Markdown.")
    ] = False,
    neighbours: Annotated[
        bool,
        typer.Option(
            "--neighbours",
            help="Release every algorithm on pairs of neighbours and print, as Markdown, how far apart lies what "
            "enters its mechanisms.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="With --all: write the page into this file. With --neighbours: its section of that page."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Say what can be audited.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Attack an algorithm on a worst-case pair of logs, and bound its epsilon from below. Reads no data.

    A claim that is violated is a finding and no error: the exit code is 0 either way, and the verdict says which.
    """
    one = {
        "--calibration": calibration, "--units": units, "--unit": unit, "--steps": steps,
        "--sampling-rate": sampling_rate, "--epsilon": epsilon, "--delta": delta, "--released": released,
        "--set": option or None,
    }  # fmt: skip
    given = [name for name, value in one.items() if value is not None]
    if listing or everything or neighbours or algorithm is None:
        if algorithm is not None:
            raise DprlError("Name one algorithm, or give --all, --neighbours or --list.")
        if listing + everything + neighbours > 1:
            raise DprlError("Give one of --all, --neighbours and --list.")
        if given:
            raise DprlError(f"{given[0]} needs the name of an algorithm: see dprl audit --list.")
    if out is not None and not (everything or neighbours):
        raise DprlError("--out is for the page of --all, or for its section of --neighbours.")
    if neighbours:
        if trials is not None or as_json:
            raise DprlError("--neighbours leaves nothing to chance and prints a table: leave --trials and --json out.")
        _run_neighbours(out)
        return
    if everything:
        _run_all(trials, seed, confidence, out, as_json)
        return
    if algorithm is None:
        if trials is not None:
            raise DprlError("--trials needs the name of an algorithm, or --all: see dprl audit --list.")
        _list(as_json)
        return

    from dprl.accounting.budget import Budget
    from dprl.audits.audit import TRIALS, changed_options, total
    from dprl.audits.audit import audit as run
    from dprl.config import merge
    from dprl.registry import find_audited

    flags: dict[str, Any] = {"steps": steps, "sampling_rate": sampling_rate}
    _, options = merge_request({}, flags, None, option)
    if any("calibration" in mapping for mapping, _ in options):
        raise DprlError("--set calibration: give --calibration instead.")
    entry = find_audited(algorithm)
    config = merge(entry.load_config(), options)
    trials, released = TRIALS if trials is None else trials, "all" if released is None else released
    budget = Budget(1.0 if epsilon is None else epsilon, 1e-5 if delta is None else delta)
    with Progress(total(trials), quiet=as_json, doing="runs") as progress:
        result = run(
            config,
            budget,
            calibration=calibration,
            units=200 if units is None else units,
            unit=unit,
            released=released,
            trials=trials,
            seed=seed,
            confidence=confidence,
            progress=progress,
        )
    about = {
        "algorithm": algorithm,
        "calibration": calibration or "verified",
        "released": released,
        "units": None if entry.unit == "reward function" else 200 if units is None else units,
        "unit": unit,
        "options": {name: value for name, value in changed_options(config).items() if name != "calibration"},
        "seed": seed,
    }
    typer.echo(json.dumps(result.as_dict() | about, allow_nan=False) if as_json else words(result, about))


def words(result: Audit, about: dict[str, Any]) -> str:
    """What an audit found, for a person."""
    bound, gaussian = result.bound, result.gaussian
    percent = f"{100.0 * bound.confidence:g}%"
    lines = [
        f"{about['algorithm']}, {about['calibration'].replace('-', ' ')}, claims epsilon {result.claimed_epsilon:g} "
        f"at delta {result.delta:g}",
        f"attacked: {result.description}",
        f"epsilon is at least {rounded_down(bound.epsilon_lower)} ({percent} confidence, by counting alone: "
        f"{bound.trials} runs on each of the two data sets, after {bound.selection_trials} others chose the threshold)",
    ]
    if gaussian is not None:
        lines.append(
            f"epsilon is at least {rounded_down(gaussian.epsilon_lower)} ({percent} confidence, as what is seen is "
            f"Gaussian: mu is at least {rounded_down(gaussian.mu_lower)})"
        )
    for condition in result.preconditions:
        lines.append(f"{condition.statement}: this {'holds' if condition.holds else 'does not hold'} here")
    if result.violated:
        lines.append("verdict: violated. The release tells more than it claims")
    else:
        lines.append("verdict: not violated. This attack shows no more than the claim allows, which is no proof of it")
    return "\n".join([*lines, f"{result.seconds:.1f} seconds"])


def rounded_down(number: float) -> str:
    """Three decimals, never up: what is printed is still a lower bound.

    >>> rounded_down(0.9999)
    '0.999'
    """
    return f"{math.floor(number * 1000.0) / 1000.0:.3f}"


def _list(as_json: bool) -> None:
    from dprl.registry import in_every_calibration

    found: dict[str, dict[str, Any]] = {}
    for entry in in_every_calibration():
        about = found.setdefault(entry.name, {"summary": entry.summary, "calibrations": [], "standard_attacks": 0})
        about["calibrations"].append(entry.calibration)
        about["standard_attacks"] += len(entry.load_conformance().attacks)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, about in found.items():
        typer.echo(f"{name}: {about['summary']}")
        typer.echo(
            f"    calibrations: {', '.join(about['calibrations'])}; {about['standard_attacks']} standard attacks"
        )
    typer.echo("dprl audit ALGORITHM attacks one of them, dprl audit --all runs every standard attack.")


def _run_all(trials: int | None, seed: int, confidence: float, out: Path | None, as_json: bool) -> None:
    from dprl.audits.audit_page import page, run_standard_attacks, total_runs

    if out is not None and not out.absolute().parent.is_dir():
        raise DprlError(f"Cannot write {str(out)!r}: there is no such folder.")
    with Progress(total_runs(trials), quiet=as_json, doing="runs") as progress:
        rows = run_standard_attacks(trials=trials, seed=seed, confidence=confidence, progress=progress)
    command = "dprl audit --all" + (f" --trials {trials}" if trials is not None else "")
    command += f" --seed {seed}" if seed else ""
    command += f" --confidence {confidence:g}" if confidence != 0.95 else ""
    if as_json:
        text = json.dumps({"audits": [row.as_dict() for row in rows]}, allow_nan=False)
    else:
        text = page(rows, command)
    if out is None:
        typer.echo(text.rstrip("\n"))
        return
    _write(out, text)


def _run_neighbours(out: Path | None) -> None:
    from dprl.audits.neighbour_cases import cases, run_cases, section, with_section

    if out is not None and not out.is_file():
        raise DprlError(f"There is no page {str(out)!r} for the section: write it with dprl audit --all --out.")
    chosen = list(cases())
    with Progress(len(chosen), quiet=False, doing="cases") as progress:
        text = section(run_cases(chosen, progress))
    if out is None:
        typer.echo(text.rstrip("\n"))
        return
    _write(out, with_section(out.read_text(), text))


def _write(out: Path, text: str) -> None:
    from dprl.accounting.certificate import write_atomically

    try:
        write_atomically(out, text.encode())
    except OSError as error:
        raise DprlError(f"Cannot write {str(out)!r}: {error.strerror or 'the disk refused'}.") from error
    typer.echo(str(out))
