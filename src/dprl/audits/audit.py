"""The front door of the audits: attack one algorithm as asked, or all algorithms by their standard attacks.

No data are read: the worst-case pair of logs is made up, and the algorithm's own code runs on both. What the standard
attacks find becomes the page docs/audits.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dprl.accounting.budget import Budget
from dprl.accounting.certificate import versions
from dprl.audits.lower_bound import Audit, run_attack
from dprl.config import Config
from dprl.entry_points import VERIFIED
from dprl.errors import DprlError, Mistakes, require
from dprl.protocols import Attack, Canary
from dprl.registry import Entry, attackable_entries, find_audited, in_every_calibration
from dprl.report.pages import load_template

TRIALS = 400_000
_FEWEST, _MOST = 100, 10**8


def audit(
    algorithm: Config | str,
    budget: Budget,
    *,
    calibration: str | None = None,
    units: int = 200,
    unit: str | None = None,
    released: str = "all",
    trials: int = TRIALS,
    selection_trials: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Attack an algorithm and bound its epsilon from below, whatever it claims.

    Args:
        algorithm: the configuration to attack, or an algorithm's name, which stands for its default options.
        budget: the epsilon and delta that the algorithm claims.
        calibration: calibration of an algorithm given by name (default: ``verified``). A configuration with another
            calibration states it itself.
        units: declared number of units; leave it out where the unit is the reward function.
        unit: privacy unit (``transition``, ``trajectory`` or ``person``) by which the pair of logs is read from
            columns; without it the pair is made as a program sees it.
        released: what the attacker sees: ``all``, or only the ``last`` iterate.
        trials: held-out runs on each of the two logs.
        selection_trials: further runs on each log, on which the attack's threshold is chosen (default: a quarter of
            ``trials``).
        seed: seed of all noise; the same seed gives the same answer.
        confidence: probability with which each bound holds.
        progress: called with the number of runs done so far, out of ``2 (trials + selection_trials)``.

    Returns:
        The bounds (``epsilon_lower``, ``gaussian``), the claim and the verdict. A claim that is not violated is not
        thereby proved.

    Raises:
        DprlError: an option does not belong to the algorithm or means nothing to it, or no noise meets the claim.
    """
    check_runs(trials, seed, confidence, selection_trials)
    asked = {} if unit is None else {"unit": unit}
    attack = Attack(units=units, epsilon=budget.epsilon, delta=budget.delta, released=released, options=asked)
    canary = canary_of(algorithm, attack, calibration)
    return run_attack(
        canary, trials=trials, seed=seed, confidence=confidence, selection_trials=selection_trials, progress=progress
    )


def check_runs(trials: int, seed: int, confidence: float, selection_trials: int | None = None) -> None:
    """Check the numbers of an audit; raise one error that lists all that are out of range."""
    mistakes = Mistakes()
    for name, value, least, most in (
        ("trials", trials, _FEWEST, _MOST),
        ("selection_trials", _FEWEST if selection_trials is None else selection_trials, 1, _MOST),
        ("seed", seed, 0, 2**31 - 1),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            mistakes.add(f"audit: {name} must be a whole number from {least} to {most}.")
    if not (isinstance(confidence, int | float) and 0.5 < confidence < 1.0):
        mistakes.add("audit: confidence must be above 0.5 and below 1.")
    mistakes.check()


def usual_trials(name: str, calibration: str | None = None) -> int:
    """Return the largest number of held-out runs of an algorithm's standard attacks, but at most ``TRIALS``."""
    attacks = find_audited(name, calibration or VERIFIED).load().attacks
    return min(TRIALS, max((attack.trials for attack in attacks), default=TRIALS))


def runs_of_audit(trials: int) -> int:
    """Return the number of all runs of an audit with ``trials`` held-out runs on each log, for a progress bar."""
    return 2 * (trials + max(trials // 4, 1))


def canary_of(algorithm: Config | str, attack: Attack, calibration: str | None = None) -> Canary:
    """Return the worst-case pair on which ``algorithm`` is attacked.

    The options of a configuration are added to the attack's options.
    """
    if isinstance(algorithm, str):
        name, stated, options = algorithm, VERIFIED, dict[str, Any]()
    else:
        name, there = getattr(algorithm, "algorithm", ""), attackable_entries()
        if name not in there or not isinstance(algorithm, there[name].load_config()):
            raise DprlError(f"An audit takes a configuration or a name of an algorithm; there are {', '.join(there)}.")
        stated, options = getattr(algorithm, "calibration", VERIFIED), changed_options(algorithm)
        options.pop("calibration", None)
    unclear = stated != VERIFIED and calibration not in (None, stated)
    require(not unclear, f"The configuration says calibration = {stated!r} itself: leave out the other.")
    return find_audited(name, calibration or stated).load_canary(replace(attack, options={**options, **attack.options}))


def changed_options(config: Config) -> dict[str, Any]:
    """Return the options that differ from the algorithm's defaults."""
    defaults, options = type(config)(), {name: getattr(config, name) for name in config.options()}
    return {name: value for name, value in options.items() if value != getattr(defaults, name)}


# --- the standard attacks of all algorithms ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditRow:
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


def runs_of_standard_attacks(trials: int | None = None) -> int:
    """Return the number of runs of all standard attacks together, for a progress bar."""
    return sum(runs_of_audit(attack.trials if trials is None else trials) for _, attack in standard_attacks())


def run_standard_attacks(
    *,
    trials: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> list[AuditRow]:
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
        result = run_attack(
            entry.load_canary(attack),
            trials=held_out,
            seed=seed,
            confidence=confidence,
            progress=None if progress is None else lambda n, before=done: progress(before + n),
        )
        done += runs_of_audit(held_out)
        rows.append(AuditRow(entry, attack, result))
    return rows


def page(rows: Sequence[AuditRow], command: str) -> str:
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
