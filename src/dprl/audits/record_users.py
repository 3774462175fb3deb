"""Record and replay where each user takes part once: what enters the mechanism with one user and with its neighbour.

The second run sees the noised sums of the first, so that adaptivity hides nothing. Along them the exact sums of all
rounds together must differ by no more than the noise that is drawn is made for: through the strategy of correlated
noise, for that is what is drawn independently. See :mod:`dprl.audits.record_replay` for logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import io_callback

from dprl import x64 as x64
from dprl.audits.record_replay import Comparison, listening
from dprl.mechanisms.strategy import whitened
from dprl.mechanisms.user_sum import UserSum

_SLACK = 1.0 + 1e-9  # of float sums here


@dataclass
class UserTape:
    """One run: its exact sums ``(dimension,)`` and what was answered, in order; what is released; what it said."""

    steps: list[int] = field(default_factory=list)
    totals: list[np.ndarray] = field(default_factory=list)
    answers: list[np.ndarray] = field(default_factory=list)
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class RecordingUserNoise:
    """Noises as ``inner`` does and tells its tape, or replays an earlier tape's answers. Works inside of ``scan``."""

    inner: Any
    tape: UserTape
    first: UserTape | None = None

    def noised(self, total: Any, step: Any) -> Any:
        answer = self.inner.noised(total, step)
        if not any(isinstance(x, Tracer) for x in (total, step, answer)):
            return self._note(total, step, answer)
        shape = jax.ShapeDtypeStruct(answer.shape, answer.dtype)
        return io_callback(self._note, shape, total, step, answer, ordered=True)

    def _note(self, total: Any, step: Any, answer: Any) -> np.ndarray:
        place, found = len(self.tape.totals), np.array(answer)
        if self.first is not None and place < len(self.first.answers):
            before = self.first.answers[place]
            found = before if before.shape == found.shape else found
        self.tape.steps.append(int(step))
        self.tape.totals.append(np.array(total))
        self.tape.answers.append(found)
        return found


Run = Callable[[Any, Any, Callable[[Any], Any]], Mapping[str, np.ndarray]]


def record_users(run: Run, users: Any, noise: Any, first: UserTape | None = None) -> UserTape:
    """Run once: ``run(users, noise, wrap)`` passes the mechanism's noise through ``wrap``, returns what is released."""
    tape = UserTape()
    with listening(tape.messages):
        results = run(users, noise, lambda inner: RecordingUserNoise(inner, tape, first))
        jax.effects_barrier()
    tape.results = {name: np.asarray(value) for name, value in results.items()}
    return tape


def compare_users(run: Run, users: Any, others: Any, noise: Any, mechanism: UserSum) -> Comparison:
    """Run with ``users``, then with their neighbours ``others``, the same noise and the same answers.

    Args:
        run: see :func:`record_users`; ``users`` is whatever it understands.
        noise: one source for both.
        mechanism: what is accounted for.
    """
    one = record_users(run, users, noise)
    return compare_user_tapes(one, record_users(run, others, noise, one), mechanism)


def compare_user_tapes(one: UserTape, two: UserTape, mechanism: UserSum) -> Comparison:
    """What two tapes of neighbouring users disagree on, and how far apart the sums lie, of what the noise allows."""
    problems: list[str] = []
    if one.messages != two.messages:
        problems.append("what is printed, logged or warned of differs")
    shapes = [{name: (v.shape, v.dtype) for name, v in tape.results.items()} for tape in (one, two)]
    if shapes[0] != shapes[1]:
        problems.append("the shapes of what is released differ")
    elif any(value.tobytes() != two.results[name].tobytes() for name, value in one.results.items()):
        problems.append("what is made of the noised sums depends on more than them")
    if one.steps != two.steps or one.steps != list(range(mechanism.steps)):
        problems.append("the noised sums are not the declared ones, in order and each of them once")
        return Comparison(tuple(problems), math.inf, len(one.steps))
    if any(total.shape != (mechanism.dimension,) or total.dtype != np.int64 for total in (*one.totals, *two.totals)):
        problems.append("a sum is not a vector of the declared length on the grid")
        return Comparison(tuple(problems), math.inf, len(one.steps))
    # int64 wraps around: so does the exact sum, and the difference is right all the same
    moved = (np.stack(two.totals) - np.stack(one.totals)).astype(np.float64) * mechanism.grid_step
    rounds = int(np.count_nonzero(np.abs(moved).max(axis=1)))
    if rounds > mechanism.epochs:
        problems.append(f"one user moves more than {mechanism.epochs} of the sums")
    allowed = mechanism.std / mechanism.noise_multiplier * math.sqrt(mechanism.epochs)
    largest = float(np.linalg.norm(whitened(mechanism.noise, moved))) / allowed
    if largest > _SLACK:
        problems.append("the sums of all rounds together differ by more than the noise allows")
    return Comparison(tuple(problems), largest, len(one.steps))
