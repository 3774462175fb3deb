"""Record and replay for private reward functions: what enters a mechanism on two neighbouring ones.

The second run sees the answers of the first, so that adaptivity hides nothing. Question by question, along these
answers, the true rewards must differ by no more than the declared sensitivity. Nothing else may differ: not where a
reward was asked for, nor how often. :mod:`dprl.audits.record_replay` does this for logs, and compares what is released
and printed for both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl.accounting.reward_relation import DEPTHS
from dprl.audits.attacks.reward_functions import kernel_product
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.reward_noise import RewardGradient, RewardNoise

_SLACK = 1.0 + 1e-9  # for the float sums of this module; the mechanisms' own rounding is in their sensitivity


@dataclass(frozen=True)
class Question:
    """One call of a mechanism. Private.

    Attributes:
        rewards: ``(B,)`` true rewards.
        places: ``(B, d)`` positions; of :class:`RewardGradient`, the clipped gradients.
        actions: ``(B,)`` actions; of :class:`RewardGradient`, empty.
        number: number of the round.
        answer: the noisy answer that was given.
    """

    rewards: np.ndarray
    places: np.ndarray
    actions: np.ndarray
    number: int
    answer: np.ndarray


Questions = Sequence[Question]


class RecordingAnswers:
    """A recorder of questions, which answers as ``inner`` does or replays the answers of an earlier run.

    Args:
        inner: what answers: a mechanism that is bound to noise.
        questions: list of this run's questions; every question is added to it.
        first: questions of the run whose answers are replayed; empty in the first run.
    """

    def __init__(self, inner: Any, questions: list[Question], first: Questions = ()) -> None:
        self._inner, self._questions, self._first = inner, questions, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> np.ndarray:
        """Return noisy rewards at positions, and write the question down."""
        answer = self._inner.add_noise(rewards, positions, actions, round_)
        return self._noted(rewards, positions, actions, round_, answer)

    def noisy_mean(self, rewards: Any, clipped: Any, step: Any) -> np.ndarray:
        """Return the noisy mean of rewards times clipped gradients, and write the question down."""
        return self._noted(rewards, clipped, (), step, self._inner.noisy_mean(rewards, clipped, step))

    def _noted(self, rewards: Any, places: Any, actions: Any, number: Any, answer: Any) -> np.ndarray:
        found = np.array(answer)
        if len(self._questions) < len(self._first):
            before = self._first[len(self._questions)].answer
            found = before if before.shape == found.shape else found
        # copies, because the caller may write into its arrays later
        rewards, places, actions = map(np.array, (rewards, places, actions))
        self._questions.append(Question(rewards, places, actions, int(number), np.array(found)))
        return found


def compare_questions(one: Questions, two: Questions, mechanism: Any) -> tuple[list[str], float]:
    """Return where the questions to two neighbouring reward functions disagree, and how far the rewards lie apart.

    The distance is over the declared sensitivity.

    Args:
        one: questions of the first run.
        two: questions of the second run.
        mechanism: the mechanism that is accounted for: :class:`FunctionNoise`, :class:`RewardNoise` or
            :class:`RewardGradient`.
    """
    if len(one) != len(two) or any(
        a.number != b.number or not _same(a.places, b.places) or not _same(a.actions, b.actions)
        for a, b in zip(one, two, strict=False)
    ):
        return ["what was asked for differs"], math.inf
    compared = {FunctionNoise: _paths, RewardNoise: _drawn, RewardGradient: _gradients}[type(mechanism)]
    problems, largest = compared(one, two, mechanism)
    if largest > _SLACK:
        problems.append("the rewards that were asked for differ by more than the sensitivity")
    return problems, largest


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _paths(one: Questions, two: Questions, mechanism: FunctionNoise) -> tuple[list[str], float]:
    """Return problems, and the kernel norm of the differences at all distinct points asked, over the sensitivity."""
    problems: list[str] = []
    differences: dict[int, dict[tuple[int, ...], float]] = {}
    answers: dict[tuple[int, ...], tuple[float, float]] = {}
    for a, b in zip(one, two, strict=True):
        rows = zip(a.places.tolist(), a.actions.tolist(), a.rewards, b.rewards, a.answer, strict=True)
        for position, action, reward, other, answer in rows:
            path = 0 if mechanism.paths == 1 else int(action)
            if not 0 <= path < mechanism.paths:
                problems.append("a path was asked for that is not accounted for")
            key = (path, *position)
            # the noise at a point is drawn once, so that the same number is added to the reward there every time
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
    """Return ``f' K^-1 f`` at grid positions for the kernel ``exp(-decay |x - y|_1)``."""
    points = np.array(sorted(values), dtype=np.float64) * 2.0 ** -DEPTHS[dimensions]
    f = np.array([values[key] for key in sorted(values)])
    if dimensions == 1:
        return float(kernel_product(decay, points[:, 0], f, f))
    kernel = np.exp(-decay * np.abs(points[:, None] - points[None]).sum(-1))
    return float(f @ np.linalg.solve(kernel, f))


def _drawn(one: Questions, two: Questions, mechanism: RewardNoise) -> tuple[list[str], float]:
    """Return problems, and the largest difference of two rewards over the sensitivity."""
    problems = []
    if sum(len(a.rewards) for a in one) != mechanism.steps:
        problems.append("the number of rewards is not the declared number of steps")
    if len({a.number for a in one}) != len(one):
        problems.append("the noise of a round is used twice")
    low, high = mechanism.reward_bounds
    pairs = [np.clip([a.rewards, b.rewards], low, high) for a, b in zip(one, two, strict=True)]
    return problems, max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=0.0) / mechanism.sensitivity


def _gradients(one: Questions, two: Questions, mechanism: RewardGradient) -> tuple[list[str], float]:
    """Return problems, and the largest L2 difference of two means of reward times gradient, over the sensitivity."""
    problems = []
    if len(one) != mechanism.steps or len({a.number for a in one}) != mechanism.steps:
        problems.append("the number of noisy means is not the declared number of steps")
    largest = 0.0
    for a, b in zip(one, two, strict=True):
        if np.linalg.norm(a.places, axis=1).max(initial=0.0) > mechanism.clip_norm * _SLACK:
            problems.append("a gradient is longer than the clip norm")
        moved = ((b.rewards - a.rewards)[:, None] * a.places).mean(axis=0)
        largest = max(largest, float(np.linalg.norm(moved)))
    return list(dict.fromkeys(problems)), largest / mechanism.sensitivity
