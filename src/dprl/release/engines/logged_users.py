"""Ask the people of a log in parts, in this process or by the workers of a Ray cluster.

People are asked in blocks of a size that public facts fix, and each person has coins of their own. A block's sum is an
integer, so the total does not depend on which worker has which blocks. The release draws the noise itself, once, and
sends it to no worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dprl.engine.shards import sum_of
from dprl.engine.unit_source import Included, Source
from dprl.environments.bandit_parts import BanditInParts, PeopleInParts
from dprl.environments.people import People
from dprl.errors import DprlError
from dprl.learning.policy_gradient.people_sources import (
    CompiledPeople,
    PeopleOnHost,
    blocks_of,
    policy_for_people,
    sum_of_answers,
)
from dprl.learning.policy_gradient.trainer import PolicyGradient
from dprl.release.engines.ray_workers import EngineChoice, RayWorkers, open_workers
from dprl.user_code import suppress_warnings


@dataclass(frozen=True)
class UsersTask:
    """Task of every worker: ask people and sum their vectors. It is pickled and sent to other processes."""

    program: PolicyGradient
    users: PeopleInParts

    @cached_property
    def _reader(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    def total(self, state: Any, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return ``(dimension,)`` int64, the sum of the clipped vectors of some users.

        ``blocks`` ``(B, size)`` holds the users' numbers in the log, and ``places`` ``(B, size)`` their places.
        """
        program = self.program
        with suppress_warnings():
            met = self.users.answers_in_blocks(blocks, places, policy_for_people(program, state), self._reader)
            return sum_of_answers(program, 0, program.mechanism, state, blocks.shape[1], met)


@dataclass(frozen=True)
class PeopleOnWorkers(PeopleOnHost):
    """People of a log in parts whom workers ask; a :class:`~dprl.engine.unit_source.Source`."""

    workers: RayWorkers

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: Included) -> np.ndarray:
        """Return the sum of a step; see :class:`~dprl.engine.unit_source.Source`."""
        del stage
        places = blocks_of(program.block_size(mechanism), included)
        blocks = self.people.numbers(places.ravel()).reshape(places.shape)
        count = min(len(self.workers), max(1, len(blocks)))
        shares = zip(np.array_split(blocks, count), np.array_split(places, count), strict=True)
        return sum_of(self.workers.totals(state, list(shares)))


@contextmanager
def open_users_engine(
    where: EngineChoice, people: People, program: PolicyGradient
) -> Iterator[Source | CompiledPeople]:
    """Open the source of a program's people: in compiled code, in this process or on workers. No row is read yet.

    Args:
        where: result of :func:`~dprl.release.engines.engine.check_engine`.

    Raises:
        DprlError: the engine needs a log in parts and exact sums, or the workers cannot be started.
    """
    asked = PeopleOnHost(people, None if program.mechanism.batch is None else program.shape.places)
    if where.engine == "local":
        yield asked if people.simulator is None else CompiledPeople(people.simulator, program.shape)
        return
    if not isinstance(people, BanditInParts):
        raise DprlError(
            f"The engine {where.engine} needs users of a log in parts: make one with `dprl data partition FILE --by "
            "person_id --out FOLDER` and learn from bandit:FOLDER."
        )
    if not program.mechanism.certifies:
        raise DprlError(
            "dp-pg adds up in floating point here, where digits depend on who adds what: leave the engine out."
        )
    with open_workers(UsersTask(program, people.users), where) as workers:
        yield PeopleOnWorkers(people, asked.places, workers)
