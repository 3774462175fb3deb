"""What the suite runs on dprl's own algorithms, on somebody else's: it finds faults, and proves nothing.

The algorithm is released through :func:`dprl.evaluate` on simulated neighbouring logs and what enters its mechanisms is
compared with what is declared; then the attacks that its entry names bound its epsilon from below. Nothing here is
private.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl.audits.log_neighbours import Found, log_neighbours
from dprl.audits.lower_bound import Audit, audit
from dprl.engine.algorithm import Algorithm
from dprl.engine.program import ValueFunctionConfig
from dprl.errors import DprlError
from dprl.registry import Entry
from dprl.user_code import load_python


@dataclass(frozen=True)
class FileEntry(Entry):
    """The entry of an algorithm that stands in a user's file, and nowhere in the registry."""

    algorithm: Algorithm | None = None

    def load(self) -> Algorithm:
        """Return what the file says of it."""
        assert self.algorithm is not None
        return self.algorithm


@dataclass(frozen=True)
class Checked:
    """What was found out about an algorithm.

    Attributes:
        name: the algorithm's.
        neighbours: of each variant, what neighbouring logs came to.
        audits: of each attack, what it showed.
    """

    name: str
    neighbours: tuple[Found, ...]
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
    if not issubclass(algorithm.config, ValueFunctionConfig):
        raise DprlError(f"ALGORITHM in {str(path)!r} learns no value function from a log: nothing else can be checked.")
    return FileEntry(algorithm.name, module.__name__, "", "unit of the log", algorithm=algorithm)


def check(entry: Entry, trials: int = 20_000, seed: int = 0, progress: Callable[[int], None] | None = None) -> Checked:
    """Release the algorithm on neighbouring logs, in each of its variants, and attack it.

    Args:
        entry: of the registry, or :func:`read_algorithm`'s.
        trials: held-out runs of an attack on each of its two logs.
        seed: of the attacks.
        progress: called with the number of variants and attacks done.

    Raises:
        DprlError: the algorithm's own code raised.
    """
    algorithm = entry.load()
    neighbours, audits = list[Found](), list[Audit]()
    for part in _parts(entry, algorithm, trials, seed):
        found = _explained(part)
        if isinstance(found, Found):
            neighbours.append(found)
        else:
            audits.append(found)
        if progress is not None:
            progress(len(neighbours) + len(audits))
    return Checked(algorithm.name, tuple(neighbours), tuple(audits))


def _parts(entry: Entry, algorithm: Algorithm, trials: int, seed: int) -> Iterator[Callable[[], Any]]:
    for turn, setting in enumerate(algorithm.settings):

        def compared(setting: str = setting, turn: int = turn) -> Found:
            with tempfile.TemporaryDirectory(prefix="dprl-check-") as folder:
                return log_neighbours(entry, setting, Path(folder), turn=turn)

        yield compared
    for attack in algorithm.attacks:
        yield lambda attack=attack: audit(entry.load_canary(attack), trials=trials, seed=seed)


def _explained(part: Callable[[], Any]) -> Any:
    """What a part gives; whatever the user's code raises is one sentence with its place: these logs are nobody's."""
    try:
        return part()
    except DprlError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} ({' '.join(str(error).split())[:300]})"
    raise DprlError(f"The algorithm raised {said}, at {place.filename}:{place.lineno}.")
