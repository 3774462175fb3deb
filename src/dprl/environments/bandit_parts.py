"""People of a contextual bandit whose log is in parts.

They are the same, to the last bit, as those of a :class:`~dprl.environments.bandit.Bandit` from one file, but memory
holds only the people who are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dprl.bounds import Bounds
from dprl.data.bandit_file import open_parts, vectors_of
from dprl.data.parts import Parts
from dprl.data.schema import Schema
from dprl.environments.bandit import Cells, answers_to_policy, bandit_bounds, cells_of, facts_of_bandit, rows_to_claim
from dprl.environments.people import Act, Answers, ClaimRows, LoggedPeople
from dprl.protocols import EnvironmentSpec

_ROWS = 1 << 16  # most rows that are converted to numbers at a time
_VISITS = 1 << 14
"""Number of visits, of several blocks, that are read together; more if a batch has many, because these share pages
of the files."""
_PIECES = 4
"""Least number of pieces in which such a batch is read: one is read while the one before is summed."""
_BYTES = 1 << 27
"""Most bytes of the visits that are read together."""


@dataclass(frozen=True)
class PeopleInParts:
    """People by their number in the parts. Other processes get a copy, and read the same folder. Private."""

    facts: EnvironmentSpec
    parts: Parts
    schema: Schema

    def cells(self, users: np.ndarray) -> Cells:
        """Return the cells of the people numbered ``users`` ``(n,)``, none of whom occurs twice; -1 is nobody."""
        order = np.argsort(users, kind="stable")
        order = order[users[order] >= 0]
        wanted = users[order]
        horizon = self.facts.horizon
        found = Cells.empty(len(users), self.facts)
        columns = self._columns()
        lengths = self.parts.rows_of(wanted)
        # groups with similar numbers of rows, none of which splits a person's rows
        for some in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff((np.cumsum(lengths) - 1) // _ROWS)) + 1):
            if not len(some):
                continue
            seen, paid = vectors_of(self.parts.table(wanted[some], columns), self.schema)
            self.parts.release_pages()
            index = np.repeat(np.arange(len(some)), lengths[some])
            visit = np.arange(len(index)) - np.repeat(np.cumsum(lengths[some]) - lengths[some], lengths[some])
            used = visit < horizon
            cells = cells_of(seen[used], paid[used], index[used], visit[used], len(some), self.facts)
            for whole, part in zip(found, cells, strict=True):
                whole[order[some]] = part
        return found

    def answers_in_blocks(
        self, blocks: np.ndarray, places: np.ndarray, act: Act, reader: ThreadPoolExecutor
    ) -> Iterator[Answers]:
        """Yield the answers block by block, of people by number ``(B, size)`` who are in ``places`` ``(B, size)``.

        The thread of ``reader`` reads the next people while the previous ones are in use.
        """
        if not len(blocks):
            return
        horizon, size = self.facts.horizon, blocks.shape[1]
        most = _BYTES // (4 * (self.facts.dimensions + self.facts.actions))
        visits = min(max(_VISITS, blocks.size * horizon // _PIECES), most)
        some = max(1, visits // (size * horizon))
        pieces = [blocks[start : start + some] for start in range(0, len(blocks), some)]

        def read(piece: np.ndarray) -> Cells:
            with np.errstate(all="ignore"):  # NumPy keeps this setting per thread
                return self.cells(piece.ravel())

        following = reader.submit(read, pieces[0])
        for number, piece in enumerate(pieces):
            cells = following.result()
            if number + 1 < len(pieces):
                following = reader.submit(read, pieces[number + 1])
            for block in range(len(piece)):
                one = Cells(*(part[block * size : (block + 1) * size] for part in cells))
                yield answers_to_policy(one, places[number * some + block], act)

    def rows_in_blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield all rows in blocks, as a ledger claims them; the files are checked while they are read."""
        for table in self.parts.columns_in_blocks(self._columns(), check=True):
            yield rows_to_claim(*vectors_of(table, self.schema))

    def _columns(self) -> list[str]:
        return [*self.schema.vectors["observation"], *self.schema.vectors["reward"]]


@dataclass
class BanditInParts(LoggedPeople):
    """Arriving people, in the order of their first visit, from a folder that ``dprl data partition`` made.

    Attributes:
        facts: public facts about the people.
        units: declared number of places for people; see :class:`~dprl.environments.bandit.Bandit`.
        users: the people of the log, by number.
    """

    facts: EnvironmentSpec
    units: int = field()
    users: PeopleInParts = field(repr=False)

    def __post_init__(self) -> None:
        self.people = "named"
        self._numbers: np.ndarray | None = None
        self._reader: ThreadPoolExecutor | None = None

    @classmethod
    def of_folder(cls, folder: str | Path, bounds: Bounds | Mapping[str, Any] | str | Path | None) -> BanditInParts:
        """Return people from a folder, of which only names and types of columns are read now.

        Raises:
            DprlError: a column or a bound is missing or of a wrong kind; the message names it.
        """
        known = bandit_bounds(bounds)
        assert known.actions is not None
        parts, schema = open_parts(Path(folder), len(known.observation), known.actions)
        facts = facts_of_bandit(f"bandit:{parts.folder.name}", known)
        return cls(facts, known.units, PeopleInParts(facts, parts, schema))

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Return the numbers ``(n,)``, in the parts, of the people in ``places`` ``(n,)``; -1 for an empty place.

        Raises:
            DprlError: a file was changed, or the rows of a person are not in one place.
        """
        numbers = self._all()
        found = np.full(len(places), -1, dtype=np.int64)
        there = (places >= 0) & (places < len(numbers))
        found[there] = numbers[places[there]]
        return found

    def load(self, claim: ClaimRows | None = None) -> None:
        """Read the rows as :meth:`Bandit.load <dprl.environments.bandit.Bandit.load>` does.

        Raises:
            DprlError: a file was changed, or the rows of a person are not in one place.
        """
        if claim is None:
            self.users.parts.check()
        else:
            blocks = self.users.rows_in_blocks()
            claim(blocks)
            for _ in blocks:  # blocks that the claim did not read are checked, too
                continue
        self._numbers = self.users.parts.arrivals()

    def count(self) -> int:
        """Count people as :meth:`Bandit.count <dprl.environments.bandit.Bandit.count>` does."""
        return len(self._all())

    def entering(self) -> tuple[str, int]:
        """Return a digest and a count that tell these rows from others; private."""
        return self.users.parts.digest, len(self._all())

    def _all(self) -> np.ndarray:
        if self._numbers is None:
            self.load()
        assert self._numbers is not None
        return self._numbers

    def answers(self, places: np.ndarray, act: Act) -> Answers:
        """Return what the people in ``places`` do."""
        return answers_to_policy(self.users.cells(self.numbers(places)), places, act)

    def answers_in_blocks(self, blocks: np.ndarray, act: Act) -> Iterator[Answers]:
        """Yield what the people in ``blocks`` do, block by block."""
        # one thread for all batches, because each new thread would take memory and keep it
        self._reader = self._reader or ThreadPoolExecutor(1)
        return self.users.answers_in_blocks(
            self.numbers(blocks.ravel()).reshape(blocks.shape), blocks, act, self._reader
        )
