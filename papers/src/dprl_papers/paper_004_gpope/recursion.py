"""The error of paper 004's GPOPE without clipping: a linear recursion, and its second moment, which can be computed.

Paper: Xie, Thomas, Miklau, "Privacy Preserving Off-Policy Evaluation" (2019), Eq. (2.1), (4.1), (6.1), (6.2), (C.1).
Errata: docs/papers/004.md. Everything is in the units in which GPOPE runs: any ``A, b, C`` that belong together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dprl.bounds import Interval
from dprl.engine.columns import scale_of
from dprl.engine.rows import Rows
from dprl.errors import DprlError

Moments = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Recursion:
    """The saddle-point problem of Eq. (2.1) and GPOPE's error without clipping, which obeys (C.1):

        xi_{i+1} = (I - beta Q) xi_i + beta Delta_i,        xi = (theta - theta*, w - w*).

    Attributes:
        A, b, C: ``(n, n)``, ``(n,)``, ``(n, n)``.
        start: ``(2n,)`` theta_1 and w_1; ``(n,)`` means that w_1 is zero. By default both are.
    """

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray
    start: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        n = len(self.b)
        if len(self.start) not in (0, n, 2 * n):
            raise DprlError(f"The start of the recursion must have {n} or {2 * n} components.")
        object.__setattr__(self, "start", np.concatenate([self.start, np.zeros(2 * n - len(self.start))]))

    @property
    def features(self) -> int:
        return len(self.b)

    @cached_property
    def Q(self) -> np.ndarray:  # noqa: N802
        """``(2n, 2n)``, Eq. (6.2): ``[[0, -A'], [A, C]]``, which is not symmetric (erratum E10)."""
        return np.block([[np.zeros_like(self.C), -self.A.T], [self.A, self.C]])

    @cached_property
    def metric(self) -> np.ndarray:
        """``(n, n)`` A' C^+ A: MSPBE(theta) = MSPBE(theta*) + (theta - theta*)' metric (theta - theta*)."""
        return self.A.T @ np.linalg.pinv(self.C) @ self.A

    @cached_property
    def theta(self) -> np.ndarray:
        """``(n,)`` theta* of Eq. (6.1), of least norm where A is singular."""
        root = np.linalg.pinv(_root(self.C))  # least squares of C^(-1/2) (A theta - b): no squared condition
        return np.linalg.lstsq(root @ self.A, root @ self.b, rcond=None)[0]

    @cached_property
    def w(self) -> np.ndarray:
        """``(n,)`` w* = C^+ (b - A theta*): Eq. (6.1) as it must be (erratum E9)."""
        return np.linalg.pinv(self.C) @ (self.b - self.A @ self.theta)

    @cached_property
    def w_printed(self) -> np.ndarray:
        """``(n,)`` C^+ (b - A' theta*), as Eq. (6.1) is printed."""
        return np.linalg.pinv(self.C) @ (self.b - self.A.T @ self.theta)

    def condition_residual(self, w: np.ndarray) -> float:
        """Return norm of what (theta*, w) leaves of the optimality condition Q (theta, w) = (0, b)."""
        n = self.features
        return float(np.linalg.norm(self.Q @ np.concatenate([self.theta, w]) - np.r_[np.zeros(n), self.b]))

    @cached_property
    def xi(self) -> np.ndarray:
        """``(2n,)`` the error at the start."""
        return self.start - np.concatenate([self.theta, self.w])

    @cached_property
    def eigenvalues(self) -> Any:
        """``(2n,)`` of Q: complex in general (erratum E11)."""
        return np.linalg.eigvals(self.Q)

    @property
    def smallest(self) -> float:
        """The smallest real part, which is what the theorems' lambda_min(Q) can mean."""
        return float(self.eigenvalues.real.min())

    @property
    def largest(self) -> float:
        """The largest modulus, which is what lambda_max(Q) in the condition beta <= 1/lambda_max(Q) can mean."""
        return float(np.abs(self.eigenvalues).max())

    @property
    def largest_stable_step(self) -> float:
        """The supremum of the step sizes at which the recursion forgets its start: |1 - beta lambda| < 1 for all."""
        moving = self.eigenvalues[self.eigenvalues != 0.0]
        return max(0.0, float((2.0 * moving.real / np.abs(moving) ** 2).min()))

    def mspbe(self, theta: np.ndarray) -> float:
        """Return (b - A theta)' C^+ (b - A theta)."""
        residual = self.b - self.A @ theta
        return float(residual @ np.linalg.pinv(self.C) @ residual)

    def constants(self) -> dict[str, float]:
        """Return numbers of errata E9 to E11 at beta = 1/lambda_max(Q), the largest step that Lemma 2 allows."""
        beta = 1.0 / self.largest
        contraction = np.eye(2 * self.features) - beta * self.Q
        return {
            "features": self.features,
            "lambda_min": self.smallest,
            "lambda_max": self.largest,
            "lambda_min of A'C^-1A": float(np.linalg.eigvalsh(self.metric)[0]),
            "lambda_max of A'C^-1A": float(np.linalg.eigvalsh(self.metric)[-1]),
            "complex eigenvalues": int(np.sum(np.abs(self.eigenvalues.imag) > 1e-12 * self.largest)),
            "condition of the eigenvectors": float(np.linalg.cond(np.linalg.eig(self.Q)[1])),
            "step size": beta,
            "largest stable step size": self.largest_stable_step,
            "norm of I - beta Q": float(np.linalg.norm(contraction, 2)),
            "radius of I - beta Q": float(np.abs(1.0 - beta * self.eigenvalues).max()),
            "norm of I - beta Q by Lemma 2": 1.0 - beta * self.smallest,
            "norm of theta*": float(np.linalg.norm(self.theta)),
            "norm of w*": float(np.linalg.norm(self.w)),
            "norm of w* as printed": float(np.linalg.norm(self.w_printed)),
            "residual": self.condition_residual(self.w),
            "residual as printed": self.condition_residual(self.w_printed),
            "squared error at the start": float(self.xi @ self.xi),
            "MSPBE at the start": self.mspbe(self.start[: self.features]),
        }


def public_units(moments: Moments, constant: np.ndarray, value: Interval) -> Moments:
    """Return ``A, b, C`` of ``V = theta' phi`` as those of ``V = centre + half * theta' phi``, the units of a release.

    ``moments`` are in the reward's unit, ``constant`` ``(n,)`` the weights of the function that is 1 everywhere. An
    MSPBE of the result is that of the reward's unit over ``half**2``.
    """
    A, b, C = moments
    centre, half = scale_of(value)
    return A, (b - A @ (centre * constant)) / half, C


def gradient_variance(rows: Rows, start: np.ndarray) -> float:
    """Return E|B_i(theta, w) - B(theta, w)|^2 over the units of a log at ``start`` ``(2n,)``, Eq. (4.1).

    Assumption 1 wants one bound G^2 for every iterate. There is none, for B_i is linear in the iterate (E12): this is
    its value at the start, which the curves use.
    """
    n = rows.phi.shape[1]
    phi, delta = rows.phi[:-1].astype(np.float64), rows.delta_phi[:-1].astype(np.float64)
    weight, rho, reward = (x[:-1].astype(np.float64) for x in (rows.weight, rows.rho, rows.reward))
    u = phi @ start[n:]
    primal = -(weight * rho * u)[:, None] * delta
    dual = (weight * (rho * (delta @ start[:n] - reward) + u))[:, None] * phi
    gradients = np.zeros((len(rows.offsets) - 1, 2 * n))
    filled = np.flatnonzero(np.diff(rows.offsets))
    gradients[filled] = np.add.reduceat(np.concatenate([primal, dual], axis=1), rows.offsets[filled], axis=0)
    return float(((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).mean())


class SecondMoment(NamedTuple):
    """E|xi_{N+1}|^2 and the expected MSPBE after N updates; infinite where they overflow (an unstable step size)."""

    distance: float
    mspbe: float


def second_moment(recursion: Recursion, step_size: float, updates: int, noise_std: float) -> SecondMoment:
    """Return the error of the recursion (C.1) with Gaussian noise of ``noise_std`` on each coordinate.

    With B = I - beta Q and any W (the identity for |xi|^2, ``metric`` on theta for the MSPBE):

        E xi'W xi = xi_1' (B^N)' W B^N xi_1 + beta^2 std^2 tr T_N,     T_N = sum_{j<N} (B^j)' W B^j,

    the partial sum of the discrete Lyapunov equation T = W + B'T B, by doubling: no step size is too large for it.
    It is exact for full batches without clipping, averaging or projection. With one trajectory a step it is a lower
    bound, as the noise of the draw is left out: that adds a positive semidefinite matrix at every step.

    Args:
        recursion: the recursion, in the units in which the noise is added.
        step_size: beta.
        updates: N.
        noise_std: of the gradient's mean: h sigma with one trajectory a step, z C/(q m) with batches.
    """
    n = recursion.features
    metric = np.zeros((2 * n, 2 * n))
    metric[:n, :n] = recursion.metric
    found = []
    with np.errstate(all="ignore"):  # an unstable recursion overflows: infinite
        for weight, least in ((np.eye(2 * n), 0.0), (metric, recursion.mspbe(recursion.theta))):
            # B^k and T_k for k = 1, 2, 4, ..., of which those in N's binary digits make B^N and T_N
            power, part, last, whole = np.eye(2 * n) - step_size * recursion.Q, weight, np.eye(2 * n), 0.0 * weight
            for digit in reversed(f"{updates:b}"):
                if digit == "1":
                    whole, last = whole + last.T @ part @ last, power @ last
                part, power = part + power.T @ part @ power, power @ power
            xi = last @ recursion.xi
            error = least + float(xi @ weight @ xi) + (step_size * noise_std) ** 2 * float(np.trace(whole))
            found.append(error if math.isfinite(error) else math.inf)
    return SecondMoment(*found)


def _root(C: np.ndarray) -> np.ndarray:
    """Return symmetric square root of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(C)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
