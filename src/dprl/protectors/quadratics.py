"""Two-parameter quadratics of paper 002 (C.1), as public tasks for a protector.

``f(theta) = sum_i |W_i theta - y_i|^2 + 0.001 |theta|^2`` over 60 records with normal W_i and y_i; a task is a draw
of all of them. As printed y_i knows nothing of W_i, so that every task's minimiser lies within about 0.1 of the
origin: whoever has seen the family needs no data. ``spread`` gives each task a centre of its own, ``y_i = W_i centre
+ normal``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dprl.protectors.projector import Hand
from dprl.protectors.record_losses import QuadraticLoss, Records
from dprl.protectors.record_tasks import RecordTasks

START = (3.0, -2.0)
"""The paper has one start for all tasks, and does not say which."""


@dataclass(frozen=True, kw_only=True)
class Quadratics(RecordTasks):
    """The family.

    Attributes:
        units: records that a task's noise is made for.
        terms: of the sum; ``units / terms`` records stand behind each.
        spread: standard deviation of a coordinate of the tasks' centres; 0 as printed.
        steps: of the hand schedule.
        clip_norm: of a record's gradient.
        step_size: of the hand schedule, for the mean gradient.
        tail, walk: of the hand schedule.
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
    def hand(self) -> Hand:
        return Hand(
            steps=self.steps,
            sampling_rate=1.0,
            clip_norm=self.clip_norm,
            step_sizes=(self.step_size,),
            tail=self.tail,
            walk=self.walk,
        )

    def sample(self, key: jax.Array) -> Records:
        """A task: ``(n, 2, 2)`` matrices and ``(n, 2)`` targets, float32."""
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
