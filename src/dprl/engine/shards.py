"""Sums over a log in parts, in bounded memory, by one process or several, with the same digits as for a log in memory.

Every bit of a unit's vector depends on that unit's rows only, and clipped vectors are summed as int64 grid points. So
it does not matter into which blocks and shards the units are cut, or where these are computed. Neither coins nor noise
are drawn here: the caller draws both, passes the coins on, and adds the noise to the sum of all shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.data.trajectories import Trajectories
from dprl.engine.layouts import UnitRows, unit_rows
from dprl.engine.loop import sum_of_rows
from dprl.engine.plan import Plan
from dprl.engine.program import Learned
from dprl.engine.ratios import policy_columns, step_ratios
from dprl.engine.value_query import clipped_total, exact_sum
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT
from dprl.policies.loading import load_policy
from dprl.user_code import suppress_warnings

BLOCK_ROWS = 1 << 16
"""Most rows of several units that are prepared at a time, where their features are few."""
BLOCK_BYTES = 1 << 25
"""Approximate limit on the bytes of a block's rows. Two blocks are in memory at a time: one is summed, one prepared."""
KEPT_BYTES = 1 << 28
"""Approximate limit on the bytes of a shard's rows, up to which they are prepared once and kept."""
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """Everything that a shard needs to know; it is sent unchanged to the processes that sum up shards.

    Attributes:
        plan: plan of the release.
        log: log in parts.
        policies, behavior: what :func:`~dprl.policies.loading.load_policy` takes or gives.
        exact: whether the sums without clipping and noise are also computed, for simulations only.
        kept_bytes, block_rows: see :data:`KEPT_BYTES` and :data:`BLOCK_ROWS`.
    """

    plan: Plan
    log: Log
    policies: tuple[Any, ...]
    behavior: Any = None
    exact: bool = False
    kept_bytes: int = KEPT_BYTES
    block_rows: int = BLOCK_ROWS

    @property
    def parts(self) -> Parts:
        """The log's files."""
        assert isinstance(self.log.source, Parts)
        return self.log.source

    @property
    def row_bytes(self) -> int:
        """Approximate bytes of a row while it is prepared, from public facts."""
        features = 0 if self.plan.features is None else self.plan.features.row_size
        return 8 * features + 24 * len(self.plan.bounds.state) + 96

    @cached_property
    def _shard(self) -> Callable[[int, int], Shard]:
        """Function that gives a shard; the last shard is kept with everything that it has prepared."""
        return lru_cache(1)(partial(Shard, self))

    def begin(self, start: int, stop: int, function: Learned | None = None) -> FirstPass:
        """Run :meth:`Shard.begin` on these units, in the process of a worker."""
        return self._shard(start, stop).begin(function)

    def total(self, stage_and_state: tuple[int, Any], start: int, stop: int, included: bytes) -> np.ndarray:
        """Run :meth:`Shard.total` on these units, of which ``included`` has a bit each."""
        (stage, state), program = stage_and_state, self.plan.program
        assert program is not None
        bits = np.unpackbits(np.frombuffer(included, dtype=np.uint8), count=stop - start).astype(bool)
        return self._shard(start, stop).total(program, stage, program.stages[stage].mechanism, state, bits)


class FirstPass(NamedTuple):
    """Result of a first pass over some units. Private. :func:`combine_shards` adds up the results of blocks or shards.

    Attributes:
        total: ``(dimension,)`` int64, the sum of the value query's clipped vectors; zero where these are computed
            later.
        digest: digest of what policies and bounds make of each unit's rows: the sum of the units' digests modulo 2^128.
        exact: the sums without clipping, in units of 2^-44; empty where they are not asked for.
    """

    total: np.ndarray
    digest: int
    exact: tuple[int, ...] = ()


def combine_shards(passes: Sequence[FirstPass]) -> FirstPass:
    """Return the first pass over all units of these passes, which are of shards or of blocks."""
    exact = tuple(sum(parts) for parts in zip(*(p.exact for p in passes), strict=True))
    return FirstPass(sum_of([p.total for p in passes]), sum(p.digest for p in passes) % (1 << 128), exact)


def sum_of(totals: Sequence[np.ndarray]) -> np.ndarray:
    """Add up int64 totals, each ``(dimension,)``."""
    return np.asarray(np.sum(totals, axis=0, dtype=np.int64))


