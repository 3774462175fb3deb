"""Where the users of a log in parts are asked: in this process, or by the workers of a Ray cluster.

Users are met in blocks of a size that public facts fix, each user with coins of their own, and a block's sum is an
integer: so it does not matter who has which blocks. The noise is drawn by the release, once, and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl.environments.bandit import Cells, answered
from dprl.environments.bandit_parts import BanditInParts, UsersInParts
from dprl.environments.user_stream import Act, Answers
from dprl.errors import DprlError
from dprl.evaluation.streamed import silence, sum_of
from dprl.learning.policy_gradient.estimator import Rates, Shape
from dprl.learning.policy_gradient.on_host import Asked, Meeting, blocks_of, sum_of_blocks
from dprl.release.engines.ray_workers import RayWorkers, open_workers

_VISITS = 1 << 14
"""About as many, of several blocks, are read together; more where a batch has many, for they share pages of the files,
"""
_PIECES = 4
"""but not in fewer pieces, of which one is read while the one before is summed,"""
_BYTES = 1 << 27
"""and not more than this."""


@dataclass(frozen=True)
class UsersTask:
    """What is asked of every worker; it goes to other processes as it is."""

    shape: Shape
    rates: Rates
    mechanism: Any
    users: UsersInParts

    def share(self) -> UsersShare:
        return UsersShare(self)


class UsersShare:
    """Asks users for a worker, or for this process."""

    def __init__(self, task: UsersTask) -> None:
        self._task = task
        # one thread for all batches: each new one would take memory of its own, and keep it
        self._aside = ThreadPoolExecutor(1)

    def total(self, meeting: Meeting, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        """``(dimension,)`` int64: the sum over ``blocks`` ``(B, size)`` of users' numbers, who stand in ``places``."""
        task, total = self._task, np.zeros(self._task.mechanism.dimension, dtype=np.int64)
        if not len(blocks):
            return total
        facts, horizon = task.users.facts, task.shape.horizon
        most = _BYTES // (4 * (facts.dimensions + facts.actions))
        visits = min(max(_VISITS, blocks.size * horizon // _PIECES), most)
        some = max(1, visits // (blocks.shape[1] * horizon))
        pieces = [blocks[start : start + some] for start in range(0, len(blocks), some)]

        def read(piece: np.ndarray) -> Any:
            with np.errstate(all="ignore"):  # belongs to the thread
                return task.users.cells(piece.ravel())

        with silence():
            following = self._aside.submit(read, pieces[0])
            for number, piece in enumerate(pieces):
                cells = following.result()
                if number + 1 < len(pieces):
                    following = self._aside.submit(read, pieces[number + 1])
                here = places[number * some :][: len(piece)]
                asked = Asked(task.shape, task.rates, task.mechanism, _Read(cells, here.ravel()))
                total = total + sum_of_blocks(asked, meeting, np.arange(piece.size).reshape(piece.shape))
        return total


@dataclass(frozen=True)
class _Read:
    """Users whose ``cells`` were read, in the order of their ``places`` ``(n,)``; asked by their number in it."""

    cells: Cells
    places: np.ndarray

    def answers(self, users: np.ndarray, act: Act) -> Answers:
        return answered(self.cells.of(users), self.places[users], act)


class UsersOnEngine:
    """:class:`~dprl.learning.policy_gradient.on_host.LoggedUsers` of a log in parts."""

    def __init__(self, task: UsersTask, source: BanditInParts, workers: RayWorkers | None) -> None:
        self._task, self._source, self._workers = task, source, workers
        self._here = task.share()

    def total(self, meeting: Meeting, places: np.ndarray) -> np.ndarray:
        task, workers = self._task, self._workers
        where = blocks_of(task.shape, task.mechanism, places)
        blocks = self._source.numbers(where.ravel()).reshape(where.shape)
        if workers is None:
            return self._here.total(meeting, blocks, where)
        count = min(len(workers), max(1, len(blocks)))
        shares = zip(np.array_split(blocks, count), np.array_split(where, count), strict=True)
        return sum_of(workers.totals(meeting, list(shares)))

    def count(self) -> int:
        return self._source.count()


@contextmanager
def open_users_engine(
    engine: str,
    source: Any,
    shape: Shape,
    rates: Rates,
    mechanism: Any,
    *,
    shards: int | None = None,
    address: str | None = None,
) -> Iterator[Any]:
    """Who is asked in place of ``source``: itself, if its users are not in parts. No row is read yet.

    Args:
        engine: what :func:`~dprl.release.engines.engine.check_engine` gave.
        shards: number of workers; by default one for each processor.
        address: of a Ray cluster that runs; by default one is started on this machine, for this release alone.

    Raises:
        DprlError: the engine needs a log in parts and exact sums, or the workers cannot be started.
    """
    if not isinstance(source, BanditInParts):
        if engine != "local":
            raise DprlError(
                f"The engine {engine} needs users of a log in parts: make one with `dprl data partition FILE --by "
                "person_id --out FOLDER` and learn from bandit:FOLDER."
            )
        yield source
        return
    task = UsersTask(shape, rates, mechanism, source.users)
    if engine == "local":
        yield UsersOnEngine(task, source, None)
        return
    if not mechanism.certifies:
        raise DprlError(
            "dp-pg adds up in floating point here, where digits depend on who adds what: leave the engine out."
        )
    with open_workers(lambda dumps: dumps(task), shards, address) as workers:
        yield UsersOnEngine(task, source, workers)
