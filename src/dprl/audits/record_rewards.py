"""Record and replay where the private thing is a reward function: what enters a mechanism on two neighbouring ones.

The second run sees the answers of the first, so that adaptivity hides nothing. Along them, question by question, the
true rewards must differ by no more than the declared sensitivity, and nothing else may differ: not where a reward was
asked for, not what is released, not a word that is printed. See :mod:`dprl.audits.record_replay` for logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import io_callback

from dprl import x64 as x64
from dprl.audits.record_replay import Comparison, listening
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.ornstein_uhlenbeck import DEPTHS
from dprl.mechanisms.reward_gradient import RewardGradient
from dprl.mechanisms.reward_noise import RewardNoise

_SLACK = 1.0 + 1e-9  # of float sums here; the mechanisms' own rounding is in their sensitivity


@dataclass(frozen=True)
class Question:
    """One call of a mechanism. Private.

    Attributes:
        rewards: ``(B,)`` true rewards.
        places: ``(B, d)`` positions; clipped gradients of a gradient's mechanism.
        actions: ``(B,)``; empty of a gradient's.
        number: of the round.
        answer: what it gave.
    """

    rewards: np.ndarray
    places: np.ndarray
    actions: np.ndarray
    number: int
    answer: np.ndarray


@dataclass
class RewardTape:
    """One run: its questions in order, what is released, and what it said."""

    questions: list[Question] = field(default_factory=list)
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


@dataclass(eq=False)
class RewardRecorder:
    """The tape of the run that is on, and that of the first run, whose answers later ones get."""

    tape: RewardTape
    first: RewardTape | None = None


@dataclass(frozen=True, eq=False)
class RecordingAnswers:
    """Answers as ``inner`` does and tells the recorder's tape, or replays the first one's. Works inside of ``scan``.

    An argument of compiled functions: with one recorder, what was compiled in one run serves the next.
    """

    inner: Any
    recorder: RewardRecorder

    def noised(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> Any:
        return self._told(rewards, positions, actions, round_, self.inner.noised(rewards, positions, actions, round_))

    def clip(self, features: Any) -> Any:
        return self.inner.clip(features)

    @property
    def centre(self) -> Any:
        return self.inner.centre

    def noised_mean(self, rewards: Any, clipped: Any, step: Any) -> Any:
        return self._told(rewards, clipped, jnp.zeros(0), step, self.inner.noised_mean(rewards, clipped, step))

    def _told(self, rewards: Any, places: Any, actions: Any, number: Any, answer: Any) -> Any:
        told = (rewards, places, actions, number, answer)
        if not any(isinstance(x, Tracer) for x in told):
            return self._note(*told)
        shape = jax.ShapeDtypeStruct(answer.shape, answer.dtype)
        return io_callback(self._note, shape, *told, ordered=True)

    def _note(self, rewards: Any, places: Any, actions: Any, number: Any, answer: Any) -> np.ndarray:
        tape, first = self.recorder.tape, self.recorder.first
        place, found = len(tape.questions), np.array(answer)
        if first is not None and place < len(first.questions):
            before = first.questions[place].answer
            found = before if before.shape == found.shape else found
        asked = Question(np.array(rewards), np.array(places), np.array(actions), int(number), np.array(found))
        tape.questions.append(asked)
        return found


jax.tree_util.register_dataclass(RecordingAnswers, data_fields=["inner"], meta_fields=["recorder"])


Run = Callable[[Any, Any, Callable[[Any], Any]], Mapping[str, np.ndarray]]


def record_rewards(run: Run, reward: Any, noise: Any, first: RewardTape | None = None) -> RewardTape:
    """Run once: ``run(reward, noise, wrap)`` passes what answers through ``wrap`` and returns what is released."""
    tape = RewardTape()
    with listening(tape.messages):
        recorder = RewardRecorder(tape, first)
        results = run(reward, noise, lambda answers: RecordingAnswers(answers, recorder))
        jax.effects_barrier()
    tape.results = {name: np.asarray(value) for name, value in results.items()}
    return tape


def compare_rewards(run: Run, reward: Any, other: Any, noise: Any, mechanism: Any) -> Comparison:
    """Run on ``reward``, then on its neighbour ``other`` with the same noise and the same answers.

    Args:
        run: see :func:`record_rewards`; ``reward`` is whatever it understands: an environment, a function.
        noise: one source for both.
        mechanism: what is accounted for: :class:`FunctionNoise`, :class:`RewardNoise` or :class:`RewardGradient`.
    """
    one = record_rewards(run, reward, noise)
    two = record_rewards(run, other, noise, one)
    return compare_tapes(one, two, mechanism)


def compare_tapes(one: RewardTape, two: RewardTape, mechanism: Any) -> Comparison:
    """What two tapes of neighbouring reward functions disagree on, and how far apart what was asked lies."""
    problems: list[str] = []
    if one.messages != two.messages:
        problems.append("what is printed, logged or warned of differs")
    shapes = [{name: (v.shape, v.dtype) for name, v in tape.results.items()} for tape in (one, two)]
    if shapes[0] != shapes[1]:
        problems.append("the shapes of what is released differ")
    elif any(value.tobytes() != two.results[name].tobytes() for name, value in one.results.items()):
        problems.append("what is made of the answers depends on more than them")
    if len(one.questions) != len(two.questions) or any(
        a.number != b.number or not _same(a.places, b.places) or not _same(a.actions, b.actions)
        for a, b in zip(one.questions, two.questions, strict=False)
    ):
        problems.append("what was asked for differs")
        return Comparison(tuple(problems), math.inf, len(one.questions))
    match mechanism:
        case FunctionNoise():
            found, largest = _paths(one, two, mechanism)
        case RewardNoise():
            found, largest = _drawn(one, two, mechanism)
        case RewardGradient():
            found, largest = _gradients(one, two, mechanism)
        case _:
            raise TypeError("this mechanism answers no questions about rewards")
    if largest > _SLACK:
        found.append("the rewards that were asked for differ by more than the sensitivity")
    return Comparison((*problems, *found), largest, len(one.questions))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _paths(one: RewardTape, two: RewardTape, mechanism: FunctionNoise) -> tuple[list[str], float]:
    """The kernel norm of the differences at all different points that were asked, over the sensitivity."""
    problems: list[str] = []
    differences: dict[int, dict[tuple[int, ...], float]] = {}
    answers: dict[tuple[int, ...], tuple[float, float]] = {}
    for a, b in zip(one.questions, two.questions, strict=True):
        rows = zip(a.places.tolist(), a.actions.tolist(), a.rewards, b.rewards, a.answer, strict=True)
        for position, action, reward, other, answer in rows:
            path = 0 if mechanism.paths == 1 else int(action)
            if not 0 <= path < mechanism.paths:
                problems.append("a path was asked for that is not accounted for")
            key = (path, *position)
            # the noise at a point is drawn once: what is added to the reward there is the same every time
            if key in answers and abs((answers[key][1] - answers[key][0]) - (answer - reward)) > mechanism.grid_step:
                problems.append("the same point of a path has got two different noises")
            answers.setdefault(key, (float(reward), float(answer)))
            known = differences.setdefault(path, {})
            difference = float(other) - float(reward)
            if abs(known.setdefault(tuple(position), difference) - difference) > 1e-12 * mechanism.sup:
                problems.append("two rewards at one point of a path differ by different amounts")
    if len(answers) > mechanism.answers:
        problems.append("more points were asked for than are accounted for")
    squared = sum(kernel_norm2(known, mechanism.decay, mechanism.dimensions) for known in differences.values())
    return list(dict.fromkeys(problems)), math.sqrt(squared) / mechanism.sensitivity


def kernel_norm2(values: Mapping[tuple[int, ...], float], decay: float, dimensions: int) -> float:
    """``f' K^-1 f`` at grid positions for the kernel ``exp(-decay |x - y|_1)``."""
    points = np.array(sorted(values), dtype=np.float64) * 2.0 ** -DEPTHS[dimensions]
    f = np.array([values[key] for key in sorted(values)])
    if dimensions == 1:  # by the Markov property
        gaps = np.diff(points[:, 0])
        steps = f[1:] - np.exp(-decay * gaps) * f[:-1]
        return float(f[0] ** 2 + np.sum(steps**2 / -np.expm1(-2.0 * decay * gaps)))
    kernel = np.exp(-decay * np.abs(points[:, None] - points[None]).sum(-1))
    return float(f @ np.linalg.solve(kernel, f))


