"""``dprl check``: run on somebody's own algorithm what the suite runs on dprl's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli.running import Progress, rounded_down, show


def check(
    file: Annotated[Path, typer.Argument(help="Python file that ends with ALGORITHM = Algorithm(...).")],
    trials: Annotated[int, typer.Option(help="Runs of an attack on each of its two logs.", min=100)] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the attacks.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look for faults in an algorithm of your own; reads no data, proves nothing.

    It is released on neighbouring logs, record and replay, and attacked. The exit code is 1 where its claim is broken.
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
    show(made, _words, as_json)
    if found.violations:
        raise typer.Exit(1)


def _words(made: dict[str, Any]) -> str:
    lines = [
        f"{n['variant']}: {n['pairs']} pairs of neighbouring logs, at most {n['largest_ratio']:.3f} of what is declared"
        for n in made["neighbours"]
    ]
    lines += [
        f"attack at epsilon {a['claimed_epsilon']:g}: at least {rounded_down(a['epsilon_lower'])} is shown"
        for a in made["audits"]
    ]
    lines += [f"VIOLATED: {violation}." for violation in made["violations"]]
    if not made["violations"]:
        lines.append("Nothing was found. That is no proof: releases of it write statements, and no certificate.")
    return "\n".join(lines)
