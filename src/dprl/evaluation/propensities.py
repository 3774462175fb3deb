"""Released counts and sums of outcomes by stratum and action, and what follows from them: post-processing.

Propensities are ratios of noisy counts. The outcome model is additive: a level for each action and, as far as noise
lets it be told, an effect of each stratum. Derivation: docs/proofs/stratified.md.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from dprl.evaluation.strata import Strata
from dprl.protocols import Bounds

FILE = "propensities.json"
SCHEMA = "dprl.propensities/1"
COUNT_WEIGHT = 2.0
"""Weight of a count against a sum of outcomes in [-1, 1]."""
FEWEST, CLEAR = 10.0, 3.0
"""An action is supported in a stratum by at least so many units, and standard deviations of a count's noise."""


def size_of(bounds: Bounds) -> int:
    """Return how many numbers are released: counts and, of one decision, sums of outcomes."""
    return Strata(bounds).count * (bounds.kinds + (bounds.actions or 1) * (bounds.horizon == 1))


@dataclass(frozen=True)
class Propensities:
    """Noisy counts and outcomes of each stratum and action, as released.

    Attributes:
        theta: ``(S K + S A,)`` released numbers: weighted counts of the K = A actions, or A + 1 with being lost from
            the log, then sums of outcomes in [-1, 1]; of several steps ``(S K,)``, the counts alone.
        strata: public.
        noise: standard deviation of the noise in each number of ``theta``.
    """

    theta: Float[np.ndarray, " numbers"]
    strata: Strata
    noise: float

    file: ClassVar[str] = FILE
    kind: ClassVar[str] = "propensities"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of strata, and of actions."""
        return self.strata.count, self.strata.bounds.actions or 1

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise in a count."""
        return self.noise * self._unit

    @cached_property
    def counts(self) -> Float[np.ndarray, "strata actions"]:
        """Noisy numbers of decisions; few of them may be negative. Those who are lost in one are not among them."""
        return self._counted[:, : self.shape[1]]

    @cached_property
    def people(self) -> Float[np.ndarray, " strata"]:
        """Noisy numbers of decisions in each stratum; those who are lost in one are among them."""
        return self._counted.sum(axis=1)

    @property
    def people_noise(self) -> float:
        """Standard deviation of the noise in :attr:`people`."""
        return self.count_noise * math.sqrt(self.strata.bounds.kinds)

    @property
    def _counted(self) -> Float[np.ndarray, "strata kinds"]:
        cells = self.shape[0], self.strata.bounds.kinds
        return self.theta[: math.prod(cells)].reshape(cells) * self._unit

    @property
    def _unit(self) -> float:
        """Decisions of one released number."""
        return self.strata.bounds.horizon / COUNT_WEIGHT

    @cached_property
    def sums(self) -> Float[np.ndarray, "strata actions"]:
        """Noisy sums of outcomes, of which -1 and 1 are the ends of the declared range."""
        return self.theta[self.shape[0] * self.strata.bounds.kinds :].reshape(self.shape)

    def supported(self, least: float) -> Bool[np.ndarray, "strata actions"]:
        """Return where an action was taken clearly often, and with a propensity of at least ``least``."""
        people = np.maximum(self.people, 0.0)[:, None]
        return self.counts >= np.maximum(least * people, max(FEWEST, CLEAR * self.count_noise))

    def shares(self, least: float) -> Float[np.ndarray, "strata actions"]:
        """Return estimated propensities, of an action and of not being lost then; zero where it is not supported."""
        people = np.maximum(self.people, 1.0)[:, None]
        return np.where(self.supported(least), np.minimum(self.counts / people, 1.0), 0.0)

    @cached_property
    def outcomes(self) -> Float[np.ndarray, "strata actions"]:
        """Outcome model: the mean outcome in [-1, 1] of each action in each stratum."""
        return np.clip(self.levels[None, :] + self.effects[:, None], -1.0, 1.0)

    @cached_property
    def levels(self) -> Float[np.ndarray, " actions"]:
        """Mean outcome of each action; zero where noise says no more."""
        people, enough = self.counts.sum(axis=0), CLEAR * self.count_noise * self.shape[0] ** 0.5
        return np.where(people > enough, np.clip(self.sums.sum(axis=0) / np.maximum(people, 1.0), -1.0, 1.0), 0.0)

    @cached_property
    def effects(self) -> Float[np.ndarray, " strata"]:
        """How much outcomes of each stratum lie above those levels, drawn to zero by what is noise."""
        people = np.maximum(self.counts.sum(axis=1), max(FEWEST, self.count_noise))
        raw = (self.sums - self.levels * self.counts).sum(axis=1) / people
        own = (self.noise**2 * self.shape[1] + self.count_noise**2 * float(np.sum(self.levels**2))) / people**2
        spread = max(float(np.sum(people * (raw**2 - own)) / people.sum()), 0.0)
        return raw * spread / (spread + own) if spread > 0.0 else np.zeros_like(raw)

    def described(self, targets: Any, names: Any) -> dict[str, Any]:
        """Return noisy counts, propensities and the noise in a count, by stratum and action, as plain data."""
        del targets, names
        lost = self._counted[:, self.shape[1] :].ravel()
        shares = self.counts / np.maximum(self.people, 1.0)[:, None]
        return {
            "file": FILE,
            "strata": self.strata.labels,
            "noisy_counts": self.counts.tolist(),
            **({"noisy_counts_of_lost": lost.tolist()} if lost.size else {}),
            "standard_deviation_of_noise": self.count_noise,
            "propensities": np.clip(shares, 0.0, 1.0).tolist(),
        }

    def to_bytes(self) -> bytes:
        """Write what was released as JSON."""
        made = {"schema": SCHEMA, "bounds": self.strata.bounds.as_dict(), "released": self.theta.tolist()}
        made |= self.described((), None)
        return (json.dumps(made, indent=1) + "\n").encode()
