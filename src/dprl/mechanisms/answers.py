"""What the mechanisms for rewards share: every one gives *answers*, objects with one method ``noised``.

``noised(rewards, positions, actions, round_)`` takes the true rewards of one round, ``(B,)``, where they were paid,
``(B, d)`` and ``(B,)``, and the round's number, and gives what may be learned from. Nothing else may see a reward.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.protocols import Interval


def check_multiplier(noise_multiplier: float) -> None:
    """Raises DprlError for a noise multiplier out of the range for which noise can be drawn."""
    if not 0.004 <= noise_multiplier <= 2000.0:
        raise DprlError("The noise multiplier must be between 0.004 and 2000: change epsilon or delta.")


def check_bounds(bounds: Interval) -> None:
    """Raises DprlError for bounds of a reward that are none."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DprlError("The bounds of a reward must be two finite numbers, the smaller one first.")


def check_rounds(steps: int, batch: int) -> None:
    """Raises DprlError for a number of releases, or of rewards in one round, below 1."""
    if steps < 1 or batch < 1:
        raise DprlError("The numbers of steps and of rewards in a round must be at least 1.")


class ExactAnswers:
    """No noise at all: for experiments. It protects nobody."""

    def noised(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> jax.Array:
        """``rewards`` ``(B,)``, as float64."""
        return jnp.asarray(rewards, dtype=jnp.float64)


jax.tree_util.register_pytree_node(ExactAnswers, lambda _: ((), None), lambda *_: ExactAnswers())


class Memo:
    """Gives the first answer again wherever the same is asked; on the host.

    For paths off the grid, where a cell's first observation answers for all of it, and for noised rewards of finite
    processes, where a pair of state and action is paid for once. Answers that are not kept are seen by nobody.

    Args:
        answers: what gives the answers.
        most: how many different ones there may be: what was charged for.
        shared: ask at a position once, whatever the action. One path needs it: two answers in a cell would differ by
            what no noise hides. Rewards should then ignore the action, not only their differences.
    """

    def __init__(self, answers: Any, most: int, shared: bool = False) -> None:
        self._answers, self._most, self._shared = answers, most, shared
        self._known: dict[tuple[int, ...], float] = {}

    def noised(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> np.ndarray:
        """As the ``noised`` it wraps, ``(B,)`` float64.

        Raises:
            DprlError: more different ones are asked for than ``most``.
        """
        fresh = np.asarray(self._answers.noised(rewards, positions, actions, round_))
        asked = zip(np.asarray(actions).tolist(), np.asarray(positions).tolist(), strict=True)
        keys = [(0 if self._shared else action, *position) for action, position in asked]
        if len(self._known.keys() | keys) > self._most:
            raise DprlError("More different rewards were asked for than the release was charged for.")
        for key, answer in zip(keys, fresh.tolist(), strict=True):
            self._known.setdefault(key, answer)
        return np.array([self._known[key] for key in keys])
