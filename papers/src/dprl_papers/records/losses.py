"""Losses of records for minimisation by gradients of single records: the optimisation problems of paper 002.

Privacy unit: a record. A record's contribution to a sum is a function of its own row and the public parameters. The
penalty is public and is added after the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dprl.errors import DprlError

HUBER = 0.5
"""Half width of the quadratic part of the smoothed hinge (Chaudhuri, Monteleoni and Sarwate, 2011, Section 5.2)."""


class Records(NamedTuple):
    """Rows of a public table, or of a simulation."""

    x: jax.Array
    """``(n, features)`` float32; of the quadratics ``(n, 2, 2)``, the matrices W."""
    y: jax.Array
    """``(n,)`` float32 labels -1 and 1; of the quadratics ``(n, 2)``."""


class RecordLoss(Protocol):
    """Loss of a record: a frozen dataclass of public facts, whose methods JAX can trace."""

    @property
    def dimension(self) -> int:
        """Number of parameters d."""
        ...

    def losses(self, parameters: jax.Array, records: Records) -> jax.Array:
        """Return the ``(n,)`` loss of each record, at least 0, without the penalty."""
        ...

    def gradients(self, parameters: jax.Array, records: Records) -> jax.Array:
        """Return the ``(n, d)`` gradient of each record's loss."""
        ...

    def penalty(self, parameters: jax.Array) -> jax.Array:
        """Return one record's share of the public penalty."""
        ...


@dataclass(frozen=True, kw_only=True)
class QuadraticLoss:
    """Quadratic loss ``|W theta - y|^2`` with two parameters (C.1).

    Attributes:
        ridge: ridge of the sum over all records, so that a record's share of the penalty is ``ridge/units |theta|^2``.
        units: number of records n.
    """

    ridge: float = 0.001
    units: int = 60

    @property
    def dimension(self) -> int:
        return 2

    def losses(self, parameters: jax.Array, records: Records) -> jax.Array:
        rest = records.x @ parameters - records.y
        return jnp.sum(rest * rest, axis=1)

    def gradients(self, parameters: jax.Array, records: Records) -> jax.Array:
        return 2.0 * jnp.einsum("nij,ni->nj", records.x, records.x @ parameters - records.y)

    def penalty(self, parameters: jax.Array) -> jax.Array:
        return self.ridge / self.units * jnp.sum(parameters * parameters)


@dataclass(frozen=True, kw_only=True)
class LinearLoss:
    """Loss of a linear classifier on rows of L2 norm at most 1: logistic regression, or a support vector machine.

    Attributes:
        kind: ``logistic`` for log(1 + exp(-m)), or ``svm`` for the hinge, made smooth over ``HUBER``; m is the margin.
        features: number of columns of x, the constant included.
        ridge: the penalty is ``ridge/2 |theta|^2`` per record.
    """

    features: int
    kind: Literal["logistic", "svm"] = "logistic"
    ridge: float = 0.001

    def __post_init__(self) -> None:
        if self.kind not in ("logistic", "svm"):
            raise DprlError("The loss of a linear classifier is logistic or svm.")

    @property
    def dimension(self) -> int:
        return self.features

    @property
    def lipschitz(self) -> float:
        """Largest norm of a record's gradient."""
        return 1.0

    @property
    def smoothness(self) -> float:
        """Largest eigenvalue of a record's Hessian, which has rank one."""
        return 0.25 if self.kind == "logistic" else 1.0 / (2.0 * HUBER)

    def losses(self, parameters: jax.Array, records: Records) -> jax.Array:
        margin = records.y * (records.x @ parameters)
        if self.kind == "logistic":
            return jax.nn.softplus(-margin)
        near = (1.0 + HUBER - margin) ** 2 / (4.0 * HUBER)
        return jnp.where(margin > 1.0 + HUBER, 0.0, jnp.where(margin < 1.0 - HUBER, 1.0 - margin, near))

    def slopes(self, margin: jax.Array) -> jax.Array:
        """Return the derivative of the loss by the margin, between -1 and 0."""
        if self.kind == "logistic":
            return -jax.nn.sigmoid(-margin)
        return -jnp.clip((1.0 + HUBER - margin) / (2.0 * HUBER), 0.0, 1.0)

    def curvatures(self, margin: jax.Array) -> jax.Array:
        """Return the second derivative of the loss by the margin, at most :attr:`smoothness`."""
        if self.kind == "logistic":
            return jax.nn.sigmoid(margin) * jax.nn.sigmoid(-margin)
        return jnp.where(jnp.abs(1.0 - margin) <= HUBER, 1.0 / (2.0 * HUBER), 0.0)

    def gradients(self, parameters: jax.Array, records: Records) -> jax.Array:
        slope = self.slopes(records.y * (records.x @ parameters)) * records.y
        return slope[:, None] * records.x

    def penalty(self, parameters: jax.Array) -> jax.Array:
        return 0.5 * self.ridge * jnp.sum(parameters * parameters)

    def scores(self, parameters: jax.Array, x: jax.Array) -> jax.Array:
        """Return ``(n,)`` scores, positive for label 1."""
        return x @ parameters