def _drawn(one: RewardTape, two: RewardTape, mechanism: RewardNoise) -> tuple[list[str], float]:
    """The largest difference of two rewards over the radius."""
    problems = []
    if sum(len(a.rewards) for a in one.questions) != mechanism.steps:
        problems.append("the number of rewards is not the declared number of steps")
    if len({a.number for a in one.questions}) != len(one.questions):
        problems.append("the noise of a round is used twice")
    low, high = mechanism.reward_bounds
    pairs = [np.clip([a.rewards, b.rewards], low, high) for a, b in zip(one.questions, two.questions, strict=True)]
    return problems, max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=0.0) / mechanism.sensitivity


def _gradients(one: RewardTape, two: RewardTape, mechanism: RewardGradient) -> tuple[list[str], float]:
    """The largest L2 difference of two means of reward times gradient over the sensitivity."""
    problems = []
    if len(one.questions) != mechanism.steps or len({a.number for a in one.questions}) != mechanism.steps:
        problems.append("the number of noised means is not the declared number of steps")
    largest = 0.0
    for a, b in zip(one.questions, two.questions, strict=True):
        if np.linalg.norm(a.places, axis=1).max(initial=0.0) > mechanism.clip_norm * _SLACK:
            problems.append("a gradient is longer than the clip norm")
        moved = ((b.rewards - a.rewards)[:, None] * a.places).mean(axis=0)
        largest = max(largest, float(np.linalg.norm(moved)))
    return list(dict.fromkeys(problems)), largest / mechanism.sensitivity
