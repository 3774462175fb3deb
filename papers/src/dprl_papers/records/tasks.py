"""Paper 002's own tasks on records, on which a protector can be learned: quadratics and classifiers. All are public.

Quadratics (C.1): ``f(theta) = sum_i |W_i theta - y_i|^2 + 0.001 |theta|^2`` over 60 records with normal W_i and y_i; a
task is a draw of all of them. As printed, y_i is independent of W_i, so every task's minimiser lies within about 0.1 of
the origin, and anybody who knows the family needs no data. ``spread`` gives each task its own centre:
``y_i = W_i centre + normal``.

Classification (C.2, C.3), linear or by a small network: a task is a table of records with two classes, which are a pair
of public digits, or the incomes in a simulated country (``tables.py``).

Where dprl-papers is installed, ``dprl learn-protector`` takes them as ``--tasks quadratics`` and ``--tasks logistic``.
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
from dprl.protectors.projector import HandSchedule
from dprl.protectors.simulation import seeded_noise, unit_sum
from dprl_papers.records import tables
from dprl_papers.records.losses import LinearLoss, NetworkLoss, QuadraticLoss, RecordLoss, Records, objective

OTHERS = (0, 1, 2, 4, 6, 7, 8, 9)
"""The digits that are public; 3 and 5 are the private ones of the experiments."""
START = (3.0, -2.0)
"""The paper has one start for all quadratics, and does not say which."""


class RecordTasks:
    """A :class:`~dprl.protectors.tasks.TaskFamily`, except that its tasks are :class:`Records`."""

    @property
    def algorithm(self) -> str:
        """Name of what a protector of these tasks serves: descents on records, which ``dprl evaluate`` does not run."""
        return "records"

    @property
    def record_loss(self) -> RecordLoss:
        raise NotImplementedError

    @property
    def hand(self) -> HandSchedule:
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        return self.record_loss.dimension

    @property
    def blocks(self) -> tuple[int, ...]:
        return (0,) * self.dimension

    def natural_clip(self, clip_norm: Any) -> Any:
        return clip_norm

    def mean_gradient(self, task: Records, parameters: jax.Array, key: jax.Array, clip: Any) -> jax.Array:
        """Return ``(d,)`` float32: a batch's clipped gradients over ``q n C``, plus the penalty's gradient over C."""
        rate, loss, units = self.hand.sampling_rate, self.record_loss, task.y.shape[0]
        mechanism = unit_sum(loss.dimension, rate)
        # a batch of all records needs no coins
        word = jax.random.bits(key, dtype=jnp.uint32) if rate < 1.0 else 0
        included = mechanism.participation_mask(seeded_noise(word), 0, units)
        total = mechanism.clipped_sum(loss.gradients(parameters, task) / clip, included)
        return (total / (units * rate) + jax.grad(loss.penalty)(parameters) / clip).astype(jnp.float32)

    def project(self, parameters: jax.Array) -> jax.Array:
        return parameters

    def loss(self, task: Records, parameters: jax.Array) -> jax.Array:
        """Return the mean loss over the records, penalty included."""
        return objective(self.record_loss, parameters, task)

    def reference(self, task: Records) -> jax.Array:
        del task
        return jnp.ones((), jnp.float32)


@dataclass(frozen=True, kw_only=True)
class Quadratics(RecordTasks):
    """Family of quadratic tasks.

    Attributes:
        units: number of records for which a task's noise is calibrated.
        terms: number of terms of the sum; each stands for ``units / terms`` records.
        spread: standard deviation of a coordinate of the tasks' centres; 0 as printed.
        steps: number of steps of the hand schedule.
        clip_norm: clip norm of a record's gradient.
        step_size: step size of the hand schedule, for the mean gradient.
        tail, walk: tail and walk of the hand schedule.
    """

    units: int = 60
    terms: int = 60
    spread: float = 1.0
    steps: int = 60
    clip_norm: float = 4.0
    step_size: float = 0.02
    tail: float = 0.0
    walk: float | None = None

    @property
    def name(self) -> str:
        return "quadratics"

    @property
    def record_loss(self) -> QuadraticLoss:
        return QuadraticLoss(units=self.terms)

    @property
    def hand(self) -> HandSchedule:
        return HandSchedule(
            steps=self.steps,
            sampling_rate=1.0,
            clip_norm=self.clip_norm,
            step_sizes=(self.step_size,),
            tail=self.tail,
            walk=self.walk,
        )

    def sample(self, key: jax.Array) -> Records:
        """Return a task: ``(n, 2, 2)`` matrices and ``(n, 2)`` targets, float32."""
        matrices, targets, centre = jax.random.split(key, 3)
        x = jax.random.normal(matrices, (self.terms, 2, 2), jnp.float32)
        y = jax.random.normal(targets, (self.terms, 2), jnp.float32)
        return Records(x, y + x @ (self.spread * jax.random.normal(centre, (2,), jnp.float32)))

    def initial(self, task: Records) -> jax.Array:
        del task
        return jnp.asarray(START, jnp.float32)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"units": (float(self.units), float(self.units)), "dimension": (2.0, 2.0)}

    def describe(self) -> Mapping[str, Any]:
        return {
            "source": "simulated: normal matrices and targets",
            "units": self.units,
            "terms": self.terms,
            "spread": self.spread,
            "ridge": self.record_loss.ridge,
            "start": list(START),
        }


@dataclass(frozen=True, kw_only=True)
class Classification(RecordTasks):
    """Family of classification tasks.

    Attributes:
        kind: kind of loss: ``logistic``, ``svm``, or ``network`` with 20 hidden units.
        table: ``census`` (simulated countries) or ``digits``.
        digits: public digits; a task is a pair of them.
        units: declared number of records of the protected table.
        records: number of records of a task, which represent the declared number.
        clip_norm: clip norm of a record's gradient.
        steps, step_size, decay, tail, walk: numbers of the hand schedule.
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
    def hand(self) -> HandSchedule:
        return HandSchedule(
            steps=self.steps,
            sampling_rate=1.0,
            clip_norm=self.clip_norm,
            step_sizes=(self.step_size,),
            decay=self.decay,
            tail=self.tail,
            walk=self.walk,
        )

    def sample(self, key: jax.Array) -> Records:
        """Return a task: ``(records, features)`` rows of norm at most 1, and labels, float32."""
        which, people = jax.random.split(key)
        if self.table == "census":
            return tables.census(which, people, self.records)
        x, y = (jnp.asarray(a) for a in public_pairs(self.digits))
        pair = jax.random.randint(which, (), 0, len(x))
        rows = jax.random.permutation(people, x.shape[1])[: self.records]
        return Records(x[pair, rows], y[pair, rows])

    def initial(self, task: Any = None) -> jax.Array:
        """Return zeros; for a network, public random weights, which make its units differ."""
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
"""Family that ``--tasks logistic`` names, with the defaults."""


@cache
def public_pairs(digits: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return images ``(pairs, n, features)`` and labels ``(pairs, n)`` of all pairs of digits, as many of each."""
    found = [tables.digit_pair(pair, digits) for pair in tables.digit_pairs(tuple(sorted(set(digits))))]
    least = min(len(one.y) for one in found)
    # rows keep the order of the file, which is random
    return np.stack([one.x[:least] for one in found]), np.stack([one.y[:least] for one in found])