class Shard:
    """Units ``start`` to ``stop`` of a log in parts. A shard of all units is the source of a release."""

    stability = ADDS_ONE_UNIT

    def __init__(self, task: Task, start: int = 0, stop: int | None = None) -> None:
        self.units = (task.parts.units if stop is None else stop) - start
        self._task, self._start = task, start
        load = lambda policy: load_policy(policy, task.plan.bounds.actions)  # noqa: E731
        self._policies = [load(policy) for policy in task.policies]
        self._behavior: Any = None if task.behavior is None else load(task.behavior)
        # one thread for all steps, because each new thread would take memory and keep it
        self._reader = ThreadPoolExecutor(1)

    def begin(self, function: Learned | None = None) -> FirstPass:
        """Read the rows once, for the sum of the value query and for a digest of what enters the mechanisms.

        Where values are taken around the released value ``function``, a first pass without it gives the digest, and a
        later pass with it gives the sum.
        """
        plan = self._task.plan
        mechanism, known = plan.value_mechanism, function is not None or not plan.around_function
        query = plan.query.around(function)

        def prepared(units: np.ndarray) -> tuple[np.ndarray, int]:
            log = self._taken(units)
            if not known:
                return np.zeros((log.units, mechanism.dimension)), self._digest_of_policies(log)
            vectors = query.unit_vectors(log, self._policies, self._behavior)
            return vectors, _digest(vectors, self._ratios(log), log)

        exact = exact_sum if self._task.exact else lambda vectors: ()
        with suppress_warnings(), closing(self._through(np.arange(self.units), prepared)) as blocks:
            return combine_shards([FirstPass(clipped_total(mechanism, v), digest, exact(v)) for v, digest in blocks])

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: np.ndarray) -> np.ndarray:
        """Return the exact sum over the ``included`` units of this shard, a mask ``(units,)``.

        See :class:`~dprl.engine.unit_source.Source`.
        """
        if self._kept is not None:
            return np.asarray(sum_of_rows(program, stage, mechanism, state, self._kept, included))
        total = np.zeros(mechanism.dimension, dtype=np.int64)
        with suppress_warnings(), closing(self._through(np.flatnonzero(included), self._prepared)) as blocks:
            for block in blocks:
                everybody = np.ones(block.units, dtype=bool)
                # np.asarray waits for the sum, so that no further block is in memory
                total += np.asarray(sum_of_rows(program, stage, mechanism, state, block, everybody))
        return total

    @cached_property
    def _kept(self) -> UnitRows | None:
        """All rows of the shard, prepared once; None where they would take too much memory."""
        rows = int(self._task.parts.rows_of(self._start + np.arange(self.units)).sum())
        if rows * self._task.row_bytes > self._task.kept_bytes:
            return None
        with suppress_warnings():
            return self._prepared(np.arange(self.units))

    def _through(self, units: np.ndarray, prepare: Callable[[np.ndarray], T]) -> Generator[T, None, None]:
        """Yield the prepared blocks of the units; each block is prepared while the previous one is in use."""

        def silent(block: np.ndarray) -> T:
            with np.errstate(all="ignore"):  # NumPy keeps this setting per thread
                return prepare(block)

        following = None
        try:
            for block in self._blocks(units):
                ready, following = following, self._reader.submit(silent, block)
                if ready is not None:
                    yield ready.result()
            if following is not None:
                yield following.result()
        finally:
            if following is not None:  # no thread reads any more after the end
                wait([following])

    def _blocks(self, units: np.ndarray) -> Iterator[np.ndarray]:
        """Split the units ``(k,)`` into blocks with similar numbers of rows; without units there is one empty block."""
        room = min(self._task.block_rows, max(1 << 10, BLOCK_BYTES // self._task.row_bytes))
        ends = np.cumsum(self._task.parts.rows_of(self._start + units))
        cuts = np.flatnonzero(np.diff((ends - 1) // room)) + 1
        yield from np.split(units, cuts)

    def _taken(self, units: np.ndarray) -> Trajectories:
        found = self._task.log.take(self._start + units)
        self._task.parts.release_pages()
        if found.units != len(units):
            raise RuntimeError("A unit of a log in parts has no row of its own.")
        return found

    def _ratios(self, log: Trajectories) -> np.ndarray | None:
        """Return the ratios ``(N,)`` of the first target policy if its value function is learned, else None."""
        return None if self._task.plan.program is None else step_ratios(self._policies[0], log, self._behavior)

    def _digest_of_policies(self, log: Trajectories) -> int:
        """Return the digest of what the policies do, in order; with the rows and the function it fixes the query."""
        columns = [policy_columns(policy, log, self._behavior) for policy in self._policies]
        return _digest(np.zeros((log.units, 0)), np.hstack(columns), log)

    def _prepared(self, units: np.ndarray) -> UnitRows:
        log = self._taken(units)
        ratios = self._ratios(log)
        assert ratios is not None
        plan = self._task.plan
        return unit_rows(plan.rows(log, ratios), plan.bounds.units)


def _digest(vectors: np.ndarray, columns: np.ndarray | None, log: Trajectories) -> int:
    """Add up the digests of the units, each of which is made from the unit's vector and its rows of ``columns``.

    The sum is the same in any order and number of shards.
    """
    offsets = log.episode_offsets[log.unit_offsets]
    own, steps, width = memoryview(vectors.tobytes()), memoryview(b""), vectors.shape[1] * 8
    if columns is not None:
        steps = memoryview(columns.tobytes())
        offsets = offsets * columns[:1].nbytes
    total = 0
    for unit, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        digest = hashlib.blake2b(own[unit * width : (unit + 1) * width], digest_size=16)
        digest.update(steps[start:stop])
        total += int.from_bytes(digest.digest(), "big")
    return total
