"""Many runs of an attack, so many of them side by side."""

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
    """Refuse to look at less than all that is released, where the algorithm has no last iterate that is attacked."""
    require(released == "all", f"{algorithm} is audited on all that it releases: leave out released.")


@dataclass(frozen=True, kw_only=True)
class PlanCanary:
    """Two neighbours of what an algorithm protects, and many runs on either; see :class:`dprl.protocols.Canary`.

    Attributes:
        plan: plan of the release; its ``budget`` is the claim, its ``claim`` what another distribution says of it.
        description: the pair and what is seen of it.
        score: score of one run, ``score(key, data)``: of a key ``(2,)`` uint32 and one of the ``pair``.
        pair: what lacks the canary and what has it, as arrays.
        draws: normals of a run, by which so many of them run side by side.
        gaussian: whether scores are Gaussian with one variance on both.
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
        """Assumptions of the claim, where it is another distribution's."""
        return () if self.plan.claim is None else self.plan.claim.conditions

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return scores ``(trials,)``, each of a run with a key of its own; the two data sets share no key."""
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
        """Runs side by side, fewer where each keeps many draws."""
        return min(_AT_ONCE, max(_FEWEST_AT_ONCE, 1 << (_DRAWS_AT_ONCE // max(self.draws, 1)).bit_length() - 1))

    @cached_property
    def _scores(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self.score, in_axes=(0, None)))
