"""Common part of the audits of all algorithms: a suite for each, and its releases of neighbouring inputs.

A suite is made from an algorithm's entry. It says which logs, sets of people or reward functions are neighbours, how
each of them is released through the public API, and how the algorithm is attacked. A case releases neighbours one after
the other and compares how far one unit moves what enters a mechanism. The table of findings stands in docs/audits.md.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.record_replay import Call, Recorder, compare
from dprl.engine.algorithm import Algorithm
from dprl.errors import DprlError
from dprl.protocols import Attack, Canary
from dprl.registry import Entry, attackable_entries
from dprl.report.pages import load_template

T = TypeVar("T")
HEADING = "## What one unit may move"


@dataclass(frozen=True)
class Neighbour:
    """An input that differs from another one in what is protected.

    Attributes:
        name: how the input differs, in words.
        call: the call that releases the input.
        missing: place, among all people, of the person whom the input lacks.
        covered: whether the relation covers the pair; if not, the release may be refused.
        moves: whether the difference must show in what enters a mechanism.
    """

    name: str
    call: Call
    missing: int | None = None
    covered: bool = True
    moves: bool = False


@dataclass(frozen=True)
class Group:
    """One input and its neighbours.

    Attributes:
        call: the call that releases the input; it runs before those of the neighbours.
        neighbours: neighbours of the input.
        missing: place, among all people, of the person whom the input lacks.
    """

    call: Call
    neighbours: Iterable[Neighbour]
    missing: int | None = None


@dataclass(frozen=True)
class Suite:
    """The audits of one algorithm: how it is planned, released on neighbouring inputs, and attacked."""

    algorithm: Algorithm

    def config(self, setting: str) -> Any:
        """Return the options of a setting."""
        return self.algorithm.settings[setting].config

    def plan(self, setting: str) -> Any:
        """Return the plan of a release."""
        raise NotImplementedError

    def relation(self, setting: str) -> str:
        """Return the neighbouring relation in words."""
        raise NotImplementedError

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return the names of the kinds of input that a release of this setting may read."""
        raise NotImplementedError

    def neighbours(self, setting: str, source: str, folder: Path, turn: int) -> Iterator[Group]:
        """Yield inputs with their neighbours.

        Args:
            setting: setting of the algorithm.
            source: one of :meth:`sources`.
            folder: folder for files.
            turn: number that selects the pairs; another number makes other pairs.
        """
        raise NotImplementedError

    def canary(self, attack: Attack) -> Canary:
        """Return the strongest attack known, with the arguments of ``attack``.

        The attack's options may name a ``unit``, the privacy unit by which the pair of logs is read from columns.
        Without a unit the pair is made as a program sees it.

        Raises:
            DprlError: an option does not belong to the algorithm, or means nothing to it.
        """
        if attack.released not in ("all", "last"):
            raise DprlError("An audit looks at all that is released, or at the last iterate: say 'all' or 'last'.")
        asked: dict[str, Any] = {"units": attack.units, "released": attack.released, "unit": None, **attack.options}
        return self.attack(asked | {"budget": Budget(attack.epsilon, attack.delta)})

    def attack(self, asked: dict[str, Any]) -> Canary:
        """Return the attack that the entry names."""
        return resolve_name(self.algorithm.canary)(self.algorithm.config, **asked)


def handed_out(release: Any, **arrays: Any) -> dict[str, np.ndarray]:
    """Return all that a release hands out: ``arrays``, and its records as text without their date and their log."""
    found = {name: np.asarray(value) for name, value in arrays.items()}
    for name in ("estimate", "training", "certificate"):
        if record := getattr(release, name, None):
            stated = {n: v for n, v in record.items() if n not in ("created", "log")}
            found[name] = np.frombuffer(json.dumps(stated, sort_keys=True, default=str).encode(), np.uint8)
    return found


