"""What the mechanisms for rewards share: checks of their numbers, and a memory of what they answered.

Every mechanism for rewards gives *answers*, the only objects that may see a reward. Their method ``add_noise`` takes
the true rewards of one round ``(B,)``, the positions ``(B, d)`` and the actions ``(B,)`` for which they were paid, and
the round's number. It returns the noisy rewards, from which the learner may learn. Only
:class:`~dprl.mechanisms.reward_noise.GradientAnswers` have ``noisy_mean`` instead.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.bounds import Interval
from dprl.errors import DprlError

NOWHERE = -1
"""The position of a state of which nothing is known; positions are 0 or more."""


def check_multiplier(noise_multiplier: float) -> None:
    """Refuse a noise multiplier for which noise cannot be drawn."""
    if not 0.004 <= noise_multiplier <= 2000.0:
        raise DprlError("The noise multiplier must be between 0.004 and 2000: change epsilon or delta.")


def check_bounds(bounds: Interval) -> None:
    """Refuse bounds of a reward that are not finite and in order."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DprlError("The bounds of a reward must be two finite numbers, the smaller one first.")


def check_rounds(steps: int, batch: int) -> None:
    """Refuse a number of releases, or of rewards in one round, below 1."""
    if steps < 1 or batch < 1:
        raise DprlError("The numbers of steps and of rewards in a round must be at least 1.")


class Memo:
    """Memory of answers on the host: a repeated question gets the first answer again.

    A position that is asked again enters the mechanism with its first reward. So what enters is a function of the
    position (and of the action), whatever the rewards depend on. Paths need this on their grid, and also off it, where
    the first observation in a cell answers for the whole cell. In finite processes a noisy reward is paid for once per
    pair of state and action. Nobody sees the answers that are not kept.

    Args:
        answers: object whose ``add_noise`` gives the answers.
        most: largest number of different answers, for which the release was charged.
        shared: give one answer at a position, whatever the action. A single path needs this off its grid, where no
            noise would hide the difference of two answers in a cell. The rewards should then ignore the action
            themselves, not only the difference of two neighbours.
    """

    def __init__(self, answers: Any, most: int, shared: bool = False) -> None:
        self._answers, self._most, self._shared = answers, most, shared
        self._rewards: dict[tuple[int, ...], float] = {}
        self._known: dict[tuple[int, ...], float] = {}

    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> np.ndarray:
        """Return ``(B,)`` float64: the answers of the wrapped object, or 0 at :data:`NOWHERE`, where nothing is asked.

        Raises:
            DprlError: more different answers are asked for than ``most``.
        """
        rewards, positions, actions = np.array(rewards, np.float64), np.array(positions), np.array(actions)
        asked = zip(actions.tolist(), positions.tolist(), strict=True)
        keys = [None if NOWHERE in place else (0 if self._shared else action, *place) for action, place in asked]
        somewhere = [(i, key) for i, key in enumerate(keys) if key is not None]
        if len(self._known) + len({key for _, key in somewhere} - self._known.keys()) > self._most:
            raise DprlError("More different rewards were asked for than the release was charged for.")
        if not somewhere:
            return np.zeros(len(keys))
        for i, key in somewhere:
            rewards[i] = self._rewards.setdefault(key, rewards[i])
        # the array keeps its shape: an entry at NOWHERE repeats another entry's question, and its answer is dropped
        places = [i if key is not None else somewhere[0][0] for i, key in enumerate(keys)]
        fresh = np.asarray(self._answers.add_noise(rewards[places], positions[places], actions[places], round_))
        for i, key in somewhere:
            self._known.setdefault(key, float(fresh[i]))
        return np.array([0.0 if key is None else self._known[key] for key in keys])
