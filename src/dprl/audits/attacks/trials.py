"""Many runs of an attack, so many of them side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.protocols import Precondition

_AT_ONCE, _FEWEST_AT_ONCE, _DRAWS_AT_ONCE = 1 << 13, 64, 1 << 21


@dataclass(frozen=True, kw_only=True)
class PlanCanary:
    """Two neighbours of what a learning algorithm protects, and many runs on either.

    Attributes:
        plan: of the release: its ``budget`` is the claim, its ``claim`` what another distribution says of it.
        score: of one run: ``score(key, present)``, key ``(2,)`` uint32 and present 0.0 or 1.0.
        draws: normals of a run, by which so many of them run side by side.
        description: of the pair and of what is seen.
        gaussian: whether scores are Gaussian with one variance on both.
    """

    plan: Any
    score: Callable[[Any, Any], Any] = field(repr=False)
    draws: int
    description: str
    gaussian: bool = True

    @property
    def epsilon(self) -> float:
        return self.plan.budget.epsilon

    @property
    def delta(self) -> float:
        return self.plan.budget.delta

    @property
    def preconditions(self) -> tuple[Precondition, ...]:
        return () if self.plan.claim is None else self.plan.claim.conditions

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        at_once, there = min(self._at_once, max(next_power(trials), _FEWEST_AT_ONCE)), float(present)
        return scores_of_trials(lambda keys: self._scores(keys, there), seed, trials, present, at_once, progress)

    @property
    def _at_once(self) -> int:
        return min(_AT_ONCE, max(_FEWEST_AT_ONCE, 1 << (_DRAWS_AT_ONCE // max(self.draws, 1)).bit_length() - 1))

    @cached_property
    def _scores(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self.score, in_axes=(0, None)))


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
