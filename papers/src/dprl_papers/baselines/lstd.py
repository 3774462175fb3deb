"""LSTD and its off-policy form: non-private references, and the exact limit of GPOPE without noise.

Method: Bradtke and Barto (1996), off-policy with per-step importance ratios.
Not private: it must never be released from real people's data.
"""

from __future__ import annotations

import numpy as np

from dprl.engine.rows import Rows


def moments(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, b, C of paper 004, Eq. (2.1)-(2.2): means over units of the weighted sums over transitions, in float64.

    Returns:
        A ``(n, n)``, b ``(n,)``, C ``(n, n)``.
    """
    units = max(len(rows.offsets) - 1, 1)
    phi, delta = rows.phi.astype(np.float64), rows.delta_phi.astype(np.float64)
    weight, rho, reward = (x.astype(np.float64) / 1.0 for x in (rows.weight, rows.rho, rows.reward))
    A = phi.T @ ((weight * rho)[:, None] * delta) / units
    b = phi.T @ (weight * rho * reward) / units
    C = phi.T @ (weight[:, None] * phi) / units
    return A, b, C


def lstd(rows: Rows, ridge: float = 0.0) -> np.ndarray:
    """Return the weights ``(n,)`` that solve A theta = b: the fixed point that GPOPE approaches without noise."""
    A, b, _ = moments(rows)
    return np.linalg.lstsq(A + ridge * np.eye(len(b)), b, rcond=None)[0]


def mspbe(theta: np.ndarray, A: np.ndarray, b: np.ndarray, C: np.ndarray) -> float:
    """Return the mean squared projected Bellman error of ``theta``: (b - A theta)' C^+ (b - A theta)."""
    residual = b - A @ theta
    return float(residual @ np.linalg.pinv(C) @ residual)