@dataclass(frozen=True, kw_only=True)
class NetworkLoss:
    """Cross entropy of a classifier with one hidden layer of sigmoids (C.3); the parameters are one flat vector.

    Attributes:
        features: number of columns of x, the constant included.
        hidden: number of units of the hidden layer.
        ridge: as in :class:`LinearLoss`.
    """

    features: int
    hidden: int = 20
    ridge: float = 0.001

    @property
    def dimension(self) -> int:
        return self.hidden * self.features + 2 * self.hidden + 2

    def _layers(self, parameters: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        first = self.hidden * self.features
        second = first + 2 * self.hidden
        return (
            parameters[:first].reshape(self.hidden, self.features),
            parameters[first:second].reshape(2, self.hidden),
            parameters[second:],
        )

    def scores(self, parameters: jax.Array, x: jax.Array) -> jax.Array:
        """Return ``(n,)`` scores, positive for label 1."""
        w, v, c = self._layers(parameters)
        out = jax.nn.sigmoid(x @ w.T) @ v.T + c
        return out[:, 1] - out[:, 0]

    def losses(self, parameters: jax.Array, records: Records) -> jax.Array:
        return jax.nn.softplus(-records.y * self.scores(parameters, records.x))

    def gradients(self, parameters: jax.Array, records: Records) -> jax.Array:
        """Return the gradients by written-out formulas: all of them cost only their outer products."""
        w, v, _ = self._layers(parameters)
        inner = jax.nn.sigmoid(records.x @ w.T)
        slope = -records.y * jax.nn.sigmoid(-records.y * self.scores(parameters, records.x))
        back = slope[:, None] * (v[1] - v[0]) * inner * (1.0 - inner)
        n = records.y.shape[0]
        outer = slope[:, None] * inner
        return jnp.concatenate(
            [
                (back[:, :, None] * records.x[:, None, :]).reshape(n, -1),
                -outer,
                outer,
                jnp.stack([-slope, slope], axis=1),
            ],
            axis=1,
        )

    def penalty(self, parameters: jax.Array) -> jax.Array:
        return 0.5 * self.ridge * jnp.sum(parameters * parameters)


def objective(loss: Any, parameters: jax.Array, records: Records) -> jax.Array:
    """Return the objective that is minimised: the mean loss of the records plus the penalty."""
    return jnp.mean(loss.losses(parameters, records)) + loss.penalty(parameters)


def accuracy(loss: Any, parameters: jax.Array, records: Records) -> jax.Array:
    """Return the share of the records on the right side; a record on the border counts as wrong."""
    return jnp.mean(records.y * loss.scores(parameters, records.x) > 0.0)
