"""Check of somebody else's algorithm by the suite of dprl's own algorithms: it finds faults, and proves nothing.

The check first releases the algorithm through :func:`dprl.evaluate` on simulated neighbouring logs, and compares what
enters its mechanisms with what is declared. Then the attacks that the algorithm's entry names bound its epsilon from
below. Nothing here is private.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dprl.audits.conformance.suite import Case, CaseFindings, with_progress
from dprl.audits.lower_bound import Audit, run_attack
from dprl.engine.algorithm import Algorithm
from dprl.engine.program import ValueFunctionConfig, ValuesConfig
from dprl.errors import DprlError
from dprl.registry import Entry
from dprl.user_code import load_python


@dataclass(frozen=True)
class CheckFindings:
    """Findings about an algorithm.

    Attributes:
        name: name of the algorithm.
        neighbours: findings on neighbouring logs, one for each variant.
        audits: result of each attack.
    """

    name: str
    neighbours: tuple[CaseFindings, ...]
    audits: tuple[Audit, ...]

    @property
    def violations(self) -> list[str]:
        """Sentences about what breaks the claim; empty where nothing was found."""
        found = []
        for variant in self.neighbours:
            found += [f"{variant.setting}: {problem}" for problem in dict.fromkeys(variant.problems)]
            if variant.largest > 1.0 + 1e-9:
                found.append(f"{variant.setting}: one person moves what enters a mechanism {variant.largest:.3g} times")
        found += [f"an attack shows epsilon {a.epsilon_lower:.3g}" for a in self.audits if a.violated]
        return found


def read_algorithm(path: str | Path) -> Entry:
    """Read the file of an algorithm, which ends with ``ALGORITHM = Algorithm(...)``.

    Raises:
        DprlError: there is no such file, it cannot be executed, or it defines no algorithm that evaluates a log.
    """
    module = load_python(Path(path), "algorithm")
    algorithm = getattr(module, "ALGORITHM", None)
    if not isinstance(algorithm, Algorithm):
        raise DprlError(f"The file {str(path)!r} defines no ALGORITHM = dprl.engine.algorithm.Algorithm(...).")
    if not issubclass(algorithm.config, ValueFunctionConfig | ValuesConfig):
        raise DprlError(f"ALGORITHM in {str(path)!r} evaluates no log: nothing else can be checked.")
    return Entry(algorithm.name, module.__name__, "")


def check(
    entry: Entry, trials: int = 20_000, seed: int = 0, progress: Callable[[int], None] | None = None
) -> CheckFindings:
    """Release an algorithm on neighbouring logs, in each of its variants, and attack it.

    Args:
        entry: the algorithm's entry, from the registry or from :func:`read_algorithm`.
        trials: held-out runs of an attack on each of its two logs.
        seed: seed of the attacks' noise.
        progress: called with the number of variants and attacks done so far.

    Raises:
        DprlError: the algorithm's own code raised.
    """
    algorithm = entry.load()
    cases = [Case(entry, setting, "arrays by person", turn) for turn, setting in enumerate(algorithm.settings)]
    parts: list[Callable[[], Any]] = [case.run for case in cases]
    parts += [partial(_attacked, entry, attack, trials, seed) for attack in algorithm.attacks]
    found = [_explained(part) for part in with_progress(parts, progress)]
    return CheckFindings(algorithm.name, tuple(found[: len(cases)]), tuple(found[len(cases) :]))


def _attacked(entry: Entry, attack: Any, trials: int, seed: int) -> Audit:
    return run_attack(entry.load_canary(attack), trials=trials, seed=seed)


def _explained(part: Callable[[], Any]) -> Any:
    """Return the result of a part; report an error of the user's code in one sentence that names the error's place.

    The sentence may quote the error, because no log here is real.
    """
    try:
        return part()
    except DprlError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} ({' '.join(str(error).split())[:300]})"
    raise DprlError(f"The algorithm raised {said}, at {place.filename}:{place.lineno}.")
