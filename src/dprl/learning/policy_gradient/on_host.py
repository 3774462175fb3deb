"""Learning from users outside of JAX: who come one after the other, or stand in a log and can be asked in any order.

Users of a log are met in blocks of a size that public facts fix, each user with coins of their own: so the sum of a
batch is the same integer whoever asks them, in whatever order, and wherever the blocks are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from dprl import x64 as x64
from dprl.engine.devices import all_reduced
from dprl.learning.policy_gradient import one_step
from dprl.learning.policy_gradient.estimator import Rates, Shape, Trajectory
from dprl.learning.policy_gradient.trainer import Known, State, block_total, init, learn_step, mesh_of
from dprl.learning.policy_gradient.users import Acting
from dprl.mechanisms.action_coins import ActionCoins, BatchCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import NO_JOURNAL, Journal

NOBODY = -1
"""The place of nobody: a block is filled up with it."""
_NUMBERS, _MOST = 2**16, 2048  # of a block's vectors and visits; users of a block
Progress = Callable[[int], None]


class Meeting(NamedTuple):
    """What the users of one batch meet: released quantities, and the coins of their actions."""

    theta: Any  # (d,) float32
    baseline: Any  # () float32
    coins: BatchCoins


class LoggedUsers(Protocol):
    """Users who stand in a log, wherever that is; and :meth:`count` where the log is read whole."""

    def count(self) -> int:
        """How many people are in the log, however many are declared. Private."""
        ...

    def total(self, meeting: Meeting, places: np.ndarray) -> np.ndarray:
        """``(dimension,)``: the exact sum of the clipped vectors of the users in ``places`` ``(n,)``. Private."""
        ...


@dataclass(frozen=True)
class Asked:
    """Users of a log that this process asks.

    Attributes:
        mechanism: what clips and sums.
        source: ``answers(places, act)`` gives the trajectories of the users in ``places`` ``(n,)``, of whom some may be
            :data:`NOBODY`, as arrays ``(n, ...)`` in the order of :class:`Trajectory`; ``act`` is an
            :class:`~dprl.learning.policy_gradient.users.Acting`. A length of 0 is a place that stayed empty.
            ``count()`` is how many people there are in all.
    """

    shape: Shape
    rates: Rates
    mechanism: Any
    source: Any

    def total(self, meeting: Meeting, places: np.ndarray) -> np.ndarray:
        """See :class:`LoggedUsers`."""
        return sum_of_blocks(self, meeting, blocks_of(self.shape, self.mechanism, places))

    def count(self) -> int:
        """See :class:`LoggedUsers`."""
        return self.source.count()


def blocks_of(shape: Shape, mechanism: Any, places: np.ndarray) -> np.ndarray:
    """``(B, size)`` the ``places`` ``(n,)`` in order, filled up with :data:`NOBODY`; the size is public."""
    size = _block(shape, mechanism)
    filled = np.full(-(-len(places) // size) * size, NOBODY, dtype=np.int64)
    filled[: len(places)] = places
    return filled.reshape(-1, size)


def _block(shape: Shape, mechanism: Any) -> int:
    """Users of a block: of about as many numbers as stay in the cache, from public facts alone."""
    if one_step.fits(shape, mechanism):
        most = one_step.BLOCK  # without their vectors far more users fit into memory
    else:
        of_one = shape.interactions * shape.horizon * len(shape.policy.observation) + shape.dimension
        most = max(shape.block, min(_MOST, _NUMBERS // of_one))
    if mechanism.participation != "once each":  # members are drawn: there may be any number of them
        return most if shape.batch > shape.block else shape.block
    return -(-shape.batch // -(-shape.batch // most))


def sum_of_blocks(asked: Asked, meeting: Meeting, blocks: np.ndarray) -> np.ndarray:
    """``(dimension,)``: the sum over the places in ``blocks`` ``(B, size)``, some of the batch's."""
    shape, mechanism = asked.shape, asked.mechanism
    total = np.zeros(mechanism.dimension, np.int64)
    mesh = mesh_of(mechanism) if -(-shape.batch // blocks.shape[1]) > 1 else None
    together = 1 if mesh is None else mesh.size
    act = Acting(shape.policy, meeting.theta, meeting.coins)
    for start in range(0, len(blocks), together):
        met = [
            Trajectory(*(np.asarray(part) for part in asked.source.answers(places, act)))
            for places in blocks[start : start + together]
        ]
        size = together * blocks.shape[1]
        rows = met[0] if together == 1 else jax.tree.map(lambda *x, n=size: _padded(np.concatenate(x), n), *met)
        known = meeting.theta, meeting.baseline
        total = total + np.asarray(_clipped(shape, asked.rates, mechanism, *known, rows, mesh))
    return total


def run_on_host(
    shape: Shape,
    source: Any,
    rates: Rates,
    user_noise: Any,
    mechanism: Any,
    coins: ActionCoins,
    progress: Progress | None = None,
    journal: Journal = NO_JOURNAL,
) -> tuple[State, np.ndarray]:
    """A whole run, of which each user sees one batch: :func:`~dprl.learning.policy_gradient.trainer.run`.

    Args:
        source: :class:`LoggedUsers`, a source of them as :class:`Asked` has it, or users who come one after the other:
            ``batch(first, count, act)`` gives the trajectories of those in ``count`` places from ``first``.
        coins: of initial weights and of actions.
        user_noise: that of ``mechanism`` in order.
        progress: called with the number of places done.
        journal: of the noised sums.

    Returns:
        As :func:`~dprl.learning.policy_gradient.trainer.run`.
    """
    asked = _asked(shape, source, rates, mechanism)

    def answer(step: int, meeting: Meeting) -> Any:
        def noised() -> Any:
            total = asked.total(meeting, np.arange(step * shape.batch, _end(shape, step)))
            return mechanism.noised(jax.numpy.asarray(total), jax.numpy.asarray(user_noise.draw(step)))

        return mechanism.scaled(jax.numpy.asarray(journal.step(step, mechanism.dimension, noised)))

    return _run(shape, rates, answer, coins, lambda step: _end(shape, step), progress)


def run_resampled(
    shape: Shape,
    source: Any,
    rates: Rates,
    mechanism: GaussianSum,
    noise: Any,
    coins: ActionCoins,
    progress: Progress | None = None,
    journal: Journal = NO_JOURNAL,
) -> tuple[State, np.ndarray]:
    """A whole run of users who come back: every batch is a secret Poisson sample of all, and each batch is paid for.

    Privacy unit: a person. Relation: add or remove one. Released: every noised sum, hence every iterate. The event is
    that of :class:`~dprl.mechanisms.gaussian_sum.GaussianSum` (docs/proofs/clipped-gaussian-sum.md).

    Everybody in the log has a coin in every step, however many they are, and ``shape.users`` is a normaliser: in a log
    that was cut at a number of users, who is added would push somebody out, and two people would change.

    Args:
        shape: ``batch`` is the expected number of members of a log of ``users``, by which sums are divided.
        source: as of :func:`run_on_host`, but for users who come one after the other.
        noise: of the coins that say who is in a batch, and of the sums.
        coins: of initial weights and of actions.
        progress: called with the number of batches done.
        journal: of the noised sums.
    """
    asked = _asked(shape, source, rates, mechanism)

    def answer(step: int, meeting: Meeting) -> Any:
        def noised() -> Any:
            places = np.flatnonzero(np.asarray(mechanism.coins(noise, step, asked.count())))
            total = jax.numpy.asarray(asked.total(meeting, places))
            return mechanism.noised(total, jax.numpy.asarray(mechanism.draw(noise, step)))

        return mechanism.scaled(jax.numpy.asarray(journal.step(step, mechanism.dimension, noised)))

    return _run(shape, rates, answer, coins, lambda step: step + 1, progress)


def _run(
    shape: Shape,
    rates: Rates,
    answer: Callable[[int, Meeting], Any],
    coins: ActionCoins,
    done: Callable[[int], int],
    progress: Progress | None,
) -> tuple[State, np.ndarray]:
    """``answer`` gives the noised sum of a step; ``done`` what is said after it."""
    state = init(shape, coins)
    history = [np.asarray(state.theta)]
    for step in range(shape.steps):
        meeting = Meeting(history[-1], np.asarray(state.baseline), coins.of_batch(step))
        state = _learned(shape, rates, state, answer(step, meeting))
        history.append(np.asarray(state.theta))
        if progress is not None:
            progress(done(step))
    return state, np.stack(history)


def _end(shape: Shape, step: int) -> int:
    """The place after the last one of a batch."""
    return min((step + 1) * shape.batch, shape.users)


def _asked(shape: Shape, source: Any, rates: Rates, mechanism: Any) -> Any:
    if hasattr(source, "total"):
        return source
    return (Asked if hasattr(source, "answers") else _Stream)(shape, rates, mechanism, source)


class _Stream(Asked):
    """Users who come one after the other: a batch is met as a whole, once, and in order."""

    def total(self, meeting: Meeting, places: np.ndarray) -> np.ndarray:
        shape, mechanism = self.shape, self.mechanism
        block, mesh = _block(shape, mechanism), None
        if shape.batch > block:
            mesh = mesh_of(mechanism)
        together = block * (1 if mesh is None else mesh.size)
        act = Acting(shape.policy, meeting.theta, meeting.coins)
        rows = Trajectory(*(np.asarray(part) for part in self.source.batch(int(places[0]), len(places), act)))
        total = np.zeros(mechanism.dimension, np.int64)
        for start in range(0, len(places), together):
            here = jax.tree.map(lambda x, start=start: _padded(x[start : start + together], together), rows)
            known = meeting.theta, meeting.baseline
            total = total + np.asarray(_clipped(shape, self.rates, mechanism, *known, here, mesh))
        return total


@partial(jax.jit, static_argnums=(0, 2, 6))
def _clipped(
    shape: Shape, rates: Rates, mechanism: Any, theta: Any, baseline: Any, rows: Trajectory, mesh: Any = None
) -> Any:
    def total_of(same: Any, rows: Trajectory) -> Any:
        rates, known = same
        answered = rows.length.reshape(len(rows.length), -1).sum(-1) > 0
        return block_total(shape, rates, mechanism, known, rows, answered)

    same = rates, Known(theta, baseline)
    return total_of(same, rows) if mesh is None else all_reduced(mesh, total_of, same, rows)


_learned = jax.jit(learn_step, static_argnums=0)


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    return np.pad(rows, [(0, count - len(rows))] + [(0, 0)] * (rows.ndim - 1))
