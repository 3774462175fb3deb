"""Classification tasks of paper 002 (C.2, C.3), as public tasks for a protector: linear ones and a small network.

A task is a table of records with two classes: a pair of public digits, or a simulated country (``tables.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import DprlError
from dprl.protectors import tables
from dprl.protectors.projector import Hand
from dprl.protectors.record_losses import LinearLoss, NetworkLoss, Records
from dprl.protectors.record_tasks import RecordTasks

OTHERS = (0, 1, 2, 4, 6, 7, 8, 9)
"""The digits that are public; 3 and 5 are the private ones of the experiments."""


@dataclass(frozen=True, kw_only=True)
class Classification(RecordTasks):
    """The family.

    Attributes:
        kind: of loss: ``logistic``, ``svm``, or ``network`` of 20 hidden units.
        table: ``census`` (simulated countries) or ``digits``.
        digits: public digits, of which tasks are the pairs.
        units: declared number of records of the table that is protected.
        records: of a task, which stand for as many as are declared.
        clip_norm: of a record's gradient.
        steps, step_size, decay, tail, walk: of the hand schedule.
    """

    kind: Literal["logistic", "svm", "network"] = "logistic"
    table: Literal["census", "digits"] = "census"
    digits: tuple[int, ...] = OTHERS
    units: int = 2000
    records: int = 300
    clip_norm: float = 1.0
    steps: int = 40
    step_size: float = 2.0
    decay: float = 0.0
    tail: float = 0.5
    walk: float | None = 2.0

    def __post_init__(self) -> None:
        if self.table == "digits" and len(set(self.digits)) < 2:
            raise DprlError("Tasks of digits need at least two of them.")

    @property
    def name(self) -> str:
        return self.kind

    @property
    def features(self) -> int:
        return 1 + (tables.CENSUS_FEATURES if self.table == "census" else tables.PIXELS)

    @property
    def record_loss(self) -> LinearLoss | NetworkLoss:
        if self.kind == "network":
            return NetworkLoss(features=self.features)
        return LinearLoss(features=self.features, kind=self.kind)

    @property
    def hand(self) -> Hand:
        return Hand(
            steps=self.steps,
            sampling_rate=1.0,
            clip_norm=self.clip_norm,
            step_sizes=(self.step_size,),
            decay=self.decay,
            tail=self.tail,
            walk=self.walk,
        )

    def sample(self, key: jax.Array) -> Records:
        """``(records, features)`` rows of norm at most 1, and labels, float32."""
        which, people = jax.random.split(key)
        if self.table == "census":
            return tables.census(which, people, self.records)
        x, y = (jnp.asarray(a) for a in public_pairs(self.digits))
        pair = jax.random.randint(which, (), 0, len(x))
        rows = jax.random.permutation(people, x.shape[1])[: self.records]
        return Records(x[pair, rows], y[pair, rows])

    def initial(self, task: Any = None) -> jax.Array:
        """Zeros; of a network public random weights, by which its units differ."""
        del task
        if self.kind != "network":
            return jnp.zeros(self.dimension, jnp.float32)
        return 0.3 * jax.random.normal(jax.random.key(20), (self.dimension,), jnp.float32)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        units = (0.5 * self.units, 2.0 * self.units)
        return {"units": units, "dimension": (float(self.dimension), float(self.dimension))}

    def describe(self) -> Mapping[str, Any]:
        sources = {
            "census": "simulated countries, synthetic",
            "digits": "pairs of scikit-learn's digits " + ", ".join(map(str, self.digits)),
        }
        return {
            "source": sources[self.table],
            "loss": self.kind,
            "units": self.units,
            "records": self.records,
            "ridge": self.record_loss.ridge,
        }


Logistic = Classification
"""What ``--tasks logistic`` names, with the defaults."""


@cache
def public_pairs(digits: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Images ``(pairs, n, features)`` and labels ``(pairs, n)`` of all pairs of the digits, as many of each."""
    found = [tables.digit_pair(pair, digits) for pair in tables.digit_pairs(tuple(sorted(set(digits))))]
    least = min(len(one.y) for one in found)
    # rows come in the order of the file, which is random
    return np.stack([one.x[:least] for one in found]), np.stack([one.y[:least] for one in found])
