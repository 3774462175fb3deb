"""DPTD as published, the same for all candidates: one transition per step, noise added to both running gradients.

Needs only NumPy. The weights of a seed are one row: theta, then w. Both are ordered by layer as in
:class:`dprl.value_functions.network.MLP`: rows of the hidden units, their biases, weights of the output, its bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HIDDEN, DISCOUNT = 50, 0.95
NU, ALPHA, OFFSET, PUSH, BOX, CLIP = 0.25, 3.0, 3.0, 2.0, 1.0, 1.0  # appendix G; the Lipschitz constant is 1
TRANSITIONS = 1000
# Steps of the comparison without noise, and the difference that rounding may make at most, relative to the largest
# weight.
CHECK_STEPS, TOLERANCE = 200, 1e-3
# seeds that run side by side; steps of one call of a batched candidate, and of a loop
SEEDS = {"cart_pole": 10, "pong": 1}
STEPS = {"cart_pole": (1000, 300), "pong": (100, 50)}
# privacy unit and steps of the verified form
VERIFIED = {"cart_pole": ("trajectory", 100), "pong": ("transition", 2)}


class Problem(NamedTuple):
    """A log of transitions, public starting weights, and the inputs of the check."""

    x: np.ndarray  # (N, k) float32 inputs of the hidden units, scaled
    x_next: np.ndarray  # (N, k)
    alive: np.ndarray  # (N,) float32, discount times whether a state follows
    reward: np.ndarray  # (N,) float32, in public units
    start: np.ndarray  # (2d,) float32
    chosen: np.ndarray  # (CHECK_STEPS, seeds) transitions of the check
    std: np.ndarray  # () standard deviation of the noise

    @property
    def size(self) -> int:
        """Number of weights, d."""
        return len(self.start) // 2

    @property
    def seeds(self) -> int:
        return self.chosen.shape[1]


def save(problem: Problem, path: str) -> None:
    np.savez(path, **problem._asdict())


def load(path: str) -> Problem:
    stored: Mapping[str, Any] = np.load(path)
    return Problem(**{name: stored[name] for name in Problem._fields})


def relaxation(step: int) -> float:
    """Return the relaxation nu_t of a step."""
    return NU / math.sqrt(step + OFFSET)


def momentum(step: int) -> float:
    """Return the weight of gradient number ``step`` in the running gradients p and d; alpha and beta are equal."""
    return 1.0 if step == 0 else min(ALPHA * relaxation(step - 1), 1.0)


def layers(row: Any, inputs: int) -> tuple[Any, Any, Any, Any]:
    """Return views of the weights ``(S, d)`` by layer: ``(S, H, k)``, ``(S, H)``, ``(S, H)``, ``(S,)``."""
    end = HIDDEN * inputs
    return (
        row[:, :end].reshape(-1, HIDDEN, inputs),
        row[:, end : end + HIDDEN],
        row[:, end + HIDDEN : end + 2 * HIDDEN],
        row[:, -1],
    )


def frames(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return ``(count, 6400)`` float32 pictures of a field with a ball and two bats, in the order of time."""
    out = np.full((count, 80, 80), 87.0, dtype=np.float32)
    for t in range(count):
        ball = np.abs((np.array([0.9, 1.3]) * t + rng.normal(0.0, 1.0, 2)) % 156.0 - 78.0).astype(int)
        out[t, ball[0] : ball[0] + 2, ball[1] : ball[1] + 2] = 236.0
        for column, grey in ((8, 130.0), (71, 147.0)):
            top = int(np.clip(ball[0] + rng.normal(0.0, 6.0), 0, 72))
            out[t, top : top + 8, column : column + 2] = grey
    return out.reshape(count, -1)


def reference_path(folder: str) -> Path:
    """Return the path of the library's weights ``(seeds, 2d)`` after the check."""
    return Path(folder) / "reference.npy"


def problem_path(folder: str) -> str:
    return str(Path(folder) / "problem.npz")
