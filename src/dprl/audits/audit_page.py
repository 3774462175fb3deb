"""Every algorithm's standard attacks, and the page that says what they found (docs/audits.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dprl.accounting.certificate import versions
from dprl.audits.audit import check_runs, total
from dprl.audits.lower_bound import Audit
from dprl.audits.lower_bound import audit as run_audit
from dprl.protocols import Attack
from dprl.registry import Entry, in_every_calibration
from dprl.report.pages import load_template


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
        """Command that repeats this attack."""
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
    """Yield the standard attacks that each algorithm of the registry states, for every installed calibration."""
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
        trials: held-out runs on each log (default: the number that each attack states).
        seed, confidence: seed of the noise and confidence of the bounds, the same in every audit.
        progress: called with the number of runs done so far.
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
    """Return the page in Markdown; ``command`` is the command that made the page."""
    confidence = rows[0].result.bound.confidence
    kinds = ("verified", "as-published")
    template = load_template("dprl.audits", "audit_page.md.j2")
    text = template.render(
        rows=rows,
        command=command,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        cores=os.cpu_count(),
        percent=f"{100.0 * confidence:g}%",
        odds=round(1.0 / (1.0 - confidence)),
        refuted={kind: [row.result.violated for row in rows if row.entry.calibration == kind] for kind in kinds},
        bounds=sum(1 if row.result.gaussian is None else 2 for row in rows),
        attacked=_grouped((row.result.description, row.entry.name) for row in rows),
        assumed=_grouped((p, row.entry.name) for row in rows for p in row.result.preconditions),
    )
    return text + "\n"


def _grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """Return the names that are paired with each key, in order and without repetition."""
    found: dict[Any, list[str]] = {}
    for key, name in pairs:
        if name not in found.setdefault(key, []):
            found[key].append(name)
    return found
