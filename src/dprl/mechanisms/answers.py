"""What the mechanisms for rewards share: every one gives *answers*, objects with one method ``noisy``.

``noisy(rewards, positions, actions, round_)`` takes the true rewards of one round, ``(B,)``, where they were paid,
``(B, d)`` and ``(B,)``, and the round's number, and gives what may be learned from. Nothing else may see a reward.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.errors import DprlError
from dprl.protocols import Interval

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
    """Memory of answers on the host: whoever asks the same again gets the first answer.

    What enters the mechanism is then a function of the position (and of the action), whatever the rewards depend on: a
    position that is asked again is asked with its first reward. Paths need that, on their grid and off it, where a
    cell's first observation answers for all of it. Noisy rewards of finite processes are paid for once a pair of state
    and action. Answers that are not kept are seen by nobody.

    Args:
        answers: what gives the answers.
        most: how many different ones there may be: what was charged for.
        shared: ask at a position once, whatever the action. One path needs it off its grid: two answers in a cell would
            differ by what no noise hides. Rewards should then ignore the action, not only their differences.
    """

    def __init__(self, answers: Any, most: int, shared: bool = False) -> None:
        self._answers, self._most, self._shared = answers, most, shared
        self._rewards: dict[tuple[int, ...], float] = {}
        self._known: dict[tuple[int, ...], float] = {}

    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> np.ndarray:
        """Answer as the ``noisy`` that it wraps, ``(B,)`` float64; 0 at :data:`NOWHERE`, which is not asked about.

        Raises:
            DprlError: more different ones are asked for than ``most``.
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
        # arrays of one shape are asked: what is nowhere asks again what another does, and its answer is dropped
        places = [i if key is not None else somewhere[0][0] for i, key in enumerate(keys)]
        fresh = np.asarray(self._answers.add_noise(rewards[places], positions[places], actions[places], round_))
        for i, key in somewhere:
            self._known.setdefault(key, float(fresh[i]))
        return np.array([0.0 if key is None else self._known[key] for key in keys])
