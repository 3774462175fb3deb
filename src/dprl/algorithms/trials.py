"""Many runs of an attack, so many of them side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np


def scores_of_trials(
    score: Callable[[Any], Any],
    seed: int,
    trials: int,
    present: bool,
    at_once: int,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """``(trials,)`` scores, each of a run with a key of its own.

    Args:
        score: of keys ``(at_once, 2)`` uint32, ``(at_once,)``; compiled.
        present: which of the two data sets; they share no key.
        progress: called with the number of runs done.
    """
    parts = [np.zeros(0)]
    for start in range(0, trials, at_once):
        trial = jnp.arange(start, start + at_once, dtype=jnp.uint32)
        key = jnp.full_like(trial, 2 * (seed % 2**31) + int(present))
        parts.append(np.asarray(score(jnp.stack([key, trial], axis=1))))
        if progress is not None:
            progress(min(start + at_once, trials))
    return np.concatenate(parts)[:trials]


def next_power(trials: int) -> int:
    """The power of two that holds so many trials."""
    return 1 << max(trials - 1, 1).bit_length()
