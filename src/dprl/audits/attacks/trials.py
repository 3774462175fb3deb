"""An attack on the plan of a release, and many runs of the attack, in groups that run side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import require
from dprl.protocols import Precondition

_AT_ONCE, _FEWEST_AT_ONCE, _DRAWS_AT_ONCE = 1 << 13, 64, 1 << 21


def check_all_seen(algorithm: str, released: str) -> None:
    """Check that the attack looks at all that is released, for an algorithm whose last iterate is not attacked."""
    require(released == "all", f"{algorithm} is audited on all that it releases: leave out released.")


@dataclass(frozen=True, kw_only=True)
class PlanCanary:
    """A pair of neighbouring datasets, and the score of a run on either; see :class:`dprl.protocols.Canary`.

    Attributes:
        plan: plan of the release. Its ``budget`` is the claimed epsilon and delta; its ``claim`` is what the
            distribution of the calibration says about the release, where that is not dprl.
        description: the pair and what is seen of it.
        score: function ``score(key, data)`` of a key ``(2,)`` uint32 and one of the ``pair``: the score of one run.
        pair: the data without the canary and the data with it, as arrays.
        draws: number of normals that a run draws; the more, the fewer runs are made side by side.
        gaussian: whether scores are Gaussian with the same variance on both datasets.
    """

    plan: Any
    description: str
    score: Callable[[Any, Any], Any] = field(repr=False)
    pair: tuple[Any, Any] = field(default=(0.0, 1.0), repr=False, compare=False)
    draws: int = 1
    gaussian: bool = True

    @property
    def epsilon(self) -> float:
        """Claimed epsilon."""
        return self.plan.budget.epsilon

    @property
    def delta(self) -> float:
        """Claimed delta."""
        return self.plan.budget.delta

    @property
    def preconditions(self) -> tuple[Precondition, ...]:
        """Assumptions of the claim; empty where the calibration is dprl's."""
        return () if self.plan.claim is None else self.plan.claim.conditions

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return scores ``(trials,)`` of runs, each with another key; the two datasets share no key."""
        parts = [np.zeros(0)]
        at_once = min(self._at_once, max(1 << max(trials - 1, 1).bit_length(), _FEWEST_AT_ONCE))
        for start in range(0, trials, at_once):
            trial = jnp.arange(start, start + at_once, dtype=jnp.uint32)
            key = jnp.full_like(trial, 2 * (seed % 2**31) + int(present))
            parts.append(np.asarray(self._scores(jnp.stack([key, trial], axis=1), self.pair[present])))
            if progress is not None:
                progress(min(start + at_once, trials))
        return np.concatenate(parts)[:trials]

    @property
    def _at_once(self) -> int:
        """Number of runs that are made side by side: fewer where each run keeps many draws."""
        return min(_AT_ONCE, max(_FEWEST_AT_ONCE, 1 << (_DRAWS_AT_ONCE // max(self.draws, 1)).bit_length() - 1))

    @cached_property
    def _scores(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self.score, in_axes=(0, None)))
