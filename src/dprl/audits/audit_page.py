"""Every algorithm's standard attacks, and the page that says what they found (docs/audits.md)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from dprl.accounting.certificate import versions
from dprl.audits.audit import check_runs, total
from dprl.audits.lower_bound import Audit
from dprl.audits.lower_bound import audit as run_audit
from dprl.protocols import Attack
from dprl.registry import Entry, in_every_calibration

_INTRODUCTION = resources.files("dprl.audits").joinpath("audit_page.md").read_text(encoding="utf-8") + "\n"


@dataclass(frozen=True)
class Row:
    """One standard attack and what it found."""

    entry: Entry
    attack: Attack
    result: Audit

    def as_dict(self) -> dict[str, Any]:
        """Return plain data: the result, and what was attacked."""
        about = {
            "algorithm": self.entry.name,
            "calibration": self.entry.calibration,
            "released": self.attack.released,
            "units": self.attack.units,
            "options": dict(self.attack.options),
        }
        return self.result.as_dict() | about

    @property
    def command(self) -> str:
        """Command that repeats it."""
        attack = self.attack
        parts = [f"dprl audit {self.entry.name} --calibration {self.entry.calibration}"]
        parts += [f"--released {attack.released}"] if attack.released != "all" else []
        parts += [f"--units {attack.units}"] if self.entry.unit != "reward function" else []
        parts += [f"--epsilon {attack.epsilon:g} --delta {attack.delta:g}"]
        for name, value in attack.options.items():
            flag = name in ("steps", "sampling_rate", "unit")
            value = str(value).lower() if isinstance(value, bool) else value
            parts.append(f"--{name.replace('_', '-')} {value}" if flag else f"--set {name}={value}")
        return " ".join([*parts, f"--trials {self.result.bound.trials}"])


def standard_attacks() -> Iterator[tuple[Entry, Attack]]:
    """Yield all attacks that the registry's algorithms state, in every calibration, and those installed beside them."""
    for entry in in_every_calibration():
        for attack in entry.load().attacks:
            yield entry, attack


def total_runs(trials: int | None = None) -> int:
    """Return the number of runs of all standard attacks together, for a progress bar."""
    return sum(total(attack.trials if trials is None else trials) for _, attack in standard_attacks())


def run_standard_attacks(
    *,
    trials: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> list[Row]:
    """Run all standard attacks.

    Args:
        trials: held-out runs on each log, where not as many as each attack states.
        seed, confidence: of every audit.
        progress: called with the number of runs done.
    """
    rows, done = [], 0
    for entry, attack in standard_attacks():
        held_out = attack.trials if trials is None else trials
        check_runs(held_out, seed, confidence)
        result = run_audit(
            entry.load_canary(attack),
            trials=held_out,
            seed=seed,
            confidence=confidence,
            progress=None if progress is None else lambda n, before=done: progress(before + n),
        )
        done += total(held_out)
        rows.append(Row(entry, attack, result))
    return rows


def page(rows: Sequence[Row], command: str) -> str:
    """Return the page in Markdown; ``command`` is what made it."""
    percent = f"{100.0 * rows[0].result.bound.confidence:g}%"
    verified, published = (
        [row.result.violated for row in rows if row.entry.calibration == name] for name in ("verified", "as-published")
    )
    text = _INTRODUCTION.format(
        command=command,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        cores=os.cpu_count(),
        percent=percent,
        false=sum(verified),
        verified=len(verified),
        refuted=sum(published),
        published=len(published),
        bounds=sum(1 if row.result.gaussian is None else 2 for row in rows),
        odds=round(1.0 / (1.0 - rows[0].result.bound.confidence)),
    )
    lines = [
        "| Algorithm | Calibration | Attacked | Seen | Claim | Lower bound | Gaussian bound | Verdict | Trials "
        "| Seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        attack, result = row.attack, row.result
        options = ", ".join(
            f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}"
            for name, value in attack.options.items()
        )
        unit = row.entry.unit
        attacked = f"{attack.units} users" if unit == "user" else f"{attack.units} units"
        attacked = "the reward function" if unit == "reward function" else attacked
        verdict = f"**{result.verdict}**" if result.violated else result.verdict
        lines.append(
            f"| `{row.entry.name}` | {row.entry.calibration.replace('-', ' ')} | {attacked}"
            f"{', ' + options if options else ''} | {attack.released} | {result.claimed_epsilon:g}, {result.delta:g} | "
            f"{_down(result.bound.epsilon_lower)} | "
            f"{'' if result.gaussian is None else _down(result.gaussian.epsilon_lower)} | {verdict} | "
            f"{result.bound.trials:,} | {result.seconds:.0f} |"
        )
    lines += ["", "Claim is epsilon, delta; trials are held-out runs on each of the two logs; seconds are all of it."]
    lines += ["", "## What was attacked", ""]
    for description, names in _grouped((row.result.description, f"`{row.entry.name}`") for row in rows).items():
        lines.append(f"* {', '.join(names)}: {description}.")
    conditions = _grouped((p, row.entry.name) for row in rows for p in row.result.preconditions)
    if conditions:
        lines += ["", "## What the published theorems assume", ""]
        for condition, names in conditions.items():
            holds = "holds" if condition.holds else "does **not** hold"
            lines.append(f"* `{', '.join(names)}`: {condition.statement}; this {holds} in the rows above.")
    lines += ["", "## The same, one at a time", "", "```"]
    lines += [row.command for row in rows]
    return text + "\n".join([*lines, "```"]) + "\n"


def _grouped(pairs: Any) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = {}
    for key, name in pairs:
        if name not in found.setdefault(key, []):
            found[key].append(name)
    return found


def _down(number: float) -> str:
    # never up: what is printed is still a lower bound
    return f"{math.floor(number * 1000.0) / 1000.0:.3f}"