# --- what is found ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaseFindings:
    """Findings on the pairs of neighbours of one case.

    Attributes:
        algorithm: name of the algorithm.
        setting: variant of the algorithm.
        relation: the neighbouring relation, in words.
        source: kind of input that was read.
        pairs: number of pairs that were compared.
        largest: largest distance between what entered a mechanism on two neighbours, over the declared sensitivity. It
            must be at most 1.
        outside: what happened to each pair that the relation does not cover.
        problems: sentences about differences that must not be, each with its pair; empty where there are none.
    """

    algorithm: str
    setting: str
    relation: str
    source: str
    pairs: int
    largest: float
    outside: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One variant of an algorithm and one source of inputs.

    Attributes:
        entry: entry of the algorithm.
        setting: variant of the algorithm.
        source: kind of input that is read: one of the suite's ``sources``, or one that workers of ``ray`` read.
        turn: number that selects the pairs; another number makes other pairs, see
            :func:`~dprl.audits.people.pairs_of`.
        one_in: an input is compared with its first two neighbours, and with one in so many of its other neighbours.
    """

    entry: Entry
    setting: str
    source: str
    turn: int = 0
    one_in: int = 1

    def run(self, folder: Path | None = None) -> CaseFindings:
        """Release all pairs of neighbours and compare what enters the mechanisms.

        Files go to ``folder``, which must be empty; the default is a temporary folder.
        """
        if folder is None:
            with tempfile.TemporaryDirectory(prefix="dprl-neighbours-") as made:
                return self.run(Path(made))
        suite, pairs, largest = self.entry.load_conformance(), 0, 0.0
        outside, problems = list[str](), list[str]()
        for number, group in enumerate(suite.neighbours(self.setting, self.source, folder, self.turn)):
            recorder = Recorder()
            first = recorder.record(group.call, group.missing)
            for place, neighbour in enumerate(group.neighbours):
                if place > 1 and (place + number) % self.one_in:
                    continue
                try:
                    found = compare(first, recorder.record(neighbour.call, neighbour.missing))
                except DprlError:
                    if neighbour.covered:
                        raise
                    outside.append(f"{neighbour.name}: refused")
                    continue
                if not neighbour.covered:
                    outside.append(f"{neighbour.name}: not covered ({found.largest:.1f})")
                    continue
                pairs, largest = pairs + 1, max(largest, found.largest)
                problems += [f"{neighbour.name}: {problem}" for problem in found.problems]
                if neighbour.moves and found.largest == 0.0:
                    problems.append(f"{neighbour.name}: what was asked is not the release's own")
        what = self.entry.name, self.setting, suite.relation(self.setting), self.source
        return CaseFindings(*what, pairs, largest, tuple(outside), tuple(problems))


def cases() -> Iterator[Case]:
    """Yield the cases of every algorithm of the registry: each setting with each source. Only the tests try ray."""
    turn = 0
    for entry in attackable_entries().values():
        suite = entry.load_conformance()
        for setting in suite.algorithm.settings:
            for source in suite.sources(setting):
                yield Case(entry, setting, source, turn)
                turn += 1


def with_progress(parts: Iterable[T], progress: Callable[[int], None] | None) -> Iterator[T]:
    """Yield the parts of some work; after each one, call ``progress`` with the number of parts that are done."""
    for number, part in enumerate(parts, 1):
        yield part
        if progress is not None:
            progress(number)


def section(found: Sequence[CaseFindings]) -> str:
    """Return the table in Markdown, under its heading: one row for each variant and relation."""
    rows: dict[tuple[str, str, str], list[CaseFindings]] = {}
    for one in found:
        rows.setdefault((one.algorithm, one.setting, one.relation), []).append(one)
    problems = [f"`{one.algorithm}`, {one.setting}, {one.source}: {p}." for one in found for p in one.problems]
    template = load_template("dprl.audits", "neighbours.md.j2")
    return template.render(heading=HEADING, rows=rows, problems=dict.fromkeys(problems))


def with_section(page: str, text: str) -> str:
    """Return the page with the section ``text`` at its end, in place of the section that the page had."""
    return page.split(HEADING)[0].rstrip("\n") + "\n\n" + text
